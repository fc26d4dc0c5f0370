"""Ways of preparing features, compared by ridge regression: linear ones, and nearness to landmarks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossbit.model import RBF, Layer
from crossbit.model.inputs import apply, fit_inputs
from crossbit.neural.ridge import leave_folds_out, leave_one_out

Ints = NDArray[np.int64]

LINEAR = ("standardize", "sqrt+standardize", "unit+standardize")
SCALES = (0.5, 1.0, 2.0, 4.0)
_FEWER = 300  # landmarks are enough to compare scales
_COMPARED_ON = 2500  # rows
_NOT_WORTH = 1.3  # landmarks whose error is so many times that of linear features are given up
_CLOSE = 1.1  # linear features whose error is less than so many times the least are all looked at
_MANY = 100_000  # rows × classes from which a closer look takes so long that only the best of each kind get it


@dataclass(frozen=True, eq=False)
class Prepared:
    """Features of training rows.

    Attributes:
        name: What was done, in words.
        layers: From raw rows to features.
        features: Of the training rows, shape (n, m).
        error: Squared error of ridge regression on rows it did not see.
        decay: The decay that has it, for all rows.
        origin: The fold of the row that each column was made from; nothing where columns are made from no row.
    """

    name: str
    layers: list[Layer]
    features: NDArray[np.float32]
    error: float
    decay: float
    origin: Ints | None = None


def prepare(
    X: NDArray[np.floating],
    T: NDArray[np.float32],
    folds: Ints,
    random: np.random.Generator,
    *,
    n_landmarks: int,
) -> list[Prepared]:
    """Linear features, and two kinds of nearness to landmarks, as far as they are worth a closer look.

    The error of ridge regression is unjust to linear features, whose scores need not be near 0 and 1 to tell classes
    apart: the best are never given up for it, and others that come close are kept.

    Args:
        X: Raw rows, shape (n, d).
        T: Which classes each row has: zeros and ones, shape (n, classes).
        folds: The fold of each row.
        random: Draws landmarks.
        n_landmarks: How many, at most.
    """
    some = np.sort(random.permutation(len(X))[:_COMPARED_ON])
    linear = sorted(
        (_linear(steps, X, T, some, random) for steps in LINEAR), key=lambda one: one.error
    )
    marks = random.permutation(len(X))[:n_landmarks]
    near: Sequence[Prepared] = min(
        (_near(one, marks, T, folds, some) for one in linear[:2]), key=lambda found: found[0].error
    )
    least = linear[0].error
    if T.size > _MANY:
        linear, near = linear[:1], (min(near, key=lambda one: one.error),)
    return [one for one in linear if one.error <= _CLOSE * least] + [
        one for one in near if near[0].error <= _NOT_WORTH * least
    ]


def _linear(
    steps: str,
    X: NDArray[np.floating],
    T: NDArray[np.float32],
    some: Ints,
    random: np.random.Generator,
) -> Prepared:
    layers = fit_inputs(steps, X, random)
    F = apply(layers, X)
    error, decay = leave_one_out(F[some], T[some])
    return Prepared(steps, layers, F, error, decay * len(X) / len(some))


def _near(
    before: Prepared, marks: Ints, T: NDArray[np.float32], folds: Ints, some: Ints
) -> tuple[Prepared, Prepared]:
    """Nearness to landmarks at the best scale, and as strangers see it at theirs."""
    few = marks[:_FEWER]
    squares = _squares(before.features[some], before.features[few])
    unit = 1 / max(float(np.median(squares)), 1e-12)
    itself = _itself(some, few)
    found = []
    for strange in (False, True):
        tried = []
        for scale in SCALES:
            F = np.exp(-scale * unit * squares)
            if strange:
                estrange(F, *itself)
            tried.append((*leave_folds_out(F, T[some], folds[some], folds[few]), scale))
        error, decay, scale = min(tried)
        larger = len(T) / len(some) * len(marks) / len(few)
        found.append(_landmarks(before, marks, scale, unit, strange, error, decay * larger, folds))
    return found[0], found[1]


def _landmarks(
    before: Prepared,
    marks: Ints,
    scale: float,
    unit: float,
    strange: bool,
    error: float,
    decay: float,
    folds: Ints,
) -> Prepared:
    layer = RBF(before.features[marks], scale * unit)
    F = apply([layer], before.features)
    if strange:
        estrange(F, *_itself(np.arange(len(F)), marks))
    name = f"{before.name}+rbf({len(marks)}, {scale:g})" + (
        ", no row meeting itself" if strange else ""
    )
    return Prepared(name, [*before.layers, layer], F, error, decay, folds[marks])


def _squares(A: NDArray[np.float32], B: NDArray[np.float32]) -> NDArray[np.float32]:
    """Squared distances of all rows."""
    squares: NDArray[np.float32] = (
        np.square(A).sum(axis=1)[:, None] + np.square(B).sum(axis=1) - 2 * A @ B.T
    )
    return np.maximum(squares, 0, out=squares)


def _itself(rows: Ints, marks: Ints) -> tuple[Ints, Ints]:
    """Where landmarks meet the rows that they are: positions among increasing rows, and among landmarks."""
    place = np.minimum(np.searchsorted(rows, marks), len(rows) - 1)
    same = np.flatnonzero(rows[place] == marks)
    return place[same], same


def estrange(F: NDArray[np.float32], rows: Ints, columns: Ints) -> None:
    """Let no row meet itself: where it is a landmark, its nearness to the nearest other landmark stands in.

    New rows never meet themselves; with few rows of many columns, what is learned from such meetings is of no use.
    """
    F[rows, columns] = 0
    F[rows, columns] = F[rows].max(axis=1)
