"""Methods of a results table: running, reusing, searching and summarizing."""

from pathlib import Path

import numpy as np
import pytest

from crossbit import CCAITQ, LSH, Dataset
from crossbit._progress import Step
from crossbit.data import read, synthetic
from crossbit.errors import FormatError
from crossbit.evaluation.evaluate import Evaluation, Protocol
from crossbit.evaluation.results import read_result
from crossbit.metrics import AveragePrecision, evaluate_ranking, mean_over_queries
from crossbit_experiments.methods import (
    Method,
    result_file,
    run_methods,
    search_settings,
    summarize,
)
from crossbit_experiments.stored_codes import StoredCodes
from crossbit_experiments.wiki import methods as wiki

DIRECTIONS = ("image-text", "text-image")
data = synthetic(n=120, classes=3)


def _correlated(whole: Dataset, seed: int) -> Evaluation:
    train = whole.part("train")
    test = whole.part("test")
    vectors = wiki.embed("cm", train, test, n_directions=5, seed=seed)
    directions = [("image", "text"), ("text", "image")]
    reports = {d: evaluate_ranking(wiki.rank_by_cosine(vectors, test, *d)) for d in directions}
    return Evaluation(reports, Protocol(name="by hand"))


METHODS = [
    Method(key="lsh", title="LSH", build=LSH),
    Method(key="cca", title="CCA", build=CCAITQ, paper={"average": 50.0}),
    Method(key="real", title="CM", baseline=_correlated, bytes_per_item=20),
]


def test_a_table_summarizes_its_seeds(tmp_path: Path) -> None:
    run_methods(METHODS, data, tmp_path, n_bits=12, seeds=range(2))
    summaries = summarize(METHODS, tmp_path, DIRECTIONS, n_bits=12, seeds=range(2))
    assert [summary.method.key for summary in summaries] == ["lsh", "cca", "real"]
    lsh, cca, real = summaries
    assert cca.mean["average"] == pytest.approx(
        (cca.mean["image-text"] + cca.mean["text-image"]) / 2
    )
    assert cca.mean["average"] > lsh.mean["average"] + 20
    assert lsh.deviation["average"] > 0
    assert cca.worst <= cca.mean["average"] <= cca.best
    assert (cca.bytes_per_item, real.bytes_per_item) == (2, 20)


def test_existing_results_are_not_run_again(tmp_path: Path) -> None:
    run_methods(METHODS[:1], data, tmp_path, n_bits=12, seeds=[0])
    first = result_file(tmp_path, METHODS[0], 12, 0).stat().st_mtime_ns
    steps: list[Step] = []
    run_methods(METHODS[:2], data, tmp_path, n_bits=12, seeds=[0], on_step=steps.append)
    assert result_file(tmp_path, METHODS[0], 12, 0).stat().st_mtime_ns == first
    assert [(step.number, step.of) for step in steps] == [(1, 1)]


@pytest.mark.parametrize("change", ["settings", "data", "protocol"])
def test_results_of_other_settings_data_or_protocol_are_run_again(
    change: str, tmp_path: Path
) -> None:
    protocol = Protocol(name="first")
    method = METHODS[1]
    run_methods([method], data, tmp_path, n_bits=12, seeds=[0], protocol=protocol)
    other = data
    if change == "settings":
        method = Method(key="cca", title="CCA", build=lambda **fields: CCAITQ(**fields, power=2.0))
    if change == "data":
        other = synthetic(n=150, classes=3)
    if change == "protocol":
        protocol = Protocol(name="second", base="train")
    steps: list[Step] = []
    arguments = {"n_bits": 12, "seeds": [0], "protocol": protocol}
    run_methods([method], other, tmp_path, **arguments, on_step=steps.append)  # type: ignore[arg-type]
    run_methods([method], other, tmp_path, **arguments, on_step=steps.append)  # type: ignore[arg-type]
    assert len(steps) == 1


