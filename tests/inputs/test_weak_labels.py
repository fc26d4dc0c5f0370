"""Unknown labels that are filled in, wrong ones that are corrected, and too few to learn from."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from crossbit.data import training_set
from crossbit.data.training_set import TrainingSet
from crossbit.inputs import weak_labels
from crossbit.inputs.posteriors import Posteriors
from crossbit.inputs.weak_labels import repair_labels, too_few_labels

Ints = NDArray[np.int64]
Views = dict[str, NDArray[np.float64]]


def noise_if_independent(posteriors: dict[str, NDArray[np.float32]], classes: Ints) -> float:
    """Share of wrong labels that two views suggest if their errors are taken for independent.

    Labels and views are three raters whose agreements beyond chance are products of their
    accuracies beyond chance.
    """
    left, right = (P.argmax(axis=1) for P in posteriors.values())
    k = next(iter(posteriors.values())).shape[1]

    def excess(a: Ints, b: Ints) -> float:
        return float((np.mean(a == b) - 1 / k) * k / (k - 1))

    squared = excess(left, classes) * excess(right, classes) / excess(left, right)
    return float(1 - (np.sqrt(max(squared, 0)) * (k - 1) + 1) / k)


def fit(data: TrainingSet) -> Posteriors:
    """Logistic regression of every view, five folds."""
    rows = {}
    for name, X in data.views.items():
        labels = data.labels[name]
        classes = np.unique(labels[labels >= 0])
        known = np.flatnonzero((labels >= 0) & data.present[name])
        fold = np.random.default_rng(0).permutation(len(known)) % 5
        P = np.full((len(X), len(classes)), np.nan, np.float32)
        for k in range(-1, 5):  # at first all rows, also those without label
            train, new = known[fold != k], known[fold == k] if k >= 0 else data.present[name]
            model = LogisticRegression().fit(X[train], labels[train])
            P[new] = 0
            P[np.ix_(np.arange(len(X))[new], np.searchsorted(classes, model.classes_))] = (
                model.predict_proba(X[new])
            )
        rows[name] = P
    return Posteriors({}, rows, classes, multi_label=False, summary={})


def repaired(data: TrainingSet) -> tuple[Ints, str | None]:
    new, _, note = repair_labels(data, fit, seed=0)
    labels, *others = new.labels.values()
    for other in others:
        np.testing.assert_array_equal(other, labels)
    return labels, note


def wrong(classes: Ints, share: float) -> Ints:
    """Replace a share of the classes by others."""
    random = np.random.default_rng(7)
    n_classes = int(classes.max()) + 1
    shift = random.integers(1, n_classes, len(classes))
    return np.where(random.random(len(classes)) < share, (classes + shift) % n_classes, classes)


def known_first(classes: Ints, n_known: int) -> Ints:
    """Labels of the first rows; the others are unknown."""
    return np.where(np.arange(len(classes)) < n_known, classes, -1)


def clouds(classes: Ints, apart: float = 1.5, seed: int = 0) -> Views:
    """Overlapping clouds in two views that err independently."""
    random = np.random.default_rng(seed)
    views = {}
    for name, width in (("image", 6), ("text", 5)):
        center = random.normal(size=(int(classes.max()) + 1, width))
        views[name] = apart * center[classes] + random.normal(size=(len(classes), width))
    return views


def mixtures(classes: Ints, most: float, power: float, seed: int = 0) -> Views:
    """Two views of one latent row that lies between its class and another: both err together.

    Args:
        classes: The true classes.
        most: Greatest share of the other class.
        power: A larger one makes rows near their own class more frequent.
        seed: Draws the rows.
    """
    random = np.random.default_rng(seed)
    n_classes = int(classes.max()) + 1
    other = (classes + random.integers(1, n_classes, len(classes))) % n_classes
    share = most * random.random(len(classes))[:, None] ** power
    center = 3 * np.eye(n_classes)
    latent = (1 - share) * center[classes] + share * center[other]
    latent += 0.5 * random.normal(size=latent.shape)
    return {
        name: latent @ random.normal(size=(n_classes, width))
        + 0.3 * random.normal(size=(len(classes), width))
        for name, width in (("image", 8), ("text", 6))
    }


@pytest.mark.parametrize(("most", "power"), [(0.7, 1.0), (0.8, 1.0), (0.8, 2.0), (1.0, 3.0)])
@pytest.mark.parametrize("seed", range(4))
def test_hard_rows_of_dependent_views_are_not_taken_for_wrong_labels(
    most: float, power: float, seed: int
) -> None:
    true = np.arange(600) % 5
    data = training_set(mixtures(true, most, power, seed), labels=true)
    labels, note = repaired(data)
    np.testing.assert_array_equal(labels, true)
    assert note is None
    assert noise_if_independent(fit(data).rows, true) > 0.15


@pytest.mark.parametrize("noise", [0.2, 0.3, 0.5])
@pytest.mark.parametrize(
    "make", [clouds, lambda true: mixtures(true, 0.8, 2.0)], ids=["independent", "dependent"]
)
def test_wrong_labels_are_corrected(make: Callable[[Ints], Views], noise: float) -> None:
    true = np.arange(600) % 5
    given = wrong(true, noise)
    labels, note = repaired(training_set(make(true), labels=given))
    assert np.mean(labels != true) < 0.6 * np.mean(given != true)
    assert note is not None
    assert "% of the labels corrected" in note


def test_clean_labels_cost_one_fit() -> None:
    true = np.arange(300) % 4
    data = training_set(clouds(true), labels=true)
    fitted = []

    def counted(each: TrainingSet) -> Posteriors:
        fitted.append(fit(each))
        return fitted[-1]

    new, posteriors, note = repair_labels(data, counted, seed=0)
    assert len(fitted) == 1
    assert posteriors is fitted[0]
    assert new is data
    assert note is None


def test_random_labels_stay() -> None:
    random = np.random.default_rng(0)
    given = random.integers(0, 4, 300)
    labels, note = repaired(training_set(clouds(np.arange(300) % 4), labels=given))
    np.testing.assert_array_equal(labels, given)
    assert note is None


def test_a_correction_that_does_not_predict_the_given_labels_is_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(weak_labels, "_fit_noise", lambda *_: (0.4, 1.0))
    true = np.arange(300) % 4
    labels, note = repaired(training_set(clouds(true, 0.8), labels=true))
    np.testing.assert_array_equal(labels, true)
    assert note is None


def test_one_view_few_rows_or_one_class_show_no_noise() -> None:
    true = np.arange(400) % 4
    views = clouds(true)
    given = wrong(true, 0.4)
    apart = {name: rows.copy() for name, rows in views.items()}
    apart["image"][::2] = np.nan
    apart["text"][1::2] = np.nan
    few = {name: rows[:45] for name, rows in views.items()}
    for data in (
        training_set({"image": views["image"]}, labels=given),
        training_set(apart, labels=given),
        training_set(few, labels=given[:45]),
    ):
        assert repair_labels(data, fit, seed=0)[::2] == (data, None)
    data = training_set(views, labels=np.zeros(400, int))
    rows = dict.fromkeys(views, np.ones((400, 1), np.float32))
    certain = Posteriors({}, rows, np.array([0]), multi_label=False, summary={})
    assert repair_labels(data, lambda _: certain, seed=0) == (data, certain, None)


def test_a_class_never_vanishes() -> None:
    true = np.arange(400) % 4
    given = wrong(true, 0.4)
    given[:2] = 9  # a class that no view knows
    labels, _ = repaired(training_set(clouds(true), labels=given))
    assert set(np.unique(labels)) == {0, 1, 2, 3, 9}


def test_rows_without_a_view_are_corrected_too() -> None:
    true = np.arange(600) % 4
    views = clouds(true)
    views["image"][::5] = np.nan
    views["text"][1::5] = np.nan
    given = wrong(true, 0.4)
    labels, _ = repaired(training_set(views, labels=given))
    assert np.mean(labels != true) < 0.5 * np.mean(given != true)


def test_unknown_labels_are_filled_in() -> None:
    true = np.arange(400) % 4
    views = clouds(true)
    views["image"][390:] = np.nan
    given = known_first(true, 24)
    data = training_set(views, labels=given)
    labels, note = repaired(data)
    np.testing.assert_array_equal(labels[:24], true[:24])
    assert np.mean(labels[24:390] == true[24:390]) > 0.9
    np.testing.assert_array_equal(labels[390:], -1)  # rows that lack a view
    assert note == "labels of 366 rows filled in"
    np.testing.assert_array_equal(data.labels["image"], given)


def test_a_view_that_says_nothing_does_not_spoil_the_labels() -> None:
    random = np.random.default_rng(0)
    true = np.arange(400) % 4
    views = clouds(true) | {"noise": random.normal(size=(400, 3))}
    views["text"] = 5 * random.normal(size=(400, 5))
    given = known_first(true, 100)
    labels, _ = repaired(training_set(views, labels=given))
    alone, _ = repaired(training_set({"image": views["image"]}, labels=given))
    assert np.mean(labels == true) > np.mean(alone == true) - 0.03


def test_the_same_seed_repairs_the_same_labels() -> None:
    true = np.arange(300) % 4
    given = wrong(np.where(np.arange(300) % 3 > 0, true, 0), 0.3)
    given[::3] = -1
    data = training_set(clouds(true), labels=given)
    np.testing.assert_array_equal(repaired(data)[0], repaired(data)[0])


def test_scores_spread_to_the_fixed_point_of_the_mean_over_neighbors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(weak_labels, "_SPREADS", 400)
    monkeypatch.setattr(weak_labels, "_NEIGHBORS", 3)
    X = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    member = np.eye(3)[[0, 1, 1, 2] * 3]
    distance = np.linalg.norm(X[:, None] - X, axis=2)
    near = np.argsort(distance, axis=1)[:, 1:4]
    graph = np.zeros((30, 30))
    np.put_along_axis(graph, near, 1, axis=1)
    graph += graph.T
    walk = graph / graph.sum(axis=1, keepdims=True)

    def spread(own: NDArray[np.float64]) -> NDArray[np.float64]:
        scores = np.linalg.solve(np.eye(30) - 0.85 * walk, own)
        return np.asarray(scores * (own.sum(axis=0) + 0.5) / scores.sum(axis=0))

    own = np.vstack([member, np.zeros((18, 3))])
    scores, held_out = weak_labels._spread_and_hold_out(X, member)
    np.testing.assert_allclose(scores, spread(own), rtol=1e-6)
    own[[1, 11]] = 0  # the second fold
    np.testing.assert_allclose(held_out[[1, 11]], spread(own)[[1, 11]], rtol=1e-6)


def test_labels_stay_as_they_are_where_nothing_can_be_repaired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    true = np.arange(200) % 4
    views = clouds(true)
    unpaired = {"image": known_first(true, 60), "text": known_first(true, 80)}
    several = np.eye(4, dtype=bool)[true]
    several[60:] = False
    none = Posteriors({}, {}, np.arange(4), multi_label=False, summary={})
    for labels in (unpaired, several):
        data = training_set(views, labels=labels)
        assert repair_labels(data, lambda _: none, 0) == (data, none, None)
    labels, _ = repaired(training_set(views, labels=known_first(true, 190)))
    np.testing.assert_array_equal(labels, known_first(true, 190))
    apart = clouds(true)  # no labeled row has both views
    apart["image"][:40] = np.nan
    apart["text"][40:80] = np.nan
    data = training_set(apart, labels=known_first(true, 80))
    np.testing.assert_array_equal(repaired(data)[0], known_first(true, 80))
    monkeypatch.setattr(weak_labels, "_MAX_ROWS", 100)
    for n_known, n_repaired in ((60, 100), (120, 120)):
        labels, _ = repaired(training_set(views, labels=known_first(true, n_known)))
        assert (labels >= 0).sum() == n_repaired


def test_ten_labels_suffice_if_they_spread_alike_in_all_views() -> None:
    true = np.arange(400) % 5
    given = known_first(true, 10)
    clear = training_set(clouds(true, 3.0), labels=given)
    assert not too_few_labels(clear)
    labels, note = repaired(clear)
    assert np.mean(labels == true) > 0.8
    assert note == "labels of 390 rows filled in"
    assert too_few_labels(training_set(clouds(true, 0.2), labels=given))
    assert too_few_labels(training_set(clouds(true, 3.0), labels=known_first(true, 4)))


def test_too_few_labels() -> None:
    true = np.arange(200) % 4
    views = clouds(true, 0.2)
    several = np.eye(4, dtype=bool)[true]
    several[12:] = False
    one_class = np.where(np.arange(200) < 12, 0, -1)
    for labels in (known_first(true, 12), several, one_class):
        assert too_few_labels(training_set(views, labels=labels))
    first = {name: rows[:15] for name, rows in views.items()}
    for data in (
        training_set(views),
        training_set(views, labels=known_first(true, 20)),
        training_set(views, labels={"image": known_first(true, 12), "text": known_first(true, 12)}),
        training_set(first, labels=true[:15]),
        training_set({"image": views["image"]}, labels=known_first(true, 12)),
    ):
        assert not too_few_labels(data)
