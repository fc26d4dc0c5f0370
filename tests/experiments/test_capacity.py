"""The simulator against queueing theory and measurements; the capacity model by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit import DataError, FormatError
from crossbit._io.files import write_json
from crossbit_experiments.capacity.plan import Demand, Machine, ShardMeasurements, plan_capacity
from crossbit_experiments.capacity.simulation import Cluster, simulate

MEASURED = Path(__file__).parents[2] / "results" / "capacity" / "measured.json"
IDLE = Cluster(shards=1, replicas=1, load=0.0, late=0.0, network=0.0)


@pytest.fixture(scope="module")
def measured() -> ShardMeasurements:
    return ShardMeasurements.load(MEASURED)


def test_an_idle_shard_has_the_measured_latencies(measured: ShardMeasurements) -> None:
    for kind in ("random", "clustered"):
        for n in measured.sizes:
            sample = measured.latencies(kind, n)
            simulated = np.sort(simulate(IDLE, sample, queries=4000).seconds)
            at = np.sort(sample.reshape(-1)) + 1e-8  # seconds, against rounding
            share = np.searchsorted(simulated, at, side="right") / len(simulated)
            assert (
                np.abs(share - np.arange(1, len(at) + 1) / len(at)).max() < 0.05
            )  # Kolmogorov and Smirnov's distance


def test_half_of_the_shards_predict_the_slowest_of_the_others(measured: ShardMeasurements) -> None:
    sample = measured.latencies("random", 10_000_000)
    half = sample.shape[1] // 2
    slowest = sample[:, half:].max(axis=1)
    predicted = simulate(replace(IDLE, shards=half), sample[:, :half], queries=4000)
    for q in (0.5, 0.9):
        assert predicted.quantile(q) == pytest.approx(np.quantile(slowest, q), rel=0.25)


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_waiting_times_follow_pollaczek_khinchine(load: float) -> None:
    times = np.random.default_rng(1).lognormal(0, 0.5, (500, 1))
    result = simulate(replace(IDLE, load=load), times, queries=25_000, seed=2)
    waited = result.seconds.mean() - times.mean()
    rate = load / times.mean()
    assert waited == pytest.approx(rate * np.square(times).mean() / (2 * (1 - load)), rel=0.1)


def test_the_slowest_of_independent_shards_has_the_distribution_of_a_maximum() -> None:
    times = np.random.default_rng(0).exponential(1.0, (1, 100_000)) + 1e-9
    result = simulate(replace(IDLE, shards=50), times, queries=5000)
    for x in (3.0, 4.0, 6.0):
        assert (result.seconds <= x).mean() == pytest.approx((1 - np.exp(-x)) ** 50, abs=0.03)


def test_replicas_that_are_down_leave_gaps_and_load_the_others() -> None:
    times = np.full((1, 1), 0.001)
    cluster = Cluster(shards=4000, replicas=2, load=0.4, late=0.0, down=0.1)
    down, up = (
        simulate(variant, times, queries=400, seed=1)
        for variant in (cluster, replace(cluster, down=0.0))
    )
    assert down.complete == pytest.approx(1 - 0.1**2, abs=0.01)
    assert up.complete == 1.0
    assert replace(cluster, shards=3).availability == pytest.approx((1 - 0.1**2) ** 3)
    assert down.quantile(0.5) > up.quantile(0.5)
    gone = simulate(replace(cluster, down=0.999, shards=1), times, queries=10)
    assert gone.complete == 0.0
    assert gone.quantile(0.5) == cluster.network


def test_hedging_cuts_the_tail_of_stragglers() -> None:
    times = np.full((1, 1), 0.001)
    cluster = Cluster(shards=100, load=0.1, late=0.002, lateness=0.1)
    plain, hedged = (
        simulate(variant, times, queries=3000)
        for variant in (cluster, replace(cluster, hedge=0.004))
    )
    assert plain.hedged == 0.0
    assert 0.0 < hedged.hedged < 0.05
    assert hedged.quantile(0.9) < 0.2 * plain.quantile(0.9)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"shards": 0}, "shards must be an integer of at least 1, got 0"),
        ({"load": 1.0}, "load must be at least 0 and below 1, got 1.0"),
        ({"hedge": -1.0}, "hedge must be a number of seconds ≥ 0 or None, got -1.0"),
    ],
)
def test_invalid_clusters_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Cluster(**{"shards": 1, **fields})
    with pytest.raises(
        DataError,
        match=r"sample must hold positive seconds of shape \(queries, shards\), got shape \(0, 1\)",
    ):
        simulate(IDLE, np.empty((0, 1)))


def measurements(**more: Any) -> ShardMeasurements:  # noqa: ANN401
    shard = {
        "what": "shard",
        "codes": "random",
        "shard": 1,
        "add_seconds": 1.0,
        "optimize_seconds": 9.0,
        **more,
    }
    return ShardMeasurements(
        [
            {**shard, "n": 10**6, "microseconds": [100.0, 300.0], "bytes_a_code": 50.0},
            {**shard, "n": 10**8, "microseconds": [2000.0, 2000.0], "bytes_a_code": 50.0},
            {"what": "encode", "rows_a_second": 1000.0},
            {"what": "store", "bytes_an_item": 100.0},
        ]
    )


def test_a_plan_equals_the_calculation_by_hand() -> None:
    machine = Machine(cores=10, memory=100e9, price=2.0, network=1e12, max_load=0.5, max_fill=0.5)
    plan = plan_capacity(
        Demand(items=10**9, modalities=2, queries=300.0, copies=2), measurements(), machine
    )
    assert (plan.shards, plan.machines_per_copy) == (
        20,
        2,
    )  # ten shards of 5 GB fit into a machine
    assert plan.core_seconds == pytest.approx(10 * 0.002)
    assert plan.copies == 2  # each of two machines answers 500 queries per second
    assert plan.queries == pytest.approx(2 * 2 * 10 * 0.5 / 0.02)
    assert plan.price == 8.0
    assert plan.price_per_million == pytest.approx(8.0 / 3600 / plan.queries * 1e6)
    assert plan.bytes_per_item == pytest.approx(100.0)
    assert plan.encode_hours == pytest.approx(2e9 / (2 * 10 * 1000.0) / 3600)
    assert plan.build_hours == pytest.approx(20 * 10.0 / 20 / 3600)
    more = plan_capacity(Demand(items=10**9, queries=3000.0), measurements(), machine)
    assert more.copies == 6


def test_times_are_interpolated_on_log_scales() -> None:
    measured = measurements()
    assert measured.seconds("random", 10**7) == pytest.approx(np.sqrt(200e-6 * 2000e-6))
    assert measured.seconds("random", 10**9) == pytest.approx(2000e-6 * np.sqrt(10))
    assert measured.latencies("random", 10**6).shape == (2, 1)


def test_impossible_plans_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match="cannot hold a shard of 100000000 codes; use smaller shards"
    ):
        plan_capacity(Demand(items=10**9), measurements(), Machine(memory=1e9))
    with pytest.raises(DataError, match="items must be an integer of at least 1, got 0"):
        Demand(items=0)
    with pytest.raises(DataError, match="queries per second must be finite and ≥ 0, got -1"):
        Demand(items=1, queries=-1)
    with pytest.raises(DataError, match="no shards of 5 random codes were measured"):
        measurements().latencies("random", 5)
    with pytest.raises(DataError, match="unknown kind of codes 'odd'"):
        measurements().latencies("odd", 10**6)
    with pytest.raises(DataError, match="no measurement 'color' of 'encode'"):
        measurements().value("encode", "color")
    write_json(tmp_path / "none.json", {"format": "crossbit.shards/1", "rows": []})
    with pytest.raises(FormatError, match="contains no measurement of a shard"):
        ShardMeasurements.load(tmp_path / "none.json")
