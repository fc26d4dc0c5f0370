"""Lists around centers that are stored beside an index file."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit._io.files import ArrayFile
from crossbit.codes import Codes
from crossbit.errors import FormatError
from crossbit.index import HammingIndex, planner
from crossbit.index.structures import lists_path
from crossbit.kernels import dispatch
from crossbit.kernels.arrays import RingLists

N = 600
N_BITS = 100
FORMAT = "crossbit.lists/1"

pytestmark = pytest.mark.skipif(not dispatch.compiled(), reason="lists need compiled kernels")


def make(seed: int = 0) -> HammingIndex:
    rng = np.random.default_rng(seed)
    index = HammingIndex(N_BITS)
    index.add(np.arange(N) * 3, Codes.pack(rng.random((N, N_BITS)) < 0.5))
    return index


def queries() -> Codes:
    return Codes.pack(np.random.default_rng(9).random((20, N_BITS)) < 0.5)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "RINGS_MIN_ROWS", 100)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    index = make()
    index.optimize()
    index.save(tmp_path / "index")
    assert lists_path(tmp_path / "index").exists()
    return tmp_path / "index"


def refuse(*_: object) -> RingLists:
    raise AssertionError("the lists were built again")


def test_lists_are_loaded_instead_of_built(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RingLists, "build", refuse)
    loaded = HammingIndex.load(saved)
    states = [loaded.is_optimized]
    loaded.optimize()
    assert [*states, loaded.is_optimized] == [False, True]
    assert loaded.search(queries(), 9, method="rings") == make().search(queries(), 9)
    assert loaded.search(queries()[:1], 9) == make().search(queries()[:1], 9)


def test_a_loaded_index_can_store_its_lists_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make().save(tmp_path / "index")
    loaded = HammingIndex.load(tmp_path / "index")
    loaded.save_lists()
    assert not lists_path(tmp_path / "index").exists()  # there are none yet
    loaded.optimize(merge=False)
    loaded.save_lists()
    monkeypatch.setattr(RingLists, "build", refuse)
    again = HammingIndex.load(tmp_path / "index")
    again.optimize()
    written = lists_path(tmp_path / "index").stat()
    again.save_lists()  # they come from there
    assert lists_path(tmp_path / "index").stat().st_mtime_ns == written.st_mtime_ns


def test_lists_of_a_deleted_index_are_not_stored(tmp_path: Path) -> None:
    make().save(tmp_path / "index")
    loaded = HammingIndex.load(tmp_path / "index")
    loaded.optimize()
    (tmp_path / "index").unlink()
    loaded.save_lists()
    assert list(tmp_path.iterdir()) == []


def test_saving_without_lists_deletes_those_of_the_previous_content(saved: Path) -> None:
    make(1).save(saved)
    assert not lists_path(saved).exists()


def test_lists_of_other_codes_are_not_used(
    saved: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = make(1)
    other.save(tmp_path / "other")
    lists_path(saved).rename(lists_path(tmp_path / "other"))
    loaded = HammingIndex.load(tmp_path / "other")
    loaded.optimize()
    assert loaded.search(queries(), 9, method="rings") == other.search(queries(), 9)
    assert caplog.records == []


def test_corrupted_lists_are_built_again(saved: Path, caplog: pytest.LogCaptureFixture) -> None:
    content = bytearray(lists_path(saved).read_bytes())
    content[-100] ^= 1
    lists_path(saved).write_bytes(content)
    loaded = HammingIndex.load(saved)
    with caplog.at_level(logging.WARNING):
        loaded.optimize()
    assert "does not match its checksum; the file is corrupted; the lists are rebuilt" in (
        caplog.text
    )
    assert loaded.search(queries(), 9, method="rings") == make().search(queries(), 9)


def outside(array: NDArray[Any]) -> NDArray[Any]:
    changed = array.copy()
    changed.reshape(-1)[5] = np.iinfo(array.dtype).max
    return changed


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("rows", outside, "row 4294967295 does not exist"),
        ("starts", outside, "starts do not ascend"),
        ("outer", outside, "lists of radius up to 65535"),
        ("words", lambda array: array[1:], r"words is uint64 of shape \(599, 2\)"),
        ("rows", lambda array: array.astype(np.int64), r"rows is int64 of shape \(600,\)"),
        ("centers", lambda array: array[:0], r"centers is uint64 of shape \(0, 2, 8\)"),
    ],
)
def test_lists_that_point_outside_are_refused(
    saved: Path,
    name: str,
    change: Callable[[NDArray[Any]], NDArray[Any]],
    problem: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = ArrayFile.read(lists_path(saved), FORMAT)
    arrays = {**file.arrays, name: change(file.arrays[name])}
    with pytest.raises(ValueError, match=problem):
        RingLists.checked(arrays, N, N_BITS)
    ArrayFile.write(lists_path(saved), FORMAT, file.meta, arrays)
    loaded = HammingIndex.load(saved)
    loaded.optimize()
    assert "they are rebuilt" in caplog.text
    assert loaded.search(queries(), 9, method="rings") == make().search(queries(), 9)


def test_truncated_lists_are_noticed_while_they_are_in_use(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossbit._io.files._MAP_BYTES", 0)
    loaded = HammingIndex.load(saved)
    loaded.optimize()
    states = [loaded.is_intact]
    with open(lists_path(saved), "r+b") as file:
        file.truncate(4096)
    assert [*states, loaded.is_intact] == [True, False]
    with pytest.raises(FormatError, match="was truncated while the index was in use"):
        loaded.search(queries(), 9)


def test_a_ready_search_builds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "MULTI_MIN_ROWS", 100)
    rng = np.random.default_rng(0)
    index = HammingIndex(64)
    index.add(np.arange(N), Codes.pack(rng.random((N, 64)) < 0.5))
    wanted = index.get([3])
    before = index.nbytes
    found = index.search(wanted, 5, method="ready")
    assert index.nbytes == before
    assert not index.is_optimized
    assert index.search(wanted, 5) == found
    assert index.nbytes > before
    assert index.search(wanted, 5, method="ready") == found
