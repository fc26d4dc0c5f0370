"""Flipped bits in any file are reported on read or by ``check``, or have no effect."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from crossbit import Collection
from crossbit.errors import CrossbitError, FormatError
from tests.faults.operations import (
    ExpectedState,
    apply,
    differences,
    expected_after,
    model,
    operation,
)
from tests.faults.rounds import COUNTS, ROUNDS


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ExpectedState]:
    """A folder with features, an index of a field, index files, and a write-ahead log."""
    place = tmp_path_factory.mktemp("flips")
    expected = ExpectedState()
    collection = Collection.create(place / "live", model(0), keep=("scores", "features"))
    collection.index_field("even")
    for number in range(60):
        if number == 50:
            collection.compact()
        if number < 50 or operation(number, 5).kind in ("upsert", "delete", "payload"):
            collection = apply(collection, operation(number, 5))
            expected = expected_after(expected, operation(number, 5))
    shutil.copytree(place / "live", place / "copy", ignore=shutil.ignore_patterns("*-shm"))
    collection.close()
    assert (place / "copy" / "items.sqlite-wal").stat().st_size > 0
    return place / "copy", expected


def flip_bit(source: Path, target: Path, name: str, random: np.random.Generator) -> Path:
    """Copy a folder and flip one bit of one file."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    raw = bytearray((target / name).read_bytes())
    raw[random.integers(len(raw))] ^= 1 << random.integers(8)
    (target / name).write_bytes(raw)
    return target


def problems(folder: Path, expected: ExpectedState) -> list[str]:
    """Return the reported problems; a folder without any must be as expected."""
    try:
        with Collection.open(folder) as collection:
            try:
                wrong = differences(collection, expected)
            except CrossbitError as error:
                return [str(error), *map(str, collection.check())]
            findings = [str(finding) for finding in collection.check()]
            assert findings or not wrong, wrong
            return findings
    except CrossbitError as error:
        return [str(error)]


def files(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def test_every_kind_of_file_is_covered(
    prepared: tuple[Path, ExpectedState], tmp_path: Path
) -> None:
    names = files(prepared[0])
    assert {"items.sqlite", "items.sqlite-wal", "acknowledged"} <= set(names)
    assert any(name.startswith("model/") for name in names)
    assert any(name.startswith("index/") for name in names)
    shutil.copytree(prepared[0], tmp_path / "whole")
    assert problems(tmp_path / "whole", prepared[1]) == []


def test_flipped_bits_are_always_noticed(
    prepared: tuple[Path, ExpectedState], tmp_path: Path
) -> None:
    folder, expected = prepared
    random = np.random.default_rng(11)
    noticed = 0
    for round_ in range(ROUNDS["flip"]):
        names = files(folder)
        name = names[round_ % len(names)]
        reported = problems(flip_bit(folder, tmp_path / "flipped", name, random), expected)
        noticed += bool(reported)
        stem = name.removesuffix("-wal")
        assert all(stem in line or name in line or "flipped/index" in line for line in reported), (
            name,
            reported,
        )
        if name.startswith("index/") and reported:
            assert all("rebuilt" in line for line in reported), (name, reported)
    assert noticed > ROUNDS["flip"] // 2
    COUNTS["flipped bits, each reported or without effect"] = ROUNDS["flip"]


def test_a_corrupted_index_file_is_rebuilt(
    prepared: tuple[Path, ExpectedState], tmp_path: Path
) -> None:
    folder, expected = prepared
    shutil.copytree(folder, tmp_path / "c")
    for path in (tmp_path / "c" / "index").iterdir():
        path.write_bytes(path.read_bytes()[:100])
    with Collection.open(tmp_path / "c") as collection:
        assert differences(collection, expected) == []
        assert all(finding.repaired for finding in collection.check())
        collection.compact()
        assert collection.check() == []


def test_a_lost_log_is_reported_and_can_be_given_up(
    prepared: tuple[Path, ExpectedState], tmp_path: Path
) -> None:
    shutil.copytree(prepared[0], tmp_path / "c", ignore=shutil.ignore_patterns("*-wal"))
    with pytest.raises(
        FormatError,
        match=r"items\.sqlite-wal: corrupted or deleted: \d+ acknowledged writes .* missing",
    ):
        Collection.open(tmp_path / "c")
    (tmp_path / "c" / "acknowledged").unlink()
    with Collection.open(tmp_path / "c") as collection:
        assert collection.check() == []
        collection.upsert(["again"])
        assert "again" in collection


def test_a_corrupted_item_is_named_and_can_be_written_again(tmp_path: Path) -> None:
    with Collection.create(tmp_path / "c", model(0)) as collection:
        collection.upsert(
            ["good", "bad"], {"text": np.ones((2, 4))}, [{"word": "fine"}, {"word": "needle"}]
        )
    database = tmp_path / "c" / "items.sqlite"
    database.write_bytes(database.read_bytes().replace(b"needle", b"noodle"))
    with Collection.open(tmp_path / "c") as collection:
        with pytest.raises(
            FormatError, match=r"items\.sqlite: item 'bad' does not match its checksum"
        ):
            collection.get(["bad"])
        assert collection.get(["good"])[0] is not None
        (finding,) = collection.check()
        assert (
            "table 'items': 1 rows do not match their checksums, of the items 'bad'; write these"
            " items again, their payloads with replace_payload" in str(finding)
        )
        with pytest.raises(FormatError, match="item 'bad' does not match"):  # nothing to merge with
            collection.upsert(["bad"], payload=[{"word": "needle"}])
        collection.upsert(["bad"], payload=[{"word": "needle"}], replace_payload=True)
        assert collection.check() == []


def test_a_corrupted_code_is_named(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    with Collection.create(tmp_path / "c", model(0)) as collection:
        collection.upsert([f"i{n}" for n in range(50)], {"text": random.normal(size=(50, 4))})
        code = collection.get(["i33"])[0].codes["text"].to_bytes().tobytes()  # type: ignore[union-attr]
    database = tmp_path / "c" / "items.sqlite"
    raw = database.read_bytes()
    database.write_bytes(raw.replace(code, bytes(b ^ 1 for b in code)))
    with Collection.open(tmp_path / "c") as collection:
        with pytest.raises(
            FormatError,
            match=r"items\.sqlite: data of item 'i\d+' in 'codes_\d' does not match",
        ):
            collection.search("text", np.ones((1, 4)))
        assert any("table 'codes_" in str(finding) for finding in collection.check())
