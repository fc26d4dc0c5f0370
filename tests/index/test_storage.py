"""Saving and opening an index, whole or not at all."""

import errno
import json
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from crossbit._io.files import write_arrays
from crossbit.codes import Codes
from crossbit.errors import FormatError
from crossbit.index import HammingIndex, storage


def make(n: int = 200, n_bits: int = 70) -> HammingIndex:
    rng = np.random.default_rng(0)
    index = HammingIndex(n_bits)
    index.add(rng.permutation(10 * n)[:n], Codes.pack(rng.random((n, n_bits)) < 0.5))
    index.remove(index.ids()[::7])
    return index


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    make().save(tmp_path / "index", {"generation": 3})
    return tmp_path / "index"


@pytest.mark.parametrize("n_bits", [1, 64, 70, 1024])
def test_an_index_comes_back(tmp_path: Path, n_bits: int) -> None:
    index = make(n_bits=n_bits)
    index.save(tmp_path / "index")
    opened = HammingIndex.open(tmp_path / "index")
    assert len(opened) == len(index)
    assert opened.n_bits == n_bits
    np.testing.assert_array_equal(opened.ids(), index.ids())
    queries = index.get(index.ids()[:20])
    assert opened.search(queries, 9) == index.search(queries, 9)
    assert opened.within(queries, 3) == index.within(queries, 3)
    opened.optimize()
    assert opened.search(queries, 9) == index.search(queries, 9)


def test_an_opened_index_can_be_changed(saved: Path) -> None:
    opened = HammingIndex.open(saved)
    first = int(opened.ids()[0])
    opened.remove([first])
    opened.upsert([10**12], Codes.pack([[True] * 70]))
    assert first not in opened
    assert opened.search(Codes.pack([[True] * 70]), 1).ids.tolist() == [[10**12]]
    opened.save(saved)
    assert HammingIndex.open(saved).ids().tolist() == opened.ids().tolist()


def test_small_facts_are_kept(saved: Path) -> None:
    opened = HammingIndex.open(saved)
    assert opened.meta == {"generation": 3}
    opened.save(saved)
    assert HammingIndex.open(saved).meta == {"generation": 3}


def test_an_empty_index_comes_back(tmp_path: Path) -> None:
    HammingIndex(12).save(tmp_path / "index")
    opened = HammingIndex.open(tmp_path / "index")
    assert (len(opened), opened.n_bits) == (0, 12)


def test_any_flipped_bit_is_found_out(saved: Path) -> None:
    content = saved.read_bytes()
    header = 16 + struct.unpack("<I", content[8:12])[0]
    start = header + -header % 64
    ends = json.loads(content[16:header])["arrays"]
    covered = set(range(header)) | {
        start + entry["offset"] + i for entry in ends.values() for i in range(entry["bytes"])
    }
    for byte in sorted(covered)[:: len(covered) // 60]:
        damaged = bytearray(content)
        damaged[byte] ^= 1 << byte % 8
        saved.write_bytes(damaged)
        with pytest.raises(FormatError, match="index: "):
            HammingIndex.open(saved)


@pytest.mark.parametrize("kept", [0, 5, 40, 300, -1])
def test_a_cut_end_is_found_out(saved: Path, kept: int) -> None:
    saved.write_bytes(saved.read_bytes()[:kept])
    with pytest.raises(FormatError, match="index: "):
        HammingIndex.open(saved)


def test_another_version_is_refused_naming_both(saved: Path) -> None:
    write_arrays(saved, "crossbit.index/2", {}, {})
    with pytest.raises(
        FormatError, match=r"index: format 'crossbit.index/2'; this version .* 'crossbit.index/1'"
    ):
        HammingIndex.open(saved)


@pytest.mark.parametrize(
    ("meta", "ids", "width", "message"),
    [
        ({"n_bits": 64}, [1, 2], 1, "does not describe an index"),
        ({"n_bits": 64, "meta": 7}, [1, 2], 1, "does not describe an index"),
        ({"n_bits": 0, "meta": {}}, [1, 2], 1, "does not describe an index"),
        ({"n_bits": 64, "meta": {}}, [1, 2], 2, "does not describe an index"),
        ({"n_bits": 64, "meta": {}}, [1, 2, 3], 1, "expected 2 int64 ids"),
        ({"n_bits": 64, "meta": {}}, [2, 1], 1, "not ascending"),
        ({"n_bits": 64, "meta": {}}, [2, 2], 1, "not ascending"),
        ({"n_bits": 64, "meta": {}}, [-1, 2], 1, "not ascending"),
    ],
)
def test_a_file_that_lies_is_found_out(
    tmp_path: Path, meta: dict[str, object], ids: list[int], width: int, message: str
) -> None:
    path = tmp_path / "index"
    arrays = {"ids": np.array(ids, np.int64), "words": np.zeros((2, width), np.uint64)}
    write_arrays(path, storage.FORMAT, meta, arrays)
    with pytest.raises(FormatError, match=message):
        HammingIndex.open(path)


def test_a_crash_while_saving_leaves_the_old_file(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = saved.read_bytes()
    for call in ("fsync", "replace"):
        with monkeypatch.context() as patched:
            patched.setattr(os, call, _fail)
            with pytest.raises(OSError, match="No space left"):
                HammingIndex(8).save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["index"]


def _fail(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_checksum_is_crc_32(saved: Path) -> None:
    """The format is documented: anyone can check it."""
    content = saved.read_bytes()
    length, crc = struct.unpack("<II", content[8:16])
    assert zlib.crc32(content[16 : 16 + length]) == crc
