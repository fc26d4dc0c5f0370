"""Actions that read a collection: check, search, get, scan, statistics, export and copy."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from crossbit import Codes, Collection
from crossbit.cli import collection as commands
from crossbit.collection import transfer as copying
from crossbit.collection.values import Item
from tests.faults.actions import IDS, Action, Call
from tests.faults.operations import kept_problems
from tests.faults.oracle import State, code, model, rows


@dataclass(frozen=True)
class Check(Action):
    """Verify all files, which must be intact at any moment."""

    def run(self, call: Call) -> list[str]:
        return [str(finding) for finding in call.collection.check()]

    def agrees(self, call: Call, state: State, answer: Any) -> bool:  # noqa: ANN401
        was_replaced = call.place.oracle.disturbance != call.opened_at
        return was_replaced or answer == []


@dataclass(frozen=True)
class Search(Action):
    """Search all modalities with a row or its code, with or without a filter."""

    row: int
    least: int | None = None
    as_codes: bool = False

    def run(self, call: Call) -> Any:  # noqa: ANN401
        X: Any = rows("image", [self.row])
        if self.as_codes:
            X = call.collection.model.encode("image", X)
        condition = None if self.least is None else {"n": {">=": self.least}}
        (results,) = call.collection.search(
            "image",
            X,
            k=len(IDS) + 1,
            target="*",
            filter=condition,
            threads=1,
            with_codes=True,
        )
        return results

    def agrees(self, call: Call, state: State, answer: Any) -> bool:  # noqa: ANN401
        query = code(state.model, "image", self.row)
        return state.agrees_with_hits(answer, answer.code, query, self.least)

    def may_fail(self, call: Call) -> bool:
        if self.least is not None and any(state.refuses_filter() for state in call.window):
            return True
        return self.as_codes and call.saw_other_model()


@dataclass(frozen=True)
class Get(Action):
    """Read items by id."""

    ids: tuple[str, ...]

    def run(self, call: Call) -> list[Item | None]:
        return call.collection.get(self.ids)

    def agrees(self, call: Call, state: State, answer: Any) -> bool:  # noqa: ANN401
        return all(
            id_ not in state.items if item is None else state.agrees_with_item(item)
            for id_, item in zip(self.ids, answer, strict=True)
        )


@dataclass(frozen=True)
class Scan(Action):
    """Read all items."""

    def run(self, call: Call) -> list[Item]:
        items = []
        for item in call.collection.scan(kept=True)[1]:
            items.append(item)
            call.place.scheduler.step("next item")
        return items

    def agrees(self, call: Call, state: State, answer: Any) -> bool:  # noqa: ANN401
        keep = ("scores", "features") if call.place.keeps_features else ("scores",)
        return state.agrees_with_items(answer) and not kept_problems(answer, keep)


@dataclass(frozen=True)
class Summary(Action):
    """Read the number of items and the statistics."""

    def run(self, call: Call) -> Any:  # noqa: ANN401
        return call.collection.stats()

    def agrees(self, call: Call, state: State, answer: Any) -> bool:  # noqa: ANN401
        counts = {
            name: sum(name in values for _, values in state.items.values())
            for name in model(state.model).modalities
        }
        return (
            answer.items == len(state.items)
            and answer.model == model(state.model).fingerprint()
            and dict(answer.modalities) == counts
        )


@dataclass(frozen=True)
class Export(Action):
    """Write all items to a file, as ``crossbit collection export`` does."""

    def run(self, call: Call) -> Any:  # noqa: ANN401
        path = call.place.new_path("export.jsonl")
        commands._export(str(call.place.folder), out=path)
        header, *lines = map(json.loads, path.read_text().splitlines())
        records = [line for line in lines if "id" in line]
        return header["model"], [_item(line, header["n_bits"]) for line in records]

    def agrees(self, call: Call, state: State, answer: Any) -> bool:  # noqa: ANN401
        fingerprint, items = answer
        return fingerprint == model(state.model).fingerprint() and state.agrees_with_items(items)


def _item(record: Mapping[str, Any], n_bits: int) -> Item:
    codes = {
        name: Codes.from_bytes(np.frombuffer(bytes.fromhex(digits), np.uint8)[None], n_bits)
        for name, digits in record["codes"].items()
    }
    return Item(record["id"], record["payload"], codes)


@dataclass(frozen=True)
class Copy(Action):
    """Copy the collection into an empty one."""

    def run(self, call: Call) -> Any:  # noqa: ANN401
        path = call.place.new_path("copy")
        source = call.collection
        with Collection.create(path, source.model, keep=source.keep) as target:
            copying.copy(call.collection, target)
            items = list(target.scan(kept=True)[1])
            assert kept_problems(items, target.keep) == []
            return target.model.fingerprint(), items

    def agrees(self, call: Call, state: State, answer: Any) -> bool:  # noqa: ANN401
        fingerprint, items = answer
        # The target is written one set of modalities after the other.
        order = list(state.items)
        if not all(item.id in order for item in items):
            return False
        items.sort(key=lambda item: order.index(item.id))
        return fingerprint == model(state.model).fingerprint() and state.agrees_with_items(items)

    def may_fail(self, call: Call) -> bool:
        return call.saw_other_model()
