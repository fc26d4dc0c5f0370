"""Relevance from labels, matrices and functions."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from crossbit.errors import DataError
from crossbit.metrics import (
    common_class,
    count_common,
    from_function,
    from_labels,
    from_matrix,
    jaccard,
    same_class,
)

ALL = slice(0, 1 << 20)
seeds = st.integers(0, 1 << 32)


def random_sets(
    seed: int, n_classes: int
) -> tuple[list[set[int]], list[set[int]], NDArray[np.bool_], NDArray[np.bool_]]:
    rng = np.random.default_rng(seed)
    queries, base = (rng.random((n, n_classes)) < 3 / n_classes for n in (4, 9))
    as_sets = [[set(np.flatnonzero(row).tolist()) for row in rows] for rows in (queries, base)]
    return as_sets[0], as_sets[1], queries, base


def test_unknown_classes_are_relevant_to_nothing() -> None:
    relevance = same_class([3, -1, 5], [3, -1, 5, 3, 7])
    expected = [[1, 0, 0, 1, 0], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0]]
    np.testing.assert_array_equal(relevance.levels(ALL), expected)
    np.testing.assert_array_equal(relevance.levels(slice(1, 3)), expected[1:])
    assert not relevance.graded


@given(seeds, st.sampled_from([1, 7, 64, 65, 130]))
def test_common_classes_equal_the_definition(seed: int, n_classes: int) -> None:
    left, right, queries, base = random_sets(seed, n_classes)
    shared = [[len(a & b) for b in right] for a in left]
    np.testing.assert_array_equal(common_class(queries, base).levels(ALL), np.minimum(shared, 1))
    np.testing.assert_array_equal(count_common(queries, base).levels(ALL), shared)
    np.testing.assert_array_equal(
        common_class(queries, base).levels(slice(2, 4)), np.minimum(shared, 1)[2:4]
    )


@given(seeds, st.sampled_from([0.1, 0.2, 0.25, 1 / 3, 0.5, 0.55, 0.6, 2 / 3, 0.75, 1.0]))
def test_jaccard_equals_the_definition(seed: int, threshold: float) -> None:
    left, right, queries, base = random_sets(seed, 9)
    expected = [[bool(a & b) and len(a & b) / len(a | b) >= threshold for b in right] for a in left]
    np.testing.assert_array_equal(jaccard(queries, base, at_least=threshold).levels(ALL), expected)


def test_a_jaccard_threshold_is_not_affected_by_rounding() -> None:
    queries = np.zeros((1, 20), bool)
    base = np.ones((1, 20), bool)
    queries[0, :11] = True  # 11/20 ≥ 0.55, although 0.55 · 20 > 11
    assert jaccard(queries, base, at_least=0.55).levels(ALL)[0, 0] == 1


def test_the_shape_of_labels_chooses_the_relevance() -> None:
    assert from_labels([0, 1], [1]).definition == "items of the query's class"
    assert (
        from_labels([[1, 0]], [[1, 1]]).definition == "items with a class in common with the query"
    )


def test_a_matrix_gives_levels_and_gains() -> None:
    relevance = from_matrix([[0.0, 2.0, 0.5], [0.5, 0.0, 0.0]])
    assert relevance.gains == (0.0, 0.5, 2.0)
    assert relevance.graded
    np.testing.assert_array_equal(relevance.levels(ALL), [[0, 2, 1], [1, 0, 0]])
    assert from_matrix(np.zeros((2, 3))).gains == (0.0, 1.0)


def test_a_function_is_called_with_row_numbers() -> None:
    relevance = from_function(
        lambda q, b: (q[:, None] + b) % 3, 5, 4, definition="sums", gains=(0, 1, 3)
    )
    np.testing.assert_array_equal(relevance.levels(slice(1, 3)), [[1, 2, 0, 1], [2, 0, 1, 2]])


def levels_from(values: list[list[float]]) -> object:
    relevance = from_function(lambda q, b: np.asarray(values), 1, 2, definition="x")
    return relevance.levels(slice(0, 1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: same_class([[True, False]], [[True, False]]),
            "same_class expects classes of shape",
        ),
        (lambda: common_class([0, 1], [1]), "common_class expects boolean matrices"),
        (lambda: jaccard([[1]], [[1]], at_least=0), "above 0 and at most 1, got 0"),
        (lambda: same_class([0], [[1, 0]]), "do not match; pass both as classes"),
        (lambda: common_class([[1, 0]], [[1, 0, 1]]), "do not match; pass both as classes"),
        (lambda: same_class([0.5], [1]), "labels of the queries: classes must be integers"),
        (
            lambda: count_common(np.ones((1, 300)), np.ones((1, 300))),
            "at most 254 classes in common, but rows may share 300",
        ),
        (lambda: from_matrix([True]), "matrix of booleans or gains"),
        (lambda: from_matrix([["a"]]), "matrix of booleans or gains"),
        (lambda: from_matrix([[-1.0, 0.0]]), "gains must be finite and ≥ 0"),
        (lambda: from_matrix([[np.nan, 0.0]]), "gains must be finite and ≥ 0"),
        (
            lambda: from_matrix(np.arange(300.0)[None]),
            "at most 254 distinct gains above 0; round them",
        ),
        (
            lambda: from_function(lambda q, b: q, 1, 1, definition="x", gains=(1, 2)),
            "numbers that increase from 0",
        ),
        (
            lambda: levels_from([[1]]),
            r"booleans or levels of shape \(1, 2\), got int64 of shape \(1, 1\)",
        ),
        (lambda: levels_from([[0.5, 1.0]]), "got float64"),
        (lambda: levels_from([[0, 2]]), "levels from 0 to 1, got 0 to 2"),
        (lambda: levels_from([[-1, 0]]), "levels from 0 to 1, got -1 to 0"),
    ],
)
def test_invalid_relevance_is_rejected(make: Callable[[], object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        make()
