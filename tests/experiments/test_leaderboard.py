"""The leaderboard: its configuration, its conditions, its runs and its tables."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from crossbit import HASHERS, LSH, DataError, Dataset, HashModel
from crossbit.data import synthetic
from crossbit_experiments.cli.app import app
from crossbit_experiments.leaderboard import board as boards
from crossbit_experiments.leaderboard import report
from crossbit_experiments.leaderboard.board import Leaderboard, rank_by_label, run_board
from crossbit_experiments.leaderboard.sets import BoardSet
from crossbit_experiments.protocols import PROTOCOLS
from crossbit_experiments.runs import RunStore
from crossbit_experiments.summary import read_summary
from tests.experiments.models import model_on_posteriors

SMALL: dict[str, Any] = {"n": 120, "classes": 4}
TOML = """
bits = [8, 16]
seeds = 2
protocols = ["P1", "P2"]
hashers = ["lsh", "batch"]

[[set]]
name = "plain"
source = "synthetic"
options = {n = 120, classes = 4}
bits = [8]

[[set]]
name = "noisy"
source = "synthetic"
options = {n = 120, classes = 4}
noise = 0.5
protocols = ["P1"]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "board.toml"
    path.write_text(TOML)
    return path


def test_the_configuration_of_the_package_is_complete() -> None:
    board = Leaderboard.read()
    assert board.bits == (16, 32, 64, 128)
    assert board.protocols == ("P1", "P2'", "P2")
    assert board.hasher_names() == sorted(HASHERS)
    names = [chosen.name for chosen in board.sets]
    assert len(names) == len(set(names))
    assert {"wiki", "flickr8k", "long-tail", "multi-label", "digits-noise-50"} <= set(names)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds = 2", "seed = 2", "unknown key 'seed'; known: "),
        ("noise = 0.5", "noises = 0.5", "set: unknown key 'noises'"),
        ('name = "plain"', "", "set: .* missing .* 'name'"),
        ('"lsh", "batch"', '"lash"', "unknown hasher 'lash'"),
        ('"P1", "P2"', '"P3"', "unknown protocol 'P3'"),
        ("bits = [8, 16]", "bits = [8", "not a leaderboard configuration"),
    ],
)
def test_mistakes_in_the_configuration_are_named(
    config: Path, old: str, new: str, message: str
) -> None:
    config.write_text(TOML.replace(old, new, 1))
    with pytest.raises(DataError, match=message):
        Leaderboard.read(config)


def test_a_part_of_a_board(config: Path) -> None:
    board = Leaderboard.read(config).only(sets=["noisy"], hashers=["lsh"], bits=[16], seeds=1)
    assert [chosen.name for chosen in board.sets] == ["noisy"]
    assert (board.hasher_names(), board.bits, board.seeds) == (["lsh"], (16,), 1)
    plain, noisy = Leaderboard.read(config).only(bits=[16]).sets
    assert board.bits_of(plain) == ()
    assert board.bits_of(noisy) == (16,)
    assert board.protocols_of(noisy) == ("P1",)
    with pytest.raises(DataError, match="unknown set 'loud'; known:"):
        board.only(sets=["loud"])


def rows(data: Dataset, split: str) -> NDArray[Any]:
    return np.asarray(data.splits[split])


def changed(**changes: Any) -> tuple[Dataset, Dataset]:  # noqa: ANN401 - fields of a set
    plain = synthetic(**SMALL)
    made = BoardSet(name="x", source="synthetic", options=SMALL, **changes).load()
    return plain, made


def test_noise_changes_the_share_of_training_labels_only() -> None:
    plain, noisy = changed(noise=0.5)
    differs = np.asarray(plain.labels) != np.asarray(noisy.labels)
    assert differs[rows(plain, "train")].mean() == 0.5
    assert not differs[rows(plain, "test")].any()


def test_few_labels_keep_one_of_every_class() -> None:
    plain, few = changed(labeled=0.01)
    kept = np.asarray(few.labels)[rows(plain, "train")]
    assert sorted(kept[kept >= 0]) == [0, 1, 2, 3]
    _, half = changed(labeled=0.5)
    assert (np.asarray(half.labels)[rows(plain, "train")] >= 0).mean() == 0.5


