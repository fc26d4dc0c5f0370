"""A play: an endless sequence of acts on a collection, each decided by its number, and what each leaves behind."""

import signal
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit import Codes, Collection, HashModel, hamming
from crossbit.model import Affine

WIDTHS = {"image": 6, "text": 4}
PEOPLE = 60  # different ids
ACTS = (
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


def model(version: int) -> HashModel:
    """A small model; every version hashes otherwise."""
    random = np.random.default_rng(version)
    encoders = {
        name: [Affine(random.normal(size=(width, 20)), random.normal(size=20))]
        for name, width in WIDTHS.items()
    }
    return HashModel(encoders, n_bits=20)


@dataclass
class ExpectedState:
    """What a collection must hold: for each id its payload and rows, and the version of the model."""

    version: int = 0
    items: dict[str, tuple[dict[str, Any], dict[str, NDArray[Any]]]] = field(default_factory=dict)

    def codes(self) -> dict[str, dict[str, Codes]]:
        """For each id, the code of each modality it has."""
        codes: dict[str, dict[str, Codes]] = {id_: {} for id_ in self.items}
        for name, width in WIDTHS.items():
            own = {id_: rows[name] for id_, (_, rows) in self.items.items() if name in rows}
            made = model(self.version).encode(
                name, np.reshape(list(own.values()), (len(own), width))
            )
            for i, id_ in enumerate(own):
                codes[id_][name] = made[i]
        return codes

    def batches(self) -> list[tuple[list[str], dict[str, NDArray[Any]]]]:
        """The rows once more, as `Collection.upgrade` takes them."""
        own = {
            name: {id_: rows[name] for id_, (_, rows) in self.items.items() if name in rows}
            for name in WIDTHS
        }
        return [
            (list(rows), {name: np.array(list(rows.values()))})
            for name, rows in own.items()
            if rows
        ]

    def copy(self) -> "Expected":
        return ExpectedState(
            self.version,
            {id_: (payload, dict(rows)) for id_, (payload, rows) in self.items.items()},
        )


@dataclass(frozen=True)
class Operation:
    """What happens at one number of the play."""

    number: int
    kind: str
    ids: list[str]
    views: dict[str, NDArray[Any]]
    payload: list[dict[str, Any]]


def operation(number: int, seed: int) -> Operation:
    """The act with a number."""
    random = np.random.default_rng((seed, number))
    kind = ACTS[random.integers(len(ACTS))]
    ids = [f"person {i}" for i in random.choice(PEOPLE, size=random.integers(1, 20), replace=False)]
    chosen = ["image"] if random.random() < 0.3 else ["image", "text"]
    views = {name: random.normal(size=(len(ids), WIDTHS[name])) for name in chosen}
    payload = [{"number": number, "even": number % 2 == 0, "tags": [id_[-1], "all"]} for id_ in ids]
    return Operation(number, kind, ids, views, payload)


def apply(collection: Collection, what: Operation) -> Collection:
    """Do it."""
    match what.kind:
        case "upsert":
            collection.upsert(what.ids, what.views, what.payload)
        case "payload":
            collection.upsert(what.ids, payload=what.payload)
        case "delete":
            collection.delete(what.ids)
        case "drop":
            collection.delete(what.ids, modality="image")
        case "compact":
            collection.compact()
        case "upgrade":
            collection.upgrade(model(what.number))
        case "search":
            collection.search("image", np.ones((1, WIDTHS["image"])), filter={"even": True})
        case "reopen":
            collection.close()
            collection = Collection.open(collection.path)
    return collection


def expected_after(expected: ExpectedState, what: Operation) -> ExpectedState:
    """What must be there when it is done."""
    now = expected.copy()
    match what.kind:
        case "upsert" | "payload":
            for i, id_ in enumerate(what.ids):
                rows = now.items.get(id_, ({}, {}))[1]
                fresh = (
                    {name: X[i] for name, X in what.views.items()} if what.kind == "upsert" else {}
                )
                now.items[id_] = (what.payload[i], {**rows, **fresh})
        case "delete":
            for id_ in what.ids:
                now.items.pop(id_, None)
        case "drop":
            for id_ in what.ids:
                if id_ in now.items:
                    now.items[id_][1].pop("image", None)
        case "upgrade":
            now.version = what.number
    return now


def differences(collection: Collection, expected: ExpectedState) -> list[str]:
    """What is not as expected; empty when everything is."""
    codes = expected.codes()
    found = {item.id: item for item in collection}
    wrong = (
        [f"{len(found)} items, expected {len(expected.items)}"]
        if found.keys() != expected.items.keys()
        else []
    )
    if len(collection) != len(found):
        wrong.append(f"says {len(collection)} items, has {len(found)}")
    for id_ in found.keys() & expected.items.keys():
        item, payload, own = found[id_], expected.items[str(id_)][0], codes[str(id_)]
        if item.payload != payload or dict(item.codes) != own:
            wrong.append(
                f"{id_}: {item.payload} {item.modalities}, expected {payload} {sorted(own)}"
            )
    return wrong or _search_differences(collection, expected, codes)


def _search_differences(
    collection: Collection, expected: ExpectedState, codes: dict[str, dict[str, Codes]]
) -> list[str]:
    """Whether distances found are those of a plain loop, with and without a filter."""
    if collection.model.fingerprint() != model(expected.version).fingerprint():
        return ["another model"]
    query = np.linspace(-1, 1, WIDTHS["text"])[None]
    asked = model(expected.version).encode("text", query)
    for where, allowed in (({}, None), ({"even": True}, True)):
        own = sorted(
            min(int(hamming(asked, code)[0, 0]) for code in codes[id_].values())
            for id_, (payload, rows) in expected.items.items()
            if rows and (allowed is None or payload.get("even") is allowed)
        )
        hits = collection.search("text", query, k=1000, filter=where)[0]
        if [hit.distance for hit in hits] != own:
            return [f"search where {where}: {[hit.distance for hit in hits]}, expected {own}"]
    return []


def run_until_killed(folder: Path, start: int, seed: int, told: Connection) -> None:
    """Perform acts until killed, telling the number of each when it is done."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    collection = Collection.open(folder)
    told.send(start - 1)
    for number in range(start, start + 1_000_000):
        collection = apply(collection, operation(number, seed))
        told.send(number)
