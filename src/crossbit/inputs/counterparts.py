"""The choice of inputs without labels: how well linked rows of two modalities find each other."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.data.correspondence import group_rows
from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError
from crossbit.inputs.steps import fit_steps
from crossbit.linalg.cca import CCA, best_regularization
from crossbit.metrics.counterparts import reciprocal_ranks
from crossbit.model.layers import apply_layers

# Steps → the regularization at which the search begins.
_CANDIDATES = {"standardize": 0.3, "standardize+rbf(1500)+standardize": 0.03}
_HELD_OUT = 0.2
_MAX_HELD_OUT = 1000
_MIN_HELD_OUT = 10
_MAX_AXES = 768
_DIRECTIONS = 512


def choose_by_counterparts(data: TrainingSet, names: Sequence[str], seed: int) -> str:
    """Choose between scaled columns and RBF features for modalities without labels.

    Canonical correlations are fitted on four fifths of the items with each preparation. RBF
    features are chosen if the rows of the held-out items find their counterparts better with them,
    by more than a standard error. Without linked rows of two modalities, or with too few of them,
    columns are scaled.

    Args:
        data: The training set.
        names: Modalities to choose for; the columns of the others are scaled.
        seed: Draws the held-out items.
    """
    default = next(iter(_CANDIDATES))
    linked = data.aligned or any(pairs.left != pairs.right for pairs in data.pairs)
    if len(data.views) < 2 or not linked or any(view.ndim != 2 for view in data.views.values()):
        return default
    try:
        bags = group_rows(data)
    except DataError:
        return default
    n = len(next(iter(bags.values())).counts)
    n_held_out = min(int(_HELD_OUT * n), _MAX_HELD_OUT)
    if n_held_out < _MIN_HELD_OUT:
        return default
    held_out = np.random.default_rng([seed, 1]).permutation(n)[:n_held_out]
    train = np.setdiff1d(np.arange(n), held_out)
    scores = {}
    for steps, start in _CANDIDATES.items():
        means = {}
        for number, (name, bag) in enumerate(bags.items()):
            used = np.unique(bag.rows[np.repeat(np.isin(np.arange(n), train), bag.counts)])
            random = np.random.default_rng([seed, 2, number])
            view, present = data.views[name], data.present[name]
            layers = fit_steps(steps if name in names else default, view[used], random)
            rows = np.full((len(view), layers[-1].widths()[1] or view.shape[1]), np.nan)
            rows[present] = apply_layers(layers, view[present])
            means[name] = bag.means(rows)
        cca = CCA({name: rows[train] for name, rows in means.items()}, max_axes=_MAX_AXES)
        rows_out = {name: rows[held_out] for name, rows in means.items()}
        best, _ = best_regularization(partial(_mean_rank, cca, rows_out), start)
        scores[steps] = _ranks(cca, rows_out, best)
    linear, curved = scores.values()
    gain = curved - linear
    clear = gain.mean() > gain.std() / np.sqrt(max(len(gain) - 1, 1))
    return list(_CANDIDATES)[int(clear)]


def _mean_rank(cca: CCA, rows: Mapping[str, NDArray[Any]], regularization: float) -> float:
    return float(_ranks(cca, rows, regularization).mean())


def _ranks(
    cca: CCA, rows: Mapping[str, NDArray[Any]], regularization: float
) -> NDArray[np.float64]:
    """Reciprocal ranks of the counterparts of rows in the canonical directions."""
    W = cca.directions(_DIRECTIONS, regularization)
    return reciprocal_ranks({name: (rows[name] - cca.mean[name]) @ W[name] for name in rows})
