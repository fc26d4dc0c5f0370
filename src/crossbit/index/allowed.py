"""Restricting a search to some ids."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit.errors import DataError
from crossbit.index.arguments import id_array
from crossbit.index.segment import Segment

_FEW = 16  # when fewer than one row in so many is allowed, their codes are gathered and nothing else is looked at


def restricted(segments: tuple[Segment, ...], where: ArrayLike) -> tuple[Segment, ...]:
    """Segments that hold only what ``where`` allows: an array of ids, or booleans by id."""
    allowed = np.asarray(where)
    if allowed.dtype == np.bool_ and allowed.ndim != 1:
        raise DataError(
            f"where is an array of ids, or booleans by id, in one dimension; got shape {allowed.shape}"
        )
    if allowed.dtype != np.bool_:
        allowed = id_array(allowed)
        if not (allowed[1:] > allowed[:-1]).all():
            allowed = np.unique(allowed)
    parts = (_restricted(segment, allowed) for segment in segments)
    return tuple(part for part in parts if part.living)


def _restricted(segment: Segment, allowed: NDArray[np.bool_] | NDArray[np.int64]) -> Segment:
    rows = _rows(segment, allowed)
    if len(rows) * _FEW < len(segment):
        return Segment(segment.rows.ids[rows], segment.rows.words[rows], segment.rows.n_bits)
    mask = np.zeros(len(segment), np.bool_)
    mask[rows] = True
    return segment.only(mask)


def _rows(segment: Segment, allowed: NDArray[np.bool_] | NDArray[np.int64]) -> NDArray[np.intp]:
    """The living rows that are allowed, ascending."""
    if allowed.dtype != np.bool_:
        found = segment.find(allowed.astype(np.int64, copy=False))
        return found[found >= 0]
    ids = segment.rows.ids
    known = int(np.searchsorted(ids, len(allowed)))  # beyond the booleans nothing is allowed
    mask = allowed[ids[:known]].astype(np.bool_, copy=False)
    if segment.alive is not None:
        mask = mask & segment.alive[:known]
    return np.flatnonzero(mask)
