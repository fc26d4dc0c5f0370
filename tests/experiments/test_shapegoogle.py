"""The experiment on shapes from meshes to summary, with few shapes, few steps and short codes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit._progress import Step
from crossbit.cli import main
from crossbit.data import Dataset
from crossbit.metrics import AveragePrecision, mean_over_queries, rank_vectors, same_class
from crossbit_experiments.docs import write_pages
from crossbit_experiments.protocols import PROTOCOLS
from crossbit_experiments.shapegoogle import descriptors, methods, run, shapes
from crossbit_experiments.shapegoogle.methods import tell
from crossbit_experiments.shapegoogle.results import bars
from crossbit_experiments.shapegoogle.shapes import CLASSES
from crossbit_experiments.summary import read_summary
from tests.experiments.meshes import small_sources

pytest.importorskip("robust_laplacian")
pytest.importorskip("matplotlib")


def few() -> list[shapes.Item]:
    """Three classes, three kinds, and six distractors."""
    kinds = (shapes.ISOMETRY, "noise", "scale")
    items = [
        item for item in WHOLE if item.label in CLASSES[:3] and item.kind in kinds and item.step < 5
    ]
    return [
        *items,
        *(item for item in WHOLE if item.label is None and item.kind == "ring" and item.step < 7),
    ]


WHOLE = shapes.plan()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "plan", few)
    monkeypatch.setattr(strengths, "plan", few)
    monkeypatch.setattr(strengths, "CANDIDATES", (0.0, 1.0))
    monkeypatch.setitem(methods.NETWORK, "steps", 3)
    for name, value in {
        "LENGTHS": (4, 8),
        "LONG": (12,),
        "ALPHAS": (0.0, 0.3),
        "MARGINS": (2.0, 3.0),
    }.items():
        for module in (runs, study):
            monkeypatch.setattr(module, name, value)
    for module in (runs, study):
        monkeypatch.setattr(module, "WITHIN", (1.0, 2.0))
    for name in ("_WITHIN", "_ACROSS", "_MARGINS", "_MARGINS_ACROSS"):
        monkeypatch.setattr(rows, name, getattr(rows, name)[:1])


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> descriptors.Shapes:
    folder = tmp_path_factory.mktemp("shapes")
    steps: list[Step] = []
    found = descriptors.describe(
        few(), small_sources(folder / "data"), folder / "cache", strength=1.0, on_step=steps.append
    )
    assert steps[-1].number == len(found.items) == len(few())
    return found


def test_both_readings_split_the_shapes_as_they_say(shapes: descriptors.Shapes) -> None:
    printed, held = descriptors.as_printed(shapes), descriptors.held_out(shapes)
    classed = sum(item.label is not None for item in shapes.items)
    assert {part: len(some) for part, some in printed.splits.items()} == {
        "train": classed + 6,
        "query": classed,
        "database": classed + 6,
    }
    train, query, database = (
        set(np.asarray(held.splits[part]).tolist()) for part in ("train", "query", "database")
    )
    assert not train & database
    assert query < database
    assert len(train | database) == classed + 6
    assert (np.asarray(held.labels)[sorted(database - query)] == -1).all()
    for data in (printed, held):
        assert (data.views["bof"].shape[1], data.views["ssbof"].shape[1]) == (32, 64)
        np.testing.assert_allclose(np.linalg.norm(data.views["ssbof"], axis=1), 1, atol=1e-5)


def test_held_out_vocabularies_see_the_training_half_alone(shapes: descriptors.Shapes) -> None:
    trains = [item.trains for item in shapes.items]
    strange = [replace(heat, signatures=heat.signatures * 3) for heat in shapes.heats]
    mixed = [
        own if t else other for own, other, t in zip(shapes.heats, strange, trains, strict=True)
    ]
    changed = descriptors.Shapes(shapes.items, mixed, [])
    rows_ = np.flatnonzero(trains)
    before, after = (descriptors.held_out(some).views["bof"][rows_] for some in (shapes, changed))
    np.testing.assert_array_equal(before, after)
    assert not np.array_equal(
        descriptors.as_printed(shapes).views["bof"][rows_],
        descriptors.as_printed(changed).views["bof"][rows_],
    )


def test_unhashed_descriptors_leave_the_own_row_out(shapes: descriptors.Shapes) -> None:
    data = descriptors.as_printed(shapes)
    found = (
        methods.raw_descriptors(data, protocol=PROTOCOLS["shapegoogle/as-printed"])
        .reports["bof", "bof"]["mAP"]
        .value
    )
    labels, asked = np.asarray(data.labels), np.asarray(data.splits["query"])
    ranking = rank_vectors(
        data.views["bof"][asked],
        data.views["bof"],
        same_class(labels[asked], labels),
        metric="euclidean",
        exclude=asked,
    )
    assert found == pytest.approx(mean_over_queries(ranking.measure(AveragePrecision())))


def test_shapes_are_taken(shapes: descriptors.Shapes) -> None:
    some = shapes.take([item.label == "cat" for item in shapes.items])
    assert {item.label for item in some.items} == {"cat"}
    assert len(some.heats) == len(some.items)


def test_rows_are_the_papers() -> None:
    table = {row.key: row for row in methods.table_rows(PROTOCOLS["shapegoogle/held-out"], 16)}
    assert table["mmnn-l2"].paper == {"bof-ssbof": 99.76, "bof-bof": 99.26, "ssbof-ssbof": 99.57}
    made = table["mmnn-l1"].make(n_bits=16, seed=0)  # type: ignore[misc]
    assert made.configuration()["alpha"] == {"bof": 0.1, "ssbof": 0.3}
    assert made.configuration()["margin"] == {"bof": 1.0, "ssbof": 1.0, "bof-ssbof": 3.0}
    assert table["cmnn-l2"].make(n_bits=16, seed=0).configuration()["hidden"] == [128]  # type: ignore[misc]
    assert [row.title for row in methods.settings_rows(12)][-1] == "CM-NN, m 5"
    assert methods.settings_rows(12)[0].paper["bof-ssbof"] == 90.67
    cells = run.grid_cells()
    assert (
        len(cells)
        == len(set(cells))
        == len(run.ALPHAS) * len(run.MARGINS) + (len(run.WITHIN) - 1) * len(run.MARGINS)
    )


LABELS = np.array([0, 0, 0, 1, 1, 1, -1, -1])


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"bof-ssbof": (18, 18 + 24), "bof-bof": (6, 9 + 12), "ssbof-ssbof": (6, 9 + 12)}),
        ({"distractors": False}, {"bof-ssbof": (18, 18), "bof-bof": (6, 9), "ssbof-ssbof": (6, 9)}),
        ({"share": 0.5, "within": False}, {"bof-ssbof": (9, 21)}),
    ],
)
def test_pairs_are_capped_at_what_exists(
    fields: dict[str, Any], expected: dict[str, tuple[int, int]]
) -> None:
    train = Dataset(views={"bof": np.eye(8), "ssbof": np.eye(8)}, labels=LABELS)
    pairs = {some.key: some for some in tell(train, 0, **fields)["pairs"]}
    assert {
        key: (int(some.similar.sum()), int((~some.similar).sum())) for key, some in pairs.items()
    } == expected
    for some in pairs.values():
        left, right = LABELS[some.index.T]
        np.testing.assert_array_equal((left == right) & (left >= 0), some.similar)
        assert ((left >= 0) | (right >= 0)).all()  # nothing is said about two distractors
        assert len(np.unique(some.index, axis=0)) == len(some)


def test_bars_say_what_is_missed() -> None:
    def row(title: str, value: float) -> dict[str, Any]:
        return {"title": title, "mean": dict.fromkeys(methods.DIRECTIONS, value)}

    twelve = {
        "MM-NN L1": 90.0,
        "MM-NN L2": 95.0,
        "CM-NN L1": 85.0,
        "CM-NN L2": 84.0,
        "CM-SSH": 70.0,
    }
    tables = {
        "held-out 16": [{"title": "raw", "mean": {"bof-bof": 90.0}}, row("MM-NN L2", 97.5)],
        "held-out 12": [row(f"{title}, learned at 12", value) for title, value in twelve.items()],
    }
    found = bars(tables, {"difference": 1.0, "error": 0.4})
    assert [one["reached"] for one in found] == [False, True, False, True, True, True, True]
    assert found[2]["value"] == pytest.approx(-1)
    assert bars({"held-out 16": [], "held-out 12": []}, {}) == []


@pytest.mark.usefixtures("quick")
def test_the_command_goes_from_meshes_to_pages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = small_sources(tmp_path / "data"), tmp_path / "results" / "shapegoogle"
    command = [
        "reproduce",
        "shapegoogle",
        "--data",
        str(data),
        "--out",
        str(out),
        "--seeds",
        "1",
        "--workers",
        "1",
    ]
    assert main([*command, "--part", "strengths"]) == 0
    assert "nearest to the paper: " in capsys.readouterr().err
    assert main(command) == 0
    printed = capsys.readouterr()
    assert "MM-NN L2" in printed.out
    assert "the worst network less CM-SSH at 12 bits" in printed.err
    found = read_summary(out / "summary.json")
    assert {one["strength"] for one in found["strengths"]} == {0.0, 1.0}
    assert [row["key"] for row in found["results"]["held-out 16"]] == [
        *("raw", "mmnn-l1", "mmnn-l2", "cmnn-l1", "cmnn-l2", "cmssh"),
    ]
    assert len(found["results"]["as-printed 12"]) == 15
    assert found["lengths"]["cmssh"]["retrained"].keys() == {"4", "8", "12"}
    assert np.shape(found["grid"]["within"]["cells"]) == (2, 2)
    assert set(found["minutes"]) == {"from meshes to descriptors", "from descriptors to results"}
    for name in ("bits", "grid", "retrieval"):
        assert "</svg>" in (out / f"{name}.svg").read_text()
    names = (
        "held-out 16",
        "as-printed settings 12",
        "shares",
        "bars",
        "strengths",
        "minutes",
        "lengths",
    )
    marks = [
        f"<!-- from results: shapegoogle {name} -->\nold\n<!-- end of results -->\n"
        for name in names
    ]
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("".join(marks))
    write_pages(tmp_path / "results", tmp_path / "docs")
    made = (tmp_path / "docs" / "page.md").read_text()
    assert "old" not in made
    assert (
        "| 1 seeds | BoF → SS-BoF | paper | SS-BoF → BoF | BoF | paper | SS-BoF | paper |" in made
    )
    assert "lost by one tenth" in made


@pytest.mark.usefixtures("quick")
def test_parts_are_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "shapegoogle", "--data", str(tmp_path), "--part", "tables"]) == 1
    assert "unknown part 'tables'" in capsys.readouterr().err
