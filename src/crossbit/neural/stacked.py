"""Stacking: posteriors of the classes, per modality, as the features that the networks see."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.data import TrainingSet, is_known
from crossbit.model import Layer, Softmax, Tanh
from crossbit.model.inputs import apply
from crossbit.neural.posteriors import fit_posteriors

MOST_ROWS = 20_000
_MOST_WORK = 2 * 10**10  # rows × columns × (columns or classes) for which it takes seconds, not minutes


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
    """Whether every view is a matrix with labels of at least two classes, small enough to take seconds."""
    for name, view in data.views.items():
        labels = data.labels.get(name)
        if view.ndim != 2 or labels is None:
            return False
        known = is_known(labels) & data.present[name]
        classes = labels[known].any(axis=0).sum() if labels.ndim == 2 else len(np.unique(labels[known]))
        n, d = int(known.sum()), view.shape[1]
        work = n * min(n, max(d, 600)) * max(min(n, d), 600, classes)
        if classes < 2 or n < 20 or n > MOST_ROWS or work > _MOST_WORK:
            return False
    return True


def stack(data: TrainingSet, seed: int) -> Stacked:
    """Fit posteriors for every modality; rows of known label get those of a fit that did not see them."""
    several = next(iter(data.labels.values())).ndim == 2
    targets = _targets(data)
    squash = Tanh(0.5) if several else Softmax()  # tanh(s/2) is 2p − 1
    before, views, chosen = {}, {}, {}
    for number, (name, view) in enumerate(data.views.items()):
        known = is_known(data.labels[name]) & data.present[name]
        X = np.asarray(view[known], np.float64)
        fitted = fit_posteriors(X, targets[name][known], several=several, seed=seed + 7919 * number)
        before[name] = [*fitted.layers, squash]
        posteriors = np.full((len(view), fitted.out_of_fold.shape[1]), np.nan, np.float32)
        posteriors[known] = squash(fitted.out_of_fold)
        rest = data.present[name] & ~known
        posteriors[rest] = apply(before[name], view[rest]) if rest.any() else 0
        views[name] = posteriors
        chosen[name] = f"posteriors of {posteriors.shape[1]} classes from {fitted.preparation}, loss {fitted.loss:.3f}"
    return Stacked(before, replace(data, views=views), chosen)


def _targets(data: TrainingSet) -> dict[str, NDArray[np.float32]]:
    """Zeros and ones, a column for every class that occurs in any modality."""
    labels: dict[str, NDArray[Any]] = data.labels
    if next(iter(labels.values())).ndim == 2:
        used = np.any([some.any(axis=0) for some in labels.values()], axis=0)
        return {name: some[:, used].astype(np.float32) for name, some in labels.items()}
    classes = np.unique(np.concatenate([some[some >= 0] for some in labels.values()]))
    return {name: (some[:, None] == classes).astype(np.float32) for name, some in labels.items()}
