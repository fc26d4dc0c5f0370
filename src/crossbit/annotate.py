"""Annotation: the tags of a thing's nearest neighbors, ranked by their votes, and how good such tags are."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from crossbit._validation import whole_number
from crossbit.errors import DataError


@dataclass(frozen=True)
class Tag:
    """A tag that neighbors voted for.

    Args:
        name: The tag.
        score: Share of the neighbors' weight that has it, 0 to 1.
        votes: How many neighbors have it.
    """

    name: str
    score: float
    votes: int


def vote(
    tag_lists: Iterable[Iterable[str]], weights: Sequence[float] | None = None, *, tags: int = 10
) -> list[Tag]:
    r"""The tags that most neighbors have.

    $$ \mathrm{score}(t) = \frac{\sum_j w_j\,[t \in T_j]}{\sum_j w_j} $$

    With five neighbors, ten tags and equal weights this is the paper's annotation of pictures. A neighbor votes once
    for each of its tags. Equal scores are ordered by the nearest neighbor that has the tag, then by name.

    Args:
        tag_lists: The tags $T_j$ of each neighbor, the nearest first; a neighbor without tags votes for nothing.
        weights: What each vote counts, such as the similarity of the neighbor; all alike by default.
        tags: How many tags to give at most.

    Returns:
        Tags, the best first.

    Example:
        >>> [(tag.name, tag.score) for tag in vote([["sky", "cloud"], ["sky"], ["sea", "cloud"], ["sky"]], tags=2)]
        [('sky', 0.75), ('cloud', 0.5)]
    """
    whole_number(tags, "the number of tags", least=1)
    lists = [_distinct(names) for names in tag_lists]
    shares = _shares(weights, len(lists))
    voters: defaultdict[str, list[int]] = defaultdict(list)
    for neighbor, names in enumerate(lists):
        for name in names:
            voters[name].append(neighbor)
    found = [
        Tag(name, float(sum(shares[j] for j in who)), len(who)) for name, who in voters.items()
    ]
    return sorted(found, key=lambda tag: (-round(tag.score, 12), voters[tag.name][0], tag.name))[
        :tags
    ]


def _shares(weights: Sequence[float] | None, n: int) -> list[float]:
    """Weights that sum to one; neighbors that all weigh nothing vote alike."""
    given = np.ones(n) if weights is None else np.asarray(weights, np.float64)
    if given.shape != (n,) or not (np.isfinite(given) & (given >= 0)).all():
        raise DataError(
            f"expected a weight of at least 0 for each of {n} neighbors, got {weights!r}"
        )
    if not given.any():
        given = np.ones(n)
    return list(given / given.sum()) if n else []


def _distinct(names: Iterable[str]) -> list[str]:
    """The tags of one thing, each once."""
    if isinstance(names, str):
        raise DataError(f"expected a list of tags, got the string {names!r}; split it first")
    return list(dict.fromkeys(names))


@dataclass(frozen=True)
class TagQuality:
    """How good the tags given to many things are, on average over the things.

    Args:
        precision: Share of the given tags that are right.
        recall: Share of the right tags that were given.
        hit: Share of the things with at least one right tag.
        things: How many things were judged.
        passed_over: How many had no true tags, which are not judged.
    """

    precision: float
    recall: float
    hit: float
    things: int
    passed_over: int


def tag_quality(given: Sequence[Iterable[str]], truth: Sequence[Iterable[str]]) -> TagQuality:
    r"""Precision and recall of tags, by thing and then averaged.

    For a thing given the tags $G$ with the true tags $T$, precision is $|G \cap T| / |G|$ (0 where nothing was given)
    and recall $|G \cap T| / |T|$. Things without true tags tell nothing and are counted apart.

    Args:
        given: The tags given to each thing, such as the names that `vote` found.
        truth: The true tags of each.

    Example:
        >>> quality = tag_quality([["sky", "sea"], ["dog", "cat"]], [["sky"], ["dog", "cat", "cow", "pig"]])
        >>> quality.precision, quality.recall, quality.hit
        (0.75, 0.75, 1.0)
    """
    if len(given) != len(truth):
        raise DataError(
            f"expected true tags for each of {len(given)} things, got {len(truth)} lists"
        )
    pairs = [(set(_distinct(g)), set(_distinct(t))) for g, t in zip(given, truth, strict=True)]
    judged = [(len(g & t), len(g), len(t)) for g, t in pairs if t]
    if not judged:
        raise DataError(f"none of {len(pairs)} things has true tags; there is nothing to judge")
    right, n_given, n_true = np.array(judged, np.float64).T
    return TagQuality(
        precision=float((right / np.maximum(n_given, 1)).mean()),
        recall=float((right / n_true).mean()),
        hit=float((right > 0).mean()),
        things=len(judged),
        passed_over=len(pairs) - len(judged),
    )
