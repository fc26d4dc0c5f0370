"""The first places found by an index or a partition, compared with the whole ranking."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossbit import LSH, Codes
from crossbit.data import synthetic
from crossbit.errors import DataError
from crossbit.evaluation import Protocol, evaluate_model
from crossbit.evaluation.topk import TopKRanking
from crossbit.metrics import (
    NDCG,
    AveragePrecision,
    Measure,
    Precision,
    PrecisionWithin,
    Recall,
    evaluate_ranking,
    rank_codes,
    rank_vectors,
    same_class,
)

MEASURES: list[Measure] = [
    AveragePrecision(at=5),
    AveragePrecision(at=5, ties="best"),
    AveragePrecision(at=3, ties="worst"),
    AveragePrecision(at=5, ties="stable"),
    AveragePrecision(at=4, divisor="all"),
    Precision(at=5),
    Recall(at=2),
    NDCG(at=5),
]


@given(
    seed=st.integers(0, 10**6),
    n_bits=st.integers(1, 70),
    n_base=st.integers(1, 200),
    n_queries=st.integers(1, 150),
    exclude=st.booleans(),
)
def test_codes_have_the_values_of_the_whole_ranking(
    seed: int, n_bits: int, n_base: int, n_queries: int, exclude: bool
) -> None:
    random = np.random.default_rng(seed)
    queries, base = (Codes.pack(random.random((n, n_bits)) < 0.3) for n in (n_queries, n_base))
    relevant = same_class(random.integers(-1, 3, n_queries), random.integers(-1, 3, n_base))
    excluded = random.integers(-1, n_base, n_queries) if exclude else None
    whole = rank_codes(queries, base, relevant, exclude=excluded)
    top = TopKRanking.of_codes(queries, base, relevant, 5, exclude=excluded)
    for measure in MEASURES:
        np.testing.assert_allclose(
            top.measure(measure), whole.measure(measure), err_msg=measure.definition
        )


@pytest.mark.parametrize("excluded", [None, np.arange(40) - 1])
def test_vectors_have_the_values_of_the_whole_ranking(excluded: np.ndarray | None) -> None:
    random = np.random.default_rng(0)
    # Small integers: distances are exact, and many of them are tied.
    base = random.integers(0, 3, (60, 4)).astype(np.float32)
    queries = random.integers(0, 3, (40, 4)).astype(np.float32)
    relevant = same_class(random.integers(0, 3, 40), random.integers(0, 3, 60))
    whole = rank_vectors(queries, base, relevant, metric="euclidean", exclude=excluded)
    top = TopKRanking.of_vectors(queries, base, relevant, 5, exclude=excluded)
    for measure in MEASURES:
        np.testing.assert_allclose(
            top.measure(measure), whole.measure(measure), err_msg=measure.definition
        )


def test_the_report_equals_that_of_the_whole_ranking() -> None:
    random = np.random.default_rng(1)
    queries, base = (Codes.pack(random.random((n, 8)) < 0.5) for n in (30, 90))
    relevant = same_class(np.arange(30) % 3, np.arange(90) % 4)
    whole = evaluate_ranking(rank_codes(queries, base, relevant), measures=MEASURES)
    top = evaluate_ranking(TopKRanking.of_codes(queries, base, relevant, 5), measures=MEASURES)
    for result, expected in zip(top, whole, strict=True):
        assert result.definition == expected.definition
        numbers = [
            (each.value, each.low, each.high, each.worst, each.best, each.chance)
            for each in (result, expected)
        ]
        np.testing.assert_allclose(*np.array(numbers, float))


def test_a_measure_beyond_the_cutoff_is_rejected() -> None:
    codes = Codes.pack(np.eye(4))
    ranking = TopKRanking.of_codes(codes, codes, same_class([0] * 4, [0] * 4), 2)
    for measure in (AveragePrecision(), Precision(at=3), PrecisionWithin(radius=2)):
        with pytest.raises(DataError, match="needs more than the first 2 places"):
            ranking.measure(measure)


def test_the_cutoff_is_the_largest_of_all_measures() -> None:
    assert TopKRanking.cutoff([AveragePrecision(at=10), Precision(at=3)]) == 10
    assert TopKRanking.cutoff([AveragePrecision(at=10), AveragePrecision()]) is None
    assert TopKRanking.cutoff([PrecisionWithin(radius=2)]) is None
    assert TopKRanking.cutoff([]) is None


def test_a_protocol_with_cutoffs_gives_the_values_of_the_whole_ranking() -> None:
    data = synthetic(n=150, classes=3)
    model = LSH(n_bits=12).fit(**data.fit_arguments("train"))
    whole = evaluate_model(
        model, data, Protocol(name="whole", measures=(AveragePrecision(at=10), AveragePrecision()))
    )
    top = evaluate_model(model, data, Protocol(name="top", measures=(AveragePrecision(at=10),)))
    for direction, report in top.reports.items():
        assert report["mAP@10"].value == pytest.approx(whole.reports[direction]["mAP@10"].value)
