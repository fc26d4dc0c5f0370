"""Stacking: class posteriors of each modality become the input of the networks.

Three kinds of classifier estimate the posteriors of a modality: logistic regression on linear
features, logistic regression on RBF features, and a forest of randomized trees. Cross-validation
chooses the preparation of the features, the penalties, and the weights of the weighted sum of their
scores. The networks train on the *out-of-fold* posteriors, each from classifiers that have not seen
the row: so they see training rows as they will see new ones. A held-out fold also sees no landmark
that is one of its rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.data.labels import is_known
from crossbit.data.training_set import TrainingSet
from crossbit.linalg.forest import fit_forest
from crossbit.linalg.logistic import (
    SHARES,
    Validation,
    choose_penalty,
    fit_logistic,
    fit_weights,
    log_losses,
    make_folds,
)
from crossbit.model.ensemble import Parallel
from crossbit.model.layers import Affine, Layer, Softmax, Tanh, apply_layers
from crossbit.neural.preparation import Prepared, close_to_best, linear_features, rbf_features

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float32]

_MAX_ROWS = 20_000  # rows that a regression is fitted on
_MAX_VALUES = 10**8  # values of those rows
_MAX_SCORES = 2 * 10**6  # rows × classes that a regression fits in seconds
_MIN_ROWS_PER_CLASS = 5  # on average
_MAX_POSTERIORS = 10**8  # values kept in memory
_SELECTION_ROWS = 5000  # rows on which preparations and penalties are compared
_MAX_TREES = 100
_TREE_ROWS = 150_000  # rows × trees beyond which fewer trees are grown
_MIN_TREES = 30
_LEAF_VALUES = 2 * 10**6  # values that the leaves of a forest may have
_MIN_WEIGHT = 0.05  # share of the weights below which a classifier is dropped
_WEIGHT_PRIOR = 2.0  # rows' worth of belief in equal weights that sum to 1


_RIDGE_ROWS = 2500  # that suffice to compare features by ridge regression
_SOLVED = 0.01  # log-loss of linear features below which nothing else is tried
_LARGE = 100_000  # rows × classes above which only the best of each kind are cross-validated


@dataclass(frozen=True, eq=False)
class Stacked:
    """Training set and layers of stacked networks.

    Attributes:
        layers: Modality → layers from raw rows to posteriors.
        data: The training set with every view replaced by its out-of-fold posteriors.
        summary: Modality → the chosen preparation and its loss, for the model card.
        classes: The class number of each column of the posteriors.
    """

    layers: dict[str, list[Layer]]
    data: TrainingSet
    summary: dict[str, str]
    classes: _Ints


def can_stack(data: TrainingSet) -> bool:
    """Whether every view is a matrix with labels of at least two classes and of moderate size."""
    for name, view in data.views.items():
        labels = data.labels.get(name)
        if view.ndim != 2 or labels is None:
            return False
        known = is_known(labels) & data.present[name]
        n = int(known.sum())
        if labels.ndim == 2:
            classes = int(labels[known].any(axis=0).sum())
        else:
            classes = len(np.unique(labels[known]))
        if classes < 2 or n < 20:
            return False
        if _sample_size(n, view.shape[1], classes) < min(n, _MIN_ROWS_PER_CLASS * classes):
            return False
        if len(view) * classes > _MAX_POSTERIORS:
            return False
    return True


def _sample_size(n: int, width: int, classes: int) -> int:
    """Number of labeled rows to fit a regression on."""
    return min(n, _MAX_ROWS, _MAX_VALUES // width, _MAX_SCORES // classes)


def stack(data: TrainingSet, seed: int, n_landmarks: int = 500) -> Stacked:
    """Fit the posteriors of every modality on its labeled rows, or on a sample of them.

    Args:
        data: A training set for which `can_stack` is true.
        seed: Seed of samples, folds and landmarks.
        n_landmarks: Maximum number of landmarks of RBF features.
    """
    multi_label = next(iter(data.labels.values())).ndim == 2
    classes, targets = _targets(data)
    squash = Tanh(0.5) if multi_label else Softmax()  # tanh(s/2) is 2p − 1
    layers = {}
    views = {}
    summary = {}
    for number, (name, view) in enumerate(data.views.items()):
        T = targets[name]
        known = np.flatnonzero(is_known(data.labels[name]) & data.present[name])
        random = np.random.default_rng([seed, 8, number])
        size = _sample_size(len(known), view.shape[1], T.shape[1])
        sample = np.sort(random.permutation(known)[:size])
        fitted, loss = _fit_posteriors(
            np.asarray(view[sample], np.float32),
            T[sample],
            multi_label=multi_label,
            seed=seed + 7919 * number,
            n_landmarks=n_landmarks,
        )
        layers[name] = [*fitted.layers, squash]
        posteriors = np.full_like(T, np.nan)
        posteriors[sample] = squash(fitted.out_of_fold)
        rest = np.setdiff1d(np.flatnonzero(data.present[name]), sample)
        posteriors[rest] = apply_layers(layers[name], view[rest]) if len(rest) else 0
        views[name] = posteriors
        summary[name] = f"posteriors of {T.shape[1]} classes from {fitted.name}, loss {loss:.3f}"
    return Stacked(layers, replace(data, views=views), summary, classes)


def _targets(data: TrainingSet) -> tuple[_Ints, dict[str, _Floats]]:
    """Classes that occur in any modality, and zeros and ones with a column for each of them."""
    by_modality: dict[str, NDArray[Any]] = data.labels
    if next(iter(by_modality.values())).ndim == 2:
        used = np.any([labels.any(axis=0) for labels in by_modality.values()], axis=0)
        classes = np.flatnonzero(used)
        return classes, {
            name: labels[:, classes].astype(np.float32) for name, labels in by_modality.items()
        }
    classes = np.unique(np.concatenate([labels[labels >= 0] for labels in by_modality.values()]))
    return classes, {
        name: (labels[:, None] == classes).astype(np.float32)
        for name, labels in by_modality.items()
    }


@dataclass(frozen=True, eq=False)
class _Classifier:
    """A classifier as layers, with cross-validated scores of its training rows.

    Attributes:
        name: What it is.
        layers: From raw rows to class scores.
        out_of_fold: Scores of each training row by a fit that did not see it, (n, classes).
    """

    name: str
    layers: list[Layer]
    out_of_fold: _Floats


def _fit_posteriors(
    X: NDArray[np.floating],
    T: _Floats,
    *,
    multi_label: bool,
    seed: int,
    n_landmarks: int = 500,
) -> tuple[_Classifier, float]:
    """Fit all kinds of classifier and join them.

    Args:
        X: Rows, shape (n, d).
        T: Class membership, zeros and ones, shape (n, classes).
        multi_label: Whether a row may have several classes.
        seed: Seed of landmarks, folds and trees.
        n_landmarks: Maximum number of landmarks.

    Returns:
        The joint classifier and its log-loss on held-out folds.
    """
    random = np.random.default_rng(seed)
    folds = make_folds(T, random)
    rows = np.sort(random.permutation(len(X))[:_SELECTION_ROWS])
    task = _Classification(X, T, folds, rows, multi_label)
    n_each = 1 if T.size > _LARGE else 2
    subset = np.sort(random.permutation(len(X))[:_RIDGE_ROWS])
    linear = linear_features(X, T, subset, random)
    logistic = [task.best(close_to_best(linear)[:n_each])]
    forest = None
    if logistic[0][1].loss > _SOLVED:
        landmarks = random.permutation(len(X))[:n_landmarks]
        if rbf := rbf_features(linear, landmarks, T, folds, subset):
            logistic.append(task.best(rbf[:n_each]))
        forest = task.fit_forest([validation.scores for _, validation in logistic], random)
    scores = [validation.scores for _, validation in logistic]
    if forest is not None:
        scores.append(forest.out_of_fold[rows])
    weights = fit_weights(scores, T[rows], multi_label=multi_label, prior=_WEIGHT_PRIOR)
    keep = weights >= _MIN_WEIGHT * weights.sum()
    kept = [task.fit_logistic(*pair) for pair, used in zip(logistic, keep, strict=False) if used]
    if forest is not None and keep[-1]:
        kept.append(forest)
    return _join(kept, T, multi_label)


def _join(
    classifiers: Sequence[_Classifier], T: _Floats, multi_label: bool
) -> tuple[_Classifier, float]:
    """Add up the weighted scores of classifiers."""
    scores = [classifier.out_of_fold for classifier in classifiers]
    weights = fit_weights(scores, T, multi_label=multi_label, prior=_WEIGHT_PRIOR)
    total = np.einsum("e,enc->nc", weights, np.stack(scores)).astype(np.float32)
    n_classes = T.shape[1]
    weighted = Affine(np.kron(weights[:, None], np.eye(n_classes)), np.zeros(n_classes))
    if len(classifiers) == 1:
        layers = [*classifiers[0].layers, weighted]
    else:
        layers = [Parallel(tuple(tuple(c.layers) for c in classifiers)), weighted]
    name = " & ".join(
        f"{weight:.2f} {classifier.name}"
        for weight, classifier in zip(weights, classifiers, strict=True)
    )
    loss = float(log_losses(total, T, multi_label=multi_label).mean())
    return _Classifier(name, layers, total), loss


@dataclass(frozen=True, eq=False)
class _Classification:
    """Rows and classes that classifiers learn.

    Attributes:
        X: Rows, shape (n, d).
        T: Class membership, zeros and ones, shape (n, classes).
        folds: The fold of each row.
        rows: Row numbers on which candidates are compared.
        multi_label: Whether a row may have several classes.
    """

    X: NDArray[np.floating]
    T: _Floats
    folds: _Ints
    rows: _Ints
    multi_label: bool

    def best(self, candidates: Sequence[Prepared]) -> tuple[Prepared, Validation]:
        """Choose features and penalty of a logistic regression by cross-validation."""
        validated = [
            (prepared, self._cross_validate(prepared, self.rows, SHARES)) for prepared in candidates
        ]
        return min(validated, key=lambda pair: pair[1].loss)

    def _cross_validate(
        self, prepared: Prepared, rows: _Ints, shares: Sequence[float]
    ) -> Validation:
        return choose_penalty(
            prepared.features[rows],
            self.T[rows],
            self.folds[rows],
            decay=prepared.decay * len(rows) / len(self.T),
            multi_label=self.multi_label,
            origin=prepared.origin,
            shares=shares,
        )

    def fit_logistic(self, prepared: Prepared, validation: Validation) -> _Classifier:
        """Fit on all rows; the penalty may become smaller than that of some rows."""
        if len(self.rows) < len(self.X):
            shares = [share for share in SHARES if share >= validation.share]
            validation = self._cross_validate(prepared, np.arange(len(self.X)), shares)
        weight, bias = fit_logistic(
            prepared.features,
            self.T,
            decay=prepared.decay,
            share=validation.share,
            multi_label=self.multi_label,
        )
        layers = [*prepared.layers, Affine(weight, bias)]
        return _Classifier(prepared.name, layers, validation.scores)

    def fit_forest(
        self, others: Sequence[_Floats], random: np.random.Generator
    ) -> _Classifier | None:
        """Fit a forest on the rows of the comparison; None if it adds nothing to the others.

        The other rows are held out as they are.

        Args:
            others: Scores of the same rows by the other classifiers, each out of fold.
            random: Draws the splits.
        """
        X = np.asarray(self.X[self.rows], np.float32)
        T = self.T[self.rows]
        folds = self.folds[self.rows]
        n_trees = int(np.clip(_TREE_ROWS // len(X), _MIN_TREES, _MAX_TREES))
        grow = partial(
            fit_forest,
            multi_label=self.multi_label,
            random=random,
            n_trees=n_trees,
            max_leaves=max(2, _LEAF_VALUES // (n_trees * T.shape[1])),
        )
        scores = np.empty_like(T)
        for k in range(int(folds.max()) + 1):
            held_out = folds == k
            scores[held_out] = grow(X[~held_out], T[~held_out])(X[held_out])
            if k == 0 and not self._is_used(others, scores, held_out):
                return None
        forest = grow(X, T)
        out_of_fold = np.empty_like(self.T)
        rest = np.setdiff1d(np.arange(len(self.X)), self.rows)
        out_of_fold[self.rows] = scores
        out_of_fold[rest] = apply_layers([forest], self.X[rest]) if len(rest) else 0
        return _Classifier(f"{n_trees} trees", [forest], out_of_fold)

    def _is_used(
        self, others: Sequence[_Floats], scores: _Floats, held_out: NDArray[np.bool_]
    ) -> bool:
        """Whether scores get a weight beside the scores of other classifiers on some rows."""
        parts = [part[held_out] for part in [*others, scores]]
        T = self.T[self.rows][held_out]
        weights = fit_weights(parts, T, multi_label=self.multi_label, prior=_WEIGHT_PRIOR)
        return bool(weights[-1] >= _MIN_WEIGHT * weights.sum())
