"""Pairs of row numbers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossbit.data import Pairs
from crossbit.errors import DataError


def test_pairs_have_length_key_and_repr() -> None:
    pairs = Pairs("image", "text", np.array([[0, 0], [0, 1]], np.uint8), np.array([1, 0]))
    assert len(pairs) == 2
    assert pairs.key == "image-text"
    assert repr(pairs) == "Pairs(image-text: 1 similar, 1 dissimilar)"
    assert pairs.index.dtype == np.int64
    assert pairs.similar.dtype == np.bool_
    assert len(Pairs("image", "image", np.array([]), np.array([]))) == 0


@pytest.mark.parametrize(
    ("left", "index", "similar", "message"),
    [
        (
            "image",
            [[0, 1, 2]],
            [True],
            r"pairs must be row numbers of shape \(p, 2\), got int64 \(1, 3\)",
        ),
        ("image", [[0.5, 1]], [True], r"pairs must be row numbers of shape \(p, 2\), got float64"),
        (
            "image",
            [[0, 1]],
            [True, False],
            r"similar must have one value for each of 1 pairs, got shape \(2,\)",
        ),
        ("image", [[0, -1]], [True], "pairs must be row numbers ≥ 0, got -1"),
        (
            "image",
            [[0, 1], [0, 2]],
            [1, -1],
            r"zeros and ones, got int64 such as \[1, -1\];.* with similar > 0",
        ),
        (
            "image",
            [[0, 1], [0, 2]],
            [0.9, 0.1],
            "similar: expected booleans, or zeros and ones, got float64",
        ),
        ("image", [[0, 1]], [np.nan], "similar: expected booleans, or zeros and ones, got float64"),
        ("image", [[0, 1]], ["False"], "similar: expected booleans, or zeros and ones, got <U5"),
        ("../image", [[0, 1]], [True], "letters, digits and underscores"),
    ],
)
def test_invalid_pairs_are_rejected(left: str, index: Any, similar: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(DataError, match=message):
        Pairs(left, "text", np.array(index), np.array(similar))


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans())),
    st.lists(st.integers(0, 9), unique=True),
    st.lists(st.integers(0, 9), unique=True),
)
def test_pairs_of_a_subset_refer_to_the_same_items(
    rows: list[tuple[int, int, bool]], left: list[int], right: list[int]
) -> None:
    index = np.array([row[:2] for row in rows], np.int64).reshape(-1, 2)
    pairs = Pairs("image", "text", index, np.array([row[2] for row in rows], bool))
    taken = {"image": np.array(left, np.int64), "text": np.array(right, np.int64)}
    subset = pairs.take(taken)
    back = [
        (int(taken["image"][i]), int(taken["text"][j]), bool(s))
        for (i, j), s in zip(subset.index, subset.similar, strict=True)
    ]
    assert back == [row for row in rows if row[0] in left and row[1] in right]
