from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit import CCAITQ, DataError, Pairs, hamming
from crossbit._progress import Step
from crossbit.linalg.cca import CCA

Array = NDArray[Any]


def shared_latent(n: int = 400, noise: float = 0.3, seed: int = 0) -> dict[str, Array]:
    """Three linear views of one latent variable, each with private columns."""
    random = np.random.default_rng(seed)
    Z = random.normal(size=(n, 6))
    return {
        name: np.concatenate([Z @ random.normal(size=(6, d)), random.normal(size=(n, 4))], axis=1)
        + noise * random.normal(size=(n, d + 4))
        for name, d in (("image", 12), ("text", 8), ("sound", 10))
    }


def rank_of_own_row(model: Any, views: dict[str, Array], left: str, right: str) -> float:  # noqa: ANN401
    """Mean share of other items that are nearer than the item's own counterpart; ½ is chance."""
    d = hamming(model.encode(left, views[left]), model.encode(right, views[right])).astype(int)
    own = np.diag(d)[:, None]
    return float(((d < own).sum(1) + ((d == own).sum(1) - 1) / 2).mean() / (len(d) - 1))


def test_directions_are_the_canonical_ones() -> None:
    """Against scikit-learn's CCA, which uses another algorithm."""
    from sklearn import cross_decomposition

    views = {name: shared_latent()[name] for name in ("image", "text")}
    index = np.repeat(np.arange(400)[:, None], 2, axis=1)
    cca = CCA(views, {("image", "text"): index}, standardize=True)
    W = cca.directions(3, regularization=1e-9, power=0)
    A, B = ((views[name] - cca.mean[name]) @ W[name] for name in views)
    ours = [np.corrcoef(A[:, i], B[:, i])[0, 1] for i in range(3)]
    reference = cross_decomposition.CCA(n_components=3, max_iter=5000, tol=1e-12)
    U, V = reference.fit_transform(views["image"], views["text"])
    theirs = [np.corrcoef(U[:, i], V[:, i])[0, 1] for i in range(3)]
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    np.testing.assert_allclose(A.std(axis=0), 1, atol=1e-3)


@pytest.mark.parametrize("n_bits", [8, 32])
def test_a_row_finds_its_counterpart_in_any_modality(n_bits: int) -> None:
    train = shared_latent()
    test = shared_latent()
    model = CCAITQ(n_bits=n_bits).fit(train)
    for left in train:
        for right in set(train) - {left}:
            assert rank_of_own_row(model, test, left, right) < 0.1


def test_the_rotation_never_gets_worse() -> None:
    steps: list[Step] = []
    CCAITQ(n_bits=8, rounds=30).fit(shared_latent(), on_step=steps.append)
    losses = [step.loss for step in steps if step.loss is not None]
    assert len(losses) == 30
    assert all(after <= before + 1e-9 for before, after in pairwise(losses))


def test_similar_pairs_work_like_aligned_rows() -> None:
    views = shared_latent()
    order = np.random.default_rng(1).permutation(400)
    shuffled = {"image": views["image"], "text": views["text"][order]}
    index = np.stack([order, np.arange(400)], axis=1)
    away = np.stack([order, np.roll(np.arange(400), 1)], axis=1)
    pairs = Pairs("image", "text", np.concatenate([index, away]), np.arange(800) < 400)
    model = CCAITQ(n_bits=16).fit(shuffled, pairs=pairs)
    assert rank_of_own_row(model, views, "image", "text") < 0.1
    reversed_pairs = Pairs("text", "image", pairs.index[:, ::-1], pairs.similar)
    assert (
        CCAITQ(n_bits=16).fit(shuffled, pairs=reversed_pairs).fingerprint() == model.fingerprint()
    )


def test_missing_rows_still_link_the_others() -> None:
    views = {name: view.copy() for name, view in shared_latent(800).items()}
    views["image"][:300] = np.nan
    views["text"][500:] = np.nan
    model = CCAITQ(n_bits=16).fit(views)
    assert rank_of_own_row(model, shared_latent(800), "image", "text") < 0.1


def test_a_modality_that_nothing_links_is_named() -> None:
    views = shared_latent()
    index = np.repeat(np.arange(400)[:, None], 2, axis=1)
    pairs = Pairs("image", "text", index, np.ones(400, bool))
    with pytest.raises(DataError, match="nothing links 'sound' to another modality"):
        CCAITQ().fit(views, pairs=pairs)


def test_scales_of_columns_do_not_matter() -> None:
    views = shared_latent()
    stretched = {
        name: view * np.geomspace(1e-6, 1e6, view.shape[1]) + 1e3 for name, view in views.items()
    }
    model = CCAITQ(n_bits=16).fit(stretched)
    assert rank_of_own_row(model, stretched, "image", "text") < 0.1


def test_wide_rows_cost_no_more_than_their_number() -> None:
    """Directions lie in the span of the rows: 60,000 columns cost no more than 40 rows."""
    random = np.random.default_rng(0)
    wide = {name: random.normal(size=(40, 60_000)) for name in ("image", "text")}
    model = CCAITQ(n_bits=8).fit(wide)
    assert model.encode("image", wide["image"]).n_bits == 8


def test_aligned_rows_and_the_same_rows_as_pairs_give_one_model() -> None:
    views = {name: shared_latent()[name] for name in ("image", "text")}
    index = np.repeat(np.arange(400)[:, None], 2, axis=1)
    by_pairs = CCAITQ(n_bits=16).fit(views, pairs=Pairs("image", "text", index, np.ones(400, bool)))
    agreement = CCAITQ(n_bits=16).fit(views).encode("image", views["image"]).unpack()
    assert np.mean(agreement == by_pairs.encode("image", views["image"]).unpack()) > 0.99


def test_held_out_links_choose_the_regularization() -> None:
    random = np.random.default_rng(0)
    latent = random.normal(size=(500, 8))
    views = {
        name: latent @ random.normal(size=(8, d)) + 2 * random.normal(size=(500, d))
        for name, d in (("image", 40), ("text", 30))
    }
    train = {name: view[:300] for name, view in views.items()}
    new = {name: view[300:] for name, view in views.items()}
    model = CCAITQ(n_bits=24).fit(train)
    small = CCAITQ(n_bits=24, regularization=0.01).fit(train)
    assert model.card["regularization"] > 0.05
    chosen = rank_of_own_row(model, new, "image", "text")
    assert chosen < 0.8 * rank_of_own_row(small, new, "image", "text")
    few = {name: view[:30] for name, view in views.items()}
    assert CCAITQ(n_bits=8).fit(few).card["regularization"] == 0.1


def test_a_regularization_below_zero_is_rejected() -> None:
    with pytest.raises(
        DataError, match="regularization must be a finite number of at least 0 or None, got -1"
    ):
        CCAITQ(regularization=-1).fit(shared_latent())
