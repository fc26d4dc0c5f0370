"""From a request to a question: which modality, which row or code, which words, and which answers would be right."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_known
from crossbit.codes import Codes
from crossbit.collection import Item
from crossbit.errors import DataError
from crossbit.features.text import normalize_tag
from crossbit.server.describers import Describers
from crossbit.server.schemas import Thing

TAGS = "tags"
LABEL = "label"


@dataclass(frozen=True)
class Truth:
    """How right answers are told from wrong ones.

    Args:
        told: In words.
        holds: Whether an item with this payload is a right answer.
    """

    told: str
    holds: Callable[[dict[str, Any]], bool]


@dataclass(frozen=True)
class Question:
    """What is looked for.

    Args:
        modality: Of the query.
        given: Its row, shape (1, d), or its code.
        tags: Its words, where it has some.
        item: The item that was asked with.
        truth: Which answers are right, where that is known.
    """

    modality: str
    given: NDArray[Any] | Codes
    tags: list[str] = field(default_factory=list)
    item: Item | None = None
    truth: Truth | None = None


def from_thing(describers: Describers, thing: Thing, item: Item | None) -> Question:
    """The question of a request; ``item`` is the one that it names."""
    if item is not None:
        return _from_item(thing.modality, item)
    if thing.features is not None:
        if thing.modality is None:
            raise DataError(
                f"features need a modality, one of {describers.model.modalities}; got none"
            )
        return Question(thing.modality, np.array([thing.features], np.float64))
    words = thing.tags if thing.text is None else thing.text
    assert words is not None  # noqa: S101
    modality = describers.modality(thing.modality, "words")
    rows = describers.rows(modality, [words])
    tags, exact = describers.tags(modality, words)
    return Question(modality, rows, tags, truth=_having(tags) if exact else None)


def from_picture(describers: Describers, picture: bytes, modality: str | None) -> Question:
    """The question of an uploaded picture."""
    modality = describers.modality(modality, "pictures")
    return Question(modality, describers.rows(modality, [picture]))


def _from_item(modality: str | None, item: Item) -> Question:
    """The question of an item that is there: its code is known."""
    if not item.codes:
        raise DataError(f"item {item.id!r} has no code; add one with its features")
    modality = (
        item.modalities[0]
        if modality is None
        else check_known(modality, item.codes, "modality of the item")
    )
    return Question(
        modality,
        item.codes[modality],
        tags_of(item.payload),
        item,
        _labeled(item.payload.get(LABEL)),
    )


def tags_of(payload: dict[str, Any]) -> list[str]:
    """The tags of an item, in one spelling."""
    value = payload.get(TAGS)
    return (
        [normalize_tag(tag) for tag in value if isinstance(tag, str)]
        if isinstance(value, list)
        else []
    )


def _having(tags: list[str]) -> Truth:
    return Truth(
        f"items tagged {' + '.join(tags)}", lambda payload: set(tags) <= set(tags_of(payload))
    )


def _labeled(label: object) -> Truth | None:
    if not isinstance(label, str | int) or isinstance(label, bool):
        return None
    return Truth(f"items labeled {label}", lambda payload: bool(payload.get(LABEL) == label))
