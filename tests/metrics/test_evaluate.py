"""Reports, means, intervals and curves."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crossbit.codes import Codes
from crossbit.errors import DataError
from crossbit.metrics import (
    AveragePrecision,
    Precision,
    PrecisionWithin,
    Ranking,
    Recall,
    Report,
    bootstrap_interval,
    evaluate,
    evaluate_ranking,
    mean_average_precision,
    mean_over_queries,
    precision_recall_curve,
    rank_codes,
    rank_scores,
    same_class,
    standard_measures,
)
from tests.metrics.brute import tie_orders

RNG = np.random.default_rng(0)
CLASSES = np.append(RNG.integers(4, size=38), [-1, 9])
BASE_CLASSES = RNG.integers(4, size=120)
QUERIES = Codes.pack(RNG.random((40, 12)) < 0.5)
BASE = Codes.pack(RNG.random((120, 12)) < 0.5)
RELEVANT = same_class(CLASSES, BASE_CLASSES)


def ranking() -> Ranking:
    return rank_codes(QUERIES, BASE, RELEVANT)


def test_a_report_holds_each_measure_with_interval_bounds_and_chance() -> None:
    report = evaluate(QUERIES, BASE, RELEVANT, threads=2)
    for measure in standard_measures():
        result = report[measure.name]
        assert result.value == mean_over_queries(ranking().measure(measure))
        assert result.low < result.value < result.high
        if measure.by_distance:
            assert result.worst is result.best is result.chance is None
        else:
            assert result.worst is not None
            assert result.best is not None
            assert result.worst < result.value < result.best


def test_a_definition_is_complete() -> None:
    report = evaluate(
        QUERIES, BASE, RELEVANT, measures=[AveragePrecision(at=5)], exclude=np.arange(40)
    )
    assert report["mAP@5"].definition == (
        "mean over 38 queries of: average precision of the first 5 places, divided by the relevant"
        " items among them, expectation over all orders of tied items; relevant are items of the"
        " query's class; 2 of 40 queries without relevant items left out; one given base row left"
        " out for 40 queries; 120 base items"
    )
    zero = evaluate(QUERIES, BASE, RELEVANT, empty="zero", exclude="same-row")
    assert (
        "2 of 40 queries without relevant items counted as 0; base row i left out for query i"
        in next(iter(zero)).definition
    )


def test_queries_without_relevant_items_are_left_out_or_count_as_zero() -> None:
    skipped = evaluate(QUERIES, BASE, RELEVANT)
    zero = evaluate(QUERIES, BASE, RELEVANT, empty="zero")
    assert skipped.n_without_relevant == zero.n_without_relevant == 2
    for over_38, over_40 in zip(skipped, zero, strict=True):
        assert over_40.value == pytest.approx(over_38.value * 38 / 40)
    assert mean_average_precision(QUERIES, BASE, RELEVANT) == skipped["mAP"].value
    assert mean_average_precision(QUERIES, BASE, RELEVANT, empty="zero") == zero["mAP"].value


def test_chance_is_the_mean_over_all_orders_of_the_base() -> None:
    marked = [True, False, True, False, False]
    report = evaluate_ranking(
        rank_scores([[5.0, 4.0, 3.0, 2.0, 1.0]], [marked]), measures=[AveragePrecision()]
    )
    places = [np.flatnonzero(order) + 1 for order in tie_orders([0] * 5, marked)]
    assert report["mAP"].chance == pytest.approx(np.mean([(1 / a + 2 / b) / 2 for a, b in places]))
    assert report["mAP"].worst == report["mAP"].best == report["mAP"].value


def test_stable_measures_lie_between_their_bounds() -> None:
    measures = standard_measures(ties="stable", radii=())
    report = evaluate(QUERIES, BASE, RELEVANT, measures=measures)
    for measure in measures:
        result = report[measure.name]
        assert result.value == mean_over_queries(ranking().measure(measure))
        assert result.worst is not None
        assert result.best is not None
        assert result.worst <= result.value <= result.best


def test_a_report_can_be_read_from_its_json() -> None:
    report = evaluate(QUERIES, BASE, RELEVANT)
    assert Report.from_dict(json.loads(report.to_json())) == report
    assert report.interval == "95% percentile bootstrap over queries, 1000 resamples, seed 0"


def test_a_real_valued_ranking_has_the_standard_measures_without_radii() -> None:
    report = evaluate_ranking(rank_scores(RNG.normal(size=(40, 120)), RELEVANT))
    assert [result.name for result in report] == [
        measure.name for measure in standard_measures(radii=())
    ]
    assert report.n_bits is None


def test_the_bootstrap_interval_has_its_coverage() -> None:
    samples = np.random.default_rng(1).exponential(size=(60, 300))
    low, high = bootstrap_interval(samples, confidence=0.9, resamples=400, seed=1)
    assert low.shape == (300,)
    assert 0.8 < np.mean((low <= 1) & (high >= 1)) < 0.95
    repeated = bootstrap_interval(samples, confidence=0.9, resamples=400, seed=1)
    np.testing.assert_array_equal(repeated, (low, high))
    single = bootstrap_interval(samples[:, 0], confidence=0.9, resamples=400, seed=1)
    np.testing.assert_allclose(single, (low[0], high[0]))


@pytest.mark.parametrize("ties", ["expected", "best", "worst", "stable"])
def test_a_curve_along_ranks_has_the_means_at_its_cutoffs(ties: str) -> None:
    curve = precision_recall_curve(ranking(), along="rank", points=[1, 10, 120], ties=ties)  # type: ignore[arg-type]
    for i, k in enumerate([1, 10, 120]):
        assert curve.precision[i] == mean_over_queries(
            ranking().measure(Precision(at=k, ties=ties))  # type: ignore[arg-type]
        )
        assert curve.recall[i] == mean_over_queries(ranking().measure(Recall(at=k, ties=ties)))  # type: ignore[arg-type]
    assert curve.recall[-1] == 1.0
    assert precision_recall_curve(ranking(), along="rank").points == (1, 2, 5, 10, 20, 50, 100, 120)


def test_a_curve_along_radii_ends_at_full_recall() -> None:
    curve = precision_recall_curve(ranking(), along="radius")
    assert curve.points == tuple(range(13))
    assert curve.recall[-1] == 1.0
    assert curve.precision[2] == mean_over_queries(ranking().measure(PrecisionWithin(radius=2)))


def test_a_curve_along_recall_has_the_precisions_at_the_hits() -> None:
    marked = [[True, False, True, True, False]]
    tie_free = rank_scores([[5.0, 4.0, 3.0, 2.0, 1.0]], marked)
    curve = precision_recall_curve(tie_free, points=[1 / 3, 2 / 3, 1.0])
    np.testing.assert_allclose(curve.precision, [1, 2 / 3, 3 / 4])
    tied = rank_scores([[1.0] * 5], marked)
    np.testing.assert_allclose(precision_recall_curve(tied).precision, 3 / 5)
    np.testing.assert_allclose(precision_recall_curve(tied, ties="best").precision, 1.0)
    np.testing.assert_allclose(
        precision_recall_curve(tied, points=[1.0], ties="worst").precision, 3 / 5
    )
    np.testing.assert_allclose(
        precision_recall_curve(tied, points=[1 / 3], ties="stable").precision, 1.0
    )


def test_a_curve_along_recall_is_not_affected_by_rounding() -> None:
    # 0.55 of 20 hits are 11, although the product of the floats is a little more.
    marked = np.array([[True] * 11 + [False] * 80 + [True] * 9])
    curve = precision_recall_curve(rank_scores(-np.arange(100.0)[None], marked), points=[0.55])
    assert curve.precision[0] == pytest.approx(1.0)


def test_a_curve_may_count_queries_without_relevant_items() -> None:
    both = precision_recall_curve(
        rank_scores([[1.0], [1.0]], [[True], [False]]), points=[1.0], empty="zero"
    )
    assert (both.precision[0], both.recall[0]) == (0.5, 0.5)
    assert json.loads(json.dumps(both.to_dict()))["points"] == [1.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mean_over_queries([1.0], empty="drop"), "'skip' or 'zero', got 'drop'"),  # type: ignore[arg-type]
        (lambda: mean_over_queries([math.nan] * 3), "none of 3 queries has a relevant item"),
        (lambda: evaluate(QUERIES, BASE, RELEVANT, measures=[]), "at least one measure"),
        (
            lambda: evaluate(QUERIES, BASE, RELEVANT)["MAP"],
            r"no measure 'MAP'; it has \['mAP', 'mAP@10'",
        ),
        (
            lambda: bootstrap_interval([1.0], confidence=1.0),
            r"confidence must be between 0 and 1 \(exclusive\), got 1.0",
        ),
        (
            lambda: bootstrap_interval([], resamples=10),
            "needs at least one value and one resample, got 0 and 10",
        ),
        (
            lambda: precision_recall_curve(ranking(), along="time"),  # type: ignore[arg-type]
            r"unknown kind of points 'time'; known: \['radius', 'rank', 'recall'\]",
        ),
        (
            lambda: precision_recall_curve(ranking(), points=[0.0, 1.0]),
            "recall levels must be above 0 and at most 1",
        ),
        (
            lambda: precision_recall_curve(ranking(), along="rank", points=[1.5]),
            "a point .* at least 1, got 1.5",
        ),
        (
            lambda: precision_recall_curve(ranking(), along="rank", points=[0]),
            "a point .* at least 1, got 0",
        ),
        (lambda: precision_recall_curve(ranking(), ties="any"), "unknown order of ties 'any'"),  # type: ignore[arg-type]
        (
            lambda: precision_recall_curve(rank_scores([[1.0]], [[True]]), along="radius"),
            "needs Hamming distances",
        ),
    ],
)
def test_invalid_requests_are_rejected(make: Callable[[], object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        make()


def test_the_chance_level_on_wiki(wiki_folder: Path) -> None:
    # scikit-learn's average_precision_score gives 11.82 over 20 random rankings per query.
    lines = (wiki_folder / "testset_txt_img_cat.list").read_text().splitlines()
    classes = np.array([int(line.split("\t")[2]) for line in lines])
    same = Codes.pack(np.zeros((len(classes), 1), np.bool_))
    assert 100 * mean_average_precision(same, same, same_class(classes, classes)) == pytest.approx(
        11.84, abs=0.005
    )
