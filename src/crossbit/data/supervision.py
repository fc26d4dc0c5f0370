"""Whatever is known about two modalities, as similar and dissimilar pairs of their rows."""

import numpy as np
from numpy.typing import NDArray

from crossbit.data.pairs import Pairs
from crossbit.data.sampling import pairs_from_labels
from crossbit.data.views import TrainingSet
from crossbit.errors import DataError

_Index = NDArray[np.int64]


def cross_pairs(
    data: TrainingSet, left: str, right: str, *, n_similar: int, n_dissimilar: int, seed: int
) -> Pairs:
    """Similar and dissimilar pairs across two modalities, from the most explicit knowledge there is.

    1. The pairs given across the two modalities, all of them. When none of them is dissimilar, random
       pairs that are not among them are taken as dissimilar.
    2. Else pairs drawn from the labels, spread over the classes; where fewer exist than asked, all of them.
    3. Else rows that belong together are similar, and random others dissimilar.

    Args:
        data: The checked training set.
        left: Modality of the first row of each pair.
        right: Modality of the second, another one.
        n_similar: How many similar pairs to draw, at most; pairs that were given are all taken.
        n_dissimilar: How many dissimilar pairs to draw, at most.
        seed: The same seed gives the same pairs.

    Raises:
        DataError: Nothing links the two modalities, or there are no pairs of one kind.

    Example:
        >>> from crossbit.data import training_set
        >>> data = training_set({"image": np.ones((5, 3)), "text": np.ones((5, 2))}, labels=[0, 0, 1, 1, 1])
        >>> cross_pairs(data, "image", "text", n_similar=100, n_dissimilar=6, seed=0)
        Pairs(image-text: 13 similar, 6 dissimilar)
    """
    for count in (n_similar, n_dissimilar):
        if count < 1:
            raise DataError(
                f"learning needs at least one similar and one dissimilar pair, got a number of {count}"
            )
    random = np.random.default_rng(seed)
    given = _given(data, left, right)
    if len(given):
        found = (
            given if not given.similar.all() else _with_others(data, given, n_dissimilar, random)
        )
    elif left in data.labels and right in data.labels:
        found = _from_labels(
            data, left, right, n_similar, n_dissimilar, int(random.integers(1 << 62))
        )
    elif data.aligned:
        found = _from_rows(data, left, right, n_similar, n_dissimilar, random)
    else:
        raise DataError(
            f"nothing links {left!r} to {right!r};"
            f" give pairs {left}-{right}, labels of both, or rows that belong together"
        )
    if found.similar.all() or not found.similar.any():
        missing = "dissimilar" if len(found) and found.similar.all() else "similar"
        raise DataError(
            f"there are no {missing} pairs of {left!r} and {right!r}, and learning needs both kinds"
        )
    return found


def _given(data: TrainingSet, left: str, right: str) -> Pairs:
    """The explicit pairs of the two modalities, in whichever order they were named."""
    some = [pairs for pairs in data.pairs if {pairs.left, pairs.right} == {left, right}]
    index = [pairs.index if pairs.left == left else pairs.index[:, ::-1] for pairs in some]
    similar = [pairs.similar for pairs in some]
    return Pairs(
        left,
        right,
        np.concatenate([np.empty((0, 2), np.int64), *index]),
        np.concatenate([np.empty(0, np.bool_), *similar]),
    )


def _from_labels(
    data: TrainingSet, left: str, right: str, n_similar: int, n_dissimilar: int, seed: int
) -> Pairs:
    labels = data.labels_present()
    counts = {"n_similar": n_similar, "n_dissimilar": n_dissimilar}
    drawn = pairs_from_labels(labels, left, right, **counts, seed=seed, duplicates=True)
    # Pairs come twice only when all that exist are there.
    keys = drawn.index @ np.array([len(data.views[right]), 1])
    once = np.sort(np.unique(keys, return_index=True)[1])
    return Pairs(left, right, drawn.index[once], drawn.similar[once])


def _from_rows(
    data: TrainingSet,
    left: str,
    right: str,
    n_similar: int,
    n_dissimilar: int,
    random: np.random.Generator,
) -> Pairs:
    together = data.together(left, right)
    everything = Pairs(
        left, right, np.stack([together, together], axis=1), np.ones(len(together), np.bool_)
    )
    chosen = np.sort(random.permutation(len(together))[:n_similar])
    others = _others(data, everything, n_dissimilar, random)
    return _joined(Pairs(left, right, everything.index[chosen], everything.similar[chosen]), others)


def _with_others(data: TrainingSet, similar: Pairs, n: int, random: np.random.Generator) -> Pairs:
    return _joined(similar, _others(data, similar, n, random))


def _joined(similar: Pairs, others: _Index) -> Pairs:
    index = np.concatenate([similar.index, others])
    return Pairs(similar.left, similar.right, index, np.arange(len(index)) < len(similar))


def _others(data: TrainingSet, similar: Pairs, n: int, random: np.random.Generator) -> _Index:
    """``n`` different random pairs of rows that are present and not known to be similar, or all there are."""
    rows = {name: np.flatnonzero(data.present[name]) for name in (similar.left, similar.right)}
    known = similar.among(rows).index @ np.array([len(rows[similar.right]), 1])
    total = len(rows[similar.left]) * len(rows[similar.right])
    # As many more as may turn out to be similar.
    keys = random.choice(total, min(total, n + len(known)), replace=False)
    keys = keys[~np.isin(keys, known)][:n]
    left, right = np.divmod(keys, len(rows[similar.right]))
    return np.stack([rows[similar.left][left], rows[similar.right][right]], axis=1)
