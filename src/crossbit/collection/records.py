"""What a collection gives back: items, hits, facts, findings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from crossbit.codes import Codes
from crossbit.metrics.health import CodeHealth

Id: TypeAlias = int | str
"""What names an item: a string, or a whole number of 64 bits. ``1`` and ``"1"`` are different ids."""

Payload: TypeAlias = dict[str, Any]
"""Names of fields → anything that JSON has."""


@dataclass(frozen=True)
class Item:
    """One item of a collection.

    Args:
        id: Its id.
        payload: Its payload, ``{}`` where none was given.
        codes: For each modality that the item has, its code.
    """

    id: Id
    payload: Payload
    codes: Mapping[str, Codes]

    @property
    def modalities(self) -> list[str]:
        """The modalities that the item has."""
        return list(self.codes)


@dataclass(frozen=True)
class Hit:
    r"""One item that a search found.

    Args:
        id: Its id.
        distance: How many bits its code differs from the query's.
        similarity: $1 - \text{distance} / \text{bits}$: 1 for equal codes, about ½ for unrelated ones.
        modality: The modality that matched.
        payload: The item's payload.
    """

    id: Id
    distance: int
    similarity: float
    modality: str
    payload: Payload


@dataclass(frozen=True)
class Finding:
    """Something that `Collection.check` found wrong.

    Args:
        path: The file that is damaged, or the address of the server that holds it.
        problem: What is wrong with it, and the remedy.
        repaired: Whether it has been made anew from the truth already.
    """

    path: Path | str
    problem: str
    repaired: bool = False

    def __str__(self) -> str:
        """Such as ``…/index/1.index: the header is truncated or altered; made anew``."""
        return f"{self.path}: {self.problem}{'; made anew' if self.repaired else ''}"


@dataclass(frozen=True)
class Stats:
    """What a collection holds.

    Args:
        items: How many items.
        modalities: For each modality, how many of them have it.
        n_bits: Length of a code.
        nbytes: Bytes on disk, everything included; of a server, which does not tell, the bytes of what it was given.
        fields: The payload fields that have an index.
        features: The number type in which features are kept, or nothing.
        generation: How many writes there have been; 0 on a server, which does not count them.
        model: Fingerprint of the model.
        health: For each modality with codes, the health of (a sample of) them.
        recall: Where search is not exact, for each modality the share of the 10 nearest that it finds, measured now.
    """

    items: int
    modalities: Mapping[str, int]
    n_bits: int
    nbytes: int
    fields: tuple[str, ...]
    features: str | None
    generation: int
    model: str
    health: Mapping[str, CodeHealth]
    recall: Mapping[str, float] = field(default_factory=dict)

    @property
    def bytes_per_item(self) -> float:
        """Bytes on disk an item; 0 while there are none."""
        return self.nbytes / self.items if self.items else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plain = {name: value for name, value in vars(self).items() if name != "health"}
        health = {modality: health.to_dict() for modality, health in self.health.items()}
        counts = {"modalities": dict(self.modalities), "bytes_per_item": self.bytes_per_item}
        return {**plain, **counts, "health": health, "recall": dict(self.recall)}
