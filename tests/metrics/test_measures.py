"""Every measure compared with its definition over all orders of ties."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, ndcg_score

from crossbit.errors import DataError
from crossbit.metrics import (
    NDCG,
    AveragePrecision,
    Measure,
    Precision,
    PrecisionWithin,
    Ranking,
    Recall,
    RecallWithin,
    Success,
    Ties,
    from_matrix,
    rank_codes,
    rank_scores,
)
from tests.metrics.brute import MAX_DISTANCE, codes_at, tie_orders, value

CUTOFFS = [None, 1, 2, 3, 5, 9]
MEASURES: list[Measure] = [
    AveragePrecision(),
    *(
        AveragePrecision(at=k, divisor=d)
        for k in CUTOFFS[1:]
        for d in ("retrieved", "reachable", "all")
    ),
    *(Precision(at=k) for k in CUTOFFS if k),
    *(Recall(at=k) for k in CUTOFFS if k),
    *(Success(at=k) for k in CUTOFFS if k),
    *(NDCG(at=k) for k in CUTOFFS),
]
Items = list[tuple[int, float]]
items = st.lists(
    st.tuples(st.integers(0, MAX_DISTANCE), st.sampled_from([0.0, 0.0, 1.0, 2.5])),
    min_size=1,
    max_size=6,
)


def ranking_of(drawn: Items) -> tuple[Ranking, list[int], list[float]]:
    distances = [distance for distance, _ in drawn]
    gains = [gain for _, gain in drawn]
    return rank_codes(*codes_at(distances), from_matrix([gains])), distances, gains


def measured(ranking: Ranking, measure: Measure, ties: Ties) -> float:
    return float(ranking.measure(replace(measure, ties=ties))[0])


@settings(max_examples=150)
@given(items)
def test_expectation_and_bounds_are_those_over_all_orders_of_ties(drawn: Items) -> None:
    ranking, distances, gains = ranking_of(drawn)
    orders = list(tie_orders(distances, gains))
    for measure in MEASURES:
        values = [value(measure, order) for order in orders]
        assert measured(ranking, measure, "expected") == pytest.approx(
            np.mean(values), abs=1e-12, nan_ok=True
        )
        assert measured(ranking, measure, "worst") == pytest.approx(
            min(values), abs=1e-12, nan_ok=True
        )
        assert measured(ranking, measure, "best") == pytest.approx(
            max(values), abs=1e-12, nan_ok=True
        )


@given(items)
def test_stable_orders_ties_by_row_number(drawn: Items) -> None:
    ranking, distances, gains = ranking_of(drawn)
    order = [gains[i] for i in sorted(range(len(gains)), key=lambda i: (distances[i], i))]
    for measure in MEASURES:
        assert measured(ranking, measure, "stable") == pytest.approx(
            value(measure, order), abs=1e-12, nan_ok=True
        )


@given(items, st.sampled_from(["expected", "best", "worst", "stable"]))
def test_scores_and_codes_in_the_same_order_have_the_same_values(drawn: Items, ties: Ties) -> None:
    ranking, distances, gains = ranking_of(drawn)
    lowest = rank_scores([distances], from_matrix([gains]), nearest="lowest")
    highest = rank_scores(-0.5 * np.array([distances]), from_matrix([gains]))
    for measure in MEASURES:
        expected = pytest.approx(measured(ranking, measure, ties), abs=1e-12, nan_ok=True)
        assert measured(lowest, measure, ties) == expected
        assert measured(highest, measure, ties) == expected


@given(items, st.integers(0, MAX_DISTANCE + 2))
def test_within_a_radius_equals_its_definition(drawn: Items, radius: int) -> None:
    ranking, _, gains = ranking_of(drawn)
    inside = [gain > 0 for distance, gain in drawn if distance <= radius]
    relevant = sum(gain > 0 for gain in gains)
    precision = ranking.measure(PrecisionWithin(radius=radius))[0]
    recall = ranking.measure(RecallWithin(radius=radius))[0]
    if not relevant:
        assert math.isnan(precision)
        assert math.isnan(recall)
        return
    assert precision == (sum(inside) / len(inside) if inside else 0.0)
    assert recall == sum(inside) / relevant


def test_relevant_first_is_not_always_best_over_the_retrieved() -> None:
    # relevant, not, {relevant, not}, cut-off 3: 5/6 with the third relevant, 1 without it.
    ranking = rank_codes(*codes_at([0, 1, 2, 2]), from_matrix([[True, False, True, False]]))
    cut = AveragePrecision(at=3, divisor="retrieved")
    assert measured(ranking, cut, "best") == 1.0
    assert measured(ranking, cut, "worst") == pytest.approx(5 / 6)
    assert measured(ranking, cut, "expected") == pytest.approx((1 + 5 / 6) / 2)


def test_large_groups_agree_with_a_simulation() -> None:
    # Too many orders to enumerate: 400 tied items, 90 of them relevant, behind 3; cut-off 150.
    rng = np.random.default_rng(3)
    distances = np.array([0] * 3 + [1] * 400)
    relevant = np.array([True, False, True] + [True] * 90 + [False] * 310)
    ranking = rank_codes(*codes_at(distances.tolist()), from_matrix(relevant[None]))
    for divisor in ("retrieved", "reachable", "all"):
        measure = AveragePrecision(at=150, divisor=divisor)
        drawn = [
            value(measure, [*rng.permutation(relevant[:3]), *rng.permutation(relevant[3:])])
            for _ in range(400)
        ]
        spread = np.std(drawn) / math.sqrt(len(drawn))
        assert measured(ranking, measure, "expected") == pytest.approx(
            np.mean(drawn), abs=float(4 * spread)
        )
        assert measured(ranking, measure, "worst") <= min(drawn)
        assert measured(ranking, measure, "best") >= max(drawn)


def test_average_precision_agrees_with_scikit_learn_without_ties() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(20, 300))
    relevant = rng.random((20, 300)) < 0.1
    values = rank_scores(scores, relevant).measure(AveragePrecision())
    expected = [average_precision_score(r, s) for r, s in zip(relevant, scores, strict=True)]
    np.testing.assert_allclose(values, expected, rtol=1e-12)


@pytest.mark.parametrize("at", [None, 1, 10, 100])
@pytest.mark.parametrize("levels", [5, 10_000])
def test_ndcg_agrees_with_scikit_learn_with_and_without_ties(at: int | None, levels: int) -> None:
    rng = np.random.default_rng(1)
    scores = rng.integers(levels, size=(20, 100)) / levels
    gains = rng.integers(4, size=(20, 100))
    values = rank_scores(scores, gains).measure(NDCG(at=at))
    expected = [ndcg_score(g[None], s[None], k=at) for g, s in zip(gains, scores, strict=True)]
    np.testing.assert_allclose(values, expected, rtol=1e-12)


def test_long_rankings_without_ties_are_accurate() -> None:
    n = 200_000
    ranking = rank_scores(np.arange(n, 0, -1.0)[None], np.ones((1, n), np.bool_))
    assert ranking.measure(AveragePrecision())[0] == pytest.approx(1.0, abs=1e-13)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AveragePrecision(at=0), "^at .* at least 1, got 0"),
        (lambda: Precision(at=-3), "^at .* at least 1, got -3"),
        (lambda: Recall(at=2.5), "^at .* at least 1, got 2.5"),  # type: ignore[arg-type]
        (lambda: NDCG(at=True), "^at .* at least 1, got True"),
        (
            lambda: AveragePrecision(divisor="k"),  # type: ignore[arg-type]
            "unknown divisor 'k'; known: \\['all', 'reachable', 'retrieved'\\]",
        ),
        (lambda: AveragePrecision(ties="random"), "unknown order of ties 'random'"),  # type: ignore[arg-type]
        (lambda: PrecisionWithin(radius=-1), "^radius .* at least 0, got -1"),
    ],
)
def test_measures_reject_invalid_arguments(make: Callable[[], object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        make()


def test_a_radius_needs_hamming_distances() -> None:
    with pytest.raises(DataError, match="'precision within 2' needs Hamming distances"):
        rank_scores([[1.0, 2.0]], [[True, False]]).measure(PrecisionWithin(radius=2))


@pytest.mark.parametrize(
    ("measure", "text"),
    [
        (
            AveragePrecision(),
            "precision of the whole ranking, divided by all relevant items, expectation over",
        ),
        (AveragePrecision(at=5), "of the first 5 places, divided by the relevant items among them"),
        (
            AveragePrecision(at=5, divisor="reachable"),
            "divided by the relevant items that 5 places can hold",
        ),
        (
            Recall(at=3, ties="worst"),
            "divided by all relevant items, tied items in the least favorable order",
        ),
        (PrecisionWithin(radius=2), "within Hamming distance 2, 0 where there are none"),
    ],
)
def test_a_measure_has_a_definition(measure: Measure, text: str) -> None:
    assert text in measure.definition
