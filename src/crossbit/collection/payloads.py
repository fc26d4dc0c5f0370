"""Validation of ids and payloads, and their JSON text."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from crossbit._frames import plain, records
from crossbit.collection.values import Id
from crossbit.errors import DataError

MIN_INT = -(2**63)
MAX_INT = 2**63 - 1
MAX_ID = 1024  # characters
MAX_PAYLOAD = 16 << 20  # characters of JSON
MAX_DEPTH = 64
_LONG_NUMBER = b"0" * 19  # every longer number contains it once all digits are replaced by zeros
_DIGITS_TO_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_JSON_SCALARS = frozenset({str, int, float, bool, type(None)})


def _plain_scalar(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


_encoder = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain_scalar
)


def check_text(text: str, what: str) -> str:
    """Return a text that can be encoded as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{what}: {text[:40]!a} contains an unpaired surrogate, which is not a character;"
            " delete it"
        ) from error
    return text


def check_fields(names: Iterable[str]) -> list[str]:
    """Return the names of payload fields as a list."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise DataError(f"expected a list of field names, got {names!r}")
    fields = list(names)
    for name in fields:
        if not isinstance(name, str):
            raise DataError(f"the name of a field must be a string, got {name!r}")
    return fields


def check_ids(ids: Iterable[object], *, allow_repeats: bool = False) -> list[Id]:
    """Return ids as a list of strings and plain integers, distinct unless repeats are allowed."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise DataError(
            f"ids must be a list of strings or integers, got {ids!r}; for one item pass [id]"
        )
    if isinstance(ids, np.ndarray):
        ids = ids.tolist()
    checked = [
        id_ if type(id_) is str and 0 < len(id_) <= MAX_ID and id_.isascii() else check_id(id_)
        for id_ in ids
    ]
    if not allow_repeats and len(set(checked)) < len(checked):
        repeated = next(id_ for id_, count in Counter(checked).items() if count > 1)
        raise DataError(f"id {repeated!r} is given twice; a call writes each item once")
    return checked


def check_id(id_: object) -> Id:
    """Return one id: a string of up to 1024 characters, or a 64-bit integer."""
    if isinstance(id_, np.str_ | np.integer):
        id_ = id_.item()
    if isinstance(id_, str):
        if not 0 < len(id_) <= MAX_ID:
            raise DataError(f"an id has 1 to {MAX_ID} characters, got {len(id_)}")
        return check_text(str(id_), "an id")
    if isinstance(id_, bool) or not isinstance(id_, int):
        raise DataError(f"an id must be a string or an integer, got {id_!r}")
    if not MIN_INT <= id_ <= MAX_INT:
        raise DataError(
            f"an integer id must be between -2⁶³ and 2⁶³ - 1, got one of {id_.bit_length()} bits;"
            " pass it as a string"
        )
    return int(id_)


def check_payloads(
    payloads: Sequence[Mapping[str, Any] | None] | None, ids: Sequence[Id]
) -> tuple[Sequence[Mapping[str, Any] | None] | None, list[str | None] | None]:
    """Return payloads as plain values, and as JSON text; a frame gives one payload per row.

    Scalars of NumPy become plain values. None stays None.
    """
    if payloads is None:
        return None, None
    rows: Sequence[Mapping[str, Any] | None] = payloads
    if (from_frame := records(payloads)) is not None:
        rows = from_frame
    texts = payloads_to_json(rows, ids)
    if not _are_plain(rows):
        rows = [None if row is None else plain(row) for row in rows]
    return rows, texts


def _are_plain(payloads: Sequence[Mapping[str, Any] | None]) -> bool:
    """Whether all values are scalars of JSON, or lists of such scalars."""
    values = [value for row in payloads if row is not None for value in row.values()]
    other = set(map(type, values)) - _JSON_SCALARS
    if other - {list}:
        return False
    lists = [value for value in values if type(value) is list] if other else []
    return _JSON_SCALARS.issuperset(map(type, chain.from_iterable(lists)))


def payloads_to_json(
    payloads: Sequence[Mapping[str, Any] | None], ids: Sequence[Id]
) -> list[str | None]:
    """Return each payload as JSON text that parses to an equal payload; None stays None."""
    if isinstance(payloads, Mapping | str) or not hasattr(payloads, "__len__"):
        raise DataError(
            f"payload must be a list with one mapping per item, got {type(payloads).__name__}"
        )
    if len(payloads) != len(ids):
        raise DataError(f"expected one payload per id: got {len(payloads)} for {len(ids)} ids")
    texts = _simple_payloads_to_json(payloads)
    if texts is not None:
        return texts
    return [
        None if payload is None else _payload_to_json(payload, id_)
        for payload, id_ in zip(payloads, ids, strict=True)
    ]


def _simple_payloads_to_json(payloads: Sequence[Any]) -> list[str | None] | None:
    """Encode a batch of ordinary payloads; return None if any of them needs a closer look.

    One call encodes and checks them all, which is several times faster than one per payload.
    """
    if not set(map(type, payloads)) <= {dict}:
        return None
    if not set(map(type, chain.from_iterable(payloads))) <= {str}:
        return None
    if not len(payloads):
        return []
    try:
        joined = _encoder.encode(payloads)[2:-2]
        raw = joined.encode()
    except (RecursionError, TypeError, ValueError):
        return None
    parts = joined.split("},{")
    if len(parts) != len(payloads):  # some string contains the separator, or an object another one
        return None
    is_nested = joined.count("{") >= len(parts) or joined.count("[") >= MAX_DEPTH * len(parts)
    if is_nested or len(joined) > MAX_PAYLOAD or _LONG_NUMBER in raw.translate(_DIGITS_TO_ZEROS):
        return None
    return [f"{{{part}}}" for part in parts]


def _payload_to_json(payload: Mapping[str, Any], id_: Id) -> str:
    if not isinstance(payload, Mapping):
        raise DataError(
            f"payload of {id_!r}: expected a mapping of fields, got {type(payload).__name__}"
        )
    try:
        text = _encoder.encode(dict(payload))
    except RecursionError as error:
        raise DataError(
            f"payload of {id_!r}: nested too deeply; at most {MAX_DEPTH} levels"
        ) from error
    except (TypeError, ValueError) as error:
        raise DataError(f"payload of {id_!r}: not representable in JSON ({error})") from error
    if len(text) > MAX_PAYLOAD:
        raise DataError(
            f"payload of {id_!r}: {len(text)} characters of JSON, at most {MAX_PAYLOAD}; keep large"
            " values in files"
        )
    check_text(text, f"payload of {id_!r}")
    _check_value(payload, id_, 1)
    return text


def _check_value(value: object, id_: Id, depth: int) -> None:
    """Refuse values that JSON would change or that do not compare exactly."""
    if depth > MAX_DEPTH:
        raise DataError(f"payload of {id_!r}: nested too deeply; at most {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise DataError(f"payload of {id_!r}: field names must be strings, got {key!r}")
        for element in value.values():
            _check_value(element, id_, depth + 1)
    elif isinstance(value, list | tuple):
        for element in value:
            _check_value(element, id_, depth + 1)
    elif isinstance(value, int | np.integer) and not MIN_INT <= int(value) <= MAX_INT:
        raise DataError(
            f"payload of {id_!r}: an integer of {int(value).bit_length()} bits does not compare"
            " exactly; at most 64, pass it as a string"
        )


def json_length(payload: object) -> int:
    """Return the number of characters of a payload's JSON text; a string counts as that text."""
    return len(payload if isinstance(payload, str) else _encoder.encode(payload))
