"""Training, query and base splits of NUS: two interpretations of contradictory sizes.

The paper splits about 250,000 photographs into equal halves for training and testing, and then
searches 1.8·10⁵ photographs with 10⁴ queries, which no half can hold. Of 269,648 photographs,
209,347 have one of the 81 concepts and 186,577 have one of the ten most frequent.

- ``nus/labeled``: every photograph with a concept. Queries and base have the printed sizes and are
  disjoint from the training split, which is a tenth of all instead of a half.
- ``nus/ten-concepts``: every photograph with one of the ten most frequent concepts, as in much
  later work. Queries and base have the printed sizes; the training split is a half of all and must
  therefore lie within the base.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_known
from crossbit.data import Dataset
from crossbit.errors import DataError

SPLITS = ("labeled", "ten-concepts")
QUERIES = 10_000  # as printed
BASE = 180_000  # as printed
LABELED = 209_347
_FREQUENT_BASE = 176_577  # photographs with a frequent concept, less the queries
_FREQUENT_CONCEPTS = 10
_SEED = 2012  # one split for all methods and seeds


def apply_split(data: Dataset, split: str) -> Dataset:
    """Select the photographs of an interpretation, split them, and preprocess like the paper.

    A set of another size is divided in the same proportions. Rows without one of the views are
    left out.

    Args:
        data: Views ``image`` and ``tags`` with concepts as labels, and a split ``complete`` if rows
            may lack a view.
        split: ``"labeled"`` or ``"ten-concepts"``.
    """
    labels = np.asarray(data.labels)
    if check_known(split, SPLITS, "split") == "ten-concepts":
        columns = np.sort(np.argsort(-labels.sum(axis=0), kind="stable")[:_FREQUENT_CONCEPTS])
        labels = labels[:, columns]
        data = replace(data, labels=labels, classes=[data.classes[k] for k in columns])
    usable = np.flatnonzero(labels.any(axis=1))
    if "complete" in data.splits:
        usable = np.intersect1d(usable, np.asarray(data.splits["complete"]))
    rows = np.random.default_rng(_SEED).permutation(usable)
    chosen = replace(data, payload=None).take(rows)
    return preprocess_like_paper(replace(chosen, splits=_divide(len(rows), split)))


def _divide(n: int, split: str) -> dict[str, NDArray[np.int64]]:
    """Rows of each split; every split is contiguous, so selecting it copies nothing."""
    if n < 20:
        raise DataError(f"need at least 20 photographs with a concept and all views, got {n}")
    if split == "labeled":
        queries = round(n * QUERIES / LABELED)
        base = round(n * BASE / LABELED)
        return {
            "train": np.arange(n - queries - base),
            "database": np.arange(n - queries - base, n - queries),
            "query": np.arange(n - queries, n),
        }
    queries = round(n * QUERIES / (QUERIES + _FREQUENT_BASE))
    return {
        "train": np.arange(n // 2),
        "database": np.arange(n - queries),
        "query": np.arange(n - queries, n),
    }


def preprocess_like_paper(data: Dataset) -> Dataset:
    """Scale image rows to unit length (float32) and store tags as bytes."""
    image = np.array(data.views["image"], np.float32)
    image /= np.maximum(np.linalg.norm(image, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    return replace(data, views={"image": image, "tags": np.asarray(data.views["tags"], np.uint8)})
