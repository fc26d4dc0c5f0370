"""The parts of the study of Wiki, with quick methods on a small set in place of its own."""

import sys
from pathlib import Path

import numpy as np
import pytest

from crossbit import CCAITQ, LSH
from crossbit._progress import Step
from crossbit.data import Dataset, synthetic
from crossbit.errors import DataError, FormatError, MissingExtraError
from crossbit.evaluation.results import read_result
from crossbit.metrics import AveragePrecision, mean_over_queries
from crossbit_experiments import plots
from crossbit_experiments.docs import fill, write_pages
from crossbit_experiments.methods import Row, result_file, run_rows, search
from crossbit_experiments.stored_codes import Kept
from crossbit_experiments.summary import read_summary, write_summary
from crossbit_experiments.wiki import methods, run

pytest.importorskip("matplotlib")
data = synthetic(n=120, classes=3)
SEEDS = (0, 1)
QUICK = [
    Row(
        key="mmnn",
        title="CCA",
        make=CCAITQ,
        paper={"image-text": 50.0, "text-image": 40.0, "average": 45.0},
    ),
    Row(key="lsh", title="LSH", make=LSH, candidates=[{"n_bits": 2}, {"n_bits": 12}]),
]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [QUICK[0], Row(key="lsh", title="LSH", make=LSH)]
    monkeypatch.setattr(wiki, "rows", lambda: rows)
    monkeypatch.setattr(wiki, "every_hasher", lambda: rows)
    monkeypatch.setattr(
        wiki, "scarce_rows", lambda: [Row(key=f"s{k}", title="", make=CCAITQ) for k in range(6)]
    )
    monkeypatch.setattr(wikistudy, "FOLLOWED", ("mmnn", "lsh"))
    monkeypatch.setattr(wikistudy, "READ", ("mmnn", "lsh"))
    monkeypatch.setattr(lengths, "LENGTHS", (4, 8))


@pytest.mark.usefixtures("quick")
def test_all_parts_end_in_one_summary_and_figures(tmp_path: Path) -> None:
    steps: list[Step] = []
    for part in run.PARTS:
        run.run_part(part, data, tmp_path, n_bits=8, seeds=SEEDS, on_step=steps.append)
    found = read_summary(tmp_path / "summary.json")
    assert [row["key"] for row in found["table"]] == ["mmnn", "lsh"]
    assert found["scarce"][0]["difference"] == 0  # the same method twice
    assert (
        found["lengths"]["lsh"]["retrained"].keys()
        == found["lengths"]["lsh"]["cropped"].keys()
        == {"4", "8"}
    )
    assert found["lengths"]["mmnn"]["retrained"]["8"][0] == pytest.approx(
        found["table"][0]["mean"]["average"], abs=1e-3
    )
    names = [one["name"] for one in found["definitions"]]
    values = dict(zip(names, found["definitions"], strict=True))
    ours = values["whole ranking, expected ties (ours)"]["average"]
    assert values["whole ranking, ties in the worst order"]["average"] < ours
    assert values["whole ranking, ties in the best order"]["average"] > ours
    by_protocol = {one["name"]: one for one in found["protocols"]}
    assert by_protocol["wiki"]["scores"]["mmnn"][0] == pytest.approx(
        found["table"][0]["mean"]["average"], abs=1e-3
    )
    assert (
        by_protocol["wiki/learned-base"]["scores"]["mmnn"]
        > by_protocol["wiki/train-as-base"]["scores"]["mmnn"]
    )
    assert steps
    for name in ("table", "lengths", "precision-recall"):
        assert "</svg>" in (tmp_path / f"{name}.svg").read_text()


@pytest.mark.usefixtures("quick")
def test_figures_are_the_same_for_the_same_results(tmp_path: Path) -> None:
    drawn = []
    for _ in range(2):
        run.run_part("table", data, tmp_path, n_bits=8, seeds=SEEDS)
        drawn.append((tmp_path / "table.svg").read_bytes())
    assert drawn[0] == drawn[1]


def test_settings_are_chosen_once_by_cross_validation(tmp_path: Path) -> None:
    row = Row(key="x", title="X", make=_counted, candidates=[{"power": 0.0}, {"power": 1.0}])
    _made.clear()
    run_rows([row], data, tmp_path, n_bits=8, seeds=SEEDS)
    assert len(_made) == 2 + 2  # candidates, then a seed each
    best, worst = search(row, data.part("train"), tmp_path, 8)
    assert best.mean >= worst.mean
    assert [fields["power"] for fields in _made[2:]] == [best.fields["power"]] * 2
    assert len(_made) == 4  # read, not run again
    (tmp_path / "search" / "x-8.json").write_text('{"format": "crossbit.search/9"}')
    with pytest.raises(FormatError, match=r"crossbit\.search/9"):
        search(row, data.part("train"), tmp_path, 8)
    with pytest.raises(ValueError, match="makes no method"):
        search(Row(key="y", title="Y"), data.part("train"), tmp_path, 8)