def test_missing_rows_leave_one_view_of_every_item() -> None:
    plain, gaps = changed(missing=0.5)
    absent = np.array([np.isnan(view).all(axis=1) for view in gaps.views.values()])
    assert not absent.all(axis=0).any()
    assert not absent[:, rows(plain, "test")].any()
    assert 0.15 < absent[:, rows(plain, "train")].mean() < 0.35


def test_few_items_have_both_views() -> None:
    plain, made = changed(paired=0.1)
    absent = np.array([np.isnan(made.views[name]).all(axis=1) for name in made.modalities])
    train = rows(plain, "train")
    assert not absent.all(axis=0).any()
    assert (~absent[:, train].any(axis=0)).sum() == round(0.1 * len(train))
    assert not absent[:, rows(plain, "test")].any()


def test_codes_of_the_first_seed_are_kept(config: Path, tmp_path: Path) -> None:
    config.write_text(TOML.replace('"P1", "P2"', '"P1", "P2\'"'))
    board = Leaderboard.read(config).only(hashers=["lsh"], sets=["plain"])
    run_board(board, tmp_path)
    store = RunStore(tmp_path / "plain")
    kept = {run.name: bool(run.codes) for run in store if "lsh" in run.name}
    assert kept == {
        "P1-lsh-8-0": True,
        "P2'-lsh-8-0": False,
        "P1-lsh-8-1": False,
        "P2'-lsh-8-1": False,
    }
    assert all(run.scores["image-text"]["value"] > 0 for run in store)
    summary = report.collect(board, tmp_path)
    assert summary["cells"]["P1"]["plain, 8 bits"][0]["seeds"] == 2


@pytest.fixture
def on_posteriors() -> Iterator[str]:
    """A hasher whose inputs are class posteriors."""

    @dataclass(kw_only=True)
    class OnPosteriors(LSH):
        title: ClassVar[str] = "of class posteriors"

        def fit(self, *args: Any, **kwargs: Any) -> HashModel:  # noqa: ANN401 - those of a hasher
            return model_on_posteriors(kwargs["views"], kwargs["labels"], n_bits=self.n_bits)

    yield OnPosteriors.name()
    del HASHERS[OnPosteriors.name()]