def test_incomplete_methods_are_left_out(tmp_path: Path) -> None:
    run_methods(METHODS[:1], data, tmp_path, n_bits=12, seeds=[0])
    assert summarize(METHODS, tmp_path, DIRECTIONS, n_bits=12, seeds=[0, 1]) == []


def test_a_method_needs_build_or_baseline(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs either build or baseline"):
        run_methods([Method(key="x", title="X")], data, tmp_path, n_bits=12, seeds=[0])


def test_settings_are_chosen_once_by_cross_validation(tmp_path: Path) -> None:
    built: list[dict[str, float]] = []

    def build(**fields: float) -> CCAITQ:
        built.append(fields)
        return CCAITQ(**fields)  # type: ignore[arg-type]

    method = Method(key="x", title="X", build=build, candidates=[{"power": 0.0}, {"power": 1.0}])
    run_methods([method], data, tmp_path, n_bits=8, seeds=(0, 1))
    assert len(built) == 2 + 2  # two candidates, then two seeds
    best, worst = search_settings(method, data.part("train"), tmp_path, 8)
    assert best.mean >= worst.mean
    assert [fields["power"] for fields in built[2:]] == [best.fields["power"]] * 2
    assert len(built) == 4  # loaded, not run again
    (tmp_path / "search" / "x-8.json").write_text('{"format": "crossbit.search/9"}')
    with pytest.raises(FormatError, match=r"crossbit\.search/9"):
        search_settings(method, data.part("train"), tmp_path, 8)
    with pytest.raises(ValueError, match="has no build, so no settings to search"):
        search_settings(Method(key="y", title="Y"), data.part("train"), tmp_path, 8)


def test_stored_codes_reproduce_the_number_of_their_result(tmp_path: Path) -> None:
    method = METHODS[1]
    run_methods([method], data, tmp_path, n_bits=12, seeds=[0])
    path = result_file(tmp_path, method, 12, 0)
    codes = StoredCodes.load(path)
    report = read_result(path)["directions"]["image-text"]["results"][0]

    def score(n_bits: int | None = None, include_self: bool = True) -> float:
        ranking = codes.ranking("image-text", data, n_bits=n_bits, include_self=include_self)
        return mean_over_queries(ranking.measure(AveragePrecision()))

    assert score() == pytest.approx(report["value"])
    assert score(n_bits=1) < score()
    assert score(include_self=False) != score()


def test_the_wiki_table_has_every_line_of_the_paper() -> None:
    methods = wiki.table_methods()
    printed = {method.title: method.paper for method in methods if method.paper}
    assert printed["CM-SSH"] == {
        "image-text": 22.2,
        "text-image": 18.4,
        "average": pytest.approx(20.3),
    }
    assert {
        "MM-NN L1, literal",
        "MM-NN L2, literal",
        "CM-NN L1, literal",
        "CM-NN L2, literal",
    } <= set(printed)
    assert {"CM", "SM", "SCM"} <= set(printed)
    assert len({method.key for method in methods}) == len(methods)


@pytest.mark.parametrize("key", ["cm", "scm"])
def test_unhashed_baselines_reach_the_printed_values(
    key: str, wiki_folder: Path, tmp_path: Path
) -> None:
    """Within 1.5 points of the printed values (Rasiwasia et al. 2010, as quoted by the paper)."""
    method = next(method for method in wiki.table_methods() if method.key == key)
    run_methods([method], read(wiki_folder), tmp_path, n_bits=32, seeds=[0])
    (summary,) = summarize([method], tmp_path, wiki.DIRECTIONS, n_bits=32, seeds=[0])
    for direction, printed in method.paper.items():
        assert abs(summary.mean[direction] - printed) < 1.5, direction


def test_centered_vectors_have_mean_zero() -> None:
    vectors = wiki.center({"x": np.random.default_rng(0).random((5, 4))})
    np.testing.assert_allclose(vectors["x"].sum(axis=1), 0, atol=1e-12)
