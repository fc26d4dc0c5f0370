from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io

from crossbit import DataError, FormatError
from crossbit.data import read_array

X = np.arange(12.0).reshape(4, 3)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    np.save(tmp_path / "one.npy", X)
    np.savez(tmp_path / "one.npz", X=X)
    np.savez(tmp_path / "two.npz", X=X, Y=X + 1)
    scipy.io.savemat(tmp_path / "old.mat", {"X": X, "Y": X + 1})
    with h5py.File(tmp_path / "new.h5", "w") as file:
        file["X"] = X
        file["Y"] = X + 1
    return tmp_path


@pytest.mark.parametrize("place", ["one.npy", "one.npz", "two.npz:X", "old.mat:X", "new.h5:X"])
def test_an_array_is_read_by_its_location(files: Path, place: str) -> None:
    np.testing.assert_array_equal(read_array(f"{files}/{place}"), X)


def test_a_npy_file_is_memory_mapped(files: Path) -> None:
    assert isinstance(read_array(f"{files}/one.npy"), np.memmap)


def test_a_file_may_have_a_colon_in_its_name(files: Path) -> None:
    np.save(files / "a:b.npy", X)
    np.testing.assert_array_equal(read_array(f"{files}/a:b.npy"), X)


@pytest.mark.parametrize("place", ["two.npz", "two.npz:Z", "old.mat"])
def test_the_arrays_in_the_file_are_named(files: Path, place: str) -> None:
    with pytest.raises(DataError, match=r"NAME is one of \['X', 'Y'\]"):
        read_array(f"{files}/{place}")


@pytest.mark.parametrize("place", ["none.npy", "none.npz:X"])
def test_a_missing_file_is_named(files: Path, place: str) -> None:
    with pytest.raises(DataError, match=r"none\.np.: no such file"):
        read_array(f"{files}/{place}")
    with pytest.raises(DataError, match=r"none: no such file or folder$"):
        read_array(f"{files}/none")


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"not an array at all"])
def test_a_corrupted_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.npy").write_bytes(content)
    with pytest.raises(FormatError, match=r"bad\.npy: not a complete \.npy file") as caught:
        read_array(str(tmp_path / "bad.npy"))
    assert "pickle" not in str(caught.value)


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(FormatError, match=r"objects\.npy"):
        read_array(str(tmp_path / "objects.npy"))