_made: list[dict[str, float]] = []


def _counted(**fields: float) -> CCAITQ:
    _made.append(fields)
    return CCAITQ(**fields)  # type: ignore[arg-type]


def test_kept_codes_give_the_number_of_their_result_and_of_their_crops(tmp_path: Path) -> None:
    run_rows(QUICK[:1], data, tmp_path, n_bits=12, seeds=[0])
    kept = Kept.of(result_file(tmp_path, QUICK[0], 12, 0))
    report = read_result(result_file(tmp_path, QUICK[0], 12, 0))["directions"]["image-text"][
        "results"
    ][0]
    again = mean_over_queries(kept.ranking("image-text", data).measure(AveragePrecision()))
    assert again == pytest.approx(report["value"])
    cropped = mean_over_queries(
        kept.ranking("image-text", data, n_bits=1).measure(AveragePrecision())
    )
    assert cropped < again
    without = mean_over_queries(
        kept.ranking("image-text", data, include_self=False).measure(AveragePrecision())
    )
    assert without != again


def test_a_share_of_the_pairs_across_and_all_of_those_within() -> None:
    labels = np.arange(2000) % 10
    train = Dataset(views={"image": np.ones((2000, 2)), "text": np.ones((2000, 2))}, labels=labels)
    found = methods.with_share(train, 0, share=0.1, within=True)
    assert {pairs.key: (int(pairs.similar.sum()), len(pairs)) for pairs in found["pairs"]} == {
        "image-text": (1000, 11_000),
        "image-image": (10_000, 110_000),
        "text-text": (10_000, 110_000),
    }
    across = methods.with_share(train, 0, share=0.1, within=False)["pairs"]
    assert [pairs.key for pairs in across] == ["image-text"]
    assert (across[0].index == found["pairs"][0].index).all()


def test_every_row_of_the_study_is_a_method_that_can_be_made() -> None:
    rows = [*methods.rows(), *methods.scarce_rows()]
    assert len({row.key for row in rows}) == len(rows)
    for row in rows:
        if row.make is not None:
            for fields in row.candidates or [{}]:
                assert row.make(n_bits=8, seed=0, **fields).n_bits == 8


@pytest.mark.usefixtures("quick")
def test_pages_are_made_from_results(tmp_path: Path) -> None:
    results, docs = tmp_path / "results", tmp_path / "docs"
    for part in run.PARTS:
        run.run_part(part, data, results / "wiki", n_bits=8, seeds=SEEDS)
    docs.mkdir()
    names = ("table", "searches", "scarce", "lengths", "crops", "definitions")
    text = "# Page\n" + "".join(
        f"<!-- from results: wiki {name} -->\nold\n<!-- end of results -->\n" for name in names
    )
    (docs / "page.md").write_text(text + "the end\n")
    changed = write_pages(results, docs)
    assert [path.name for path in changed] == [
        "page.md",
        "wiki-lengths.svg",
        "wiki-precision-recall.svg",
        "wiki-table.svg",
    ]
    made = (docs / "page.md").read_text()
    assert "old" not in made
    assert made.startswith("# Page\n")
    assert made.endswith("the end\n")
    assert "| CCA |" in made
    assert "whole ranking, ties in the best order" in made
    assert write_pages(results, docs) == []


def test_pages_without_results_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no summaries there"):
        write_pages(tmp_path, tmp_path)
    with pytest.raises(DataError, match="no results for the block 'nus table'"):
        fill(
            "<!-- from results: nus table -->\n<!-- end of results -->",
            {"wiki": {"directions": []}},
        )


def test_a_summary_keeps_what_it_is_not_given(tmp_path: Path) -> None:
    write_summary(tmp_path, "wiki", table=[1.23456], seeds=2)
    path = write_summary(tmp_path, "wiki", scarce=[])
    found = read_summary(path)
    assert (found["table"], found["seeds"], found["scarce"]) == ([1.2346], 2, [])
    path.write_text('{"format": "other"}')
    with pytest.raises(FormatError, match="other"):
        read_summary(path)


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match="plots"):
        plots.plot_table([], tmp_path / "x.svg")
