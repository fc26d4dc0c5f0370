"""Ids and payloads at the door: stored whole, or refused with a sentence."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np

from crossbit.collection.records import Id
from crossbit.errors import DataError

MIN_INT, MAX_INT = -(2**63), 2**63 - 1
MAX_ID = 1024  # characters
MAX_PAYLOAD = 16 << 20  # characters of JSON
MAX_DEPTH = 64
_LONG_NUMBER = b"0" * 19  # what every longer number looks like when its digits are made zeros
_DIGITS_TO_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_ordered = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
)


def clean_text(text: str, what: str) -> str:
    """A text that can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{what}: {text[:40]!a} holds half of a surrogate pair, which is no character; remove it"
        ) from error
    return text


def check_ids(ids: Iterable[object], *, repeated: bool = False) -> list[Id]:
    """Ids as a list of strings and plain integers, each once unless they may be repeated."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise DataError(
            f"ids are a list of strings or whole numbers, got {ids!r}; for one item pass [id]"
        )
    if isinstance(ids, np.ndarray):
        ids = ids.tolist()
    checked = [
        id_ if type(id_) is str and 0 < len(id_) <= MAX_ID and id_.isascii() else check_id(id_)
        for id_ in ids
    ]
    if not repeated and len(set(checked)) < len(checked):
        seen: set[Id] = set()
        twice = next(id_ for id_ in checked if id_ in seen or seen.add(id_))  # type: ignore[func-returns-value]
        raise DataError(f"id {twice!r} is given twice; each item is written once a call")
    return checked


def check_id(id_: object) -> Id:
    """One id: a string of up to 1024 characters, or a whole number of 64 bits."""
    if isinstance(id_, np.str_ | np.integer):
        id_ = id_.item()
    if isinstance(id_, str):
        if not 0 < len(id_) <= MAX_ID:
            raise DataError(f"an id has 1 to {MAX_ID} characters, got {len(id_)}")
        return clean_text(str(id_), "an id")
    if isinstance(id_, bool) or not isinstance(id_, int):
        raise DataError(f"an id is a string or a whole number, got {id_!r}")
    if not MIN_INT <= id_ <= MAX_INT:
        raise DataError(
            f"an id that is a number goes from -2⁶³ to 2⁶³ - 1, got one of {id_.bit_length()} bits; write it as"
            " a string"
        )
    return int(id_)


def spell_payloads(
    payloads: Sequence[Mapping[str, Any] | None], ids: Sequence[Id]
) -> list[str | None]:
    """Each payload as JSON text that reads back as what it was; None where it is None."""
    if isinstance(payloads, Mapping | str) or not hasattr(payloads, "__len__"):
        raise DataError(
            f"payload is a list with one mapping an item, got {type(payloads).__name__}"
        )
    if len(payloads) != len(ids):
        raise DataError(f"one payload an id: got {len(payloads)} payloads for {len(ids)} ids")
    texts = _plainly_spelled(payloads)
    if texts is not None:
        return texts
    return [
        None if payload is None else _spell(payload, id_)
        for payload, id_ in zip(payloads, ids, strict=True)
    ]


def _plainly_spelled(payloads: Sequence[Any]) -> list[str | None] | None:
    """The texts of many ordinary payloads, whatever is wrong with them showing in all texts at once; None if unsure."""
    if not set(map(type, payloads)) <= {dict} or not set(
        map(type, chain.from_iterable(payloads))
    ) <= {str}:
        return None
    try:
        texts: list[str | None] = list(map(_encoder.encode, payloads))
        joined = "\n".join(texts)  # type: ignore[arg-type]
        raw = joined.encode()
    except (RecursionError, TypeError, ValueError):
        return None
    nested = joined.count("{") > len(texts) or joined.count("[") >= MAX_DEPTH * len(texts)
    return (
        None
        if nested or len(joined) > MAX_PAYLOAD or _LONG_NUMBER in raw.translate(_DIGITS_TO_ZEROS)
        else texts
    )


def _spell(payload: Mapping[str, Any], id_: Id) -> str:
    """One payload, looked at closely."""
    if not isinstance(payload, Mapping):
        raise DataError(
            f"payload of {id_!r}: expected a mapping of fields, got {type(payload).__name__}"
        )
    try:
        text = _encoder.encode(dict(payload))
    except RecursionError as error:
        raise DataError(
            f"payload of {id_!r}: it is nested too deeply; at most {MAX_DEPTH} levels"
        ) from error
    except (TypeError, ValueError) as error:
        raise DataError(f"payload of {id_!r}: JSON cannot hold it ({error})") from error
    if len(text) > MAX_PAYLOAD:
        raise DataError(
            f"payload of {id_!r}: {len(text)} characters of JSON, at most {MAX_PAYLOAD}; keep large things in files"
        )
    clean_text(text, f"payload of {id_!r}")
    _look(payload, id_, 1)
    return text


def _look(value: object, id_: Id, depth: int) -> None:
    """Refuse what JSON, or a search by value, would change."""
    if depth > MAX_DEPTH:
        raise DataError(f"payload of {id_!r}: it is nested too deeply; at most {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise DataError(f"payload of {id_!r}: fields are named by strings, got {key!r}")
        _look_at_all(value.values(), id_, depth)
    elif isinstance(value, list | tuple):
        _look_at_all(value, id_, depth)
    elif isinstance(value, int) and not MIN_INT <= value <= MAX_INT:
        raise DataError(
            f"payload of {id_!r}: a whole number of {value.bit_length()} bits; beyond 64 they do not compare exactly;"
            " write it as a string"
        )


def _look_at_all(values: Iterable[object], id_: Id, depth: int) -> None:
    for value in values:
        _look(value, id_, depth + 1)


def spelled_length(payload: object) -> int:
    """Characters of a payload's JSON text, which may be that text already."""
    return len(payload if isinstance(payload, str) else _encoder.encode(payload))


def spelled(value: object) -> str:
    """JSON text in which the order of an object's fields does not show."""
    return _ordered.encode(value)


def batches(values: Iterable[Any], size: int) -> Iterable[list[Any]]:
    """Cut values into lists of a size."""
    iterator = iter(values)
    while batch := list(islice(iterator, size)):
        yield batch
