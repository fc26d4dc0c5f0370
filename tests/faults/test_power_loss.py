"""Whatever a power failure leaves on disk, nothing acknowledged is lost and nothing is torn."""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.faults.power_loss.collection_runs import RecoveryRun, sign
from tests.faults.power_loss.disk import STRATEGIES, Data, Disk, Names, crash_states
from tests.faults.power_loss.perform import PLANTS, RUNS
from tests.faults.power_loss.recording import Kind, Record, Recording, Tree, record, write_tree
from tests.faults.power_loss.runs import Run
from tests.faults.rounds import COUNTS, LONG

# Run → states to try; some are equal, and equal ones are tried once.
STATES = (
    {
        "collection": 4000,
        "upgrade with features": 1500,
        "random": 6000,
        "large log": 80,
        "model": 1500,
        "model in two steps": 1500,
        "dataset": 1500,
        "files": 1500,
        "add": 500,
        "journal": 300,
        "learn": 200,
    }
    if LONG
    else {"collection": 60, "upgrade with features": 30, "model": 80, "files": 30, "journal": 40}
)
# Each planted fault is found in this run.
PLANTED = {
    "no syncs of SQLite": "upgrade with features",
    "no syncs of folders": "model",
    "no syncs of files": "model",
}


@dataclass(frozen=True)
class Outcome:
    """What became of the states of a run."""

    distinct: int
    failures: list[str]


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    """A folder, in memory if possible: thousands of small trees are written there."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def recordings(scratch: Path) -> dict[str, Recording]:
    """All runs, recorded in one process."""
    jobs = [*STATES, *(f"{name}/{plant}" for plant, name in PLANTED.items())]
    folders = [scratch / "runs" / str(number) for number in range(len(jobs))]
    for folder, job in zip(folders, jobs, strict=True):
        folder.mkdir(parents=True)
        RUNS[job.partition("/")[0]].prepare(folder)
    recorded = record(folders, "tests.faults.power_loss.perform", jobs)
    return dict(zip(jobs, recorded, strict=True))


def explore(run: Run, recording: Recording, count: int, scratch: Path) -> Outcome:
    """Restore states of a recording, each distinct one once, and let the run judge them."""
    verdicts: dict[bytes, set[int] | Exception] = {}
    failures = []
    for state in crash_states(recording, count, seed=0):
        digest = state.digest
        if digest not in verdicts:
            verdicts[digest] = _judge(run, state.tree, scratch)
        verdict = verdicts[digest]
        if isinstance(verdict, Exception):
            failures.append(f"{state}: {verdict!r}")
        elif not any(state.acknowledged <= step <= state.begun for step in verdict):
            failures.append(f"{state}: found the content after step {sorted(verdict)}")
    return Outcome(len(verdicts), failures)


def _judge(run: Run, tree: Tree, scratch: Path) -> set[int] | Exception:
    folder = scratch / "state"
    folder.mkdir()
    try:
        write_tree(folder, tree)
        return run.recovered(folder)
    except Exception as error:
        return error
    finally:
        shutil.rmtree(folder)


def _record(
    kind: Kind,
    inode: int = 0,
    name: str = "",
    data: bytes = b"",
    **more: Any,  # noqa: ANN401 - fields of different types
) -> Record:
    values = {"flags": 0, "folder": 1, "folder2": 1, "offset": 0, "name2": "", **more}
    return Record(kind=kind, inode=inode, name=name, data=data, **values)


def _states(*records: Record) -> list[Tree]:
    """Return the trees after all records, from an empty folder."""
    disk = Disk(Recording({}, {".": 1}, [], {}))
    for each in records:
        disk.apply(each)
    random = np.random.default_rng(0)
    return [disk.tree(*strategy, random) for strategy in STRATEGIES for _ in range(200)]


def test_only_synced_data_is_certain() -> None:
    first = bytes([1]) * 512
    second = bytes([2]) * 1024
    zeros = bytes(512)
    states = _states(
        _record(Kind.CREATE, 2, "file"),
        _record(Kind.WRITE, 2, data=first),
        _record(Kind.SYNC, 2),
        _record(Kind.SYNC, 1),
        _record(Kind.WRITE, 2, data=second, offset=512),
    )
    sector = second[:512]
    tails = (b"", zeros + zeros, second, sector, sector + zeros, zeros + sector)
    assert {state["file"] for state in states} == {first + tail for tail in tails}


def test_only_synced_names_are_certain() -> None:
    changes = (
        _record(Kind.CREATE, 2, "a"),
        _record(Kind.RENAME, name="a", name2="b"),
        _record(Kind.CREATE, 3, "a"),
    )
    names = {tuple(state) for state in _states(*changes)}
    assert names == {(), ("a",), ("b",), ("a", "b")}
    names = {tuple(state) for state in _states(*changes[:2])}
    assert names == {(), ("a",), ("b",)}  # never under both names
    names = {tuple(state) for state in _states(*changes, _record(Kind.SYNC, 1))}
    assert names == {("a", "b")}


def test_names_are_lost_in_order_or_in_any_order() -> None:
    disk = Disk(Recording({}, {".": 1}, [], {}))
    for inode, name in enumerate("abc", start=2):
        disk.apply(_record(Kind.CREATE, inode, name))
    random = np.random.default_rng(0)
    found = {
        names: {"".join(disk.tree(names, Data.ALL, random)) for _ in range(200)}
        for names in (Names.PREFIX, Names.SUBSET)
    }
    assert found[Names.PREFIX] == {"", "a", "ab", "abc"}
    assert found[Names.SUBSET] == {"", "a", "b", "c", "ab", "ac", "bc", "abc"}


def test_exchanged_folders_are_both_there() -> None:
    states = _states(
        _record(Kind.MKDIR, 2, "old"),
        _record(Kind.MKDIR, 3, "new"),
        _record(Kind.CREATE, 4, "x", folder=2),
        _record(Kind.SYNC, 2),
        _record(Kind.SYNC, 1),
        _record(Kind.RENAME, name="new", name2="old", flags=2),
    )
    assert {tuple(state) for state in states} == {
        ("new", "old", "old/x"),
        ("new", "new/x", "old"),
    }


@pytest.mark.parametrize("name", STATES)
def test_the_recorder_sees_everything(name: str, recordings: dict[str, Recording]) -> None:
    recording = recordings[name]
    disk = Disk(recording)
    mapped: set[str] = set()
    for each in recording.records:
        disk.apply(each)
        mapped |= disk.mapped_names() if each.kind is Kind.MAP else set()
    assert all(path.endswith("-shm") for path in mapped)
    tree = disk.tree(Names.ALL, Data.ALL, np.random.default_rng(0))
    differing = {
        path
        for path in tree.keys() | recording.after.keys()
        if tree.get(path, b"no file") != recording.after.get(path, b"no file")
    }
    assert {path for path in differing if not path.endswith("-shm")} == set()


@pytest.mark.parametrize("name", STATES)
def test_no_state_loses_or_tears_anything(
    name: str, recordings: dict[str, Recording], scratch: Path
) -> None:
    outcome = explore(RUNS[name], recordings[name], STATES[name], scratch)
    COUNTS[f"states after a power failure, {name}"] = outcome.distinct
    assert outcome.failures == []


@pytest.mark.skipif(not LONG, reason="a second power failure is tried by make test-faults")
def test_a_second_power_failure_loses_nothing(
    recordings: dict[str, Recording], scratch: Path
) -> None:
    folders: list[Path] = []
    for state in crash_states(recordings["random"], 100, seed=1):
        if state.acknowledged >= 0:
            folder = scratch / "second" / str(len(folders))
            folder.mkdir(parents=True)
            write_tree(folder, state.tree)
            sign(folder)
            folders.append(folder)
    jobs = [RecoveryRun.name] * len(folders)
    distinct = 0
    for recording in record(folders, "tests.faults.power_loss.perform", jobs):
        outcome = explore(RUNS[RecoveryRun.name], recording, 40, scratch)
        assert outcome.failures == []
        distinct += outcome.distinct
    COUNTS["states after a second power failure"] = distinct


@pytest.mark.parametrize("plant", PLANTED)
def test_a_missing_sync_is_found(
    plant: str, recordings: dict[str, Recording], scratch: Path
) -> None:
    assert set(PLANTED) == set(PLANTS) - {""}
    run = RUNS[PLANTED[plant]]
    outcome = explore(run, recordings[f"{run.name}/{plant}"], 60, scratch)
    assert outcome.failures != []


@pytest.mark.skipif(not LONG, reason="make test-faults removes each sync of a file in turn")
def test_every_sync_of_a_model_file_is_needed(
    recordings: dict[str, Recording], scratch: Path
) -> None:
    needed = 0
    for recording in _without_each_file_sync(recordings["model"]):
        assert explore(RUNS["model"], recording, 250, scratch).failures != []
        needed += 1
    COUNTS["syncs of model files, each of them needed"] = needed


def _without_each_file_sync(recording: Recording) -> Iterator[Recording]:
    """Yield the recording without one of its syncs of files, for each of them."""
    files: set[int] = set()
    for position, each in enumerate(recording.records):
        if each.kind is Kind.CREATE:
            files.add(each.inode)
        elif each.kind is Kind.MKDIR:
            files.discard(each.inode)
        elif each.kind is Kind.SYNC and each.inode in files:
            records = recording.records
            yield replace(recording, records=[*records[:position], *records[position + 1 :]])
