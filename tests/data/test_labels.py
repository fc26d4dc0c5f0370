"""Labels in their two forms."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from crossbit.data import check_labels, is_known
from crossbit.errors import DataError


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ([0, 2, -1], [0, 2, -1]),
        ([0.0, 2.0, -1.0], [0, 2, -1]),
        ([[0], [2], [-1]], [0, 2, -1]),
        (np.array([1, 2], np.uint8), [1, 2]),
        ([[0, 1], [1, 1]], [[False, True], [True, True]]),
        ([[0.0, 1.0]], [[False, True]]),
        (np.array([[True], [False]]), [[True], [False]]),
    ],
)
def test_labels_take_one_of_two_forms(raw: Any, expected: Any) -> None:  # noqa: ANN401
    labels = check_labels(raw, len(raw))
    assert labels.tolist() == expected
    assert labels.dtype == (np.int64 if labels.ndim == 1 else np.bool_)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ([0, 1], r"labels: expected one for each of 3 rows, got shape \(2,\)"),
        (["a", "b", "c"], "classes must be integers, −1 for unknown, or words; got <U1"),
        ([0.5, 1, 2], "classes must be integers"),
        ([np.nan, 1, 2], "classes must be integers"),
        ([np.inf, 1, 2], "classes must be integers"),
        ([1e300, 1, 2], "classes must be integers"),
        (np.array([1, 2, 2**63], np.uint64), "classes must be below 2⁶³, got 9223372036854775808"),
        ([[0], [0, 1], [1]], "labels: rows of unequal lengths do not form a matrix"),
        (np.ma.masked_equal([0, 1, 2], 1), "labels: some numbers are masked"),
        (scipy.sparse.eye_array(3, format="csr"), r"got a sparse csr_array; pass X\.toarray\(\)"),
        ([-2, 0, 1], "classes must be ≥ 0, or −1 for unknown, got -2"),
        (
            [[0, 2], [1, 0], [1, 1]],
            r"expected classes of shape \(n,\), or zeros and ones of shape \(n, classes\)",
        ),
        (np.zeros((3, 2, 2)), r"expected classes of shape \(n,\)"),
    ],
)
def test_other_labels_are_rejected(raw: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(DataError, match=message):
        check_labels(raw, 3)


def test_known_rows() -> None:
    classes = check_labels([0, -1, 4], None)
    matrix = check_labels([[1, 0], [0, 0], [1, 1]], None)
    assert is_known(classes).tolist() == is_known(matrix).tolist() == [True, False, True]
