"""The first places by an index or a partition, against the whole ranking."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossbit import LSH, Codes
from crossbit.data import synthetic
from crossbit.errors import DataError
from crossbit.evaluation.evaluate import evaluate_model
from crossbit.evaluation.protocol import Protocol
from crossbit.evaluation.topk import first_codes, first_vectors, places_needed
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
    own = random.integers(-1, n_base, n_queries) if exclude else None
    whole = rank_codes(queries, base, relevant, exclude=own)
    first = first_codes(queries, base, relevant, places=5, exclude=own)
    for measure in MEASURES:
        np.testing.assert_allclose(
            first.measure(measure), whole.measure(measure), err_msg=measure.definition
        )


@pytest.mark.parametrize("own", [None, np.arange(40) - 1])
def test_vectors_have_the_values_of_the_whole_ranking(own: np.ndarray | None) -> None:
    random = np.random.default_rng(0)
    base = random.integers(0, 3, (60, 4)).astype(
        np.float32
    )  # small whole numbers: distances tie, exactly
    queries = random.integers(0, 3, (40, 4)).astype(np.float32)
    relevant = same_class(random.integers(0, 3, 40), random.integers(0, 3, 60))
    whole = rank_vectors(queries, base, relevant, metric="euclidean", exclude=own)
    first = first_vectors(queries, base, relevant, places=5, exclude=own)
    for measure in MEASURES:
        np.testing.assert_allclose(
            first.measure(measure), whole.measure(measure), err_msg=measure.definition
        )


def test_the_report_is_that_of_the_whole_ranking_too() -> None:
    random = np.random.default_rng(1)
    queries, base = (Codes.pack(random.random((n, 8)) < 0.5) for n in (30, 90))
    relevant = same_class(np.arange(30) % 3, np.arange(90) % 4)
    expected = evaluate_ranking(rank_codes(queries, base, relevant), measures=MEASURES)
    found = evaluate_ranking(first_codes(queries, base, relevant, places=5), measures=MEASURES)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.definition == theirs.definition
        numbers = [
            (one.value, one.low, one.high, one.worst, one.best, one.chance)
            for one in (ours, theirs)
        ]
        np.testing.assert_allclose(*np.array(numbers, float))


def test_what_looks_further_is_refused() -> None:
    codes = Codes.pack(np.eye(4))
    ranking = first_codes(codes, codes, same_class([0] * 4, [0] * 4), places=2)
    for measure in (AveragePrecision(), Precision(at=3), PrecisionWithin(radius=2)):
        with pytest.raises(DataError, match="needs more than the first 2 places"):
            ranking.measure(measure)


def test_measures_say_how_many_places_they_need() -> None:
    assert places_needed([AveragePrecision(at=10), Precision(at=3)]) == 10
    assert places_needed([AveragePrecision(at=10), AveragePrecision()]) is None
    assert places_needed([PrecisionWithin(radius=2)]) is None
    assert places_needed([]) is None


def test_a_protocol_of_first_places_is_searched_by_the_index() -> None:
    data = synthetic(n=150, classes=3)
    model = LSH(n_bits=12).fit(**data.fit_arguments("train"))
    whole = evaluate_model(
        model, data, Protocol(name="whole", measures=(AveragePrecision(at=10), AveragePrecision()))
    )
    first = evaluate_model(model, data, Protocol(name="first", measures=(AveragePrecision(at=10),)))
    for way, report in first.reports.items():
        assert report["mAP@10"].value == pytest.approx(whole.reports[way]["mAP@10"].value)
