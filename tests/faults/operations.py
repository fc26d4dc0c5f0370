"""Deterministic random operations on a collection, and a reference model of the expected state."""

import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit import Codes, Collection, HashModel, Item, hamming
from crossbit.model import Affine

WIDTHS = {"image": 6, "text": 4}
N_IDS = 60
KINDS = (
    "upsert",
    "upsert",
    "upsert",
    "upsert",
    "delete",
    "payload",
    "drop",
    "compact",
    "upgrade",
    "search",
    "reopen",
)


def half(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Round rows to what a collection keeps of them exactly."""
    return rows.astype(np.float16).astype(np.float64)


def kept_problems(items: Iterable[Item], keep: Sequence[str]) -> list[str]:
    """Return the items whose kept rows do not belong to their codes.

    Scores must have the signs of the bits. Every code that was made from a row has them, and its
    features, if the collection keeps them.
    """
    problems = []
    for item in items:
        for name, scores in item.scores.items():
            bits = item.codes[name].unpack()[0]
            if not np.array_equal(bits[scores != 0], scores[scores != 0] > 0):
                problems.append(f"scores of {item.id!r} in {name!r} belong to another code")
        if set(keep) == {"scores", "features"} and item.scores.keys() != item.features.keys():
            problems.append(f"{item.id!r} has scores or features, but not both")
    return problems


def model(version: int) -> HashModel:
    """Return a small model; every version makes other codes."""
    random = np.random.default_rng(version)
    encoders = {
        name: [Affine(random.normal(size=(width, 20)), random.normal(size=20))]
        for name, width in WIDTHS.items()
    }
    return HashModel(encoders, n_bits=20)


@dataclass
class ExpectedState:
    """What a collection must hold: payload and rows of each id, and the version of the model."""

    version: int = 0
    items: dict[str, tuple[dict[str, Any], dict[str, NDArray[Any]]]] = field(default_factory=dict)

    def codes(self) -> dict[str, dict[str, Codes]]:
        """Return the code of each id in each modality that it has."""
        codes: dict[str, dict[str, Codes]] = {id_: {} for id_ in self.items}
        for name, width in WIDTHS.items():
            rows = self._rows(name)
            stacked = np.reshape(list(rows.values()), (len(rows), width))
            encoded = model(self.version).encode(name, stacked)
            for i, id_ in enumerate(rows):
                codes[id_][name] = encoded[i]
        return codes

    def batches(self) -> list[tuple[list[str], dict[str, NDArray[Any]]]]:
        """Return all rows, as `Collection.upgrade` takes them."""
        views = {name: self._rows(name) for name in WIDTHS}
        return [
            (list(rows), {name: np.array(list(rows.values()))})
            for name, rows in views.items()
            if rows
        ]

    def _rows(self, name: str) -> dict[str, NDArray[Any]]:
        return {id_: rows[name] for id_, (_, rows) in self.items.items() if name in rows}

    def copy(self) -> "ExpectedState":
        items = {id_: (payload, dict(rows)) for id_, (payload, rows) in self.items.items()}
        return ExpectedState(self.version, items)


@dataclass(frozen=True)
class Operation:
    """One operation of the sequence."""

    number: int
    kind: str
    ids: list[str]
    views: dict[str, NDArray[Any]]
    payload: list[dict[str, Any]]


def operation(number: int, seed: int) -> Operation:
    """Return the operation with a number; it depends on number and seed only."""
    random = np.random.default_rng((seed, number))
    kind = KINDS[random.integers(len(KINDS))]
    ids = [f"person {i}" for i in random.choice(N_IDS, size=random.integers(1, 20), replace=False)]
    modalities = ["image"] if random.random() < 0.3 else ["image", "text"]
    views = {name: half(random.normal(size=(len(ids), WIDTHS[name]))) for name in modalities}
    own = {f"only {number % 3}": number}  # the others stay when payloads are merged
    payload = [
        {"number": number, "even": number % 2 == 0, "tags": [id_[-1], "all"], **own} for id_ in ids
    ]
    return Operation(number, kind, ids, views, payload)


def apply(collection: Collection, step: Operation) -> Collection:
    """Perform an operation; return the collection, which may have been opened again."""
    match step.kind:
        case "upsert":
            collection.upsert(step.ids, step.views, step.payload)
        case "payload":
            collection.upsert(step.ids, payload=step.payload, replace_payload=True)
        case "delete":
            collection.delete(step.ids)
        case "drop":
            collection.delete(step.ids, modality="image")
        case "compact":
            collection.compact()
        case "upgrade":
            collection.upgrade(model(step.number))
        case "search":
            collection.search("image", np.ones((1, WIDTHS["image"])), filter={"even": True})
        case "reopen":
            collection.close()
            collection = Collection.open(collection.path)
    return collection


def expected_after(expected: ExpectedState, step: Operation) -> ExpectedState:
    """Return the expected state after an operation."""
    state = expected.copy()
    match step.kind:
        case "upsert" | "payload":
            for i, id_ in enumerate(step.ids):
                payload, rows = state.items.get(id_, ({}, {}))
                is_upsert = step.kind == "upsert"
                new_rows = {name: X[i] for name, X in step.views.items()} if is_upsert else {}
                kept = payload if is_upsert else {}
                state.items[id_] = ({**kept, **step.payload[i]}, {**rows, **new_rows})
        case "delete":
            for id_ in step.ids:
                state.items.pop(id_, None)
        case "drop":
            for id_ in step.ids:
                if id_ in state.items:
                    state.items[id_][1].pop("image", None)
        case "upgrade":
            state.version = step.number
    return state


def differences(collection: Collection, expected: ExpectedState) -> list[str]:
    """Return how a collection differs from the expected state; empty if it does not."""
    codes = expected.codes()
    items = {item.id: item for item in collection}
    problems = []
    if items.keys() != expected.items.keys():
        problems.append(f"{len(items)} items, expected {len(expected.items)}")
    if len(collection) != len(items):
        problems.append(f"a length of {len(collection)}, but {len(items)} items")
    for id_ in items.keys() & expected.items.keys():
        item = items[id_]
        payload = expected.items[str(id_)][0]
        own = codes[str(id_)]
        if item.payload != payload or dict(item.codes) != own:
            problems.append(
                f"{id_}: {item.payload} {item.modalities}, expected {payload} {sorted(own)}"
            )
    problems += kept_problems(collection.scan(kept=True)[1], collection.keep)
    return problems or _search_differences(collection, expected, codes)


def _search_differences(
    collection: Collection, expected: ExpectedState, codes: dict[str, dict[str, Codes]]
) -> list[str]:
    """Compare the distances of a search with a plain loop, with and without a filter."""
    if collection.model.fingerprint() != model(expected.version).fingerprint():
        return ["another model"]
    query = np.linspace(-1, 1, WIDTHS["text"])[None]
    code = model(expected.version).encode("text", query)
    for condition, allowed in (({}, None), ({"even": True}, True)):
        distances = sorted(
            min(int(hamming(code, own)[0, 0]) for own in codes[id_].values())
            for id_, (payload, rows) in expected.items.items()
            if rows and (allowed is None or payload.get("even") is allowed)
        )
        hits = collection.search("text", query, k=1000, target=WIDTHS, filter=condition)[0]
        if [hit.distance for hit in hits] != distances:
            actual = [hit.distance for hit in hits]
            return [f"search with filter {condition}: {actual}, expected {distances}"]
    return []


def run_until_killed(folder: Path, start: int, seed: int, acknowledged: Connection) -> None:
    """Perform operations until killed, and send the number of each that has returned."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    collection = Collection.open(folder)
    acknowledged.send(start - 1)
    for number in range(start, start + 1_000_000):
        collection = apply(collection, operation(number, seed))
        acknowledged.send(number)
