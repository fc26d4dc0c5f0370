from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from crossbit import BackendError, DataError
from crossbit._progress import Step
from crossbit.features import BagOfTags, ColorHistogram, extract
from crossbit.features.extractor import Extractor, RawInput, Rows
from tests.features.images import encoded, spots

SEEN: list[RawInput] = []


@dataclass(frozen=True, eq=False)
class Length(Extractor, kind="test-length"):
    """The length of a text; records its inputs."""

    accepts = "text"

    offset: float = 0.0

    @property
    def width(self) -> int:
        return 1

    def extract_one(self, raw: RawInput) -> Rows:
        SEEN.append(raw)
        if raw == "stop":
            raise KeyboardInterrupt
        if raw == "bad":
            raise DataError("cannot be measured")
        return np.array([len(str(raw)) + self.offset], np.float32)


@pytest.fixture(autouse=True)
def _clear_seen() -> None:
    SEEN.clear()


def test_unusable_inputs_are_skipped_and_named() -> None:
    extraction = extract(Length(), ["a", "bad", "abc"])
    np.testing.assert_array_equal(extraction.rows, [[1], [3]])
    np.testing.assert_array_equal(extraction.positions, [0, 2])
    assert extraction.skipped == ["bad: cannot be measured"]


def test_no_usable_input_gives_no_rows() -> None:
    extraction = extract(Length(), ["bad"])
    assert extraction.rows.shape == (0, 1)
    assert len(extraction.positions) == 0
    assert extract(Length(), []).rows.shape == (0, 1)


def test_progress_is_reported() -> None:
    steps: list[Step] = []
    extract(Length(), ["a"] * 100, on_step=steps.append)
    assert [(step.number, step.of) for step in steps] == [(0, 100), (64, 100), (100, 100)]


def test_an_interrupted_extraction_resumes(tmp_path: Path) -> None:
    inputs = [str(number) for number in range(130)]
    with pytest.raises(KeyboardInterrupt):
        extract(Length(), [*inputs, "stop"], cache=tmp_path)
    SEEN.clear()
    extraction = extract(Length(), inputs, cache=tmp_path)
    assert inputs[128:] == SEEN  # complete blocks are cached
    np.testing.assert_array_equal(extraction.rows, Length().extract(inputs))


def test_rows_are_cached_by_content(tmp_path: Path) -> None:
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
    # The content of the third input is that of the first: extracted once.
    assert [second, tmp_path / "missing", ["a", "b"]] == SEEN


def test_every_recipe_has_its_own_cache(tmp_path: Path) -> None:
    extract(Length(), ["a"], cache=tmp_path)
    assert extract(Length(offset=5), ["a"], cache=tmp_path).rows == 6


def test_a_corrupted_cache_file_is_rebuilt(tmp_path: Path) -> None:
    extract(Length(), ["a", "bb"], cache=tmp_path)
    (path,) = tmp_path.rglob("*.rows")
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    np.testing.assert_array_equal(extract(Length(), ["a", "bb"], cache=tmp_path).rows, [[1], [2]])
    assert not path.exists()


def test_worker_processes_give_the_same_rows() -> None:
    inputs: Sequence[RawInput] = [
        *(encoded(spots(seed, side=16)) for seed in range(70)),
        b"not an image",
    ]
    alone, parallel = (extract(ColorHistogram(), inputs, workers=workers) for workers in (1, 2))
    np.testing.assert_array_equal(alone.rows, parallel.rows)
    message = "12 bytes: not an image in one of the formats JPEG, PNG, GIF, WEBP, BMP, TIFF, PPM"
    assert alone.skipped == parallel.skipped == [message]


def test_a_worker_process_that_dies_is_reported() -> None:
    bag = BagOfTags(("dog",))
    object.__setattr__(bag, "vocabulary", ())  # a recipe that no process can load
    with pytest.raises(BackendError, match="a worker process died; retry with workers=1"):
        extract(bag, ["dog"] * 100, workers=2)


def test_workers_are_at_least_one() -> None:
    with pytest.raises(
        DataError, match="the number of workers must be an integer of at least 1, got 0"
    ):
        extract(Length(), ["a"], workers=0)


def test_equal_inputs_are_extracted_once(tmp_path: Path) -> None:
    inputs = ["abc", "a", "abc", "bad", "abc", "bad"]
    extraction = extract(Length(), inputs, cache=tmp_path)
    assert SEEN == ["abc", "a", "bad"]
    np.testing.assert_array_equal(extraction.rows[:, 0], [3, 1, 3, 3])
    np.testing.assert_array_equal(extraction.positions, [0, 1, 2, 4])
    assert len(extraction.skipped) == 2
