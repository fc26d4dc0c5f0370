"""Corrupted MATLAB v5 files, on which SciPy would crash, are rejected first."""

import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from crossbit import CrossbitError, DataError
from crossbit._io import arrays
from crossbit.data import read
from crossbit.data.conversion.matlab import check_tags
from crossbit.errors import FormatError

IMAGES = np.random.default_rng(0).random((5, 3))


def written(path: Path, **arrays: Any) -> bytearray:  # noqa: ANN401
    scipy.io.savemat(path, arrays)
    return bytearray(path.read_bytes())


@pytest.mark.parametrize(
    ("offset", "value"),
    [(176, 8), (176, 200), (177, 255), (145, 8), (132, 255), (135, 255)],
    ids=[
        "undefined type",
        "no type",
        "small and no type",
        "imaginary parts",
        "too long",
        "beyond the file",
    ],
)
def test_a_corrupted_tag_is_detected(offset: int, value: int, tmp_path: Path) -> None:
    raw = written(tmp_path / "set.mat", XAll=IMAGES)
    raw[offset] = value
    (tmp_path / "set.mat").write_bytes(raw)
    with pytest.raises(
        FormatError,
        match=r"set\.mat: cannot be read as \.mat \(a matrix before byte \d+ is corrupted: ",
    ):
        read(tmp_path / "set.mat")


def test_a_corrupted_index_of_a_sparse_matrix_is_detected(tmp_path: Path) -> None:
    raw = written(tmp_path / "set.mat", XAll=scipy.sparse.csc_matrix(IMAGES))
    rows = np.tile(np.arange(5, dtype="<i4"), 3).tobytes()
    raw[raw.index(rows) + 3] = 0x40
    (tmp_path / "set.mat").write_bytes(raw)
    with pytest.raises(FormatError, match=r"set\.mat: cannot be read as \.mat \(indices"):
        read(tmp_path / "set.mat")


def test_a_corrupted_end_of_a_sparse_column_is_detected(tmp_path: Path) -> None:
    raw = written(tmp_path / "set.mat", XAll=scipy.sparse.eye_array(3).tocsc())
    ends = np.arange(4, dtype="<i4").tobytes()
    raw[raw.index(ends) + 12] = 0
    (tmp_path / "set.mat").write_bytes(raw)
    with pytest.raises(FormatError, match="end before they begin"):
        read(tmp_path / "set.mat")


@pytest.mark.parametrize("settings", [{}, {"do_compression": True}, {"format": "4"}])
def test_valid_files_of_every_kind_pass(settings: dict[str, Any], tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "XAll": IMAGES,
        "c": IMAGES * 1j,
        "word": "abc",
        "none": np.empty((0, 3)),
        "one": True,
    }
    if "format" not in settings:
        arrays |= {
            "s": {"a": IMAGES},
            "cell": np.array([IMAGES, "x"], object),
            "p": scipy.sparse.eye_array(3),
        }
    scipy.io.savemat(tmp_path / "set.mat", arrays, **settings)
    check_tags(tmp_path / "set.mat")
    np.testing.assert_array_equal(read(tmp_path / "set.mat").views["image"], IMAGES)


def element(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


def matrix(array_class: int, shape: tuple[int, ...], *parts: bytes) -> bytes:
    flags = element(6, struct.pack("<II", array_class, 0))
    dimensions = element(5, struct.pack(f"<{len(shape)}i", *shape))
    return element(14, flags + dimensions + element(1, b"a") + b"".join(parts))


def mat(content: bytes, *, compressed: bool) -> bytes:
    if compressed:
        packed = zlib.compress(content)
        content = struct.pack("<II", 15, len(packed)) + packed
    return b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H", 0x0100) + b"IM" + content


CELL, STRUCTURE, DOUBLE = 1, 2, 6
NUMBERS = element(9, bytes(8))


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (matrix(DOUBLE, (1, 1), element(200, bytes(8))), "expected 1 arrays of numbers"),
        (matrix(DOUBLE, (1, 1)), "expected 1 arrays of numbers"),
        (matrix(CELL, (1 << 30, 4)), "bytes cannot hold 4294967296 parts"),
        (matrix(STRUCTURE, (1 << 30, 1)), "bytes cannot hold 1073741824 parts"),
        (matrix(CELL, (1, 1), matrix(CELL, (1 << 30, 1))), "bytes cannot hold 1073741824 parts"),
        (matrix(CELL, (1,) * 100), "its dimensions have 400 bytes of type 5"),
        (matrix(DOUBLE, (), NUMBERS), "its dimensions have 0 bytes of type 5"),
        (matrix(CELL, (1, 1), struct.pack("<HHI", 1, 255, 0)), "a tag cannot hold 255 bytes"),
        (element(14, NUMBERS), "it does not begin with its flags"),
        (matrix(CELL, (1, 1), matrix(DOUBLE, (1, 1), element(8, bytes(8)))), "expected 1 arrays"),
        (struct.pack("<II", 14, 64) + matrix(DOUBLE, ())[8:24], "the file ends before it does"),
        (matrix(DOUBLE, (1, 1), struct.pack("<II", 9, 2**31)), "2147483648 bytes exceeds it"),
    ],
)
def test_tags_that_scipy_should_not_trust_are_rejected(
    tmp_path: Path, content: bytes, problem: str, compressed: bool
) -> None:
    (tmp_path / "set.mat").write_bytes(mat(content, compressed=compressed))
    with pytest.raises(FormatError, match=problem):
        read(tmp_path / "set.mat")


def test_cells_with_empty_parts_pass(tmp_path: Path) -> None:
    content = matrix(CELL, (0, 1 << 20)) + matrix(CELL, (2, 1), element(14, b""), element(14, b""))
    (tmp_path / "set.mat").write_bytes(mat(content, compressed=False))
    check_tags(tmp_path / "set.mat")


def test_a_small_file_of_many_zeros_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "set.mat"
    zeros = np.zeros((1 << 8, 1 << 10))
    scipy.io.savemat(path, {"XAll": zeros}, do_compression=True)
    read(path)
    monkeypatch.setattr(arrays, "_HARMLESS", 1 << 20)
    with pytest.raises(DataError, match=r"set\.mat: would take 2\.0 MiB of memory"):
        read(path)
    monkeypatch.setattr("crossbit.data.conversion.matlab._CHECK_EVERY", 1 << 19)
    raw = bytearray(zlib.decompress(path.read_bytes()[136:]))
    raw[4:8] = struct.pack("<I", 4096)  # the outer tag claims less than there is
    path.write_bytes(mat(bytes(raw), compressed=True))
    with pytest.raises((DataError, FormatError), match=r"set\.mat: (would take|cannot be read)"):
        read(path)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mutations")
    values = {"XAll": IMAGES, "s": {"a": 1.0}, "cell": np.array([IMAGES, "x"], object)}
    scipy.io.savemat(folder / "a.mat", values | {"p": scipy.sparse.eye_array(3)})
    return folder


@settings(max_examples=100)
@given(data=st.data())
def test_a_mutated_file_is_read_or_rejected(scratch: Path, data: st.DataObject) -> None:
    raw = bytearray((scratch / "a.mat").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = scratch / "mutated.mat"
    path.write_bytes(raw)
    with suppress(CrossbitError):
        read(path)
