from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit import DataError, DiffHash, HashModel, Pairs, hamming
from crossbit.data import synthetic, training_set
from crossbit.hashers._pairwise import PairedRows
from crossbit.model import Affine

Array = NDArray[Any]


def directions(model: HashModel, name: str) -> Array:
    layer = model.encoders[name][0]
    assert isinstance(layer, Affine)
    return np.asarray(layer.weight, np.float64)


def separated(model: HashModel, views: Any, labels: Array) -> float:  # noqa: ANN401
    """How much nearer items of one class are, as a share of the bits."""
    d = hamming(model.encode("image", views["image"]), model.encode("text", views["text"])).astype(
        float
    )
    same = labels[:, None] == labels
    return float(d[~same].mean() - d[same].mean()) / model.n_bits


@pytest.mark.parametrize("alpha", [1.0, 3.0])
def test_directions_are_singular_vectors_of_the_difference_of_covariances(alpha: float) -> None:
    data = synthetic(n=200, classes=4, modalities={"image": 8, "text": 6}, seed=0)
    random = np.random.default_rng(0)
    pairs = Pairs("image", "text", random.integers(0, 200, (900, 2)), random.random(900) < 0.3)
    X, Y = (
        np.asarray(data.views[name]) - np.mean(data.views[name], axis=0)
        for name in ("image", "text")
    )
    i, j = pairs.index.T
    of = {
        kind: X[i[pairs.similar == kind]].T @ Y[j[pairs.similar == kind]] for kind in (True, False)
    }
    C = of[True] / pairs.similar.sum() - alpha * of[False] / (~pairs.similar).sum()
    model = DiffHash(n_bits=6, alpha=alpha).fit(data.views, pairs=pairs)
    P, Q = directions(model, "image"), directions(model, "text")
    np.testing.assert_allclose(P.T @ C @ Q, np.diag(np.linalg.svd(C, compute_uv=False)), atol=1e-4)


def test_the_weight_of_dissimilar_pairs_is_alpha() -> None:
    data = synthetic(n=100, classes=4, seed=0)
    rows = PairedRows.of(
        training_set(data.views, labels=data.labels), n_similar=50, n_dissimilar=200, seed=0
    )
    weights = rows.balanced_weights(3.0)
    assert weights.sum() == pytest.approx(1)
    assert weights[rows.signs < 0].sum() == pytest.approx(3 * weights[rows.signs > 0].sum())


@pytest.mark.parametrize("supervision", ["labels", "aligned"])
def test_items_of_one_class_are_near_in_unseen_data(supervision: str) -> None:
    data = synthetic(n=600, classes=5, seed=1)
    labels, train, test = np.asarray(data.labels), slice(0, 400), slice(400, 600)
    hasher = DiffHash(n_bits=4, n_dissimilar=20_000)  # five centered classes span four directions
    views = {name: view[train] for name, view in data.views.items()}
    model = hasher.fit(views, labels=labels[train] if supervision == "labels" else None)
    assert (
        separated(model, {name: view[test] for name, view in data.views.items()}, labels[test])
        > 0.2
    )


def test_a_direction_is_reused_with_other_thresholds() -> None:
    data = synthetic(n=300, classes=6, modalities={"image": 8, "text": 3}, seed=0)
    model = DiffHash(n_bits=9).fit(data.views, labels=data.labels)
    P = directions(model, "image")
    np.testing.assert_allclose(P[:, :3], P[:, 3:6])
    bits = np.concatenate([model.encode(name, view).unpack() for name, view in data.views.items()])
    assert len(np.unique(bits, axis=1).T) == 9  # no two bits are the same
    assert separated(model, data.views, np.asarray(data.labels)) > 0.05


def test_shorter_codes_are_the_first_bits_of_longer_ones() -> None:
    data = synthetic(n=200, classes=4, modalities={"image": 8, "text": 5}, seed=0)
    longest = DiffHash(n_bits=18).fit(data.views, labels=data.labels)
    for n_bits in (3, 5, 8):
        model = DiffHash(n_bits=n_bits).fit(data.views, labels=data.labels)
        for name, view in data.views.items():
            assert longest.encode(name, view).truncate(n_bits) == model.encode(name, view)


@pytest.mark.parametrize("wrong", [0, 5])
def test_a_direction_with_one_threshold_repeats_its_bit(wrong: int) -> None:
    """Features of two values have one threshold, so all bits are equal, right or nearly right."""
    side = np.arange(10) % 2
    views = {"image": side[:, None].astype(float), "text": side[:, None].astype(float)}
    index = np.array([(i, j) for i in range(10) for j in range(10)])
    similar = side[index[:, 0]] == side[index[:, 1]]
    similar[:wrong] ^= True
    model = DiffHash(n_bits=5).fit(views, pairs=Pairs("image", "text", index, similar))
    assert separated(model, views, side) == pytest.approx(1)


def test_constant_features_are_rejected() -> None:
    views = {"image": np.ones((20, 3)), "text": np.ones((20, 2))}
    with pytest.raises(
        DataError,
        match="diffhash: no direction of 'image' and 'text' separates similar from diss",
    ):
        DiffHash().fit(views, labels=np.arange(20) % 2)


@pytest.mark.parametrize("alpha", [0, -1.0])
def test_a_wrong_alpha_is_rejected(alpha: float) -> None:
    data = synthetic(n=50, seed=0)
    with pytest.raises(DataError, match=r"diffhash: alpha must be .*, got"):
        DiffHash(alpha=alpha).fit(data.views, labels=data.labels)
