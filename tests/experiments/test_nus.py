"""NUS: splits, simulated features and the table; on small data and with the real labels."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit.cli import main
from crossbit.data import Dataset
from crossbit.data.conversion.distributions import read_concepts
from crossbit.errors import DataError
from crossbit.evaluation.evaluate import Protocol
from crossbit.metrics import AveragePrecision, mean_over_queries, rank_vectors
from crossbit_experiments.nus import run, simulation
from crossbit_experiments.nus.features import rank_features
from crossbit_experiments.nus.run import DIRECTIONS, NETWORK, PAPER, table_methods
from crossbit_experiments.nus.simulation import (
    FEATURE_MODELS,
    Calibration,
    calibrate,
    simulate,
    simulate_features,
    solve_share,
)
from crossbit_experiments.nus.splits import BASE, LABELED, QUERIES, SPLITS, apply_split
from crossbit_experiments.protocols import PROTOCOLS
from crossbit_experiments.runs import RunStore, StoredRun
from crossbit_experiments.summary import read_summary

pytest.importorskip("matplotlib")
RNG = np.random.default_rng(0)
# Concepts as unequal as in the real set; the last rows have none.
LABELS = RNG.random((1500, 14)) < 0.35 / np.arange(1, 15)
LABELS[-50:] = False
CONCEPTS = [f"c{k}" for k in range(14)]
SHARES = {"image": 0.6, "tags": 0.8}


@pytest.fixture(scope="module")
def simulated() -> Dataset:
    return simulate(LABELS, CONCEPTS, SHARES)


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks that train for a few steps."""
    monkeypatch.setitem(NETWORK, "steps", 15)


@pytest.mark.parametrize("split", SPLITS)
def test_rows_have_concepts_and_queries_are_not_in_training(split: str, simulated: Dataset) -> None:
    data = apply_split(simulated, split)
    train, base, query = (
        set(np.asarray(data.splits[part]).tolist()) for part in ("train", "database", "query")
    )
    assert not query & (train | base)
    assert len(train | base | query) == len(data)
    assert np.asarray(data.labels).any(axis=1).all()
    np.testing.assert_allclose(np.linalg.norm(data.views["image"], axis=1), 1, rtol=1e-5)
    assert set(np.unique(data.views["tags"])) == {0, 1}
    if split == "labeled":
        assert not train & base
        assert len(query) == round(len(data) * QUERIES / LABELED)
        assert len(base) == round(len(data) * BASE / LABELED)
    else:
        assert train < base
        assert len(train) == len(data) // 2
        assert np.asarray(data.labels).shape[1] == 10
        assert data.classes == tuple(CONCEPTS[:10])


def test_rows_keep_their_features_and_concepts(simulated: Dataset) -> None:
    data = apply_split(simulated, "labeled")
    before, after = (
        [row.tobytes() for row in dataset.views["tags"]] for dataset in (simulated, data)
    )
    once = {row for row, times in Counter(before).items() if times == 1}
    place = {row: number for number, row in enumerate(before) if row in once}
    moved = [(number, place[row]) for number, row in enumerate(after) if row in once]
    assert len(moved) > 500
    new, old = np.transpose(moved)
    np.testing.assert_array_equal(np.asarray(data.labels)[new], LABELS[old])


def test_incomplete_rows_are_left_out(simulated: Dataset) -> None:
    half = replace(simulated, splits={"complete": np.arange(0, 1500, 2)})
    assert len(apply_split(half, "labeled")) == int(LABELS[::2].any(axis=1).sum())
    ten = replace(simulated, splits={"complete": np.flatnonzero(LABELS.any(axis=1))[:10]})
    with pytest.raises(DataError, match=r"need at least 20 photographs .* and all views, got 10"):
        apply_split(ten, "labeled")
    with pytest.raises(DataError, match="unknown split 'all'"):
        apply_split(simulated, "all")


def test_the_real_labels_give_the_printed_sizes(nuswide_folder: Path) -> None:
    labels, concepts = read_concepts(nuswide_folder)
    nothing = np.zeros((len(labels), 1), np.uint8)
    data = Dataset(views={"image": nothing, "tags": nothing}, labels=labels, classes=concepts)
    sizes = [
        {part: len(rows) for part, rows in apply_split(data, split).splits.items()}
        for split in SPLITS
    ]
    assert sizes[0] == {"train": 19_347, "database": 180_000, "query": 10_000}
    assert sizes[1] == {"train": 93_288, "database": 176_577, "query": 10_000}


