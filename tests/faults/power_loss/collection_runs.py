"""Runs that write to collections."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from crossbit import Codes, Collection, HashModel
from crossbit.collection.local import database, index_cache
from tests.faults.operations import (
    WIDTHS,
    ExpectedState,
    Operation,
    apply,
    expected_after,
    half,
    kept_problems,
    model,
    operation,
)
from tests.faults.power_loss.runs import RUNS, Run, Step, check_repaired, patched, seeded

QUERY = np.linspace(-1, 1, WIDTHS["text"])[None]
FILTERS: tuple[dict[str, Any], ...] = ({}, {"even": True})


def _upsert(number: int, kind: str, size: int, text: int = 0) -> Operation:
    """Return an operation on ``size`` random ids, with ``text`` characters in each payload."""
    random = seeded(number)
    ids = [f"person {i}" for i in random.choice(120, size=size, replace=False)]
    modalities = ["image"] if number % 3 == 0 else ["image", "text"]
    views = {name: half(random.normal(size=(size, WIDTHS[name]))) for name in modalities}
    more = {"text": random.bytes(text // 2).hex()} if text else {}
    payload = [{"number": number, "even": number % 2 == 0, **more} for _ in ids]
    return Operation(number, kind, ids, views, payload)


class CollectionRun(Run):
    """Every kind of write to a collection.

    The log is checkpointed every 24 pages and indexes are saved after 30 changes, so that both
    happen often in a short run.
    """

    name = "collection"
    keep: ClassVar[tuple[str, ...]] = ("scores", "features")
    kinds: ClassVar[tuple[tuple[str, int, int], ...]] = (
        ("upsert", 3, 0),
        ("upsert", 60, 100),
        ("payload", 5, 0),
        ("upsert", 1, 9000),
        ("search", 1, 0),
        ("delete", 20, 0),
        ("upsert", 2, 0),
        ("index", 1, 0),
        ("drop", 10, 0),
        ("upsert", 100, 400),
        ("search", 1, 0),
        ("compact", 1, 0),
        ("upsert", 4, 0),
        ("upgrade", 1, 0),
        ("upsert", 30, 0),
        ("reopen", 1, 0),
        ("upsert", 2, 0),
        ("delete", 50, 0),
        ("compact", 1, 0),
        ("upsert", 2, 0),
    )

    @cached_property
    def operations(self) -> list[Operation]:
        """The steps after the first, which creates the collection."""
        return [_upsert(number, *arguments) for number, arguments in enumerate(self.kinds, start=1)]

    @cached_property
    def expected(self) -> list[ExpectedState]:
        """The content after each step."""
        states = [ExpectedState()]
        for step in self.operations:
            states.append(expected_after(states[-1], step))
        return states

    def settings(self) -> AbstractContextManager[object]:
        """Checkpoint the log and save indexes often."""
        stack = ExitStack()
        stack.enter_context(patched(database, "_CHECKPOINT_PAGES", 24))
        stack.enter_context(patched(index_cache, "_MIN_PENDING", 30))
        return stack

    def steps(self, root: Path) -> Iterator[Step]:
        """Create a collection and write to it."""
        collection: Collection | None = None

        def create() -> None:
            nonlocal collection
            folder = root / "new" / "collection"
            collection = Collection.create(folder, model(0), keep=self.keep)

        def write(step: Operation) -> None:
            nonlocal collection
            assert collection is not None
            if step.kind == "index":
                collection.index_field("even")
            elif step.kind == "upgrade" and "features" not in self.keep:
                batches = self.expected[step.number - 1].batches()
                collection.upgrade(model(step.number), batches)
            else:
                collection = apply(collection, step)

        yield create
        for step in self.operations:
            yield partial(write, step)
        assert collection is not None
        yield collection.close

    def recovered(self, root: Path) -> set[int]:
        """Open the collection, compare it, check it, and write to it."""
        path = root / "new" / "collection"
        if not Collection.exists(path):
            return self._created_again(path)
        with Collection.open(path) as collection:
            steps = self._matching(collection)
            check_repaired(collection)
            collection.upsert(["after"], {"text": np.ones((1, WIDTHS["text"]))}, [{"even": True}])
        with Collection.open(path) as collection:
            assert "after" in collection, "a write after the failure is lost"
            if len(collection) % 5 == 0:  # in some of the states
                collection.compact()
                assert collection.check() == [], "a compaction after the failure"
            if len(collection) % 7 == 0 and "features" in self.keep:
                collection.upgrade(model(99))
                assert collection.check() == [], "an upgrade after the failure"
        return steps

    def _created_again(self, path: Path) -> set[int]:
        Collection.create(path, model(0)).close()
        with Collection.open(path) as collection:
            assert len(collection) == 0
        return {-1}

    def _matching(self, collection: Collection) -> set[int]:
        """Return the steps after which items, codes, model and searches are as found."""
        stored = list(collection.scan(kept=True)[1])
        assert kept_problems(stored, collection.keep) == []
        items = {item.id: (item.payload, dict(item.codes)) for item in stored}
        steps = self._signatures.get(_signature(items, collection.model), set())
        for condition in FILTERS:
            both = collection.model.modalities
            hits = collection.search("text", QUERY, k=1000, target=both, filter=condition)[0]
            expected = _distances(items, collection.model, condition)
            assert [hit.distance for hit in hits] == expected, f"search with filter {condition}"
        return steps

    @cached_property
    def _signatures(self) -> dict[bytes, set[int]]:
        """Items, codes and model → steps after which they are in the collection."""
        steps: dict[bytes, set[int]] = {}
        for number, state in enumerate(self.expected):
            codes = state.codes()
            items = {id_: (payload, codes[id_]) for id_, (payload, _) in state.items.items()}
            steps.setdefault(_signature(items, model(state.version)), set()).add(number)
        # The last step closes the collection and changes nothing.
        steps[_signature(items, model(state.version))].add(len(self.expected))
        return steps


Items = Mapping[Any, tuple[Any, Mapping[str, Codes]]]  # id → payload, codes


def _signature(items: Items, made_by: HashModel) -> bytes:
    """Return a checksum of all items, their codes and the model."""
    lines = [
        json.dumps([id_, payload, {name: code.words.tolist() for name, code in codes.items()}])
        for id_, (payload, codes) in items.items()
    ]
    text = "\n".join([made_by.fingerprint(), *sorted(lines)])
    return hashlib.sha256(text.encode()).digest()


def _distances(items: Items, made_by: HashModel, condition: Mapping[str, Any]) -> list[int]:
    """Return the distances of a search, by a plain loop."""
    query = int(made_by.encode("text", QUERY).words[0, 0])
    return sorted(
        min((int(code.words[0, 0]) ^ query).bit_count() for code in codes.values())
        for payload, codes in items.values()
        if codes and all(payload.get(field) is value for field, value in condition.items())
    )


class FeaturelessRun(CollectionRun):
    """A collection that does not keep features, upgraded with features that are passed."""

    name = "upgrade with features"
    keep = ("scores",)
    kinds = (("upsert", 40, 0), ("upgrade", 1, 0), ("upsert", 5, 0), ("upgrade", 1, 0))


class LargeLogRun(CollectionRun):
    """Batches beyond the log size at which a collection checkpoints by default."""

    name = "large log"

    def settings(self) -> AbstractContextManager[object]:
        """Leave the settings as they are."""
        return nullcontext()

    kinds = (
        ("upsert", 110, 160_000),
        ("upsert", 2, 0),
        ("upsert", 110, 160_000),
        ("delete", 90, 0),
        ("upsert", 2, 0),
    )


class RandomRun(CollectionRun):
    """A random sequence of operations."""

    name = "random"
    seed = 5

    @cached_property
    def operations(self) -> list[Operation]:
        """Operations of the tests with killed processes."""
        return [operation(number, self.seed) for number in range(1, 41)]


class RecoveryRun(Run):
    """The first writes after a power failure, until another one; `sign` prepares the folder."""

    name = "recovery"

    def settings(self) -> AbstractContextManager[object]:
        """Checkpoint the log and save indexes often."""
        return RUNS[CollectionRun.name].settings()

    def steps(self, root: Path) -> Iterator[Step]:
        """Open, write, compact and close the collection."""
        collection = None

        def open_again() -> None:
            nonlocal collection
            collection = Collection.open(root / "new" / "collection")
            collection.check()

        yield open_again
        assert collection is not None
        yield lambda: collection.upsert(["after"], payload=[{"even": True}])
        yield collection.compact
        yield collection.close

    def recovered(self, root: Path) -> set[int]:
        """Return the steps before and after the write, if everything else is as it was."""
        with Collection.open(root / "new" / "collection") as collection:
            items = {item.id: (item.payload, dict(item.codes)) for item in collection}
            is_written = items.pop("after", None) is not None
            assert _signature(items, collection.model).hex() == (root / "signature").read_text()
            check_repaired(collection)
        return {1, 2, 3} if is_written else {-1, 0}


def sign(root: Path) -> None:
    """Record the items of a collection in a file; the collection itself stays as it is."""
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(root, copy, dirs_exist_ok=True)
        with Collection.open(Path(copy) / "new" / "collection") as collection:
            items = {item.id: (item.payload, dict(item.codes)) for item in collection}
            (root / "signature").write_text(_signature(items, collection.model).hex())
