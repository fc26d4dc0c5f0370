from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit import CMSSH, DataError, HashModel, Pairs, hamming, mean_average_precision
from crossbit._progress import Step
from crossbit.data import TrainingSet, synthetic, training_set
from crossbit.hashers._pairwise import Boosting, PairedRows
from crossbit.hashers.cmssh import _leading_bit
from crossbit.linalg.pca import singular_pairs
from crossbit.metrics import from_labels

Array = NDArray[Any]


def small(dtype: str = "f8", widths: tuple[int, int] = (9, 5)) -> TrainingSet:
    data = synthetic(
        n=150, classes=4, modalities=dict(zip(("image", "text"), widths, strict=True)), seed=3
    )
    assert data.labels is not None
    views = {name: np.asarray(view, dtype) for name, view in data.views.items()}
    return training_set(views, labels=data.labels)


def paired(data: TrainingSet, n: int = 400) -> PairedRows:
    return PairedRows.of(data, n_similar=n, n_dissimilar=2 * n, seed=0)


@pytest.mark.parametrize("widths", [(9, 5), (5, 9), (6, 6)])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_covariance_equals_the_plain_loop(dtype: str, widths: tuple[int, int]) -> None:
    rows = paired(small(dtype, widths))
    signed = np.random.default_rng(0).normal(size=len(rows.index))
    expected = np.zeros(widths)
    for (i, j), w in zip(rows.index, signed, strict=True):
        expected += w * np.outer(rows.rows[0][i], rows.rows[1][j])
    np.testing.assert_allclose(
        rows.covariance(signed), expected, rtol=1e-4 if dtype == "f4" else 1e-10, atol=1e-3
    )


@pytest.mark.parametrize("shape", [(8, 5), (5, 8)])
def test_singular_pairs_are_those_of_the_decomposition(shape: tuple[int, int]) -> None:
    C = np.random.default_rng(1).normal(size=shape)
    C[:, -1] = C[:, 0]  # one direction fewer where that is the narrow side
    pairs = list(singular_pairs(C))
    values = np.linalg.svd(C, compute_uv=False)
    np.testing.assert_allclose([p @ C @ q for p, q in pairs], values[values > 1e-9], rtol=1e-9)
    assert all(np.linalg.norm(p) == pytest.approx(1) == np.linalg.norm(q) for p, q in pairs)


def test_rows_are_centered_on_the_mean_of_present_rows() -> None:
    data = small()
    data.views["image"][:7] = np.nan
    rows = paired(training_set(data.views, labels=data.labels["image"]))
    np.testing.assert_allclose(rows.means[0], data.views["image"][7:].mean(axis=0))
    assert np.isfinite(rows.rows[0]).all()


def test_both_kinds_of_pairs_initially_weigh_the_same() -> None:
    rows = paired(small())
    weights = rows.balanced_weights()
    assert weights[rows.signs > 0].sum() == pytest.approx(0.5)
    assert weights[rows.signs < 0].sum() == pytest.approx(0.5)


def test_a_bit_has_no_correlation_under_the_weights_it_leaves() -> None:
    rows = paired(small())
    boosting = Boosting(rows.signs, rows.balanced_weights(), step=None, seed=0)
    for _ in range(12):
        bit = _leading_bit(rows, boosting.signed)
        assert bit is not None
        h = rows.agreement(bit)
        # as the search reported
        assert boosting.signed @ h == pytest.approx(bit.thresholds.correlation)
        before = boosting.bound
        boosting.update(h)
        assert boosting.signed @ h == pytest.approx(0, abs=1e-9)
        assert boosting.weights.sum() == pytest.approx(1)
        assert boosting.bound == pytest.approx(before * np.sqrt(1 - bit.thresholds.correlation**2))


def test_the_bound_holds_for_the_vote_of_the_bits() -> None:
    rows = paired(small())
    boosting = Boosting(rows.signs, rows.balanced_weights(), step=None, seed=0)
    vote = np.zeros(len(rows.signs))
    for _ in range(20):
        bit = _leading_bit(rows, boosting.signed)
        assert bit is not None
        h = rows.agreement(bit)
        vote += np.arctanh(bit.thresholds.correlation) * h
        boosting.update(h)
        assert rows.balanced_weights()[vote * rows.signs <= 0].sum() <= boosting.bound + 1e-12


