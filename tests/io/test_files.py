"""Atomic writes, JSON, checksums and array files."""

import os
import stat
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from numpy.typing import NDArray

from crossbit._io.files import ArrayFile, atomic_write, check_version, read_json, sha256, write_json
from crossbit.errors import DataError, FormatError

FORMAT = "crossbit.test/1"
ARRAYS: dict[str, NDArray[Any]] = {
    "empty": np.zeros((0, 2), np.float32),
    "words": np.arange(12, dtype=np.uint64).reshape(4, 3),
}


def test_a_file_is_replaced_atomically(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with atomic_write(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def half() -> None:
        with atomic_write(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
def test_the_file_mode_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_json(tmp_path / "file.json", {})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file.json").stat().st_mode) == 0o640


def test_json_round_trip_and_corruption(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_json(path, {"name": "Zürich", "n": [1, 2.5, None]})
    assert read_json(path) == {"name": "Zürich", "n": [1, 2.5, None]}
    assert "Zürich" in path.read_text(encoding="utf-8")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(FormatError, match=r"file\.json: not valid JSON"):
        read_json(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FormatError, match=r"file\.json: not valid JSON"):
        read_json(path)
    with pytest.raises(DataError, match=r"nowhere\.json: cannot be read \(No such file"):
        read_json(tmp_path / "nowhere.json")
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(path, float("nan"))


def test_sha256(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    assert (
        sha256(tmp_path / "file")
        == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )


def test_an_unknown_version_is_rejected() -> None:
    check_version(Path("f"), "a/1", "a/1")
    with pytest.raises(FormatError, match="f: format 'a/2'; this version of crossbit reads 'a/1'"):
        check_version(Path("f"), "a/2", "a/1")


@settings(max_examples=30)  # each example waits for the disk
@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), max_size=5),
        arrays_of.arrays(
            st.sampled_from([np.dtype(t) for t in ("u8", "<f4", ">f4", "i1", "?")]),
            arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
        ),
        max_size=3,
    )
)
def test_arrays_survive_a_round_trip(
    tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("arrays") / "file"
    ArrayFile.write(path, FORMAT, {"n": 3}, arrays)
    stored = ArrayFile.read(path, FORMAT)
    assert stored.meta == {"n": 3}
    assert list(stored.arrays) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(stored.arrays[name], array)
        assert stored.arrays[name].dtype == array.dtype.newbyteorder("<")


def test_arrays_are_mapped_aligned_and_read_only(tmp_path: Path) -> None:
    ArrayFile.write(tmp_path / "file", FORMAT, {}, ARRAYS)
    words = ArrayFile.read(tmp_path / "file", FORMAT).arrays["words"]
    assert isinstance(words, np.memmap)
    assert words.offset % 64 == 0
    assert not words.flags.writeable


def test_every_truncation_and_every_changed_byte_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "file"
    ArrayFile.write(path, FORMAT, {"n": 3}, ARRAYS)
    raw = path.read_bytes()
    (length,) = struct.unpack_from("<I", raw, 8)
    padding = range(16 + length, len(raw) - ARRAYS["words"].nbytes)
    for cut in range(0, len(raw), 3):
        path.write_bytes(raw[:cut])
        with pytest.raises(FormatError, match="file: "):
            ArrayFile.read(path, FORMAT)
    for place in set(range(len(raw))) - set(padding):
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
        with pytest.raises(FormatError, match="file: "):
            ArrayFile.read(path, FORMAT)


def test_a_modified_array_is_detected_only_with_verify(tmp_path: Path) -> None:
    path = tmp_path / "file"
    ArrayFile.write(path, FORMAT, {}, ARRAYS)
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(FormatError, match="array 'words' does not match its checksum"):
        ArrayFile.read(path, FORMAT)
    ArrayFile.read(path, FORMAT, verify=False)


def test_other_types_of_file_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"something else, long enough to hold a prefix")
    with pytest.raises(FormatError, match="not a crossbit file"):
        ArrayFile.read(tmp_path / "file", FORMAT)
    with pytest.raises(DataError, match="cannot be read"):
        ArrayFile.read(tmp_path / "nowhere", FORMAT)
    ArrayFile.write(tmp_path / "file", "crossbit.test/2", {}, ARRAYS)
    with pytest.raises(FormatError, match=r"'crossbit\.test/2'.*'crossbit\.test/1'"):
        ArrayFile.read(tmp_path / "file", FORMAT)
