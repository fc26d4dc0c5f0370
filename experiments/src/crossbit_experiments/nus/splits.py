"""Who learns, who asks and who is searched: two readings of sizes that the paper prints and that contradict each other.

The paper splits about 250,000 photographs into equal halves for training and testing, and then searches 1.8·10⁵ with
10⁴ queries, which no half can hold. Of 269,648 photographs 209,347 have one of the 81 concepts, and 186,577 one of the
ten most frequent.

- ``nus/labeled``: every photograph with a concept. Queries and base have the printed sizes and are never learned
  from; what is left to learn from is a tenth, not a half.
- ``nus/ten-concepts``: every photograph with one of the ten most frequent concepts, as much later work has it. Queries
  and base have the printed sizes, a half is learned from, and so it must lie within the base.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_known
from crossbit.data import Dataset
from crossbit.errors import DataError

QUERIES, BASE = 10_000, 180_000  # as printed
LABELED, FREQUENT = 209_347, 10
READINGS = ("labeled", "ten-concepts")
_SEED = 2012  # of the split: one for all methods and all seeds


def apply_reading(data: Dataset, reading: str) -> Dataset:
    """The photographs that a reading speaks of, with their concepts and its parts; pictures to unit length.

    A set of another size is divided in the same proportions. Rows that lack a view take no part.

    Args:
        data: Views ``image`` and ``tags``, concepts as labels; a part ``complete`` where rows may lack something.
        reading: ``"labeled"`` or ``"ten-concepts"``.
    """
    labels = np.asarray(data.labels)
    if check_known(reading, READINGS, "reading") == "ten-concepts":
        columns = np.sort(np.argsort(-labels.sum(axis=0), kind="stable")[:FREQUENT])
        labels = labels[:, columns]
        data = replace(data, labels=labels, classes=[data.classes[k] for k in columns])
    usable = np.flatnonzero(labels.any(axis=1))
    if "complete" in data.splits:
        usable = np.intersect1d(usable, np.asarray(data.splits["complete"]))
    rows = np.random.default_rng(_SEED).permutation(usable)
    splits = _parts(len(rows), reading)
    return as_the_paper_has_them(replace(replace(data, payload=None).take(rows), splits=splits))


def _parts(n: int, reading: str) -> dict[str, NDArray[np.int64]]:
    """Rows to learn from first, queries last: every part is one stretch, which needs no copy."""
    if n < 20:
        raise DataError(
            f"{n} photographs have a concept and all views; there must be 20 or more to be divided"
        )
    if reading == "labeled":
        queries, base = round(n * QUERIES / LABELED), round(n * BASE / LABELED)
        return {
            "train": np.arange(n - queries - base),
            "database": np.arange(n - queries - base, n - queries),
            "query": np.arange(n - queries, n),
        }
    queries = round(n * QUERIES / (QUERIES + 176_577))
    return {
        "train": np.arange(n // 2),
        "database": np.arange(n - queries),
        "query": np.arange(n - queries, n),
    }


def as_the_paper_has_them(data: Dataset) -> Dataset:
    """The same with rows of pictures brought to unit length, as float32, and tags as bytes."""
    image = np.array(data.views["image"], np.float32)
    image /= np.maximum(np.linalg.norm(image, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    return replace(data, views={"image": image, "tags": np.asarray(data.views["tags"], np.uint8)})
