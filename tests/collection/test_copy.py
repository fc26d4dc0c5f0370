"""Copies of collections: complete, resumable, verified."""

from pathlib import Path

import numpy as np
import pytest

from crossbit import BackendError, Collection, DataError
from crossbit.cli import main
from crossbit.collection import transfer
from crossbit.collection.stores import StaleModelError
from tests.faults.operations import WIDTHS, half, model

N = 25
random = np.random.default_rng(3)
VIEWS = {name: half(random.normal(size=(N, width))) for name, width in WIDTHS.items()}


def fill(collection: Collection) -> None:
    """Items with both modalities, with one, and with none."""
    ids: list[int | str] = [f"é{i}" if i % 2 else i for i in range(N)]
    collection.upsert(
        ids,
        {"text": VIEWS["text"]},
        [{"n": i, "f": 0.1 * i, "tags": [None, True, "ü"]} for i in range(N)],
    )
    collection.upsert(ids[:9], {"image": VIEWS["image"][:9]})
    collection.upsert(["bare", "empty"], payload=[{"a": {"b": [1, {}]}}, None])


@pytest.fixture
def source(tmp_path: Path) -> Collection:
    collection = Collection.create(tmp_path / "source", model(0))
    fill(collection)
    return collection


def test_a_copy_is_the_same(source: Collection, tmp_path: Path) -> None:
    seen: list[int] = []
    with Collection.create(tmp_path / "target", model(0)) as target:
        assert transfer.copy(source, target, seen.append) == N + 2
        assert sum(seen) == N + 2
        assert {item.id: item for item in target} == {item.id: item for item in source}
        assert transfer.verify(source, target).items == N + 2
        assert transfer.copy(source, target) == 0


def test_an_interrupted_copy_continues(
    source: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "_BATCH", 5)
    with Collection.create(tmp_path / "target", model(0)) as target:

        def interrupt(_: int) -> None:
            if len(target) >= 10:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            transfer.copy(source, target, interrupt)
        assert transfer.copy(source, target) == N + 2 - 10
        transfer.verify(source, target)


def test_a_differing_item_is_replaced_completely(source: Collection, tmp_path: Path) -> None:
    with Collection.create(tmp_path / "target", model(0)) as target:
        transfer.copy(source, target)
        # The item of the source has text only.
        target.upsert([10], {"image": VIEWS["image"][:1]}, [{"other": 1}])
        with pytest.raises(
            BackendError,
            match=r"holds 27 items, checksum \w{16}, .* 27 items, checksum \w{16}; one of",
        ):
            transfer.verify(source, target)
        assert transfer.copy(source, target) == 1
        transfer.verify(source, target)
        target.upsert(["more"])
        with pytest.raises(BackendError, match="copy again, or into an empty collection"):
            transfer.verify(source, target)


def test_codes_of_another_model_are_not_copied(source: Collection, tmp_path: Path) -> None:
    with (
        Collection.create(tmp_path / "target", model(1)) as target,
        pytest.raises(
            DataError, match=r"use different models; codes are only comparable within one model"
        ),
    ):
        transfer.copy(source, target)


def test_the_checksum_depends_on_every_part_but_not_on_the_order(source: Collection) -> None:
    items = list(source)
    whole = transfer._contents(items)
    assert transfer._contents(items[::-1]) == whole
    assert str(whole).startswith(f"{N + 2} items, checksum ")
    source.upsert(["bare"], payload=[{"a": {"b": [1.0, {}]}}])  # 1.0 is not 1
    assert transfer._contents(source) != whole


def test_the_command(
    source: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source.close()
    assert main(["collection", "copy", str(tmp_path / "source"), str(tmp_path / "again")]) == 0
    assert "27 items copied; both hold 27 items, checksum" in capsys.readouterr().err
    assert main(["collection", "copy", str(tmp_path / "source"), str(tmp_path / "again")]) == 0
    assert "0 items copied; both hold 27 items" in capsys.readouterr().err
    assert main(["collection", "copy", str(tmp_path / "nowhere"), str(tmp_path / "again")]) == 1
    assert "nowhere: no such folder" in capsys.readouterr().err


def test_a_copy_is_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "_BATCH", 5)
    monkeypatch.setattr("crossbit.collection.local.store._SCAN_BLOCK", 5)
    with (
        Collection.create(tmp_path / "source", model(0), keep="features") as source,
        Collection.create(tmp_path / "target", model(0)) as target,
        Collection.open(tmp_path / "source") as other,
    ):
        source.upsert(range(N), VIEWS)
        before = list(source)

        def upgrade(_: int) -> None:
            if other.model == model(0):
                other.upgrade(model(1))
                other.upsert([N], payload=[{}])

        assert transfer.copy(source, target, upgrade) == N
        assert list(target) == before
        with pytest.raises(DataError, match="different models"):
            transfer.copy(source, target)


def test_codes_are_not_written_into_a_collection_of_another_model(tmp_path: Path) -> None:
    with (
        Collection.create(tmp_path / "c", model(0), keep="features") as collection,
        Collection.open(tmp_path / "c") as other,
    ):
        collection.upsert(range(N), VIEWS)
        other.upgrade(model(1))
        before = list(other)
        codes = collection.model.encode("text", VIEWS["text"])
        with pytest.raises(StaleModelError, match="upgraded to another model"):
            collection.upsert(range(N), {"text": codes})
        assert list(other) == before
        codes = collection.model.encode("text", VIEWS["text"])
        collection.upsert(range(N), {"text": codes})  # the next call uses the new model
        assert list(other) == before
        other.upgrade(model(2), [(range(N), VIEWS)])
        with pytest.raises(StaleModelError, match="upgraded to another model"):
            collection.search("text", codes)
