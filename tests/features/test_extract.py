from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from crossbit import BackendError, DataError
from crossbit._progress import Step
from crossbit.features import BagOfTags, ColorHistogram, extract
from crossbit.features.extractor import Extractor, RawInput, Rows
from tests.features.pictures import encoded, spots

SEEN: list[RawInput] = []


@dataclass(frozen=True, eq=False)
class Length(Extractor, kind="test-length"):
    """The length of a text; it remembers what it was asked."""

    offset: float = 0.0

    @property
    def width(self) -> int:
        return 1

    def extract_one(self, thing: RawInput) -> Rows:
        SEEN.append(thing)
        if thing == "stop":
            raise KeyboardInterrupt
        if thing == "bad":
            raise DataError("cannot be measured")
        return np.array([len(str(thing)) + self.offset], np.float32)


@pytest.fixture(autouse=True)
def _forget() -> None:
    SEEN.clear()


def test_what_cannot_be_described_is_skipped_and_named() -> None:
    found = extract(Length(), ["a", "bad", "abc"])
    np.testing.assert_array_equal(found.rows, [[1], [3]])
    np.testing.assert_array_equal(found.kept, [0, 2])
    assert found.skipped == ["bad: cannot be measured"]


def test_nothing_at_all() -> None:
    found = extract(Length(), ["bad"])
    assert found.rows.shape == (0, 1)
    assert len(found.kept) == 0
    assert extract(Length(), []).rows.shape == (0, 1)


def test_progress_is_told() -> None:
    steps: list[Step] = []
    extract(Length(), ["a"] * 100, on_step=steps.append)
    assert [(step.number, step.of) for step in steps] == [(64, 100), (100, 100)]


def test_an_interrupted_extraction_goes_on(tmp_path: Path) -> None:
    things = [str(number) for number in range(130)]
    with pytest.raises(KeyboardInterrupt):
        extract(Length(), [*things, "stop"], cache=tmp_path)
    SEEN.clear()
    found = extract(Length(), things, cache=tmp_path)
    assert things[128:] == SEEN  # the blocks that were whole are remembered
    np.testing.assert_array_equal(found.rows, Length().extract(things))


def test_rows_are_remembered_by_content(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"same")
    second.write_bytes(b"same")
    extract(Length(), [first], cache=tmp_path / "cache")
    SEEN.clear()
    extract(Length(), [second], cache=tmp_path / "cache")
    assert SEEN == []
    second.write_bytes(b"changed")
    extract(
        Length(), [second, tmp_path / "missing", b"changed", ["a", "b"]], cache=tmp_path / "cache"
    )
    assert [second, tmp_path / "missing", b"changed", ["a", "b"]] == SEEN


def test_another_recipe_has_a_memory_of_its_own(tmp_path: Path) -> None:
    extract(Length(), ["a"], cache=tmp_path)
    assert extract(Length(offset=5), ["a"], cache=tmp_path).rows == 6


def test_a_damaged_memory_is_made_again(tmp_path: Path) -> None:
    extract(Length(), ["a", "bb"], cache=tmp_path)
    (path,) = tmp_path.rglob("*.rows")
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    np.testing.assert_array_equal(extract(Length(), ["a", "bb"], cache=tmp_path).rows, [[1], [2]])
    assert not path.exists()


def test_processes_give_the_same_rows() -> None:
    things: Sequence[RawInput] = [encoded(spots(seed, side=16)) for seed in range(70)] + [
        b"no picture"
    ]
    alone, together = (extract(ColorHistogram(), things, workers=workers) for workers in (1, 2))
    np.testing.assert_array_equal(alone.rows, together.rows)
    assert (
        alone.skipped
        == together.skipped
        == ["10 bytes: not a picture in one of the formats " + FORMATS]
    )


FORMATS = "JPEG, PNG, GIF, WEBP, BMP, TIFF, PPM"


def test_a_process_that_dies_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    bag = BagOfTags(("dog",))
    object.__setattr__(bag, "vocabulary", ())  # a recipe that no process can open
    with pytest.raises(BackendError, match="a process that described things died"):
        extract(bag, ["dog"] * 100, workers=2)


def test_workers_are_at_least_one() -> None:
    with pytest.raises(
        DataError, match="the number of workers is a whole number of at least 1, got 0"
    ):
        extract(Length(), ["a"], workers=0)