def test_the_bound_falls_with_every_bit() -> None:
    data = synthetic(n=300, seed=0)
    steps: list[Step] = []
    CMSSH(n_bits=24, n_dissimilar=20_000).fit(data.views, labels=data.labels, on_step=steps.append)
    bounds = [step.loss for step in steps if step.loss is not None]
    assert len(bounds) == 24
    assert all(after < before for before, after in pairwise([1.0, *bounds]))


def test_the_codes_are_what_was_learned() -> None:
    """Thresholds are found on centered float64 rows; the model sees raw float32."""
    data = small()
    rows = paired(data, 10_000)
    bit = _leading_bit(rows, rows.balanced_weights() * rows.signs)
    assert bit is not None
    model = rows.model([bit])
    for side, name in enumerate(("image", "text")):
        projected = rows.rows[side] @ bit.directions[side] >= bit.thresholds[side]
        agree = model.encode(name, data.views[name]).unpack()[:, 0] == projected
        assert agree.mean() > 0.99


def gap(model: HashModel, views: Any, labels: Array) -> float:  # noqa: ANN401
    """How much nearer items of one class are, in bits."""
    d = hamming(model.encode("image", views["image"]), model.encode("text", views["text"])).astype(
        float
    )
    same = labels[:, None] == labels
    return float(d[~same].mean() - d[same].mean())


@pytest.mark.parametrize("step", ["adaboost", 0.2])
def test_items_of_one_class_are_near_in_unseen_data(step: Any) -> None:  # noqa: ANN401
    data = synthetic(n=600, classes=5, seed=1)
    labels, train, test = np.asarray(data.labels), slice(0, 400), slice(400, 600)
    hasher = CMSSH(n_bits=32, step=step, n_dissimilar=20_000)
    model = hasher.fit(
        {name: view[train] for name, view in data.views.items()}, labels=labels[train]
    )
    assert gap(model, {name: view[test] for name, view in data.views.items()}, labels[test]) > 4


def test_shorter_codes_are_the_first_bits_of_longer_ones() -> None:
    data = small()
    short, long = (CMSSH(n_bits=n).fit(data.views, labels=data.labels["image"]) for n in (5, 17))
    for name, view in data.views.items():
        assert long.encode(name, view).truncate(5) == short.encode(name, view)


def test_boosting_restarts_after_a_bit_that_is_always_right() -> None:
    """Two classes far apart: every bit separates them."""
    labels = np.arange(60) % 2
    random = np.random.default_rng(0)
    views = {
        name: 10.0 * labels[:, None] + random.normal(size=(60, d))
        for name, d in (("image", 4), ("text", 3))
    }
    model = CMSSH(n_bits=20).fit(views, labels=labels)
    assert gap(model, views, labels) == pytest.approx(20)


def test_boosting_restarts_when_no_bit_correlates() -> None:
    """Features of two values have one threshold each: no second bit differs from the first."""
    side = np.array([0, 0, 0, 1, 1, 1])
    views = {"image": side[:, None].astype(float), "text": side[:, None].astype(float)}
    index = np.array([(i, j) for i in range(6) for j in range(6)])
    similar = side[index[:, 0]] == side[index[:, 1]]
    similar[::9] ^= True  # pairs that the only possible bit gets wrong
    model = CMSSH(n_bits=6).fit(views, pairs=Pairs("image", "text", index, similar))
    assert gap(model, views, side) == pytest.approx(6)


def test_weights_restart_from_the_initial_ones() -> None:
    boosting = Boosting(np.array([1.0, -1.0, 1.0]), np.array([2.0, 1.0, 1.0]), step=None, seed=0)
    boosting.update(np.array([1.0, -1.0, -1.0]))
    np.testing.assert_allclose(boosting.weights, [1 / 3, 1 / 6, 1 / 2])
    boosting.restart()
    assert boosting.weights.sum() == pytest.approx(1)
    assert boosting.bound == 1
    assert not np.allclose(boosting.weights, [0.5, 0.25, 0.25])


