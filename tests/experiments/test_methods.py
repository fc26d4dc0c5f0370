"""Methods of a results table: running, reusing, searching and summarizing."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit import CCAITQ, LSH, Dataset
from crossbit._progress import Step
from crossbit.data import read, synthetic
from crossbit.evaluation.evaluate import Evaluation, Protocol
from crossbit.metrics import AveragePrecision, Precision, evaluate_ranking
from crossbit_experiments.methods import (
    Method,
    compare_methods,
    method_rows,
    run_methods,
    search_settings,
    stored_runs,
)
from crossbit_experiments.protocols import PROTOCOLS
from crossbit_experiments.runs import RunStore
from crossbit_experiments.wiki import methods as wiki

DIRECTIONS = ("image-text", "text-image")
PROTOCOL = PROTOCOLS["wiki"]
data = synthetic(n=120, classes=3)
run_here = partial(run_methods, data=data, n_bits=12, protocol=PROTOCOL)


def correlated(whole: Dataset, seed: int) -> tuple[Evaluation, dict[str, Any]]:
    train = whole.part("train")
    test = whole.part("test")
    vectors = wiki.embed("cm", train, test, n_directions=5, seed=seed)
    rankings = {
        d: wiki.rank_by_cosine(vectors, test, *d) for d in (("image", "text"), ("text", "image"))
    }
    measure = AveragePrecision()
    reports = {d: evaluate_ranking(own, measures=(measure,)) for d, own in rankings.items()}
    values = {"-".join(d): own.measure(measure) for d, own in rankings.items()}
    return Evaluation(reports, PROTOCOL), values


METHODS = [
    Method(key="lsh", title="LSH", build=LSH),
    Method(key="cca", title="CCA", build=CCAITQ, paper={"average": 50.0}),
    Method(key="real", title="CM", baseline=correlated, bytes_per_item=20),
]


def test_a_table_has_deviations_and_intervals(tmp_path: Path) -> None:
    run_here(METHODS, folder=tmp_path, seeds=range(2))
    rows = method_rows(RunStore(tmp_path), METHODS, DIRECTIONS, n_bits=12)
    assert [row["key"] for row in rows] == ["lsh", "cca", "real"]
    lsh, cca, real = rows
    both = [cca["mean"][direction] for direction in DIRECTIONS]
    assert cca["mean"]["average"] == pytest.approx(np.mean(both))
    assert cca["mean"]["average"] > lsh["mean"]["average"] + 20
    assert lsh["deviation"]["average"] > 0
    assert cca["worst"] <= cca["mean"]["average"] <= cca["best"]
    low, high = cca["interval"]["average"]
    assert low < cca["mean"]["average"] < high
    assert (cca["bytes"], real["bytes"]) == (2, 20)
    difference = compare_methods(RunStore(tmp_path), METHODS[1], METHODS[0], DIRECTIONS, n_bits=12)
    assert difference is not None
    assert difference.significant
    assert difference.mean == pytest.approx(cca["mean"]["average"] - lsh["mean"]["average"])
    missing = Method(key="x", title="X", build=LSH)
    assert compare_methods(RunStore(tmp_path), missing, METHODS[0], DIRECTIONS, n_bits=12) is None


def test_equal_runs_are_reused(tmp_path: Path) -> None:
    run_here(METHODS[:1], folder=tmp_path, seeds=[0])
    before = (tmp_path / "runs.jsonl").read_text()
    steps: list[Step] = []
    run_here(METHODS[:2], folder=tmp_path, seeds=[0], on_step=steps.append)
    assert (tmp_path / "runs.jsonl").read_text().startswith(before)
    assert [(step.number, step.of) for step in steps] == [(1, 1)]


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ("settings", "settings"),
        ("grid", "settings"),
        ("data", "data"),
        ("labels", "data"),
        ("protocol", "protocol"),
        ("pairs", "supervision"),
        ("code", "code"),
    ],
)
def test_stale_runs_are_named_and_run_again(
    change: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = METHODS[1]
    run_here([method], folder=tmp_path, seeds=[0])
    changed: dict[str, Any] = {}
    match change:
        case "settings":
            method = replace(method, build=partial(CCAITQ, power=2.0))
        case "grid":
            method = replace(method, candidates=[{"power": 0.0}])
        case "data":
            views = {name: view + 1 for name, view in data.views.items()}
            changed["data"] = replace(data, views=views)
        case "labels":
            changed["data"] = replace(data, labels=np.asarray(data.labels)[::-1].copy())
        case "protocol":
            changed["protocol"] = Protocol(name="other", base="train")
        case "pairs":
            method = replace(method, fit_args=lambda train, seed: train.fit_arguments(None))
        case "code":
            monkeypatch.setattr("crossbit_experiments.fingerprint.code_version", lambda module: "x")
    notes: list[str] = []
    steps: list[Step] = []
    for _ in range(2):
        run_here(
            [method],
            folder=tmp_path,
            seeds=[0],
            **changed,
            on_step=steps.append,
            on_note=notes.append,
        )
    assert len(steps) == len(notes) == 1
    assert "cca-12-0 is stale (" in notes[0]
    assert part in notes[0]
    assert len(RunStore(tmp_path).names()) == 1


def test_a_title_does_not_make_a_run_stale(tmp_path: Path) -> None:
    run_here(METHODS[:1], folder=tmp_path, seeds=[0])
    steps: list[Step] = []
    renamed = replace(METHODS[0], title="random")
    run_here([renamed], folder=tmp_path, seeds=[0], on_step=steps.append)
    assert steps == []


def test_a_method_needs_build_or_baseline(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs either build or baseline"):
        run_here([Method(key="x", title="X")], folder=tmp_path, seeds=[0])


def test_the_first_measure_must_be_an_average_precision(tmp_path: Path) -> None:
    protocol = Protocol(name="p", measures=(Precision(at=3),))
    with pytest.raises(ValueError, match="the first measure is no average precision"):
        run_here(METHODS[:1], folder=tmp_path, seeds=[0], protocol=protocol)


def test_settings_are_chosen_once_by_cross_validation(tmp_path: Path) -> None:
    method = Method(key="x", title="X", build=CCAITQ, candidates=[{"power": 0.0}, {"power": 1.0}])
    run_here([method], folder=tmp_path, seeds=(0, 1))
    store = RunStore(tmp_path)
    best, worst = search_settings(method, data.part("train"), store, 12)
    assert best.mean >= worst.mean
    runs = stored_runs(store, method, 12)
    assert [run.settings["fields"]["power"] for run in runs] == [best.fields["power"]] * 2
    before = store.path.read_bytes()
    search_settings(method, data.part("train"), store, 12)
    assert store.path.read_bytes() == before  # reused
    with pytest.raises(ValueError, match="has no build, so no settings to search"):
        search_settings(Method(key="y", title="Y"), data.part("train"), store, 12)


def test_the_wiki_table_has_every_line_of_the_paper() -> None:
    methods = wiki.table_methods()
    printed = {method.title: method.paper for method in methods if method.paper}
    assert printed["CM-SSH"] == {
        "image-text": 22.2,
        "text-image": 18.4,
        "average": pytest.approx(20.3),
    }
    assert printed["MM-NN L2, literal, pairs by class"]["average"] == 25.3
    assert (printed["CM"]["average"], printed["SCM"]["average"]) == (22.3, 25.2)
    for reading in ("literal, pairs by class", "literal, pairs uniform", "family"):
        for network in ("MM-NN L1", "MM-NN L2", "CM-NN L1", "CM-NN L2"):
            assert f"{network}, {reading}" in printed
    assert len({method.key for method in methods}) == len(methods)
    grids = {len(method.candidates) for method in methods if method.key.endswith("family")}
    assert grids == {8}


@pytest.mark.parametrize("key", ["cm", "scm"])
def test_unhashed_baselines_reach_the_printed_values(
    key: str, wiki_folder: Path, tmp_path: Path
) -> None:
    """Within 1.5 points of the printed values (Rasiwasia et al. 2010, as quoted by the paper)."""
    method = next(method for method in wiki.table_methods() if method.key == key)
    run_here([method], data=read(wiki_folder), folder=tmp_path, seeds=[0])
    (row,) = method_rows(RunStore(tmp_path), [method], wiki.DIRECTIONS, n_bits=12)
    for direction, printed in method.paper.items():
        assert abs(row["mean"][direction] - printed) < 1.5, direction


def test_centered_vectors_have_mean_zero() -> None:
    vectors = wiki.center({"x": np.random.default_rng(0).random((5, 4))})
    np.testing.assert_allclose(vectors["x"].sum(axis=1), 0, atol=1e-12)
