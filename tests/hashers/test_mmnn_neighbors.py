"""MMNN with the ranking loss learns the neighborhoods of the features it is given."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit import MMNN, DataError, Pairs
from crossbit.data import training_set
from crossbit.neural.splits import Subset
from crossbit.neural.supervision import supervision_of

random = np.random.default_rng(0)
Z = random.normal(size=(700, 6))
X = np.tanh(Z @ random.normal(size=(6, 20))) + 0.05 * random.normal(size=(700, 20))
TRAIN, NEW = X[:500], X[500:]


def recall(model_codes: NDArray[Any], k: int = 10) -> float:
    """Share of the k nearest new rows (cosine) among the k nearest codes."""
    unit = NEW / np.linalg.norm(NEW, axis=1, keepdims=True)
    found = []
    for S in (unit @ unit.T, model_codes @ model_codes.T):
        np.fill_diagonal(S, -np.inf)
        found.append(np.argsort(-S, axis=1, kind="stable")[:, :k])
    return float(np.mean([len(np.intersect1d(a, b)) / k for a, b in zip(*found, strict=True)]))


def test_one_modality_learns_its_neighborhoods() -> None:
    hasher = MMNN(n_bits=24, steps=40, loss="ranking", inputs="unit+standardize")
    model = hasher.fit({"text": TRAIN}, neighbors="cosine")
    bits = np.where(model.encode("text", NEW).unpack(), 1.0, -1.0)
    assert recall(bits) > 0.3  # by chance 0.05
    assert model.card["data"]["neighbors of text"] == "10 nearest by cosine of 500 rows"
    assert model.card["training"]["validated by"] == "mean average precision of the nearest rows"
    unit = TRAIN[:4] / np.linalg.norm(TRAIN[:4], axis=1, keepdims=True)
    assert model.encode("text", 3 * TRAIN[:4]) == model.encode("text", unit)  # cosine: no lengths


def test_a_batch_has_near_rows_and_their_similarity_is_a_gaussian_of_the_distance() -> None:
    data = training_set({"text": TRAIN}, neighbors="euclidean(5)")
    (near,) = supervision_of(Subset.whole(data))
    assert near.kind == "neighbors"
    index, similar = near.draw(64, np.random.default_rng(0))
    assert similar.any()
    assert not similar.all()
    rows = np.unique(index)
    dense = near.dense(rows, rows)
    squares = np.square(TRAIN[rows][:, None] - TRAIN[rows]).sum(axis=2)
    nearest = np.sort(np.square(TRAIN[:, None] - TRAIN).sum(axis=2), axis=1)
    kth = nearest[:, 5].mean()  # column 0 is the row itself
    expected = np.exp(-squares / (0.15 * kth))
    np.testing.assert_allclose(dense.similar.numpy(), expected, atol=1e-4)
    assert dense.mask is not None
    assert not dense.mask.diagonal().any()


@pytest.mark.parametrize("kind", ["labels", "pairs", "aligned"])
def test_neighbors_mix_with_other_supervision(kind: str) -> None:
    views = {"image": TRAIN[:120], "text": TRAIN[:120, :8]}
    index = np.stack([np.arange(120), (np.arange(120) * 7) % 120], axis=1)
    others: dict[str, dict[str, Any]] = {
        "labels": {"labels": np.arange(120) % 3},
        "pairs": {"pairs": Pairs("image", "text", index, np.arange(120) % 2 == 0)},
        "aligned": {"aligned": True},
    }
    model = MMNN(n_bits=8, steps=10, loss="ranking").fit(
        views, neighbors={"image": "cosine(3)"}, **others[kind]
    )
    assert model.card["data"]["neighbors of image"] == "3 nearest by cosine of 120 rows"
    assert "neighbors of text" not in model.card["data"]


def test_pairs_within_a_modality_join_the_neighbors() -> None:
    index = np.stack([np.arange(0, 300, 2), np.arange(1, 300, 2)], axis=1)
    same = Pairs("text", "text", index, np.ones(150, np.bool_))
    hasher = MMNN(n_bits=8, steps=5, loss="ranking")
    model = hasher.fit({"text": TRAIN[:300]}, neighbors="cosine(3)", pairs=same)
    assert model.card["training"]["validated by"] == "mean average precision of the nearest rows"


@pytest.mark.parametrize(
    "options",
    [
        {"loss": "ranking", "optimizer": "cg"},
        {"loss": "ranking", "optimizer": "adam", "batch": 20},
        {"loss": "ranking", "online": True},
        {"loss": "precision"},
    ],
)
def test_optimizers_and_losses_that_take_neighbors(options: dict[str, Any]) -> None:
    hasher = MMNN(n_bits=8, steps=5, **options)
    assert hasher.fit({"text": TRAIN[:80]}, neighbors="euclidean(3)").n_bits == 8


def test_a_checkpoint_of_other_neighbors_is_rejected(tmp_path: Path) -> None:
    hasher = MMNN(n_bits=8, steps=5, loss="ranking")
    hasher.fit({"text": TRAIN[:80]}, neighbors="cosine(3)", checkpoint=tmp_path / "c")
    with pytest.raises(DataError, match="a checkpoint of another training"):
        hasher.fit({"text": TRAIN[:80]}, neighbors="euclidean(3)", checkpoint=tmp_path / "c")
