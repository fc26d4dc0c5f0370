"""Class posteriors of each modality, from cross-validated classifiers.

Three kinds of classifier estimate the posteriors of a modality: logistic regression on linear
features, logistic regression on RBF features, and extremely randomized trees. The weighted sum of
their scores with the least log-loss gives the posteriors. The scores of a training row come from
fits that left out its fold, and the landmarks among its rows: so a method that trains on these
*out-of-fold* posteriors sees training rows as it will see new ones. A new row gets the scores of
the regressions on all rows, and of the trees of all folds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_installed
from crossbit.data.labels import class_sizes, is_known
from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError
from crossbit.inputs.choice import Candidate, choose_steps
from crossbit.inputs.logistic import Targets, ValidatedLogistic, log_losses, make_folds
from crossbit.inputs.trees import Tree, grow_trees, join_trees
from crossbit.linalg import Floats, Ints, Matrix
from crossbit.model.ensemble import Parallel
from crossbit.model.layers import Affine, Layer, Softmax, Standardize, Tanh, apply_layers

_MIN_ROWS = 20
_MIN_ROWS_PER_CLASS = 5  # on average, of a sample
_MAX_ROWS = 20_000  # rows that classifiers are fitted on
_MAX_VALUES = 10**8  # values of those rows
_MAX_SCORES = 2 * 10**6  # rows × classes that a regression fits in seconds
_MAX_POSTERIORS = 10**8  # values kept in memory
_TREE_ROWS = 5000  # rows that trees are grown on
_TREES = (16, 32)  # least and greatest number per fold
_TREES_BY_ROWS = 80_000  # rows × trees beyond which fewer are grown
_LEAF_VALUES = 2 * 10**6  # values that the leaves of all trees may have
_SOLVED = 0.01  # log-loss of linear features below which nothing else is tried
_MIN_WEIGHT = 0.05  # share of the weights below which a classifier is dropped
_WEIGHT_PRIOR = 2.0  # rows' worth of belief in equal weights that sum to 1


@dataclass(frozen=True, eq=False)
class Posteriors:
    """Class posteriors of every modality.

    Attributes:
        layers: Modality → layers from raw rows to class posteriors, shape (n, classes).
        rows: Modality → posteriors of the training rows, out of fold where their label was used;
            NaN where a row is absent from its view.
        classes: Class number of each column.
        multi_label: Whether a row may have several classes: then each posterior is a probability
            of its own, otherwise the posteriors of a row sum to 1.
        summary: Modality → the classifiers and their log-loss, one line for the model card.
    """

    layers: dict[str, list[Layer]]
    rows: dict[str, Floats]
    classes: Ints
    multi_label: bool
    summary: dict[str, str]


def check_posteriors(data: TrainingSet) -> str | None:
    """Return why posteriors cannot be fitted, None if they can."""
    for name, view in data.views.items():
        labels = data.labels.get(name)
        if view.ndim != 2:
            return f"view {name!r} is no matrix but has the shape {view.shape}"
        if labels is None:
            return f"view {name!r} has no labels"
        known = is_known(labels) & data.present[name]
        n = int(known.sum())
        if n < _MIN_ROWS:
            return f"view {name!r} has {n} labeled rows, fewer than {_MIN_ROWS}"
        n_classes = int(np.count_nonzero(class_sizes(labels[known])))
        if n_classes < 2:
            return f"the labels of view {name!r} have one class only"
        sample = _sample_size(n, view.shape[1], n_classes)
        if sample < min(n, _MIN_ROWS_PER_CLASS * n_classes):
            return f"view {name!r} has too many columns and classes: {view.shape[1]}, {n_classes}"
        if len(view) * n_classes > _MAX_POSTERIORS:
            return f"view {name!r} has too many rows and classes: {len(view)}, {n_classes}"
    return None


def _sample_size(n: int, n_columns: int, n_classes: int) -> int:
    """Number of labeled rows to fit classifiers on."""
    return min(n, _MAX_ROWS, _MAX_VALUES // n_columns, _MAX_SCORES // n_classes)


def fit_posteriors(data: TrainingSet, seed: int) -> Posteriors:
    """Fit the posteriors of every modality on its labeled rows, or on a sample of them.

    Other rows get the posteriors of the model as it is, as new rows do.

    Args:
        data: Views and labels.
        seed: Seed of samples, folds, landmarks and trees.

    Raises:
        DataError: The posteriors cannot be fitted; `check_posteriors` tells why.
        MissingExtraError: scikit-learn is not installed.
    """
    if reason := check_posteriors(data):
        raise DataError(f"posteriors cannot be fitted: {reason}")
    check_installed("sklearn")
    member = data.one_hot()
    used = np.flatnonzero(np.any([own.any(axis=0) for own in member.values()], axis=0))
    classes = used
    multi_label = next(iter(data.labels.values())).ndim == 2
    if not multi_label:
        classes = np.unique(np.concatenate(list(data.labels_present().values())))
        classes = classes[classes >= 0]
    # From scores to probabilities: the softmax, or the sigmoid of each score.
    squash: list[Layer] = [Softmax()]
    if multi_label:
        half = np.full(len(classes), 2.0)
        squash = [Tanh(0.5), Standardize(-half / 2, half)]
    result = Posteriors({}, {}, classes, multi_label, {})
    for number, (name, view) in enumerate(data.views.items()):
        T = member[name][:, used].astype(np.float32)
        known = np.flatnonzero(is_known(data.labels[name]) & data.present[name])
        random = np.random.default_rng([seed, number])
        size = _sample_size(len(known), view.shape[1], T.shape[1])
        sample = np.sort(random.permutation(known)[:size])
        own_seed = int(random.integers(2**31))
        folds = make_folds(T[sample], own_seed, 5 if len(sample) < 1500 else 4)
        own = Targets(T[sample], folds, multi_label)
        stack = _fit_stack(np.asarray(view[sample], np.float32), own, own_seed)
        result.layers[name] = [*stack.layers, *squash]
        result.rows[name] = np.full_like(T, np.nan)
        result.rows[name][sample] = apply_layers(squash, stack.scores)
        rest = np.setdiff1d(np.flatnonzero(data.present[name]), sample)
        if len(rest):
            result.rows[name][rest] = apply_layers(result.layers[name], view[rest])
        loss = own.loss(stack.scores)
        result.summary[name] = (
            f"posteriors of {len(classes)} classes from {stack.name}, loss {loss:.3f}"
        )
    return result


@dataclass(frozen=True, eq=False)
class _StackPart:
    """A classifier as layers, with out-of-fold scores of its training rows.

    Attributes:
        name: What it is.
        layers: From raw rows to class scores.
        scores: Scores of each training row by fits that did not see it, shape (n, classes).
    """

    name: str
    layers: list[Layer]
    scores: Floats


def _fit_stack(X: Floats, targets: Targets, seed: int) -> _StackPart:
    """Fit all kinds of classifier and join those that help.

    Args:
        X: Rows, shape (n, d).
        targets: Their classes.
        seed: Seed of landmarks and trees.
    """
    linear, rbf = choose_steps(X, targets.T, seed=seed)
    fitted = [_regress(linear, targets)]
    if targets.loss(fitted[0].scores) > _SOLVED:
        if rbf:
            fitted.append(_regress(rbf, targets))
        if (trees := _grow(X, targets, fitted, seed)) is not None:
            fitted.append(trees)
    every = slice(None)
    weights = _weigh([each.scores for each in fitted], targets, every)
    fitted = [fitted[number] for number in np.flatnonzero(_is_used(weights))]
    weights = _weigh([each.scores for each in fitted], targets, every)
    n_classes = targets.T.shape[1]
    weighted = Affine(np.kron(weights[:, None], np.eye(n_classes)), np.zeros(n_classes))
    layers = fitted[0].layers
    if len(fitted) > 1:
        layers = [Parallel(tuple(tuple(each.layers) for each in fitted))]
    scores = np.tensordot(weights, [each.scores for each in fitted], axes=1)
    names = [f"{weight:.2f} {each.name}" for weight, each in zip(weights, fitted, strict=True)]
    return _StackPart(" & ".join(names), [*layers, weighted], scores.astype(np.float32))


def _regress(candidates: Sequence[Candidate], targets: Targets) -> _StackPart:
    """Logistic regression on the features with the least log-loss of held-out rows."""
    validated = [
        ValidatedLogistic(each.features, targets, each.penalty, each.basis) for each in candidates
    ]
    best = int(np.argmin([each.loss for each in validated]))
    regression, scores = validated[best].fit()
    return _StackPart(candidates[best].name, [*candidates[best].layers, regression], scores)


def _grow(
    X: Floats, targets: Targets, others: Sequence[_StackPart], seed: int
) -> _StackPart | None:
    """Grow trees on rows of moderate number; None if they add nothing to the others."""
    T, multi_label = targets.T, targets.multi_label
    layer = Standardize.fit(X)  # scikit-learn does not split columns of tiny scale
    X = layer(X)
    sample = np.random.default_rng(seed).permutation(len(X)) < _TREE_ROWS
    n_rows = int(sample.sum())
    n_trees = int(np.clip(_TREES_BY_ROWS // n_rows, *_TREES))
    n_values = n_rows / 2 * n_trees * targets.n_folds * T.shape[1]
    min_leaf = max(2, int(n_values / _LEAF_VALUES))
    scores = np.empty_like(T)
    trees: list[Tree] = []
    for k in range(targets.n_folds):
        held_out = targets.folds == k
        seen = sample & ~held_out
        grown = grow_trees(
            X[seen],
            T[seen],
            multi_label=multi_label,
            seed=seed + k,
            n_trees=n_trees,
            min_leaf=min_leaf,
        )
        scores[held_out] = join_trees(grown, T[seen], multi_label=multi_label)(X[held_out])
        every = [*(each.scores for each in others), scores]
        if k == 0 and not _is_used(_weigh(every, targets, held_out))[-1]:
            return None
        trees += grown[::2]  # half of them, over all folds, are still more than one fold has
    forest = join_trees(trees, T, multi_label=multi_label)
    return _StackPart(f"{len(trees)} trees", [layer, forest], scores)


def _weigh(scores: Sequence[Floats], targets: Targets, rows: NDArray[np.bool_] | slice) -> Matrix:
    r"""Return weights $w \ge 0$ whose weighted sum of scores has the least log-loss on some rows.

    A penalty $\|w - 1/k\|^2$ for $k$ classifiers keeps weights moderate where rows are few.
    """
    from scipy.optimize import minimize

    stacked = np.stack([own[rows] for own in scores]).astype(np.float64)
    equal = np.full(len(scores), 1 / len(scores))

    def objective(w: Matrix) -> tuple[float, Matrix]:
        total = np.tensordot(w, stacked, axes=1)
        losses, slope = log_losses(total, targets.T[rows], multi_label=targets.multi_label)
        value = float(losses.sum()) + _WEIGHT_PRIOR * np.square(w - equal).sum()
        gradient = np.tensordot(stacked, slope, axes=2) + 2 * _WEIGHT_PRIOR * (w - equal)
        return value, gradient

    bounds = [(0, None)] * len(scores)
    result = minimize(objective, equal, jac=True, method="L-BFGS-B", bounds=bounds)
    return np.asarray(result.x)


def _is_used(weights: Matrix) -> NDArray[np.bool_]:
    """Return which classifiers have a share of the weights that is worth their time."""
    return np.asarray(weights >= _MIN_WEIGHT * weights.sum())
