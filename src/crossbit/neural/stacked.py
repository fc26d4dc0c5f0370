"""Stacking: posteriors of the classes, per modality, as the features that the networks see."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.data import TrainingSet, is_known
from crossbit.model import Layer, Softmax, Tanh
from crossbit.model.inputs import apply
from crossbit.neural.posteriors import fit_posteriors

MOST_ROWS = 20_000  # that posteriors are fitted on
_MOST_CELLS = 10**8  # values of those rows
_MOST_SCORES = 2 * 10**6  # rows × classes for which fitting takes seconds, not minutes
_FEWEST = 5  # rows a class must have on average
_MOST_POSTERIORS = 10**8  # values that are kept in memory


@dataclass(frozen=True, eq=False)
class Stacked:
    """Networks on top of posteriors.

    Attributes:
        before: Modality → layers from raw rows to posteriors.
        data: The same training set, each view replaced by posteriors that were made without the row itself.
        chosen: Modality → what was chosen for it, in words.
    """

    before: dict[str, list[Layer]]
    data: TrainingSet
    chosen: dict[str, str]


def can_stack(data: TrainingSet) -> bool:
    """Whether every view is a matrix with labels of at least two classes, not too many for seconds."""
    for name, view in data.views.items():
        labels = data.labels.get(name)
        if view.ndim != 2 or labels is None:
            return False
        known = is_known(labels) & data.present[name]
        classes = (
            int(labels[known].any(axis=0).sum())
            if labels.ndim == 2
            else len(np.unique(labels[known]))
        )
        n = int(known.sum())
        too_few = (
            classes < 2
            or n < 20
            or _fitted_on(n, view.shape[1], classes) < min(n, _FEWEST * classes)
        )
        if too_few or len(view) * classes > _MOST_POSTERIORS:
            return False
    return True


def _fitted_on(n: int, width: int, classes: int) -> int:
    """How many of the rows of known label posteriors are fitted on."""
    return min(n, MOST_ROWS, _MOST_CELLS // width, _MOST_SCORES // classes)


def stack(data: TrainingSet, seed: int, n_landmarks: int = 500) -> Stacked:
    """Fit posteriors for every modality, on all rows of known label or enough of them.

    Every row gets the posteriors of a fit that did not see it.
    """
    several = next(iter(data.labels.values())).ndim == 2
    targets = _targets(data)
    squash = Tanh(0.5) if several else Softmax()  # tanh(s/2) is 2p − 1
    before, views, chosen = {}, {}, {}
    for number, (name, view) in enumerate(data.views.items()):
        T = targets[name]
        known = np.flatnonzero(is_known(data.labels[name]) & data.present[name])
        random = np.random.default_rng([seed, 8, number])
        known = np.sort(
            random.permutation(known)[: _fitted_on(len(known), view.shape[1], T.shape[1])]
        )
        X = np.asarray(view[known], np.float32)
        fitted = fit_posteriors(
            X, T[known], several=several, seed=seed + 7919 * number, n_landmarks=n_landmarks
        )
        before[name] = [*fitted.layers, squash]
        posteriors = np.full_like(T, np.nan)
        posteriors[known] = squash(fitted.out_of_fold)
        rest = np.setdiff1d(np.flatnonzero(data.present[name]), known)
        posteriors[rest] = apply(before[name], view[rest]) if len(rest) else 0
        views[name] = posteriors
        chosen[name] = (
            f"posteriors of {posteriors.shape[1]} classes from {fitted.preparation}, loss {fitted.loss:.3f}"
        )
    return Stacked(before, replace(data, views=views), chosen)


def _targets(data: TrainingSet) -> dict[str, NDArray[np.float32]]:
    """Zeros and ones, a column for every class that occurs in any modality."""
    labels: dict[str, NDArray[Any]] = data.labels
    if next(iter(labels.values())).ndim == 2:
        used = np.any([some.any(axis=0) for some in labels.values()], axis=0)
        return {name: some[:, used].astype(np.float32) for name, some in labels.items()}
    classes = np.unique(np.concatenate([some[some >= 0] for some in labels.values()]))
    return {name: (some[:, None] == classes).astype(np.float32) for name, some in labels.items()}
