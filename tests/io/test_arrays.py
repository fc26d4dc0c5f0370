"""NumPy files whose headers claim too much, and limits on the memory that files may take."""

import io
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossbit import CrossbitError, DataError, FormatError
from crossbit._io import arrays
from crossbit._io.arrays import check_decoded, check_memory, npz_arrays, read_npy

X = np.arange(12.0).reshape(4, 3)


def header(shape: tuple[int, ...], descr: str = "<f8") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return file.getvalue()


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize(
    "array", [X, X.T, X[:0], np.ones(1, np.float32), np.array(["a", "bc"]), np.zeros(3, ">i2")]
)
def test_arrays_are_read(tmp_path: Path, array: np.ndarray[Any, Any], mapped: bool) -> None:
    np.save(tmp_path / "x.npy", array)
    stored = read_npy(tmp_path / "x.npy", mapped=mapped)
    np.testing.assert_array_equal(stored, array)
    assert isinstance(stored, np.memmap) == (mapped and array.size > 0)
    np.savez_compressed(tmp_path / "x.npz", a=array)
    ((name, member),) = npz_arrays(tmp_path / "x.npz")
    assert name == "a"
    np.testing.assert_array_equal(member, array)


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("shape", [(2**50,), (2**32, 2**32), (9,), (-5,), (-1, -8), (True, 2**62)])
def test_a_header_that_claims_more_than_the_file_holds_is_rejected(
    tmp_path: Path, shape: tuple[int, ...], mapped: bool
) -> None:
    content = header(shape) + bytes(64)
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(FormatError, match=r"not a complete \.npy file of numbers \(.*claims"):
        read_npy(tmp_path / "x.npy", mapped=mapped)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", content)
    with pytest.raises(FormatError, match=r"cannot be read as \.npz \(.*claims"):
        list(npz_arrays(tmp_path / "x.npz"))


def test_python_objects_are_never_loaded(tmp_path: Path) -> None:
    objects = np.array([{"a": 1}], object)
    np.save(tmp_path / "x.npy", objects, allow_pickle=True)
    for mapped in (True, False):
        with pytest.raises(FormatError, match="it holds Python objects"):
            read_npy(tmp_path / "x.npy", mapped=mapped)
    np.savez(tmp_path / "x.npz", a=objects, b=X)
    members = dict(npz_arrays(tmp_path / "x.npz"))
    assert members["a"] is None
    np.testing.assert_array_equal(members["b"], X)


def test_a_small_archive_of_many_zeros_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, a=np.zeros(1 << 20, np.uint8), b=np.zeros(1 << 20, np.uint8))
    assert path.stat().st_size < 8192
    assert len(dict(npz_arrays(path))) == 2  # up to 1 GiB is harmless
    monkeypatch.setattr(arrays, "_HARMLESS", 3 << 19)
    with pytest.raises(
        DataError, match=r"bomb\.npz: would take 2\.0 MiB of memory, the limit is 1\.5 MiB; if you"
    ):
        next(npz_arrays(path))
    monkeypatch.setenv("CROSSBIT_MAX_DECODED", "1g")
    assert len(dict(npz_arrays(path))) == 2
    monkeypatch.setenv("CROSSBIT_MAX_DECODED", "1000000")
    with pytest.raises(DataError, match=r"limit is 1\.0 MiB"):
        next(npz_arrays(path))


def test_a_file_may_take_a_multiple_of_its_size_but_not_more_than_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(1000))
    monkeypatch.setattr(arrays, "_HARMLESS", 0)
    monkeypatch.setattr(arrays, "available_memory", lambda: 10**9)
    check_decoded(path, 100_000)
    with pytest.raises(DataError, match="set CROSSBIT_MAX_DECODED=1G"):
        check_decoded(path, 100_001)
    monkeypatch.setattr(arrays, "available_memory", lambda: 10_000)
    check_memory("x", 10_000)
    with pytest.raises(DataError, match="x: would take"):
        check_memory("x", 10_001)
    with pytest.raises(DataError, match="x: would take"):
        check_decoded(path, 10_001)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("5", 5), ("2k", 2048), ("3M", 3 << 20), ("1GiB", 1 << 30), (" 1 t ", None)],
)
def test_the_variable_takes_units(
    monkeypatch: pytest.MonkeyPatch, text: str, nbytes: int | None
) -> None:
    monkeypatch.setenv("CROSSBIT_MAX_DECODED", text)
    if nbytes is None:
        with pytest.raises(DataError, match="must be a number of bytes such as 16G, got ' 1 t '"):
            check_memory("x", 1)
    else:
        check_memory("x", nbytes)
        with pytest.raises(DataError, match="x: would take"):
            check_memory("x", nbytes + 1)


def test_the_memory_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_CGROUP", tmp_path)
    free = arrays.available_memory()
    assert free > 0
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("3000\n")
    assert arrays.available_memory() == 2000
    (tmp_path / "memory.max").write_text("max\n")
    assert arrays.available_memory() > 2000


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mutations")
    np.save(folder / "x.npy", X)
    np.savez_compressed(folder / "x.npz", a=X, b=np.arange(5), c=np.array(["a", "b"]))
    return folder


@settings(max_examples=150)
@given(data=st.data())
def test_a_mutated_file_is_read_or_named(scratch: Path, data: st.DataObject) -> None:
    suffix = data.draw(st.sampled_from([".npy", ".npz"]))
    raw = bytearray((scratch / f"x{suffix}").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    del raw[data.draw(st.integers(len(raw) // 2, len(raw))) :]
    path = scratch / f"mutated{suffix}"
    path.write_bytes(raw)
    with suppress(CrossbitError):
        if suffix == ".npy":
            read_npy(path, mapped=data.draw(st.booleans()))
        else:
            list(npz_arrays(path))