def test_features_are_as_informative_as_the_share_says() -> None:
    tags = FEATURE_MODELS["tags"]
    none, half, all_ = (simulate_features(LABELS, tags, s, [0, 1]) for s in (0.0, 0.5, 1.0))
    assert none.dtype == np.uint8
    assert none.max() == 1
    assert (none.sum(axis=1) >= 1).all()
    assert abs(none.sum(axis=1).mean() - tags.draws) < 0.5
    single = np.flatnonzero(LABELS.sum(axis=1) == 1)
    same = LABELS[single] @ LABELS[single].T
    shared = [
        float((rows[single] @ rows[single].T.astype(int))[same].mean())
        for rows in (none, half, all_)
    ]
    assert shared[0] < shared[1] < shared[2]
    # Rows without a concept draw from the common distribution, whatever the share.
    np.testing.assert_allclose(all_[-50:].sum(), none[-50:].sum(), rtol=0.1)
    assert simulate_features(LABELS, FEATURE_MODELS["image"], 0.5, [0, 0]).max() > 1
    np.testing.assert_array_equal(simulate_features(LABELS, tags, 0.5, [0, 1]), half)


def test_features_without_any_concept_can_be_simulated() -> None:
    made = simulate_features(np.zeros((5, 3), bool), FEATURE_MODELS["tags"], 1.0, [0])
    assert (made.sum(axis=1) > 0).all()


def test_calibration_finds_the_share_of_informative_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "_TOLERANCE", 2.0)
    goals = {
        "image": replace(FEATURE_MODELS["image"], target=70.0),
        "tags": replace(FEATURE_MODELS["tags"], target=80.0),
    }
    monkeypatch.setattr(simulation, "FEATURE_MODELS", goals)
    messages: list[str] = []
    calibration = calibrate(LABELS, CONCEPTS, "labeled", on_trial=messages.append)
    assert len(messages) == sum(map(len, calibration.trials.values()))
    data = apply_split(simulate(LABELS, CONCEPTS, calibration.shares), "labeled")
    for name, kind in goals.items():
        ranking = rank_features(data, name, PROTOCOLS["nus/labeled"])
        value = 100 * mean_over_queries(ranking.measure(AveragePrecision(at=10)))
        assert abs(value - kind.target) <= 2
        assert value == pytest.approx(calibration.trials[name][-1][1])


def test_a_target_that_cannot_be_reached_is_reported() -> None:
    with pytest.raises(DataError, match="image: no share of informative draws gives an mAP@10"):
        solve_share(lambda share: 90.0 if share > 0.3 else 45.0, 57.0, "image")


def test_features_are_ranked_by_euclidean_distance(simulated: Dataset) -> None:
    data = apply_split(simulated, "labeled")
    protocol = PROTOCOLS["nus/labeled"]
    query_rows, base_rows = (np.asarray(data.splits[part]) for part in ("query", "database"))
    for name in ("image", "tags"):
        ours = rank_features(data, name, protocol)
        view = data.views[name].astype(np.float64)
        theirs = rank_vectors(view[query_rows], view[base_rows], ours.relevance, metric="euclidean")
        value, expected = (
            mean_over_queries(dataset.measure(AveragePrecision(at=10)))
            for dataset in (ours, theirs)
        )
        assert value == pytest.approx(expected, abs=1e-3 if name == "image" else 1e-9)
    with pytest.raises(ValueError, match="needs more than the first places"):
        rank_features(data, "image", Protocol(name="whole", queries="query", base="database"))


def test_the_table_has_the_papers_methods_and_settings() -> None:
    made = {row.key: row for row in table_methods(PROTOCOLS["nus/labeled"])}
    assert list(made) == ["raw", "mmnn", "cmnn", "cmssh"]
    assert made["mmnn"].paper["image-image"] == 79.39
    assert PAPER["cmssh"]["tags-image"] == 50.2
    network: Any = made["mmnn"].build(n_bits=64, seed=0)  # type: ignore[misc]
    assert (network.alpha, network.n_pairs, network.optimizer) == (0.3, (500_000, 500_000), "cg")
    assert network.margin == {"image-tags": 7.0, "image": 3.0, "tags": 3.0}
    assert all(not row.paper for row in table_methods(PROTOCOLS["nus/labeled"], paper=False))


@pytest.mark.usefixtures("brief")
def test_a_run_writes_a_summary_with_all_directions_and_chance(
    simulated: Dataset, tmp_path: Path
) -> None:
    data, protocol = apply_split(simulated, "ten-concepts"), PROTOCOLS["nus/ten-concepts"]
    made = table_methods(protocol, pairs=(2000, 2000))
    for _ in range(2):
        run.run(made, data, tmp_path, protocol, n_bits=16, seeds=[0], facts={})
    summary = read_summary(tmp_path / "summary.json")
    table = {row["key"]: row for row in summary["table"]}
    assert list(table) == ["raw", "mmnn", "cmnn", "cmssh", "chance"]
    assert table["raw"]["mean"].keys() == {"image-image", "tags-tags"}
    assert set(table["mmnn"]["mean"]) == {*DIRECTIONS, "average"}
    for direction in DIRECTIONS:
        assert table["mmnn"]["mean"][direction] > table["chance"]["mean"][direction] + 5
    facts = summary["facts"]
    assert facts["protocol"]["name"] == "nus/ten-concepts"
    assert facts["sizes"] == {part: len(rows) for part, rows in data.splits.items()}
    assert "</svg>" in (tmp_path / "table.svg").read_text()
    assert facts["protocol"]["measures"]["mAP@10"].startswith(
        "average precision of the first 10 places, divided by"
    )
    stored = RunStore(tmp_path)["mmnn-16-0"]
    assert stored.at == 10
    assert len(stored.per_query("image-tags")) == facts["sizes"]["query"]
    (chosen, *_), others = summary["searches"]["cmssh"], run.CMSSH_CANDIDATES
    assert chosen["fields"] in others