def test_constant_features_are_rejected() -> None:
    views = {"image": np.ones((20, 3)), "text": np.ones((20, 2))}
    with pytest.raises(
        DataError,
        match="cmssh: no direction of 'image' and 'text' separates similar from dissimilar pairs",
    ):
        CMSSH().fit(views, labels=np.arange(20) % 2)


@pytest.mark.parametrize("step", ["boost", 0, -0.2, True, float("nan")])
def test_a_wrong_step_is_rejected(step: Any) -> None:  # noqa: ANN401
    data = small()
    with pytest.raises(
        DataError, match="cmssh: step must be 'adaboost' or a finite number above 0, got"
    ):
        CMSSH(step=step).fit(data.views, labels=data.labels["image"])


def wiki(folder: Path) -> tuple[dict[str, Array], Array, dict[str, Array], Array]:
    """Raw views and classes of the training and of the test part."""
    scipy_io = pytest.importorskip("scipy.io")
    arrays = scipy_io.loadmat(folder / "raw_features.mat")
    labels = [
        np.loadtxt(
            folder / f"{part}set_txt_img_cat.list", usecols=2, dtype=np.int64, delimiter="\t"
        )
        for part in ("train", "test")
    ]
    train, test = (
        {"image": arrays[f"I_{part}"], "text": arrays[f"T_{part}"]} for part in ("tr", "te")
    )
    return train, labels[0], test, labels[1]


def test_wiki_comes_within_two_points_of_the_printed_value(wiki_folder: Path) -> None:
    """Printed: 22.2 and 18.4 for 32 bits, raw features, 10⁴ similar and 10⁵ dissimilar pairs."""
    train, train_labels, test, labels = wiki(wiki_folder)
    relevant = from_labels(labels, labels)
    values = []
    for seed in range(2):
        model = CMSSH(n_bits=32, seed=seed).fit(train, labels=train_labels)
        image, text = (model.encode(name, test[name]) for name in ("image", "text"))
        values += [
            mean_average_precision(image, text, relevant),
            mean_average_precision(text, image, relevant),
        ]
    assert 100 * np.mean(values) == pytest.approx(20.3, abs=2)


def test_preprocessing_is_stored_in_the_model() -> None:
    """A column of huge variance hides the others, unless columns are standardized or whitened."""
    data = synthetic(n=200, classes=4, seed=3)
    noise = 1e3 * np.random.default_rng(0).normal(size=(200, 1))
    views = {name: np.hstack([view, noise]) for name, view in data.views.items()}
    views["image"][:5] = np.nan  # absent rows
    relevant = from_labels(np.asarray(data.labels)[5:], np.asarray(data.labels))
    scores = {}
    for inputs in ("none", "standardize", "whiten"):
        model = CMSSH(n_bits=16, inputs=inputs).fit(views, labels=data.labels)
        queries = model.encode("image", views["image"][5:])
        scores[inputs] = mean_average_precision(
            queries, model.encode("text", views["text"]), relevant
        )
    assert min(scores["standardize"], scores["whiten"]) > scores["none"] + 0.1
    with pytest.raises(DataError, match="unknown input step 'white'"):
        CMSSH(inputs="white").fit(data.views, labels=data.labels)


def test_preprocessing_can_differ_between_modalities() -> None:
    data = synthetic(seed=0)
    assert data.labels is not None
    model = CMSSH(n_bits=4, inputs={"text": "standardize"}).fit(data.views, labels=data.labels)
    scaled = {"image": data.views["image"], "text": data.views["text"] * 1000}
    other = CMSSH(n_bits=4, inputs={"text": "standardize"}).fit(scaled, labels=data.labels)
    codes = model.encode("text", data.views["text"])
    assert np.array_equal(codes.words, other.encode("text", scaled["text"]).words)
    with pytest.raises(DataError, match="unknown modality of inputs 'sound'"):
        CMSSH(inputs={"sound": "whiten"}).fit(data.views, labels=data.labels)
