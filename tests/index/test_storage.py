"""Saving and loading an index, and detecting corrupted files."""

import errno
import itertools
import json
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossbit._io import files
from crossbit._io.files import ArrayFile
from crossbit.codes import Codes
from crossbit.errors import FormatError
from crossbit.index import HammingIndex
from crossbit.index.segment import FORMAT


def make(n: int = 200, n_bits: int = 70) -> HammingIndex:
    rng = np.random.default_rng(0)
    index = HammingIndex(n_bits)
    index.add(rng.permutation(10 * n)[:n], Codes.pack(rng.random((n, n_bits)) < 0.5))
    index.delete(index.ids()[::7])
    return index


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    make().save(tmp_path / "index", {"generation": 3})
    return tmp_path / "index"


@pytest.mark.parametrize("n_bits", [1, 64, 70, 1024])
def test_a_saved_index_can_be_loaded(tmp_path: Path, n_bits: int) -> None:
    index = make(n_bits=n_bits)
    index.save(tmp_path / "index")
    loaded = HammingIndex.load(tmp_path / "index")
    assert len(loaded) == len(index)
    assert loaded.n_bits == n_bits
    np.testing.assert_array_equal(loaded.ids(), index.ids())
    queries = index.get(index.ids()[:20])
    assert loaded.search(queries, 9) == index.search(queries, 9)
    assert loaded.within(queries, 3) == index.within(queries, 3)
    loaded.optimize()
    assert loaded.search(queries, 9) == index.search(queries, 9)


def test_a_loaded_index_can_be_changed(saved: Path) -> None:
    loaded = HammingIndex.load(saved)
    first = int(loaded.ids()[0])
    loaded.delete([first])
    loaded.upsert([10**12], Codes.pack([[True] * 70]))
    assert first not in loaded
    assert loaded.search(Codes.pack([[True] * 70]), 1).ids.tolist() == [[10**12]]
    loaded.save(saved)
    assert HammingIndex.load(saved).ids().tolist() == loaded.ids().tolist()


def test_metadata_is_stored(saved: Path) -> None:
    loaded = HammingIndex.load(saved)
    assert loaded.meta == {"generation": 3}
    loaded.save(saved)
    assert HammingIndex.load(saved).meta == {"generation": 3}


def test_an_empty_index_can_be_saved_and_loaded(tmp_path: Path) -> None:
    HammingIndex(12).save(tmp_path / "index")
    loaded = HammingIndex.load(tmp_path / "index")
    assert (len(loaded), loaded.n_bits) == (0, 12)


def test_any_flipped_bit_is_detected(saved: Path) -> None:
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
            HammingIndex.load(saved)


@pytest.mark.parametrize("length", [0, 5, 40, 300, -1])
def test_a_truncated_file_is_detected(saved: Path, length: int) -> None:
    saved.write_bytes(saved.read_bytes()[:length])
    with pytest.raises(FormatError, match="index: "):
        HammingIndex.load(saved)


def test_another_format_version_is_refused(saved: Path) -> None:
    ArrayFile.write(saved, "crossbit.index/2", {}, {})
    with pytest.raises(
        FormatError, match=r"index: format 'crossbit.index/2'; this version .* 'crossbit.index/1'"
    ):
        HammingIndex.load(saved)


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
def test_inconsistent_contents_are_detected(
    tmp_path: Path, meta: dict[str, object], ids: list[int], width: int, message: str
) -> None:
    path = tmp_path / "index"
    arrays = {"ids": np.array(ids, np.int64), "words": np.zeros((2, width), np.uint64)}
    ArrayFile.write(path, FORMAT, meta, arrays)
    with pytest.raises(FormatError, match=message):
        HammingIndex.load(path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
places = st.sampled_from(
    [
        ("meta",),
        ("meta", "n_bits"),
        ("meta", "meta"),
        ("arrays",),
        ("arrays", "ids"),
        ("arrays", "words"),
        *(("arrays", name, key) for name in ("ids", "words") for key in ("dtype", "shape")),
        *(("arrays", name, key) for name in ("ids", "words") for key in ("offset", "bytes")),
    ]
)
values = st.integers(0, 200) | st.sampled_from(["<i8", "<u8", "<f8", [172], [2, 86]]) | json_values


@given(changes=st.lists(st.tuples(places, values), min_size=1, max_size=3))
def test_a_crafted_header_is_a_format_error_or_gives_a_usable_index(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[tuple[str, ...], object]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "crafted.index"
    if not path.exists():
        make().save(path.with_suffix(".original"))
    raw = path.with_suffix(".original").read_bytes()
    (length,) = struct.unpack_from("<I", raw, 8)
    header = json.loads(raw[16 : 16 + length])
    for (*parents, key), value in changes:
        entry = header
        for name in parents:
            entry = entry.get(name) if isinstance(entry, dict) else None
        if isinstance(entry, dict):
            entry[key] = value
    text = json.dumps(header).encode()
    prefix = struct.pack("<8sII", b"crossbit", len(text), zlib.crc32(text)) + text
    start = 16 + length
    path.write_bytes(prefix + b"\0" * (-len(prefix) % 64) + raw[start + (-start % 64) :])
    try:
        index = HammingIndex.load(path)
    except FormatError:
        return
    queries = Codes.pack(np.zeros((2, index.n_bits), bool))
    assert len(index.search(queries, 3).ids) == 2


def test_an_index_whose_file_was_truncated_raises_an_error(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_MAP_BYTES", 0)
    index = HammingIndex.load(saved)
    changed = index.copy()
    changed.delete(changed.ids()[:3])  # shares the memory map
    assert index.is_intact
    os.truncate(saved, 500)
    queries = Codes.pack(np.zeros((1, 70), bool))
    calls: list[Callable[[HammingIndex], object]] = [
        lambda broken: broken.search(queries, 3),
        lambda broken: broken.within(queries, 3),
        lambda broken: broken.get([1]),
        lambda broken: broken.ids(),
        lambda broken: broken.upsert([1], queries),
        lambda broken: broken.delete([1]),
        lambda broken: broken.save(saved),
    ]
    for broken, call in itertools.product((index, changed), calls):
        assert not broken.is_intact
        with pytest.raises(FormatError, match="was truncated while the index was in use"):
            call(broken)


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
    """The format is documented, so other programs can verify it."""
    content = saved.read_bytes()
    length, crc = struct.unpack("<II", content[8:16])
    assert zlib.crc32(content[16 : 16 + length]) == crc