@pytest.mark.usefixtures("brief")
def test_chance_is_known_in_every_direction_whatever_method_comes_last(
    simulated: Dataset, tmp_path: Path
) -> None:
    data = apply_split(simulated, "labeled")
    protocol = PROTOCOLS["nus/labeled"]
    # Unhashed features have two directions only.
    by_key = {row.key: row for row in table_methods(protocol, pairs=(500, 500))}
    methods = [by_key["cmnn"], by_key["raw"]]
    run.run(methods, data, tmp_path, protocol, n_bits=8, seeds=[0], facts={})
    table = {row["key"]: row for row in read_summary(tmp_path / "summary.json")["table"]}
    assert list(table["chance"]["mean"]) == list(DIRECTIONS)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few labels, and a given calibration."""
    monkeypatch.setattr(
        "crossbit.data.conversion.distributions.read_concepts", lambda folder: (LABELS, CONCEPTS)
    )
    shares = Calibration(SHARES, {"image": [(0.6, 57.0)], "tags": [(0.8, 79.0)]})
    monkeypatch.setattr(simulation, "calibrate", lambda *arguments, **named: shares)


def _tenth_is_tied(stored: StoredRun, direction: str) -> float:
    left, right = direction.split("-")
    queries = stored.codes[f"query.{left}"].unpack()
    base = stored.codes[f"base.{right}"].unpack()
    distances = np.sort((queries[:, None] != base[None]).sum(axis=2), axis=1)
    return float((distances[:, 9] == distances[:, 10]).mean())


@pytest.mark.usefixtures("quick", "brief")
def test_the_command_simulates_and_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "reproduce",
        "nus",
        "--simulate",
        "--data",
        str(tmp_path),
        "--out",
        str(tmp_path / "out"),
    ]
    command += ["--pairs", "2000", "--bits", "12"]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert "features are simulated" in printed.err
    assert "nus/labeled: 10⁴ queries" in printed.err
    for name in ("features", "MM-NN", "CM-NN", "CM-SSH", "CPU minutes", "a load test"):
        assert name in printed.out
    assert "64.3" not in printed.out
    summary = read_summary(tmp_path / "out" / "summary.json")
    assert summary["facts"]["simulated"]["trials"]["tags"] == [[0.8, 79.0]]
    assert summary["facts"]["cost"]["GiB at most"] > 0
    tied = {row["title"]: row["tied"] for row in summary["load"]}
    assert tied["features"] is None
    store = RunStore(tmp_path / "out")
    by_hand = [_tenth_is_tied(store["mmnn-12-0"], direction) for direction in DIRECTIONS]
    assert tied["MM-NN"] == pytest.approx(100 * np.mean(by_hand), abs=1e-3)
    assert [line[-1] for line in run.load_table(summary).lines][:2] == [
        "–",
        f"{tied['MM-NN']:.1f} %",
    ]
    assert main(command) == 0
    assert "features are simulated" not in capsys.readouterr().err


def test_an_unknown_protocol_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["reproduce", "nus", "--simulate", "--data", str(tmp_path), "--protocol", "all"]) == 1
    )
    assert "unknown protocol 'all'; known: ['labeled', 'ten-concepts']" in capsys.readouterr().err


@pytest.mark.usefixtures("brief")
def test_the_command_takes_a_converted_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], simulated: Dataset
) -> None:
    simulated.save(tmp_path / "nus")
    command = [
        "reproduce",
        "nus",
        "--data",
        str(tmp_path / "nus"),
        "--out",
        str(tmp_path / "out"),
        "--pairs",
        "1000",
    ]
    assert main([*command, "--bits", "8", "--protocol", "ten-concepts"]) == 0
    assert "nus/ten-concepts" in capsys.readouterr().err
    assert (
        main(
            [
                "reproduce",
                "nus",
                "--data",
                str(tmp_path / "nothing"),
                "--out",
                str(tmp_path / "other"),
            ]
        )
        == 1
    )
    assert "nothing" in capsys.readouterr().err
