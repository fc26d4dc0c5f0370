"""Annotation: tags of an item's nearest neighbors, ranked by votes, and their quality."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from crossbit._validation import check_integer
from crossbit.errors import DataError


@dataclass(frozen=True)
class Tag:
    """A tag that neighbors voted for.

    Args:
        name: The tag.
        score: Share of the neighbors' total weight that has it, 0 to 1.
        votes: Number of neighbors that have it.
    """

    name: str
    score: float
    votes: int


def vote(
    tag_lists: Iterable[Iterable[str]],
    weights: Sequence[float] | None = None,
    *,
    max_tags: int = 10,
) -> list[Tag]:
    r"""Return the tags that most neighbors have.

    $$ \mathrm{score}(t) = \frac{\sum_j w_j\,[t \in T_j]}{\sum_j w_j} $$

    With five neighbors, ten tags and equal weights this is the paper's image annotation. A neighbor
    votes once for each of its tags. Equal scores are ordered by the nearest neighbor that has the
    tag, then by name.

    Args:
        tag_lists: Tags $T_j$ of each neighbor, nearest first; a neighbor may have none.
        weights: Weight of each vote, such as the similarity of the neighbor; equal by default.
        max_tags: Maximum number of tags to return.

    Returns:
        Tags, best first.

    Example:
        >>> tags = vote([["sky", "cloud"], ["sky"], ["sea", "cloud"], ["sky"]], max_tags=2)
        >>> [(tag.name, tag.score) for tag in tags]
        [('sky', 0.75), ('cloud', 0.5)]
    """
    check_integer(max_tags, "max_tags", least=1)
    lists = [_distinct(names) for names in tag_lists]
    shares = _shares(weights, len(lists))
    voters: defaultdict[str, list[int]] = defaultdict(list)
    for neighbor, names in enumerate(lists):
        for name in names:
            voters[name].append(neighbor)
    tags = [
        Tag(name, float(sum(shares[j] for j in neighbors)), len(neighbors))
        for name, neighbors in voters.items()
    ]
    # Rounded, because sums of equal weights in another order differ in their last digits.
    tags.sort(key=lambda tag: (-round(tag.score, 12), voters[tag.name][0], tag.name))
    return tags[:max_tags]


def tag_list(value: object) -> list[str]:
    """Return the strings of a list in a payload; any other value has none."""
    return [tag for tag in value if isinstance(tag, str)] if isinstance(value, list) else []


def _shares(weights: Sequence[float] | None, n: int) -> list[float]:
    """Weights that sum to one; if all are zero, neighbors vote with equal weight."""
    array = np.ones(n) if weights is None else np.asarray(weights, np.float64)
    if array.shape != (n,) or not (np.isfinite(array) & (array >= 0)).all():
        raise DataError(
            f"expected a weight of at least 0 for each of {n} neighbors, got {weights!r}"
        )
    if not array.any():
        array = np.ones(n)
    return list(array / array.sum()) if n else []


def _distinct(names: Iterable[str]) -> list[str]:
    """Tags of one item without duplicates."""
    if isinstance(names, str):
        raise DataError(f"expected a list of tags, got the string {names!r}; split it first")
    return list(dict.fromkeys(names))


@dataclass(frozen=True)
class TagQuality:
    """Quality of assigned tags, averaged over items.

    Args:
        precision: Share of the assigned tags that are correct.
        recall: Share of the correct tags that were assigned.
        hit: Share of the items with at least one correct tag.
        items: Number of items evaluated.
        skipped: Number of items without correct tags, which are not evaluated.
    """

    precision: float
    recall: float
    hit: float
    items: int
    skipped: int


def tag_quality(assigned: Sequence[Iterable[str]], correct: Sequence[Iterable[str]]) -> TagQuality:
    r"""Return precision and recall of tags, computed per item and then averaged.

    For an item with assigned tags $A$ and correct tags $T$, precision is $|A \cap T| / |A|$ (0 if
    $A$ is empty) and recall $|A \cap T| / |T|$. Items without correct tags are skipped and counted.

    Args:
        assigned: Tags assigned to each item, such as the names that `vote` returns.
        correct: Correct tags of each item.

    Example:
        >>> assigned = [["sky", "sea"], ["dog", "cat"]]
        >>> quality = tag_quality(assigned, [["sky"], ["dog", "cat", "cow", "pig"]])
        >>> quality.precision, quality.recall, quality.hit
        (0.75, 0.75, 1.0)
    """
    if len(assigned) != len(correct):
        raise DataError(
            f"expected correct tags for each of {len(assigned)} items, got {len(correct)} lists"
        )
    pairs = [(set(_distinct(a)), set(_distinct(c))) for a, c in zip(assigned, correct, strict=True)]
    counts = [(len(a & c), len(a), len(c)) for a, c in pairs if c]
    if not counts:
        raise DataError(f"none of {len(pairs)} items has correct tags; nothing to evaluate")
    right, n_assigned, n_correct = np.array(counts, np.float64).T
    return TagQuality(
        precision=float((right / np.maximum(n_assigned, 1)).mean()),
        recall=float((right / n_correct).mean()),
        hit=float((right > 0).mean()),
        items=len(counts),
        skipped=len(pairs) - len(counts),
    )
