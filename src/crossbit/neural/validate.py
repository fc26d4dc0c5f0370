"""Validation: the metric that decides when to stop and what to keep, on rows that were held out."""

from collections.abc import Callable, Mapping
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from crossbit.codes import Codes
from crossbit.data import is_known
from crossbit.metrics import Relevance, from_labels, mean_average_precision, same_class
from crossbit.neural.parts import Part

Measure = Callable[[Mapping[str, Codes]], float]


def validation_metric(part: Part) -> tuple[str, Measure] | None:
    """The metric that a held-out part allows, in words and as a function of the codes of its rows; percent.

    With labels, or rows that belong together: mean average precision of searching each modality with
    each other one (a single modality with itself), ties in expectation. With pairs alone: how often a similar pair is
    nearer than a dissimilar one. Nothing when the part is too small to tell.
    """
    searches = {
        (a, b): relevant
        for a, b in _directions(part)
        if (relevant := _relevance(part, a, b)) is not None
    }
    if searches:
        return "cross-modal mean average precision" if len(
            part.modalities
        ) > 1 else "mean average precision", (
            lambda codes: (
                100
                * float(np.mean([_search(codes, *names, how) for names, how in searches.items()]))
            )
        )
    if any(0 < pairs.similar.sum() < len(pairs) for pairs in part.pairs):
        return "similar pairs nearer than dissimilar ones", lambda codes: _nearer(part, codes)
    return None


def _directions(part: Part) -> list[tuple[str, str]]:
    names = [name for name in part.modalities if len(part.rows[name])]
    return (
        list(permutations(names, 2))
        if len(part.modalities) > 1
        else [(name, name) for name in names]
    )


def _relevance(part: Part, left: str, right: str) -> Relevance | None:
    a, b = part.labels(left), part.labels(right)
    if a is not None and b is not None and is_known(a).sum() > 1 and is_known(b).sum() > 1:
        return from_labels(a, b)
    if (
        part.data.rows
        and left != right
        and len(np.intersect1d(part.rows[left], part.rows[right])) > 1
    ):
        return same_class(part.rows[left], part.rows[right])
    return None


def _search(codes: Mapping[str, Codes], left: str, right: str, relevant: Relevance) -> float:
    exclude = "same-row" if left == right else None
    return mean_average_precision(codes[left], codes[right], relevant, exclude=exclude)


def _nearer(part: Part, codes: Mapping[str, Codes]) -> float:
    """Area under the ROC curve of the held-out pairs, ties counted as half, averaged over the sets of pairs."""
    areas = []
    for pairs in part.pairs:
        if 0 < pairs.similar.sum() < len(pairs):
            left, right = (
                codes[pairs.left][pairs.index[:, 0]],
                codes[pairs.right][pairs.index[:, 1]],
            )
            areas.append(_area(_distances(left, right), pairs.similar))
    return 100 * float(np.mean(areas))


def _distances(left: Codes, right: Codes) -> NDArray[np.int64]:
    """Hamming distance of row k and row k, for every k."""
    return np.asarray(np.bitwise_count(left.words ^ right.words).sum(axis=1), np.int64)


def _area(distance: NDArray[np.int64], similar: NDArray[np.bool_]) -> float:
    near, far = (
        np.bincount(distance[kind], minlength=int(distance.max()) + 1)
        for kind in (similar, ~similar)
    )
    beyond = far.sum() - np.cumsum(far)
    return float((near * (beyond + 0.5 * far)).sum() / (near.sum() * far.sum()))
