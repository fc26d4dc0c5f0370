"""Labels: one class per row, or a matrix of zeros and ones with any number of classes per row."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit._frames import is_missing
from crossbit._validation import check_array
from crossbit.errors import DataError

LabelsArgument = ArrayLike | Mapping[str, ArrayLike]
"""One array for aligned views, or one array per modality."""

_SEVERAL = (list, tuple, set, frozenset)  # words of a row that has several
_END = 1 << 63  # classes are stored as int64


def check_labels(labels: ArrayLike, n: int | None, what: str = "labels") -> NDArray[Any]:
    """Return labels as classes (n,) ``int64``, −1 unknown, or as a boolean matrix (n, classes).

    Zeros and ones in a matrix become booleans; a column of classes (n, 1) becomes flat.
    Words are numbered by `number_words` before, together with those of other modalities.

    Args:
        labels: Labels in either form.
        n: Expected number of rows, or None for any number.
        what: Name of the labels in error messages.
    """
    array = check_array(labels, what)
    if n is not None and len(np.atleast_1d(array)) != n:
        raise DataError(f"{what}: expected one for each of {n} rows, got shape {array.shape}")
    if array.ndim == 2 and array.shape[1] == 1 and array.dtype != np.bool_:
        array = array[:, 0]
    if array.ndim == 1:
        return _check_classes(array, what)
    if array.ndim == 2 and array.dtype.kind in "biuf" and np.isin(array, (0, 1)).all():
        return array.astype(np.bool_, copy=False)
    raise DataError(
        f"{what}: expected classes of shape (n,), or zeros and ones of shape (n, classes);"
        f" got {array.dtype} {array.shape}"
    )


def words_of(labels: object) -> list[Any] | None:
    """Return labels that are words, or lists of words, as a list; None for any other labels."""
    values: Any = labels
    if not isinstance(values, list | tuple):
        if not hasattr(values, "__array__") or hasattr(values, "toarray"):
            return None
        array = np.asarray(values)
        if array.dtype.kind not in "UTO" or array.ndim == 0:
            return None
        values = (array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array).tolist()
    known = [value for value in values if not is_missing(value)]
    first = next(iter(known), None)
    is_list = isinstance(first, _SEVERAL)
    if is_list and not all(isinstance(value, _SEVERAL) for value in known):
        return None
    samples = [word for value in known for word in value] if is_list else known
    if not samples or not all(isinstance(word, str) for word in samples):
        return None
    if is_list:
        return [[] if is_missing(value) else sorted(value) for value in values]
    return [None if is_missing(value) else value for value in values]


def number_words(*labels: Any) -> tuple[list[str], list[Any]]:  # noqa: ANN401 - as `words_of`
    """Number words in alphabetical order, those of several arrays together.

    Args:
        *labels: Labels that belong together, such as those of two modalities.

    Returns:
        The words in the order of their numbers, and the labels; no words and the same labels if
        they are not words.

    Example:
        >>> number_words(["dog", "cat"], ["cat", None])
        (['cat', 'dog'], [array([1, 0]), array([ 0, -1])])
    """
    words = [words_of(value) for value in labels]
    if not words or any(value is None for value in words):
        return [], list(labels)
    sizes = [len(value or ()) for value in words]
    names, classes = classes_from_words([word for value in words for word in value or ()])
    return names, np.split(classes, np.cumsum(sizes)[:-1])


def _check_classes(array: NDArray[Any], what: str) -> NDArray[np.int64]:
    if array.dtype.kind == "f":
        wide = array.astype(np.float64)
        if np.array_equal(wide, np.trunc(wide)) and (np.abs(wide) < _END).all():
            array = wide.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise DataError(
            f"{what}: classes must be integers, −1 for unknown, or words; got {array.dtype}"
        )
    if len(array) and array.max() >= _END:
        raise DataError(f"{what}: classes must be below 2⁶³, got {array.max()}")
    classes = array.astype(np.int64, copy=False)
    if len(classes) and classes.min() < -1:
        raise DataError(f"{what}: classes must be ≥ 0, or −1 for unknown, got {classes.min()}")
    return classes


def is_known(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which rows have a label."""
    return np.asarray(labels.any(axis=1) if labels.ndim == 2 else labels >= 0, np.bool_)


def classes_from_words(values: Sequence[Any]) -> tuple[list[str], NDArray[Any]]:
    """Return class names and labels: numbers unchanged, words sorted, lists as multiple labels.

    An empty value is unknown.

    Example:
        >>> classes_from_words(["dog", "cat", None, "dog"])
        (['cat', 'dog'], array([ 1,  0, -1,  1]))
    """
    if any(isinstance(value, list) for value in values):
        names, flat = classes_from_words([word for value in values for word in value or ()])
        rows = np.repeat(np.arange(len(values)), [len(value or ()) for value in values])
        labels = np.zeros((len(values), flat.max(initial=-1) + 1), np.bool_)
        labels[rows, flat] = True
        return names, labels
    if all(
        value is None or (isinstance(value, int | float) and value == int(value))
        for value in values
    ):
        return [], np.array([-1 if value is None else int(value) for value in values], np.int64)
    names = sorted({str(value) for value in values if value not in (None, "")})
    number = {name: k for k, name in enumerate(names)}
    return names, np.array([number.get(str(value), -1) for value in values], np.int64)


def class_sizes(labels: NDArray[Any]) -> NDArray[np.int64]:
    """Number of rows per column of a matrix, or per class that occurs, by class number.

    Class numbers may be identifiers such as 10¹²: memory depends on the number of classes only.
    """
    if labels.ndim == 2:
        return np.asarray(labels.sum(axis=0), np.int64)
    return np.unique(labels[labels >= 0], return_counts=True)[1]


def describe_labels(labels: NDArray[Any]) -> dict[str, Any]:
    """Return the kind of labels, the number of rows without, and the number of rows per class."""
    unknown = int((~is_known(labels)).sum())
    return {
        "multi_label": labels.ndim == 2,
        "unknown": unknown,
        "counts": class_sizes(labels).tolist(),
    }


def class_names(labels: NDArray[Any], classes: Sequence[str]) -> list[Any]:
    """Return the class of each row by its name, or by its number without names.

    An unknown class is None; rows that may have several classes get lists.
    """
    if labels.ndim == 2:
        names = list(classes) or list(map(str, range(labels.shape[1])))
        return [[names[k] for k in np.flatnonzero(row)] for row in labels]
    return [
        None if label < 0 else classes[label] if classes else label for label in labels.tolist()
    ]


def shared_class_probability(
    P: NDArray[np.float32], Q: NDArray[np.float32], *, multi_label: bool
) -> NDArray[np.float32]:
    r"""Return the probability that two rows share a class, for all pairs of rows.

    It is $\sum_c p_c q_c$ for one class per row and $1 - \prod_c (1 - p_c q_c)$ for several.

    Args:
        P: Class posteriors of some rows, shape (n, classes).
        Q: Class posteriors of others, shape (m, classes).
        multi_label: Whether a row may have several classes.
    """
    if not multi_label:
        return np.asarray(np.minimum(P @ Q.T, 1), np.float32)
    # First terms of the series of −log(1 − p q), summed over classes.
    series = [(P**k) @ (Q**k).T / k for k in range(1, 6)]
    return np.asarray(1 - np.exp(-np.sum(series, axis=0)), np.float32)
