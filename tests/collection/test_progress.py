"""Progress of long operations: steps counted, with the real total."""

from pathlib import Path

import numpy as np
import pytest

from crossbit import Collection
from crossbit._progress import Step, count_steps, listening
from crossbit.collection.local import integrity, migrate
from tests.faults.operations import WIDTHS, model

N = 25
IDS = list(range(N))
ROWS = np.random.default_rng(0).normal(size=(N, WIDTHS["text"]))


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    monkeypatch.setattr(integrity, "_ROWS_PER_STEP", 10)
    monkeypatch.setattr(migrate, "_BLOCK", 10)
    return []


def assert_complete(steps: list[Step], total: int) -> None:
    assert len(steps) > 1
    assert [step.of for step in steps] == [total] * len(steps)
    numbers = [step.number for step in steps]
    assert numbers == sorted(numbers)
    assert numbers[-1] == total


def create(folder: Path, *, keep_features: bool) -> Collection:
    collection = Collection.create(folder, model(0), keep="features" if keep_features else None)
    collection.upsert(IDS, {"text": ROWS})
    return collection


def test_check_counts_rows(tmp_path: Path, steps: list[Step]) -> None:
    with create(tmp_path / "c", keep_features=True) as collection, listening(steps.append):
        assert collection.check() == []
    assert_complete(steps, 3 * N)  # items, codes, features


def test_an_upgrade_counts_features(tmp_path: Path, steps: list[Step]) -> None:
    with create(tmp_path / "c", keep_features=True) as collection, listening(steps.append):
        collection.upgrade(model(1))
    assert_complete(steps, N)


def test_an_upgrade_counts_items_of_batches(tmp_path: Path, steps: list[Step]) -> None:
    batches = [(IDS[i : i + 10], {"text": ROWS[i : i + 10]}) for i in range(0, N, 10)]
    with create(tmp_path / "c", keep_features=False) as collection, listening(steps.append):
        collection.upgrade(model(1), batches)
    assert_complete(steps, N)


def test_a_compaction_counts_its_parts(tmp_path: Path, steps: list[Step]) -> None:
    with create(tmp_path / "c", keep_features=False) as collection, listening(steps.append):
        collection.compact()
    assert_complete(steps, 4)


def test_nobody_needs_to_listen(steps: list[Step]) -> None:
    count_steps(3)(2)
    with listening(steps.append):
        count_steps(None)(2)
        count_steps(3)(5)  # more than expected
    count_steps(3)(1)
    assert steps == [Step(2), Step(5, 5)]
