"""What a collection must hold, and what a reader may see, while several actors work on it.

Every operation takes effect at the moment when its transaction commits. The oracle keeps the state
after each commit: a read must agree with one state between its beginning and its end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit import Codes, HashModel, hamming
from crossbit.collection.values import Hit, Item
from crossbit.model import Affine

N_MODELS = 4
N_ROWS = 10
_WIDTH = 4

Value: TypeAlias = "int | tuple[int, int]"
"""What an item has in a modality: the number of a row, or a code as (model, number of a row)."""
Payload: TypeAlias = dict[str, Any]


@cache
def model(number: int) -> HashModel:
    """Return one of four models: 0 and 1 differ in weights only, 2 in bits, and 3 has no text."""
    random = np.random.default_rng(number)
    n_bits = 16 if number == 2 else 12
    names = ["image"] if number == 3 else ["image", "text"]
    encoders = {
        name: [Affine(random.normal(size=(_WIDTH, n_bits)), random.normal(size=n_bits))]
        for name in names
    }
    return HashModel(encoders, n_bits=n_bits)


@cache
def model_number(fingerprint: str) -> int:
    """Return the number of a model."""
    return next(i for i in range(N_MODELS) if model(i).fingerprint() == fingerprint)


@cache
def _row_table(modality: str) -> NDArray[np.float32]:
    random = np.random.default_rng(len(modality))
    return random.normal(size=(N_ROWS, _WIDTH)).astype(np.float16).astype(np.float32)


def rows(modality: str, numbers: Sequence[int]) -> NDArray[np.float32]:
    """Return feature rows by their numbers."""
    return _row_table(modality)[list(numbers)]


@cache
def code(number: int, modality: str, row: int) -> Codes:
    """Return the code of a row under a model."""
    return model(number).encode(modality, rows(modality, [row]))


@dataclass(frozen=True)
class State:
    """What a collection holds after a commit.

    Args:
        model: Number of its model.
        items: Id → payload and values, in order of arrival.
    """

    model: int
    items: Mapping[str, tuple[Payload, Mapping[str, Value]]]

    def codes(self, id_: str) -> dict[str, Codes]:
        """Return the codes of an item."""
        return {
            name: code(self.model, name, value)
            if isinstance(value, int)
            else code(value[0], name, value[1])
            for name, value in self.items[id_][1].items()
        }

    def has_unknown_rows(self, *, keeps_features: bool) -> bool:
        """Return whether an item has a code whose row the collection does not have."""
        values = [value for _, values in self.items.values() for value in values.values()]
        return any(not keeps_features or not isinstance(value, int) for value in values)

    def modalities(self) -> set[str]:
        """Return the modalities that items have."""
        return {name for _, values in self.items.values() for name in values}

    def agrees_with_items(self, items: Sequence[Item]) -> bool:
        """Return whether a scan may return these items."""
        return [item.id for item in items] == list(self.items) and all(
            self.agrees_with_item(item) for item in items
        )

    def agrees_with_item(self, item: Item) -> bool:
        """Return whether an item has this payload and these codes."""
        id_ = str(item.id)
        return (
            id_ in self.items
            and item.payload == self.items[id_][0]
            and dict(item.codes) == self.codes(id_)
        )

    def refuses_filter(self) -> bool:
        """Return whether a filter by ``n`` is an error: items have fields, but none has this."""
        fields = {name for payload, _ in self.items.values() for name in payload}
        return bool(fields) and "n" not in fields

    def hits(self, query: Codes, least: int | None) -> list[tuple[str, int, Payload]]:
        """Return id, distance and payload of all items whose field ``n`` is at least a number."""
        found = []
        for id_, (payload, _) in self.items.items():
            distances = [int(hamming(query, own)[0, 0]) for own in self.codes(id_).values()]
            if distances and (least is None or payload.get("n", -1) >= least):
                found.append((id_, min(distances), payload))
        return sorted(found, key=lambda hit: hit[1])  # stable: ties in order of arrival

    def agrees_with_hits(
        self, hits: Sequence[Hit], answered: Codes, query: Codes, least: int | None
    ) -> bool:
        """Return whether a search may return these hits and this code of its query."""
        if answered != query:
            return False
        expected = self.hits(query, least)
        return [(hit.id, hit.distance, hit.payload) for hit in hits] == expected and all(
            hit.code == self.codes(str(hit.id))[hit.modality] for hit in hits
        )


@dataclass
class Incarnation:
    """One database file: its states, and the generation of the last.

    ``touched[i]`` names the codes, as (id, modality), that the commit before ``states[i]`` wrote.
    """

    states: list[State]
    generation: int
    touched: list[set[tuple[str, str]]] = field(default_factory=lambda: [set()])


class Mark(NamedTuple):
    """A moment: number of the incarnation in the folder, of its state, and of disturbances."""

    number: int
    position: int
    disturbance: int


class Oracle:
    """The states of a collection, through all replacements of its folder.

    Args:
        inode: Inode of the first database file.
        generation: Its generation.
        state: What it holds.
    """

    def __init__(self, inode: int, generation: int, state: State) -> None:
        self.incarnations = {inode: Incarnation([state], generation)}
        self.violations: list[str] = []
        self.disturbance = 0  # odd while the folder is being replaced

    @property
    def current(self) -> Incarnation:
        """The incarnation that the folder holds."""
        return list(self.incarnations.values())[-1]

    @property
    def state(self) -> State:
        """What the folder holds."""
        return self.current.states[-1]

    def now(self) -> Mark:
        """Return the present moment."""
        return Mark(len(self.incarnations) - 1, len(self.current.states) - 1, self.disturbance)

    def window(self, start: Mark) -> list[State]:
        """Return the states that a read that began at a moment may see."""
        incarnations = list(self.incarnations.values())[start.number :]
        states = incarnations[0].states[start.position :]
        return states + [state for later in incarnations[1:] for state in later.states]

    def touched_since(self, start: Mark) -> set[tuple[str, str]]:
        """Return the codes that were written since a moment."""
        incarnations = list(self.incarnations.values())[start.number :]
        return set().union(*(incarnations[0].touched[start.position + 1 :]))

    def replace(self, inode: int, generation: int, state: State) -> None:
        """Record that the folder holds another database file."""
        assert inode not in self.incarnations
        self.incarnations[inode] = Incarnation([state], generation)

    def position(self, inode: int) -> int:
        """Return the number of an incarnation."""
        return list(self.incarnations).index(inode)
