from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from crossbit import CrossbitError, DataError, FormatError
from crossbit._io import arrays
from crossbit.data import read, read_array

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


@pytest.mark.parametrize("suffix", ["h5", "mat"])
def test_an_array_that_is_stored_in_another_file_is_rejected(tmp_path: Path, suffix: str) -> None:
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["X"] = X
    path = tmp_path / f"set.{suffix}"
    with h5py.File(path, "w") as file:
        file["X"] = h5py.ExternalLink(str(secret), "/X")
    with pytest.raises(FormatError, match=r"X is a link to '.*secret\.h5'"):
        read_array(f"{path}:X")
    with h5py.File(path, "w") as file:
        file.create_dataset("X", (4, 3), "f8", external=[(str(secret), 0, 96)])
    with pytest.raises(FormatError, match="/X is stored in another file"):
        read_array(f"{path}:X")
    layout = h5py.VirtualLayout((4, 3), "f8")
    layout[:] = h5py.VirtualSource(str(secret), "X", (4, 3))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("X", layout)
    with pytest.raises(FormatError, match="/X is stored in another file"):
        read_array(f"{path}:X")


def test_a_small_hdf5_file_that_claims_much_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "set.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("X", (1 << 40, 3), "f8", chunks=(1000, 3))  # nothing is written
    with pytest.raises(DataError, match=r"set\.h5: would take 24,576\.0 GiB of memory"):
        read_array(str(path))
    monkeypatch.setattr(arrays, "_HARMLESS", 1 << 20)
    with h5py.File(path, "w") as file:
        file.create_dataset("X", (1 << 10, 256), "f8", chunks=(1 << 10, 256), compression="gzip")
    with pytest.raises(DataError, match=r"set\.h5: would take 2\.0 MiB of memory"):
        read_array(str(path))  # one row needs the whole chunk


def test_a_group_that_contains_itself_is_rejected(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file.create_group("a")["b"] = file
    with pytest.raises(FormatError, match=r"set\.h5: cannot be read"):
        read_array(str(tmp_path / "set.h5"))


def test_a_sparse_matrix_is_made_dense_within_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "set.mat"
    scipy.io.savemat(path, {"X": scipy.sparse.csc_matrix((3, 1000))})
    assert read_array(f"{path}:X").shape == (3, 1000)
    monkeypatch.setenv("CROSSBIT_MAX_DECODED", "20k")
    with pytest.raises(DataError, match="a sparse matrix: would take"):
        read_array(f"{path}:X")


@pytest.mark.parametrize("value", [7, "x" * 1000])
def test_a_small_parquet_file_that_repeats_a_value_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: object
) -> None:
    path = tmp_path / "set.parquet"
    column = pyarrow.array([value]).dictionary_encode().take(pyarrow.array(np.zeros(100_000, int)))
    table = pyarrow.table({"image_0": column.dictionary_decode(), "image_1": np.ones(100_000)})
    pyarrow.parquet.write_table(table, path)
    monkeypatch.setattr(arrays, "_HARMLESS", 1 << 20)
    with pytest.raises(DataError, match=r"set\.parquet: would take"):
        read(path)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mutations")
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("image", data=X, chunks=(2, 3), compression="gzip")
        file["text"] = X
    table = pyarrow.table({"image": list(X), "label": [1, 2, 1, 2], "title": ["a", "b", "c", "d"]})
    pyarrow.parquet.write_table(table, folder / "a.parquet")
    (folder / "a.csv").write_text("image_0,image_1,label,title\n1,2,a,x\n3,4,b,y\n")
    return folder


def test_a_table_of_labels_alone_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "set.csv").write_text("label,title\na,x\nb,y\n")
    with pytest.raises(DataError, match="no views found"):
        read(tmp_path / "set.csv")


@settings(max_examples=100)
@given(data=st.data())
def test_a_mutated_file_is_read_or_rejected(scratch: Path, data: st.DataObject) -> None:
    suffix = data.draw(st.sampled_from(["h5", "parquet", "csv"]))
    raw = bytearray((scratch / f"a.{suffix}").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = scratch / f"mutated.{suffix}"
    path.write_bytes(raw)
    with suppress(CrossbitError):
        read(path)
