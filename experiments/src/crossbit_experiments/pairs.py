"""Training pairs drawn from the classes of the rows, by either of two rules."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from crossbit.data import Dataset, Pairs, pairs_from_labels

Rule = Literal["classes", "pairs"]
"""Draw as many pairs of each class (``"classes"``), or every pair with the same probability."""


def draw_pairs(
    train: Dataset,
    seed: int,
    *,
    n_pairs: tuple[int, int],
    rule: Rule = "classes",
    share: float = 1.0,
    across: bool = True,
    within: bool = True,
    inverted: bool = False,
    distractors: bool = True,
) -> Mapping[str, Any]:
    """Draw pairs from the classes of the rows and return the `fit` arguments.

    Rows of one class are similar, rows of different classes are dissimilar. A distractor (label −1)
    is dissimilar to every row of a class; two distractors form no pair. Only the rule ``"pairs"``
    draws pairs with distractors.

    Args:
        train: Two aligned views with classes.
        seed: Random seed.
        n_pairs: Similar and dissimilar pairs for each loss, at most as many as exist.
        rule: How pairs are drawn.
        share: Share of the pairs across modalities to keep.
        across: Draw pairs across the modalities.
        within: Draw pairs within each modality.
        inverted: Exchange similar and dissimilar pairs.
        distractors: Include pairs with distractors.
    """
    first, second = train.modalities
    labels = np.asarray(train.labels)
    wanted = [(first, second, share)] * across
    wanted += [(first, first, 1.0), (second, second, 1.0)] * within
    draw = _evenly if rule == "classes" else _uniformly
    pairs: list[Pairs] = []
    for number, (left, right, fraction) in enumerate(wanted):
        # A separate seed for each loss keeps its pairs the same when another loss is left out.
        own_seed = seed + 1000 * number
        drawn = draw(labels, left, right, n_pairs, fraction, own_seed, distractors)
        pairs.append(Pairs(left, right, drawn.index, ~drawn.similar) if inverted else drawn)
    return {"views": train.views, "pairs": pairs, "aligned": False}


def _evenly(
    labels: NDArray[Any],
    left: str,
    right: str,
    n_pairs: tuple[int, int],
    fraction: float,
    seed: int,
    distractors: bool,
) -> Pairs:
    """The library's rule: as many pairs of each class."""
    del distractors
    similar, dissimilar = (
        round(fraction * min(n, available))
        for n, available in zip(n_pairs, _count(labels, within=left == right), strict=True)
    )
    return pairs_from_labels(
        labels, left, right, n_similar=similar, n_dissimilar=dissimilar, seed=seed
    )


def _count(labels: NDArray[Any], *, within: bool) -> tuple[int, int]:
    """Number of similar and dissimilar pairs: unordered within a modality, ordered across."""
    sizes = np.unique(labels, return_counts=True)[1]
    similar = int(np.square(sizes).sum())
    total = len(labels) ** 2
    if within:
        return (similar - len(labels)) // 2, (total - similar) // 2
    return similar, total - similar


def _uniformly(
    labels: NDArray[Any],
    left: str,
    right: str,
    n_pairs: tuple[int, int],
    fraction: float,
    seed: int,
    distractors: bool,
) -> Pairs:
    """Every pair with the same probability, none twice."""
    in_class = labels >= 0
    similar = (labels[:, None] == labels) & in_class
    allowed = (in_class[:, None] | in_class) if distractors else (in_class[:, None] & in_class)
    dissimilar = (labels[:, None] != labels) & allowed
    if left == right:
        upper = np.triu(np.ones_like(similar), 1)  # unordered pairs
        similar, dissimilar = similar & upper, dissimilar & upper
    random = np.random.default_rng(seed)
    drawn = []
    for kind, most in zip((similar, dissimilar), n_pairs, strict=True):
        places = np.flatnonzero(kind)
        wanted = round(fraction * min(most, len(places)))
        chosen = np.sort(random.choice(places, wanted, replace=False, shuffle=False))
        drawn.append(np.stack(np.divmod(chosen, len(labels)), axis=1))
    is_similar = np.repeat([True, False], [len(index) for index in drawn])
    return Pairs(left, right, np.concatenate(drawn), is_similar)
