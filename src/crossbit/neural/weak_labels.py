r"""Weak labels: unknown ones are filled in, and wrong ones corrected, from views of aligned rows.

**Unknown labels** are filled in by label propagation: each row takes the mean of the class scores
of its nearest rows, many times over, so that classes spread from labeled rows to all (Zhou et al.
2004). Distances are those of all views together. If one view alone, or the posteriors of all views,
predict held-out labels better by more than a standard error, they fill in the labels instead.

**Wrong labels**: the label of a row and the classes that two views predict, each out of fold, are
three independent opinions on its true class. If rater $i$ is right with probability $\alpha_i$ and
otherwise names any other class, two raters agree on a share of the rows whose excess over chance, 1
for equal raters, is $\rho_i \rho_j$, with $\rho = (K \alpha - 1) / (K - 1)$ for $K$ classes. So
their agreements $r$ give the accuracy of the labels, although no row is known to be right (Dawid
and Skene 1979): $\rho_L^2 = r_{1L}\, r_{2L} / r_{12}$. Hard classes make the views disagree with
each other too and are not taken for noise.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from crossbit.data.labels import is_known
from crossbit.data.neighbors import find_neighbors
from crossbit.data.training_set import TrainingSet
from crossbit.neural.stacking import Stacked, stack

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float32]
_MIN_LABELS = 20  # labeled rows that always suffice, if they are …
_MIN_LABELS_PER_CLASS = 2  # … on average
_FEW = 0.2  # share of labeled rows from which on fewer suffice
_MIN_UNKNOWN = 0.1  # share of unknown labels from which on they are filled in
_MAX_ROWS = 10_000  # rows among which labels spread
_NEIGHBORS = 10
_SPREADS = 40  # steps of propagation
_KEEP = 0.05  # share of a labeled row's own class in each step
_FOLDS = 10
_MIN_ROWS = 50  # labeled rows of two views that show how many labels are wrong
_MIN_NOISE = 0.15  # share of wrong labels from which on labels are corrected
_MAX_CORRECTIONS = 3
_FEW_CHANGES = 0.01  # share of changed labels at which they stay
_MAX_NOISE = 0.9  # as a share of the noise of random labels
_FLOOR = 1e-3  # least posterior of a class


def without_few_labels(data: TrainingSet) -> TrainingSet:
    """Replace labels by the alignment of the rows as supervision, if too few rows have a label.

    Ten labels say less than a thousand items, each seen in two views.
    """
    if not data.aligned or len(data.views) < 2 or not data.labels or data.pairs:
        return data
    labels = next(iter(data.labels.values()))
    complete = np.all(list(data.present.values()), axis=0)
    known = is_known(labels)
    n = int(known.sum())
    n_classes = labels.any(axis=0).sum() if labels.ndim == 2 else len(np.unique(labels[known]))
    enough = n >= max(_MIN_LABELS, _MIN_LABELS_PER_CLASS * n_classes)
    if enough or n >= _FEW * complete.sum():
        return data
    return replace(data, labels={}, aligned_supervision=True)


def stack_weak_labels(data: TrainingSet, seed: int, n_landmarks: int = 500) -> Stacked:
    """Fit the posteriors of every modality, with unknown labels filled in and wrong ones corrected.

    This needs aligned rows with one class each; otherwise labels stay as they are.

    Args:
        data: A training set for which `can_stack` is true.
        seed: Seed of samples, folds and landmarks.
        n_landmarks: Maximum number of landmarks of RBF features.
    """
    stacked = stack(data, seed, n_landmarks)
    labels, *others = data.labels.values()
    one_array = all(np.array_equal(labels, other) for other in others)
    if labels.ndim == 2 or not data.aligned or not one_array:
        return stacked
    given = np.where(labels < 0, -1, np.searchsorted(stacked.classes, labels))
    filled = _fill_unknown(data, stacked.data.views, given, seed)
    if filled is None:
        return _correct(data, stacked, given, seed, n_landmarks)
    stacked = stack(_with_classes(data, filled, stacked.classes), seed, n_landmarks)
    stacked = _correct(data, stacked, filled, seed, n_landmarks)
    return _with_note(stacked, f"; labels of {np.sum(filled != given)} rows filled in")


def _with_classes(data: TrainingSet, columns: _Ints, classes: _Ints) -> TrainingSet:
    """Return the set with other labels, given as columns of the posteriors."""
    labels = np.where(columns < 0, -1, classes[columns])
    return replace(data, labels=dict.fromkeys(data.labels, labels))


def _with_note(stacked: Stacked, note: str) -> Stacked:
    return replace(stacked, summary={name: text + note for name, text in stacked.summary.items()})


def _fill_unknown(
    data: TrainingSet, posteriors: Mapping[str, _Floats], given: _Ints, seed: int
) -> _Ints | None:
    """Return the classes, filled in for unlabeled rows that have all views.

    None if less than a tenth is unknown, or if too few are known to validate, or more than enough.

    Args:
        data: The views, aligned.
        posteriors: Modality → out-of-fold posteriors of all rows.
        given: The column of each row's class, −1 for unknown.
        seed: Draws the rows, if there are many, and the folds.
    """
    random = np.random.default_rng([seed, 9])
    complete = np.all(list(data.present.values()), axis=0)
    known = random.permutation(np.flatnonzero(complete & (given >= 0)))
    unknown = random.permutation(np.flatnonzero(complete & (given < 0)))
    enough = len(unknown) >= _MIN_UNKNOWN * (len(known) + len(unknown))
    if not enough or not _FOLDS <= len(known) < _MAX_ROWS:
        return None
    rows = np.concatenate([known, np.sort(unknown[: _MAX_ROWS - len(known)])])
    n_known = len(known)
    n_classes = next(iter(posteriors.values())).shape[1]
    scaled = [_scaled(view[rows]) for view in data.views.values()]
    by_all, *others = [
        _spread_and_validate(features, given[known], n_classes)
        for features in ([np.hstack(scaled), *scaled] if len(scaled) > 1 else scaled)
    ]
    product = np.sum([np.log(np.maximum(P[rows], _FLOOR)) for P in posteriors.values()], axis=0)
    others.append((product, float(np.mean(product[:n_known].argmax(axis=1) == given[known]))))
    scores, accuracy = by_all
    other, other_accuracy = max(others, key=lambda pair: pair[1])
    if other_accuracy > accuracy + np.sqrt(accuracy * (1 - accuracy) / n_known):
        scores = other
    filled = given.copy()
    filled[rows[n_known:]] = scores[n_known:].argmax(axis=1)
    return filled


def _spread_and_validate(
    features: _Floats, classes: _Ints, n_classes: int
) -> tuple[_Floats, float]:
    """Spread the classes of the first rows; return class scores and the accuracy on held-out rows.

    Args:
        features: Features of all rows.
        classes: Classes of the first rows, in random order.
        n_classes: The number of classes.
    """
    n = len(features)
    metric = f"euclidean({_NEIGHBORS})"
    found = find_neighbors("rows", features, np.ones(n, np.bool_), metric, max_anchors=n)
    near = found.pairs.index[found.pairs.similar, 1].reshape(n, found.k)
    folds = np.arange(len(classes)) % _FOLDS
    predicted = np.empty_like(classes)
    for fold in range(_FOLDS):
        held_out = folds == fold
        scores = _spread(near, np.where(held_out, -1, classes), n_classes)
        predicted[held_out] = scores[: len(classes)][held_out].argmax(axis=1)
    return _spread(near, classes, n_classes), float(np.mean(predicted == classes))


def _scaled(rows: NDArray[np.floating]) -> _Floats:
    """Return rows whose columns have zero mean and equal variances, which sum to 1."""
    X = np.asarray(rows, np.float32)
    deviation = X.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1) * np.sqrt(np.float32(X.shape[1]))
    scaled: _Floats = (X - X.mean(axis=0)) / scale
    return scaled


def _spread(near: _Ints, classes: _Ints, n_classes: int) -> _Floats:
    """Spread the classes of the first rows to all; return class scores, which sum to the priors.

    Args:
        near: The nearest rows of each row, shape (n, k).
        classes: Classes of the first rows, −1 for unknown.
        n_classes: The number of classes.
    """
    own = np.zeros((len(near), n_classes), np.float32)
    labeled = np.flatnonzero(classes >= 0)
    own[labeled, classes[labeled]] = 1
    scores = own
    for _ in range(_SPREADS):
        mean = np.zeros_like(own)
        for column in near.T:
            mean += scores[column]
        scores = (1 - _KEEP) / near.shape[1] * mean + _KEEP * own
    prior = own.sum(axis=0) + 0.5
    scores *= prior / np.maximum(scores.sum(axis=0), 1e-12)
    return scores


def _correct(
    data: TrainingSet, stacked: Stacked, given: _Ints, seed: int, n_landmarks: int
) -> Stacked:
    """Correct labels if the views show that many are wrong, and fit the posteriors again.

    Corrected labels are kept as long as posteriors that are learned from them predict the given
    labels, of which most errors are random, better than before.
    """
    noise = learned_noise = estimate_noise(stacked.data.views, given)
    if noise < _MIN_NOISE:
        return stacked
    accuracy = accuracy_of(stacked.data.views, given)
    learned = given
    for _ in range(_MAX_CORRECTIONS):
        corrected = correct_labels(stacked.data.views, given, noise, learned_noise)
        if np.mean(corrected != learned) < _FEW_CHANGES:
            break
        again = stack(_with_classes(data, corrected, stacked.classes), seed, n_landmarks)
        previous = accuracy
        accuracy = accuracy_of(again.data.views, given)
        if len(again.classes) < len(stacked.classes) or accuracy <= previous:
            break
        stacked = again
        learned = corrected
        learned_noise = min(estimate_noise(again.data.views, corrected), noise)
    return _with_note(stacked, f"; {100 * np.mean(learned != given):.0f} % of the labels corrected")


def estimate_noise(posteriors: Mapping[str, _Floats], classes: _Ints) -> float:
    """Return the share of wrong labels; 0 with one view, or with too few rows of several.

    Args:
        posteriors: Modality → out-of-fold posteriors of the same rows; NaN where a row is absent.
        classes: The column of each row's class, −1 for unknown.
    """
    with_labels = 0.0
    between_views = 0.0
    n_classes = next(iter(posteriors.values())).shape[1]
    predicted = {name: _predictions(P) for name, P in posteriors.items()}
    for left, right in combinations(predicted.values(), 2):
        rows = (left >= 0) & (right >= 0) & (classes >= 0)
        if rows.sum() < _MIN_ROWS:
            continue
        left, right, label = left[rows], right[rows], classes[rows]
        with_labels += _excess(left, label, n_classes) * _excess(right, label, n_classes)
        between_views += _excess(left, right, n_classes)
    if between_views <= 0:
        return 0.0
    accuracy = (np.sqrt(max(with_labels, 0.0) / between_views) * (n_classes - 1) + 1) / n_classes
    return float(np.clip(1 - accuracy, 0, _MAX_NOISE * (1 - 1 / n_classes)))


def _predictions(posteriors: _Floats) -> _Ints:
    """The most probable class of each row, −1 for an absent one."""
    absent = np.isnan(posteriors[:, 0])
    return np.where(absent, -1, np.nan_to_num(posteriors).argmax(axis=1))


def _excess(left: _Ints, right: _Ints, n_classes: int) -> float:
    """Agreement beyond chance, 1 for equal classes."""
    return float(((left == right).mean() - 1 / n_classes) * n_classes / (n_classes - 1))


def accuracy_of(posteriors: Mapping[str, _Floats], classes: _Ints) -> float:
    """Return the share of labels that the posteriors predict, the mean over views."""
    shares = []
    for P in posteriors.values():
        predicted = _predictions(P)
        known = (classes >= 0) & (predicted >= 0)
        shares.append(np.mean(predicted[known] == classes[known]))
    return float(np.mean(shares))


def correct_labels(
    posteriors: Mapping[str, _Floats],
    classes: _Ints,
    noise: float,
    learned_noise: float,
) -> _Ints:
    """Return the most probable class of each row, given its label and its posteriors.

    Args:
        posteriors: As for `estimate_noise`.
        classes: The column of each row's given class; an unknown one, −1, stays unknown.
        noise: Share of wrong labels among them.
        learned_noise: Share of wrong labels among those that the posteriors were learned from.
            Posteriors estimate the *labels*; those of the true classes follow from it.
    """
    n_classes = next(iter(posteriors.values())).shape[1]
    odds = np.log((1 - noise) * (n_classes - 1) / noise)  # of the given class
    scores = odds * (classes[:, None] == np.arange(n_classes))
    floor = learned_noise / (n_classes - 1)  # probability of each wrong label
    for P in posteriors.values():
        true = np.maximum((P - floor) / (1 - learned_noise - floor), _FLOOR)
        scores += np.nan_to_num(np.log(true))
    return np.where(classes < 0, -1, scores.argmax(axis=1))
