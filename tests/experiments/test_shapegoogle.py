"""The experiment on shapes from meshes to documentation, with few shapes, steps and bits."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit._progress import Step
from crossbit.cli import main
from crossbit.data import Dataset
from crossbit.metrics import AveragePrecision, mean_over_queries, rank_vectors, same_class
from crossbit_experiments.docs import write_docs
from crossbit_experiments.pairs import draw_pairs
from crossbit_experiments.shapegoogle import descriptors, methods, run
from crossbit_experiments.shapegoogle.descriptors import ShapeHeat
from crossbit_experiments.shapegoogle.methods import protocol_for
from crossbit_experiments.shapegoogle.shapes import CLASSES, ISOMETRY, Shape, list_shapes
from crossbit_experiments.summary import read_summary
from tests.experiments.meshes import small_sources

pytest.importorskip("robust_laplacian")
pytest.importorskip("matplotlib")


def few_shapes() -> list[Shape]:
    """Three classes, three kinds of transformations, and six distractors."""
    kinds = (ISOMETRY, "noise", "scale")
    return [
        shape
        for shape in list_shapes()
        if (shape.label in CLASSES[:3] and shape.kind in kinds and shape.step < 5)
        or (shape.label is None and shape.kind == "ring" and shape.step < 7)
    ]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (run, descriptors):
        monkeypatch.setattr(module, "list_shapes", few_shapes)
    monkeypatch.setattr(descriptors, "CANDIDATES", (0.0, 1.0))
    monkeypatch.setitem(methods.NETWORK, "steps", 3)
    monkeypatch.setattr(descriptors, "MIN_POSES", 2)
    monkeypatch.setattr(methods, "LENGTHS", (4, 8))
    monkeypatch.setattr(methods, "SHARES", (1.0, 0.1))
    for name in ("_MMNN_GRID", "_CMNN_GRID", "CMSSH_CANDIDATES"):
        monkeypatch.setattr(methods, name, getattr(methods, name)[:1])
    settings = {setting: value for setting, value in list(methods._SETTINGS.items())[::9]}
    monkeypatch.setattr(methods, "_SETTINGS", settings)
    monkeypatch.setattr(methods, "_COMMENTED", {(0.0, 0.1, 1, 1, 3): 98.83})


@pytest.fixture(scope="module")
def heat(tmp_path_factory: pytest.TempPathFactory) -> ShapeHeat:
    folder = tmp_path_factory.mktemp("shapes")
    steps: list[Step] = []
    sources = small_sources(folder / "data")
    computed = descriptors.compute_heat(
        few_shapes(), sources, folder / "cache", strength=1.0, on_step=steps.append
    )
    assert steps[-1].number == len(computed.shapes) == len(few_shapes())
    return computed


def test_both_splits_have_the_documented_rows(heat: ShapeHeat) -> None:
    heat = replace(heat, n_poses=dict.fromkeys(CLASSES, 5))
    printed = descriptors.as_printed(heat)
    held_out = descriptors.held_out(heat)
    in_class = sum(shape.label is not None for shape in heat.shapes)
    assert {split: len(rows) for split, rows in printed.splits.items()} == {
        "train": in_class + 6,
        "query": in_class,
        "database": in_class + 6,
    }
    train, query, database = (
        set(np.asarray(held_out.splits[split]).tolist()) for split in ("train", "query", "database")
    )
    assert not train & database
    assert query < database
    assert len(train | database) == in_class + 6
    assert (np.asarray(held_out.labels)[sorted(database - query)] == -1).all()
    for data in (printed, held_out):
        assert (data.views["bof"].shape[1], data.views["ssbof"].shape[1]) == (32, 64)
        np.testing.assert_allclose(np.linalg.norm(data.views["ssbof"], axis=1), 1, atol=1e-5)


def test_no_pose_of_a_class_is_on_both_sides() -> None:
    n_poses = dict(zip(CLASSES, (21, 6, 7, 9, 19, 20, 12, 3, 5, 19, 10, 11), strict=True))
    sides: dict[str, dict[bool, set[int]]] = {}
    for shape in list_shapes():
        if shape.label is not None:
            own = sides.setdefault(shape.label, {True: set(), False: set()})
            own[shape.in_train(n_poses)].add(shape.pose % n_poses[shape.label])
    for label, own in sides.items():
        assert not own[True] & own[False], label
        assert len(own[True] | own[False]) == n_poses[label]


def test_a_class_with_few_poses_is_a_distractor(heat: ShapeHeat) -> None:
    few = replace(heat, n_poses={**dict.fromkeys(CLASSES, 5), CLASSES[0]: 3})
    labels = np.asarray(descriptors.held_out(few).labels)
    names = np.array([shape.label or "" for shape in few.shapes])
    assert (labels[names == CLASSES[0]] == -1).all()
    assert (labels[names == CLASSES[1]] == 1).all()
    assert (np.asarray(descriptors.as_printed(few).labels)[names == CLASSES[0]] == 0).all()
    first, second, *_ = descriptors.pose_counts(few)
    assert (first["role"], second["role"]) == ("distractor", "class")
    assert first["train shapes"] + first["test shapes"] == int((names == CLASSES[0]).sum())


def test_held_out_vocabularies_use_the_training_half_only(heat: ShapeHeat) -> None:
    heat = replace(heat, n_poses=dict.fromkeys(CLASSES, 5))
    in_train = heat.in_train
    mixed = [
        own if trains else replace(own, signatures=own.signatures * 3)
        for own, trains in zip(heat.heat, in_train, strict=True)
    ]
    changed = replace(heat, heat=mixed)
    rows = np.flatnonzero(in_train)
    before, after = (descriptors.held_out(each).views["bof"][rows] for each in (heat, changed))
    np.testing.assert_array_equal(before, after)
    assert not np.array_equal(
        descriptors.as_printed(heat).views["bof"][rows],
        descriptors.as_printed(changed).views["bof"][rows],
    )


def test_unhashed_descriptors_exclude_the_query(heat: ShapeHeat) -> None:
    data = descriptors.as_printed(heat)
    evaluation, values = methods.evaluate_descriptors(data, protocol=protocol_for("as-printed"))
    labels = np.asarray(data.labels)
    queries = np.asarray(data.splits["query"])
    ranking = rank_vectors(
        data.views["bof"][queries],
        data.views["bof"],
        same_class(labels[queries], labels),
        metric="euclidean",
        exclude=queries,
    )
    expected = mean_over_queries(ranking.measure(AveragePrecision()))
    assert evaluation.reports["bof", "bof"]["mAP"].value == pytest.approx(expected)
    assert np.nanmean(values["bof-bof"]) == pytest.approx(expected)


def test_methods_are_the_papers() -> None:
    table = {method.key: method for method in methods.table_methods(protocol_for("held-out"), 16)}
    assert table["mmnn-l2"].paper == {"bof-ssbof": 99.76, "bof-bof": 99.26, "ssbof-ssbof": 99.57}
    fields = table["mmnn-l1"].build(n_bits=16, seed=0).configuration()  # type: ignore[misc]
    assert fields["alpha"] == {"bof": 0.1, "ssbof": 0.3}
    assert fields["margin"] == {"bof": 1.0, "ssbof": 1.0, "bof-ssbof": 3.0}
    assert table["cmnn-l2"].build(n_bits=16, seed=0).configuration()["hidden"] == [128]  # type: ignore[misc]
    settings = {method.title: method for method in methods.settings_methods(16)}
    assert "CM-NN, m 5" in settings
    assert methods.settings_methods(12)[0].paper["bof-ssbof"] == 90.67
    commented = settings["MM-NN, α 0.1 0.3, m 1 1 3, commented out"]
    assert commented.paper == {"bof-ssbof": 99.69}
    grids = {method.key: len(method.candidates) for method in methods.validated_methods()}
    assert set(grids.values()) == {8}
    thirty_two = methods.table_methods(protocol_for("as-printed"), 32)
    assert thirty_two[-1].paper["bof-ssbof"] == 72.37


LABELS = np.array([0, 0, 0, 1, 1, 1, -1, -1])


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"bof-ssbof": (18, 18 + 24), "bof-bof": (6, 9 + 12), "ssbof-ssbof": (6, 9 + 12)}),
        ({"distractors": False}, {"bof-ssbof": (18, 18), "bof-bof": (6, 9), "ssbof-ssbof": (6, 9)}),
        ({"share": 0.5, "within": False}, {"bof-ssbof": (9, 21)}),
    ],
)
def test_at_most_the_existing_pairs_are_drawn(
    fields: dict[str, Any], expected: dict[str, tuple[int, int]]
) -> None:
    train = Dataset(views={"bof": np.eye(8), "ssbof": np.eye(8)}, labels=LABELS)
    by_key = {
        pairs.key: pairs
        for pairs in draw_pairs(train, 0, n_pairs=(10_000, 50_000), rule="pairs", **fields)["pairs"]
    }
    assert {
        key: (int(pairs.similar.sum()), int((~pairs.similar).sum()))
        for key, pairs in by_key.items()
    } == expected
    for pairs in by_key.values():
        left, right = LABELS[pairs.index.T]
        np.testing.assert_array_equal((left == right) & (left >= 0), pairs.similar)
        assert ((left >= 0) | (right >= 0)).all()  # two distractors form no pair
        assert len(np.unique(pairs.index, axis=0)) == len(pairs)


@pytest.mark.usefixtures("quick")
def test_the_command_goes_from_meshes_to_documentation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = small_sources(tmp_path / "data")
    out = tmp_path / "results" / "shapegoogle"
    command = ["reproduce", "shapegoogle", "--data", str(data), "--out", str(out)]
    command += ["--seeds", "1", "--workers", "1"]
    assert main([*command, "--part", "calibration"]) == 0
    assert "nearest to the paper: " in capsys.readouterr().err
    assert main(command) == 0
    printed = capsys.readouterr()
    assert "MM-NN L2" in printed.out
    summary = read_summary(out / "summary.json")
    assert {trial["strength"] for trial in summary["calibration"]} == {0.0, 1.0}
    table = [row["key"] for row in summary["results"]["held-out 16"]]
    assert table == ["raw", "mmnn-l1", "mmnn-l2", "cmnn-l1", "cmnn-l2", "cmssh"]
    assert len(summary["results"]["as-printed 12"]) == 10  # first 12 of 16 and of 32
    assert summary["lengths"]["cmssh"]["retrained"].keys() == {"4", "8"}
    for name in ("bits", "retrieval"):
        assert "</svg>" in (out / f"{name}.svg").read_text()
    names = (
        *("held-out 16", "as-printed settings 12", "held-out compared", "few-pairs"),
        *("calibration", "poses", "searches", "lengths"),
    )
    marks = [
        f"<!-- from results: shapegoogle {name} -->\nold\n<!-- end of results -->\n"
        for name in names
    ]
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "page.md"
    page.write_text("".join(marks))
    write_docs(tmp_path / "results", tmp_path / "docs")
    text = page.read_text()
    assert "old" not in text
    assert "| one seed | BoF → SS-BoF | paper | 95 % | SS-BoF → BoF |" in text
    assert "held-out, 10%" in text
    assert "No runs of this table" not in text


@pytest.mark.usefixtures("quick")
def test_unknown_parts_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "shapegoogle", "--data", str(tmp_path), "--part", "tables"]) == 1
    assert "unknown part 'tables'" in capsys.readouterr().err
