"""The parts of the Wiki experiment and the documentation made from them, with fast methods."""

import sys
from pathlib import Path

import numpy as np
import pytest

from crossbit import CCAITQ, LSH
from crossbit._progress import Step
from crossbit.data import Dataset, synthetic
from crossbit.errors import DataError, FormatError, MissingExtraError
from crossbit_experiments import code_lengths, plots
from crossbit_experiments.docs import EXPERIMENTS, fill, write_docs
from crossbit_experiments.methods import Method
from crossbit_experiments.pairs import Rule, draw_pairs
from crossbit_experiments.summary import read_summary, write_summary
from crossbit_experiments.wiki import methods as wiki
from crossbit_experiments.wiki import run

pytest.importorskip("matplotlib")
data = synthetic(n=120, classes=3)
SEEDS = (0, 1)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    paper = {"image-text": 50.0, "text-image": 40.0, "average": 45.0}
    methods = [
        Method(key="auto", title="CCA", build=CCAITQ, paper=paper),
        Method(key="lsh", title="LSH", build=LSH),
    ]
    pairs = [
        Method(key=f"{name}-pairs-{share:g}", title="", build=build)
        for share in wiki.SHARES
        # The order has no meaning: methods are found by their keys.
        for name, build in (("cmnn", LSH), ("mmnn", CCAITQ))
    ]
    monkeypatch.setattr(wiki, "table_methods", lambda: methods)
    monkeypatch.setattr(wiki, "default_hashers", lambda: methods)
    monkeypatch.setattr(wiki, "few_pairs_methods", lambda: pairs)
    monkeypatch.setattr(run, "CURVE_METHODS", ("auto", "lsh"))
    monkeypatch.setattr(run, "PROTOCOL_METHODS", ("auto", "lsh"))
    monkeypatch.setattr(run, "BITS", 8)
    monkeypatch.setattr(code_lengths, "LENGTHS", (4, 8))


@pytest.mark.usefixtures("quick")
def test_all_parts_write_one_summary_and_figures(tmp_path: Path) -> None:
    steps: list[Step] = []
    for part in run.PARTS:
        run.run_part(part, data, tmp_path, seeds=SEEDS, on_step=steps.append)
    summary = read_summary(run.write(tmp_path))
    assert [row["key"] for row in summary["table"]] == ["auto", "lsh"]
    assert [row["title"] for row in summary["few_pairs"]] == ["100%", "50%", "10%"]
    for row in summary["few_pairs"]:
        assert row["seeds"] == 2
        assert row["difference"]["mean"] == pytest.approx(row["mmnn"][0] - row["cmnn"][0], abs=1e-3)
        assert row["difference"]["mean"] > 5  # CCA less LSH
    lengths = summary["lengths"]
    assert lengths["lsh"]["retrained"].keys() == lengths["lsh"]["cropped"].keys() == {"4", "8"}
    average = pytest.approx(summary["table"][0]["mean"]["average"], abs=1e-3)
    assert lengths["auto"]["retrained"]["8"][0] == average
    definitions = {variant["name"]: variant["average"] for variant in summary["definitions"]}
    ours = definitions["whole ranking, expected ties (ours)"]
    assert definitions["whole ranking, ties in the worst order"] < ours
    assert definitions["whole ranking, ties in the best order"] > ours
    scores = {protocol["name"]: protocol["scores"] for protocol in summary["protocols"]}
    assert scores["wiki"]["auto"][0] == average
    assert scores.keys() == {"wiki", "wiki/train-as-base"}  # no method here has posteriors
    assert steps
    for name in ("table", "lengths", "precision-recall"):
        assert "</svg>" in (tmp_path / f"{name}.svg").read_text()


@pytest.mark.usefixtures("quick")
def test_figures_are_the_same_for_the_same_results(tmp_path: Path) -> None:
    drawn = []
    for _ in range(2):
        run.run_part("table", data, tmp_path, seeds=SEEDS)
        run.write(tmp_path)
        drawn.append((tmp_path / "table.svg").read_bytes())
    assert drawn[0] == drawn[1]


def test_an_unknown_part_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="unknown part 'scarce'"):
        run.run_part("scarce", data, tmp_path, seeds=SEEDS)


