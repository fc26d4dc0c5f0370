"""Atomic writes, JSON, checksums and array files."""

import ctypes
import errno
import json
import os
import stat
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from numpy.typing import NDArray

from crossbit._io import files
from crossbit._io.files import (
    RENAME_EXCHANGE,
    ArrayFile,
    atomic_write,
    check_version,
    make_folders,
    read_json,
    rename,
    sha256,
    write_json,
)
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


@pytest.mark.parametrize("is_mapped", [True, False], ids=["mapped", "copied"])
def test_arrays_are_aligned_and_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_mapped: bool
) -> None:
    ArrayFile.write(tmp_path / "file", FORMAT, {}, ARRAYS)
    monkeypatch.setattr(files, "_MAP_BYTES", 0 if is_mapped else 1 << 20)
    file = ArrayFile.read(tmp_path / "file", FORMAT)
    assert (file.mapping is not None) == is_mapped
    assert file.arrays["words"].flags.aligned
    assert not file.arrays["words"].flags.writeable
    os.truncate(tmp_path / "file", 10)
    if file.mapping is None:
        np.testing.assert_array_equal(file.arrays["words"], ARRAYS["words"])
    else:
        assert file.mapping.size() < len(file.mapping)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
numbers = st.integers(-(2**70), 2**70) | st.sampled_from([0, 1, 4, 8, 64, 96, 2**31, 2**63])
fields = {
    "dtype": st.sampled_from(["<u8", ">u8", "<f8", "|O", "O", "<U9", "V8", "<M8[s]", "u8,u8", ""]),
    "shape": st.lists(numbers, max_size=4),
    "offset": numbers,
    "bytes": numbers,
    "crc32": numbers,
}


@pytest.fixture(scope="module")
def craft(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[..., object]], Path]:
    """Return a function that modifies the header of a file and gives it a valid checksum."""
    path = tmp_path_factory.mktemp("crafted") / "file"
    ArrayFile.write(path, FORMAT, {"n": 3}, ARRAYS)
    raw = path.read_bytes()
    (length,) = struct.unpack_from("<I", raw, 8)
    arrays = raw[16 + length + (-(16 + length) % 64) :]

    def modified(modify: Callable[..., object]) -> Path:
        header = json.dumps(modify(json.loads(raw[16 : 16 + length]))).encode()
        prefix = struct.pack("<8sII", b"crossbit", len(header), zlib.crc32(header)) + header
        path.write_bytes(prefix + b"\0" * (-len(prefix) % 64) + arrays)
        return path

    return modified


@given(
    change=st.sampled_from(sorted(fields)).flatmap(
        lambda name: st.tuples(st.just(name), fields[name] | json_values | st.just("deleted"))
    )
)
def test_a_crafted_entry_with_a_valid_checksum_is_a_format_error(
    craft: Callable[[Callable[..., object]], Path], change: tuple[str, object]
) -> None:
    name, value = change

    def modify(header: dict[str, Any]) -> object:
        header["arrays"]["words"][name] = value
        if value == "deleted":
            del header["arrays"]["words"][name]
        return header

    try:
        stored = ArrayFile.read(craft(modify), FORMAT).arrays["words"]
    except FormatError:
        return
    assert stored.nbytes == ARRAYS["words"].nbytes  # the same bytes, of whatever type and shape


@given(name=st.sampled_from(["", "format", "meta", "arrays"]), value=json_values)
def test_a_crafted_header_with_a_valid_checksum_is_a_format_error(
    craft: Callable[[Callable[..., object]], Path], name: str, value: object
) -> None:
    path = craft(lambda header: {**header, name: value} if name else value)
    with suppress(FormatError):
        file = ArrayFile.read(path, FORMAT)
        assert isinstance(file.meta, dict)
        assert isinstance(file.arrays, dict)


def test_a_header_is_not_allocated_before_its_length_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(struct.pack("<8sII", b"crossbit", 2**32 - 1, 0) + b"{}")
    with pytest.raises(FormatError, match="file: the header is truncated or corrupted"):
        ArrayFile.read(path, FORMAT)
    deep = b"[" * 100_000
    path.write_bytes(struct.pack("<8sII", b"crossbit", len(deep), zlib.crc32(deep)) + deep)
    with pytest.raises(FormatError, match="file: the header is corrupted"):
        ArrayFile.read(path, FORMAT)


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


@pytest.mark.parametrize("supported", [True, False])
def test_a_new_file_never_replaces_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, supported: bool
) -> None:
    if not supported:  # another system than Linux, or a file system without the flag
        monkeypatch.setattr("crossbit._io.files._renameat2", None)
    with atomic_write(tmp_path / "a", replace=False) as file:
        file.write(b"one")
    assert (tmp_path / "a").read_bytes() == b"one"
    with (
        pytest.raises(DataError, match="a: exists already; choose another path"),
        atomic_write(tmp_path / "a", replace=False),
    ):
        pass

    def write() -> None:
        with atomic_write(tmp_path / "b", replace=False) as file:
            file.write(b"one")
            (tmp_path / "b").write_bytes(b"precious")

    with pytest.raises(DataError, match="b: exists already; choose another path"):
        write()
    assert (tmp_path / "b").read_bytes() == b"precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.skipif(files._renameat2 is None, reason="a system call of Linux")
@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM])
def test_a_file_system_without_the_flags_of_rename_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: object) -> int:
        ctypes.set_errno(code)
        return -1

    monkeypatch.setattr("crossbit._io.files._renameat2", refuse)
    assert not rename(tmp_path / "a", tmp_path / "b", RENAME_EXCHANGE)


@pytest.mark.skipif(files._renameat2 is None, reason="a system call of Linux")
def test_an_error_of_rename_names_the_target(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="b"):
        rename(tmp_path / "a", tmp_path / "b", RENAME_EXCHANGE)


def test_a_deeply_nested_file_is_not_json(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[" * 100_000)
    with pytest.raises(FormatError, match="not valid JSON"):
        read_json(tmp_path / "x.json")


def test_folders_are_made_with_their_ancestors(tmp_path: Path) -> None:
    make_folders(tmp_path / "a" / "b" / "c")
    make_folders(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