def test_protocol_p2_leaves_out_methods_without_posteriors(
    config: Path, tmp_path: Path, on_posteriors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = Leaderboard.read(config).only(hashers=["lsh", on_posteriors], sets=["plain"])
    notes: list[str] = []
    run_board(board, tmp_path, on_note=notes.append)
    names = RunStore(tmp_path / "plain").names()
    assert {name for name in names if name.startswith("P2-")} == {
        f"P2-{method}-{n_bits}-{seed}"
        for method, n_bits in ((on_posteriors, 8), ("classifier", 0))
        for seed in (0, 1)
    }
    (note,) = notes
    assert "lsh is left out of leaderboard/P2: no class posteriors" in note
    monkeypatch.setattr(LSH, "fit", lambda *_, **__: pytest.fail("fitted again"))
    run_board(board, tmp_path, on_note=notes.append)
    assert notes == [note, note]


def test_unseen_classes_are_those_of_the_test_rows() -> None:
    _, unseen = changed(unseen=0.5)
    labels = np.asarray(unseen.labels)
    train, test = (set(labels[rows(unseen, name)]) for name in ("train", "test"))
    assert len(train) == len(test) == 2
    assert not train & test


def test_sets_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    several = {"n": 60, "classes": 4, "labels_per_row": 2.0}
    with pytest.raises(DataError, match="need one class per row"):
        BoardSet(name="x", source="synthetic", options=several, noise=0.1).load()
    synthetic(n=60, splits={"train": 1.0}).save(tmp_path / "data")
    with pytest.raises(DataError, match="x: the data set has no split 'test'"):
        BoardSet(name="x", source="folder", path=str(tmp_path / "data")).load()
    with pytest.raises(DataError, match="unknown source 'web'"):
        BoardSet(name="x", source="web").load()


@pytest.fixture
def plug_in() -> Iterator[str]:
    """A hasher of another package, registered as its entry point would."""

    @dataclass(kw_only=True)
    class ThirdParty(LSH):
        title: ClassVar[str] = "of another package"

    yield ThirdParty.name()
    del HASHERS[ThirdParty.name()]


def test_a_run_is_stored_resumed_and_shown_with_plug_ins(
    config: Path, tmp_path: Path, plug_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = Leaderboard.read(config).only(hashers=["lsh", "batch", "itq", plug_in])
    monkeypatch.setattr(boards, "rank_by_label", lambda data, seed, protocol: _no_reference())
    notes: list[str] = []
    run_board(board, tmp_path / "out", on_note=notes.append)
    assert len(RunStore(tmp_path / "out" / "noisy").names()) == 4 * 2 * 2
    monkeypatch.setattr(HASHERS["batch"], "fit", lambda *_, **__: pytest.fail("fitted again"))
    run_board(board, tmp_path / "out", on_note=notes.append)
    summary = read_summary(report.write_report(board, tmp_path / "out"))
    made = report.tables(summary)
    assert made["P1, 8 bits"].header[1:] == ["plain", "mean rank", "CPU s", "GiB"]
    assert made["changed, 16 bits"].header[1:] == ["noisy", "mean rank"]
    table = made["P1, 8 bits"]
    assert table.lines[0][0] == "BATCH"
    assert "ThirdParty" in [line[0] for line in table.lines]
    assert (tmp_path / "out" / "ranks.svg").read_text().count("critical difference") == 1


def _no_reference() -> Any:  # noqa: ANN401
    raise DataError("no reference here")


def test_the_reference_ranks_by_the_posterior_of_the_label() -> None:
    data = synthetic(n=150, classes=3, scatter=0.1)
    evaluation, values = rank_by_label(data, 0, protocol=PROTOCOLS["leaderboard/P2"])
    assert evaluation.reports["image", "text"].results[0].value > 0.95
    assert len(values["text-image"]) == len(rows(data, "test"))


def test_several_processes_make_the_same_runs(config: Path, tmp_path: Path) -> None:
    board = Leaderboard.read(config).only(hashers=["lsh"], protocols=["P1"], bits=[8], seeds=1)
    for jobs in (1, 2):
        run_board(board, tmp_path / str(jobs), jobs=jobs)
    alone, together = (RunStore(tmp_path / jobs / "plain")["P1-lsh-8-0"] for jobs in "12")
    assert alone.scores == together.scores
    assert alone.codes == together.codes


def test_ranks_share_ties_and_skip_hashers_without_all_cells() -> None:
    def row(title: str, score: float) -> dict[str, Any]:
        return {"key": title.lower(), "title": title, "mean": score}

    cells = {
        "a": [row("A", 3.0), row("B", 2.0), row("C", 2.0), row("D", 9.0)],
        "b": [row("A", 1.0), row("B", 2.0), row("C", 1.0)],
    }
    assert report.mean_ranks(cells) == {"A": 1.75, "B": 1.75, "C": 2.5}
    assert report.mean_ranks({}) == {}


def test_the_critical_difference_is_that_of_the_nemenyi_test() -> None:
    # Demšar 2006, table 5: q is 2.728 for five classifiers.
    assert report.critical_difference(5, 10) == pytest.approx(2.728 * (30 / 60) ** 0.5, abs=1e-3)


def test_the_command_prints_tables(config: Path, tmp_path: Path) -> None:
    arguments = ["leaderboard", "--config", str(config), "--out", str(tmp_path / "out")]
    part = ["--protocol", "P1", "--set", "plain", "--seeds", "1"]
    result = CliRunner().invoke(app, arguments + part)
    assert result.exit_code == 0, result.output
    assert "BATCH" in result.output
    assert (tmp_path / "out" / "plain" / "runs.jsonl").exists()
