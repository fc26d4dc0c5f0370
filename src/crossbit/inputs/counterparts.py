"""The choice of inputs without labels: how well linked rows of two modalities find each other."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbit.data.correspondence import group_rows
from crossbit.data.sampling import hold_out
from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError
from crossbit.inputs.steps import LazyRows, fit_steps
from crossbit.linalg import Matrix
from crossbit.linalg.cca import CCA, best_regularization
from crossbit.metrics.counterparts import reciprocal_ranks

MAX_AXES = 768
"""Principal axes of a modality that canonical correlations use."""
N_DIRECTIONS = 512
"""Canonical directions in which counterparts are ranked."""

# Steps → the regularization at which the search begins.
_CANDIDATES = {"standardize": 0.3, "standardize+rbf(1500)+standardize": 0.03}
_HELD_OUT = 0.2
_MIN_HELD_OUT = 10


class Search(NamedTuple):
    """Canonical correlations whose regularization held-out items chose.

    Attributes:
        cca: Fitted on the other items.
        regularization: The best one.
        ranks: Reciprocal ranks of the counterparts of held-out items.
    """

    cca: CCA
    regularization: float
    ranks: Matrix


def hold_out_items(n: int, seed: int) -> NDArray[np.bool_] | None:
    """Return a mask of a fifth of the items, None if these are too few to compare anything."""
    held_out = hold_out(np.zeros(n), _HELD_OUT, np.random.default_rng([seed, 1]))
    return held_out if held_out.sum() >= _MIN_HELD_OUT else None


def search_regularization(
    items: Mapping[str, Matrix],
    held_out: NDArray[np.bool_],
    start: float,
    *,
    n_directions: int = N_DIRECTIONS,
    power: float = 1.0,
) -> Search:
    """Search the regularization at which held-out items best find their counterparts.

    Args:
        items: Modality → one row per item; NaN where an item lacks the modality.
        held_out: Mask of the items that canonical correlations do not see.
        start: The first regularization to try.
        n_directions: Number of directions.
        power: Directions are weighted by their correlation to this power.
    """
    cca = CCA({name: rows[~held_out] for name, rows in items.items()}, max_axes=MAX_AXES)
    centered = {name: rows[held_out] - cca.mean[name] for name, rows in items.items()}

    def ranks(regularization: float) -> Matrix:
        W = cca.directions(n_directions, regularization, power)
        return reciprocal_ranks({name: rows @ W[name] for name, rows in centered.items()})

    best = best_regularization(lambda each: float(ranks(each).sum()), start)
    return Search(cca, best, ranks(best))


def choose_by_counterparts(data: TrainingSet, names: Sequence[str], seed: int) -> str:
    """Choose between scaled columns and RBF features for modalities without labels.

    Canonical correlations are fitted on four fifths of the items with each preparation. RBF
    features are chosen if the rows of the held-out items find their counterparts better with them,
    by more than two standard errors. Without linked rows of two modalities, or with too few of
    them, columns are scaled.

    Args:
        data: The training set.
        names: Modalities to choose for; the columns of the others are scaled.
        seed: Draws the held-out items.
    """
    scaled, curved = _CANDIDATES
    linked = data.aligned or any(pairs.left != pairs.right for pairs in data.pairs)
    if len(data.views) < 2 or not linked or any(view.ndim != 2 for view in data.views.values()):
        return scaled
    try:
        bags = group_rows(data)
    except DataError:
        return scaled
    held_out = hold_out_items(len(next(iter(bags.values())).counts), seed)
    if held_out is None:
        return scaled
    ranks = {}
    for steps, start in _CANDIDATES.items():
        items = {}
        for number, (name, bag) in enumerate(bags.items()):
            view = data.views[name]
            used = np.unique(bag.rows[np.repeat(~held_out, bag.counts)])
            random = np.random.default_rng([seed, 2, number])
            layers = fit_steps(steps if name in names else scaled, view[used], random)
            rows = LazyRows(view, layers).load(data.present[name])
            items[name] = bag.means(rows.astype(np.float64))
        ranks[steps] = search_regularization(items, held_out, start).ranks
    gain = ranks[curved] - ranks[scaled]
    clear = len(gain) > 1 and gain.mean() > 2 * gain.std() / np.sqrt(len(gain) - 1)
    return curved if clear else scaled
