"""Rankings of codes, scores and vectors: blocks, threads and excluded self-matches."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from crossbit.codes import Codes, hamming
from crossbit.errors import DataError
from crossbit.metrics import (
    NDCG,
    AveragePrecision,
    Measure,
    Precision,
    PrecisionWithin,
    count_common,
    from_matrix,
    rank_codes,
    rank_scores,
    rank_vectors,
    ranking,
    same_class,
)

MEASURES: list[Measure] = [
    AveragePrecision(),
    AveragePrecision(ties="stable"),
    AveragePrecision(at=7),
    AveragePrecision(at=7, ties="best"),
    NDCG(ties="worst"),
    PrecisionWithin(radius=3),
]


def random_codes(n: int, n_bits: int, seed: int) -> Codes:
    return Codes.pack(np.random.default_rng(seed).random((n, n_bits)) < 0.5)


def random_sets(n: int, seed: int) -> NDArray[np.bool_]:
    return np.random.default_rng(seed).random((n, 5)) < 0.3


@pytest.mark.parametrize("n_bits", [5, 64, 100])
def test_blocks_and_threads_do_not_change_the_result(
    n_bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = random_codes(31, n_bits, 0)
    base = random_codes(40, n_bits, 1)
    relevant = count_common(random_sets(31, 2), random_sets(40, 3))
    whole = [rank_codes(queries, base, relevant).measure(measure) for measure in MEASURES]
    for name, limit in (("_PAIRS", 100), ("_CELLS", 500), ("_CACHED_CELLS", 1000)):
        monkeypatch.setattr(ranking, name, limit)
    serial, threaded = (rank_codes(queries, base, relevant, threads=threads) for threads in (1, 3))
    for measure, expected in zip(MEASURES, whole, strict=True):
        np.testing.assert_allclose(serial.measure(measure), expected, rtol=1e-14)
        np.testing.assert_array_equal(serial.measure(measure), threaded.measure(measure))


def test_codes_rank_like_their_distances() -> None:
    queries = random_codes(9, 70, 0)
    base = random_codes(50, 70, 1)
    relevant = count_common(random_sets(9, 2), random_sets(50, 3))
    by_codes = rank_codes(queries, base, relevant)
    by_scores = rank_scores(hamming(queries, base), relevant, nearest="lowest", threads=2)
    for measure in MEASURES[:-1]:
        np.testing.assert_allclose(
            by_codes.measure(measure), by_scores.measure(measure), rtol=1e-12
        )


def test_long_codes_and_many_levels_are_counted_correctly() -> None:
    queries = random_codes(3, 1024, 0)
    base = random_codes(300, 1024, 1)
    gains = np.random.default_rng(2).integers(100, size=(3, 300))
    by_scores = rank_scores(hamming(queries, base), gains, nearest="lowest")
    for ties in ("expected", "best"):
        values = rank_codes(queries, base, gains).measure(NDCG(ties=ties))
        np.testing.assert_allclose(values, by_scores.measure(NDCG(ties=ties)), rtol=1e-12)


def test_a_large_evaluation_needs_little_memory() -> None:
    queries = random_codes(1000, 64, 0)
    base = random_codes(20_000, 64, 1)
    relevant = same_class(np.arange(1000) % 7, np.arange(20_000) % 7)
    tracemalloc.start()
    rank_codes(queries, base, relevant).measure(AveragePrecision())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000  # the size of a matrix with one byte for each of the 2·10⁷ pairs


@given(st.integers(0, 1 << 32))
def test_excluding_an_item_equals_ranking_without_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    base = random_codes(8, 4, seed)
    relevant = rng.random((3, 8)) < 0.5
    excluded = rng.integers(-1, 8, size=3)
    codes = rank_codes(base[:3], base, relevant, exclude=excluded)
    scores = rank_scores(hamming(base[:3], base), relevant, nearest="lowest", exclude=excluded)
    for measure in MEASURES:
        for query, row in enumerate(excluded):
            others = np.arange(8) != row
            alone = rank_codes(base[query], base[others], relevant[query : query + 1, others])
            np.testing.assert_allclose(
                codes.measure(measure)[query], alone.measure(measure)[0], rtol=1e-12
            )
            if not measure.by_distance:
                np.testing.assert_allclose(
                    scores.measure(measure)[query], alone.measure(measure)[0], rtol=1e-12
                )


def test_same_row_excludes_the_query_and_does_not_modify_the_matrix() -> None:
    base = random_codes(6, 8, 0)
    marked = np.eye(6, dtype=np.bool_)
    assert np.isnan(
        rank_codes(base, base, marked, exclude="same-row").measure(AveragePrecision())
    ).all()
    np.testing.assert_array_equal(marked, np.eye(6, dtype=np.bool_))
    assert rank_codes(base, base, marked).exclusion == "no base item left out as a self-match"


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_vectors_rank_by_their_metric(dtype: type[np.generic]) -> None:
    rng = np.random.default_rng(0)
    X, Y = ((rng.normal(size=(n, 6)) * 20).astype(dtype) for n in (5, 30))
    relevant = rng.random((5, 30)) < 0.3
    A, B = (rows.astype(np.float64) for rows in (X, Y))
    lengths = np.linalg.norm(A, axis=1)[:, None] * np.linalg.norm(B, axis=1)
    similarities = {
        "cosine": A @ B.T / lengths,
        "dot": A @ B.T,
        "euclidean": -np.linalg.norm(A[:, None] - B, axis=2),
    }
    metric: Any
    for metric, scores in similarities.items():
        values = rank_vectors(X, Y, relevant, metric=metric).measure(AveragePrecision())
        expected = rank_scores(scores, relevant).measure(AveragePrecision())
        np.testing.assert_allclose(values, expected, rtol=1e-12)


def test_a_zero_vector_has_cosine_zero() -> None:
    ranked = rank_vectors([[0.0, 0.0]], [[1.0, 0.0], [0.0, 2.0]], [[True, False]])
    assert ranked.measure(Precision(at=1))[0] == 0.5


def test_unsigned_integers_are_valid_scores() -> None:
    scores = np.array([[0, 3, 255]], np.uint8)
    assert rank_scores(scores, [[False, False, True]]).measure(AveragePrecision())[0] == 1.0


def test_the_repr_of_a_ranking() -> None:
    assert repr(rank_scores([[1.0]], [[True]])) == "Ranking(1 queries × 1 base items, real-valued)"
    assert repr(rank_codes(random_codes(2, 9, 0), random_codes(3, 9, 0), np.ones((2, 3)))).endswith(
        "items, 9 bits)"
    )


TWO = random_codes(2, 8, 0)
THREE = random_codes(3, 8, 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: rank_codes(TWO, THREE.truncate(7), np.ones((2, 3))),
            "queries have 8 bits, the base has 7",
        ),
        (
            lambda: rank_codes(TWO, THREE, np.ones((3, 2))),
            "is for 3 queries × 2 base items, the ranking has 2 × 3",
        ),
        (
            lambda: rank_codes(TWO, THREE, same_class([0], [0, 1, 1])),
            "is for 1 queries × 3 base items",
        ),
        (
            lambda: rank_codes(TWO[:0], THREE, np.ones((0, 3))),
            "needs queries and base items, got 0 queries and 3 base items",
        ),
        (
            lambda: rank_codes(TWO, THREE[:0], from_matrix(np.ones((2, 0)))),
            "needs queries and base items, got 2 queries and 0 base items",
        ),
        (
            lambda: rank_codes(TWO, THREE, np.ones((2, 3)), threads=0),
            "^threads .* at least 1, got 0",
        ),
        (
            lambda: rank_codes(TWO, THREE, np.ones((2, 3)), exclude="self"),
            "got 'self' with 2 queries",
        ),
        (
            lambda: rank_codes(THREE, TWO, np.ones((3, 2)), exclude="same-row"),
            "at most as many queries as base items",
        ),
        (
            lambda: rank_codes(TWO, THREE, np.ones((2, 3)), exclude=[0]),
            "one base row for each of 2 queries, got int64",
        ),
        (
            lambda: rank_codes(TWO, THREE, np.ones((2, 3)), exclude=[0, 3]),
            "from −1 to 2, got 0 to 3",
        ),
        (lambda: rank_scores([[1.0, np.nan]], [[1, 0]]), "scores: 1 of 1 rows contain NaN"),
        (lambda: rank_scores([1.0, 2.0], [[1, 0]]), "scores: expected"),
        (
            lambda: rank_scores([[1.0]], [[1]], nearest="first"),  # type: ignore[arg-type]
            "'highest' or 'lowest', got 'first'",
        ),
        (
            lambda: rank_vectors([[1.0]], [[1.0, 2.0]], [[1]]),
            "queries have 1 columns, the base has 2",
        ),
        (lambda: rank_vectors([[1.0]], [[2.0]], [[1]], metric="l1"), "unknown metric 'l1'"),  # type: ignore[arg-type]
        (
            lambda: rank_vectors([[np.inf]], [[2.0]], [[1]]),
            "queries: 1 of 1 rows contain NaN or infinity",
        ),
    ],
)
def test_invalid_rankings_are_rejected(make: Callable[[], object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        make()