def test_a_share_of_the_pairs_across_and_all_pairs_within_are_drawn() -> None:
    labels = np.arange(2000) % 10
    train = Dataset(views={"image": np.ones((2000, 2)), "text": np.ones((2000, 2))}, labels=labels)
    drawn = draw_pairs(train, 0, n_pairs=wiki.PAIRS, share=0.1)["pairs"]
    assert {pairs.key: (int(pairs.similar.sum()), len(pairs)) for pairs in drawn} == {
        "image-text": (1000, 11_000),
        "image-image": (10_000, 110_000),
        "text-text": (10_000, 110_000),
    }
    across = draw_pairs(train, 0, n_pairs=wiki.PAIRS, share=0.1, within=False)["pairs"]
    assert [pairs.key for pairs in across] == ["image-text"]
    assert (across[0].index == drawn[0].index).all()


def test_every_method_can_be_built() -> None:
    methods = [*wiki.table_methods(), *wiki.few_pairs_methods()]
    assert len({method.key for method in methods}) == len(methods)
    for method in methods:
        if method.build is not None:
            for fields in method.candidates or [{}]:
                assert method.build(n_bits=8, seed=0, **fields).n_bits == 8


@pytest.mark.usefixtures("quick")
def test_tables_of_pages_are_made_from_results(tmp_path: Path) -> None:
    results = tmp_path / "results"
    docs = tmp_path / "docs"
    for part in run.PARTS:
        run.run_part(part, data, results / "wiki", seeds=SEEDS)
    run.write(results / "wiki")
    docs.mkdir()
    text = "# Page\n" + "".join(
        f"<!-- from results: wiki {name} -->\nold\n<!-- end of results -->\n"
        for name in EXPERIMENTS["wiki"].tables
    )
    (docs / "page.md").write_text(text + "the end\n")
    changed = write_docs(results, docs)
    assert [path.name for path in changed] == [
        "page.md",
        "wiki-lengths.svg",
        "wiki-precision-recall.svg",
        "wiki-table.svg",
    ]
    page = (docs / "page.md").read_text()
    assert "old" not in page
    assert page.startswith("# Page\n")
    assert page.endswith("the end\n")
    assert "| CCA |" in page
    assert "whole ranking, ties in the best order" in page
    assert write_docs(results, docs) == []


def test_tables_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no summaries; expected <experiment>/summary\.json"):
        write_docs(tmp_path, tmp_path)
    mark = "<!-- from results: {} -->\n<!-- end of results -->"
    with pytest.raises(DataError, match="no table 'nus table'"):
        fill(mark.format("nus table"), {})
    with pytest.raises(DataError, match=r"'wiki' declares .*'searches'"):
        fill(mark.format("wiki tabel"), {})


def test_a_table_without_runs_names_the_command() -> None:
    mark = "<!-- from results: wiki lengths -->\nold\n<!-- end of results -->"
    cases: list[dict[str, dict[str, object]]] = [{}, {"wiki": {"lengths": {}}}]
    for summaries in cases:
        filled = fill(mark, summaries)
        assert "No runs of this table are stored yet: `crossbit reproduce wiki`" in filled
        assert "old" not in filled


@pytest.mark.parametrize("rule", ["classes", "pairs"])
def test_either_rule_draws_the_same_number_of_pairs(rule: Rule) -> None:
    labels = np.repeat([0, 1], [90, 10])
    train = Dataset(views={"image": np.ones((100, 2)), "text": np.ones((100, 2))}, labels=labels)
    (pairs,) = draw_pairs(train, 0, n_pairs=(200, 300), rule=rule, within=False)["pairs"]
    left, right = labels[pairs.index.T]
    np.testing.assert_array_equal(left == right, pairs.similar)
    assert (int(pairs.similar.sum()), len(pairs)) == (200, 500)
    assert len(np.unique(pairs.index, axis=0)) == 500
    of_small_class = int((left[pairs.similar] == 1).sum())
    # 100 of 8,200 similar pairs are of the small class.
    assert of_small_class == 100 if rule == "classes" else of_small_class < 15


def test_a_summary_is_rounded(tmp_path: Path) -> None:
    path = write_summary(tmp_path, "wiki", table=[1.23456], seeds=2)
    assert read_summary(path)["table"] == [1.2346]
    path.write_text('{"format": "other"}')
    with pytest.raises(FormatError, match="other"):
        read_summary(path)


def test_without_matplotlib_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match="plots"):
        plots.plot_table([], tmp_path / "x.svg")
