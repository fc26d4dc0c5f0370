"""Inputs, items, hits and statistics as JSON: what `crossbit.client` and the service exchange.

Rows and codes are packed (base64 of their bytes), so that a batch is one value of JSON, and
arrives exactly as it was sent.
"""

import base64
import binascii
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_rows
from crossbit.codes import Codes
from crossbit.collection.encoder import Encoder, Inputs
from crossbit.collection.types import Finding, Hit, Item, Results, Stats
from crossbit.errors import DataError
from crossbit.features.extractor import RawInput
from crossbit.metrics.health import CodeHealth

Json: TypeAlias = dict[str, Any]
"""A JSON object."""

_KINDS = ("rows", "codes", "raw")
_ROW_TYPES = ("<f2", "<f4", "<f8")
_HIT_FIELDS = tuple(field.name for field in fields(Hit) if field.name != "code")
_STATS_FIELDS = tuple(field.name for field in fields(Stats) if field.name != "health")


# --- inputs ---


def inputs_to_json(
    inputs: Inputs, modality: str, load: Callable[[RawInput], RawInput] = lambda raw: raw
) -> Json:
    """Return rows, codes or raw inputs as JSON.

    Args:
        inputs: The inputs of one modality.
        modality: Its name, for errors.
        load: Called with each raw input, to replace a path by the contents of its file.
    """
    if isinstance(inputs, Codes):
        return {"codes": _codes_to_json(inputs)}
    if Encoder.are_raw(inputs):
        return {"raw": [None if raw is None else _raw_to_json(load(raw)) for raw in inputs]}  # type: ignore[union-attr,arg-type]
    if isinstance(inputs, Sequence) and all(raw is None for raw in inputs):
        return {"raw": list(inputs)}
    rows = np.asarray(check_rows(inputs, f"rows of {modality!r}"))  # type: ignore[arg-type]
    kind = rows.dtype.newbyteorder("<").str
    rows = np.ascontiguousarray(rows, kind if kind in _ROW_TYPES else "<f8")
    return {"rows": {"dtype": rows.dtype.str, "shape": list(rows.shape), "data": _pack(rows)}}


def inputs_from_json(value: object, what: str) -> Inputs:
    """Return inputs that `inputs_to_json` has written; reject everything else.

    Args:
        value: A JSON value.
        what: Name of the value, for errors.
    """
    if not isinstance(value, Mapping) or len(value) != 1 or next(iter(value)) not in _KINDS:
        given = sorted(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
        raise DataError(f"{what}: expected an object with one of {list(_KINDS)}, got {given}")
    ((kind, content),) = value.items()
    if kind == "raw":
        if not isinstance(content, list):
            raise DataError(f"{what}: raw must be a list, got {type(content).__name__}")
        return [None if raw is None else _raw_from_json(raw, what) for raw in content]
    if not isinstance(content, Mapping):
        raise DataError(f"{what}: {kind} must be an object, got {type(content).__name__}")
    return _codes_from_json(content, what) if kind == "codes" else _rows_from_json(content, what)


def _rows_from_json(content: Mapping[str, Any], what: str) -> NDArray[Any]:
    kind = content.get("dtype")
    if kind not in _ROW_TYPES:
        raise DataError(f"{what}: dtype must be one of {list(_ROW_TYPES)}, got {kind!r}")
    shape = content.get("shape")
    is_shape = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
    if not is_shape or len(shape) != 2:  # type: ignore[arg-type]
        raise DataError(f"{what}: shape must be two numbers, got {shape!r}")
    raw = _unpack(content.get("data"), what)
    expected = math.prod(shape) * np.dtype(kind).itemsize  # type: ignore[arg-type]
    if len(raw) != expected:
        raise DataError(f"{what}: shape {shape} needs {expected} bytes of data, got {len(raw)}")
    return np.frombuffer(raw, kind).reshape(shape)


def _raw_to_json(raw: RawInput) -> object:
    if isinstance(raw, bytes):
        return {"file": base64.b64encode(raw).decode()}
    return str(raw) if isinstance(raw, str | PathLike) else list(raw)


def _raw_from_json(raw: object, what: str) -> RawInput:
    match raw:
        case str():
            return raw
        case list() if all(isinstance(tag, str) for tag in raw):
            return raw
        case {"file": str(data), **others} if not others:
            return _unpack(data, what)
    raise DataError(f"{what}: a raw input must be a text, a list of tags or a file, got {raw!r}")


# --- codes ---


def _codes_to_json(codes: Codes) -> Json:
    """Return codes as JSON, with the fingerprint of their model if it is known."""
    return {"n_bits": codes.n_bits, "model": codes.model, "data": _pack(codes.to_bytes())}


def _codes_from_json(content: Mapping[str, Any], what: str) -> Codes:
    """Return codes that `_codes_to_json` has written; reject everything else."""
    n_bits = content.get("n_bits")
    model = content.get("model")
    if type(n_bits) is not int or not 1 <= n_bits <= 1024:
        raise DataError(f"{what}: n_bits must be an integer from 1 to 1024, got {n_bits!r}")
    if model is not None and not isinstance(model, str):
        raise DataError(f"{what}: model must be a fingerprint, got {model!r}")
    return _codes(_unpack(content.get("data"), what), n_bits, model)


def _codes(raw: bytes, n_bits: int, model: str | None) -> Codes:
    width = -(-n_bits // 8)
    if len(raw) % width:
        raise DataError(
            f"codes of {n_bits} bits take {width} bytes each, got {len(raw)} bytes in total"
        )
    packed = np.frombuffer(raw, np.uint8).reshape(-1, width)
    return Codes.from_bytes(packed, n_bits, model=model)


def _pack(array: NDArray[Any]) -> str:
    return base64.b64encode(array.tobytes()).decode()


def _unpack(data: object, what: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)  # type: ignore[arg-type]
    except (binascii.Error, TypeError, ValueError) as error:
        raise DataError(f"{what}: data must be base64 ({error})") from None


# --- answers ---


def item_to_json(item: Item) -> Json:
    """Return an item as JSON, with its codes."""
    codes = {name: _pack(code.to_bytes()) for name, code in item.codes.items()}
    return {"id": item.id, "payload": item.payload, "codes": codes}


def item_from_json(content: Json, n_bits: int, model: str) -> Item:
    """Return the item that `item_to_json` has written."""
    codes = {
        name: _codes(base64.b64decode(data), n_bits, model)
        for name, data in content["codes"].items()
    }
    return Item(content["id"], content["payload"], codes)


def results_to_json(results: Sequence[Results], *, with_codes: bool) -> list[Json]:
    """Return the results of each query as JSON."""
    return [
        {
            "code": _codes_to_json(query.code),
            "terms": query.terms,
            "exact_terms": query.exact_terms,
            "hits": [_hit_to_json(hit, with_codes) for hit in query],
        }
        for query in results
    ]


def results_from_json(content: Json) -> Results:
    """Return the results of one query."""
    code = _codes_from_json(content["code"], "code of the query")
    hits = [_hit_from_json(hit, code) for hit in content["hits"]]
    return Results(hits, code, terms=content["terms"], exact_terms=content["exact_terms"])


def _hit_to_json(hit: Hit, with_codes: bool) -> Json:
    content = {name: getattr(hit, name) for name in _HIT_FIELDS}
    if with_codes and hit.code is not None:
        content["code"] = _pack(hit.code.to_bytes())
    return content


def _hit_from_json(content: Json, query: Codes) -> Hit:
    known = {name: content[name] for name in _HIT_FIELDS if name in content}
    data = content.get("code")
    code = None if data is None else _codes(base64.b64decode(data), query.n_bits, query.model)
    return Hit(**known, code=code)


def stats_from_json(content: Json) -> Stats:
    """Return the statistics that `Stats.to_dict` has described."""
    health = {name: _health_from_json(value) for name, value in content["health"].items()}
    known = {name: content[name] for name in _STATS_FIELDS if name in content}
    return Stats(**(known | {"fields": tuple(content["fields"])}), health=health)


def _health_from_json(content: Json) -> CodeHealth:
    arrays = {
        "bit_entropy": np.array(content["bit_entropy"]),
        "dead_bits": tuple(content["dead_bits"]),
        "duplicate_bits": tuple((i, j) for i, j in content["duplicate_bits"]),
    }
    return CodeHealth(**(content | arrays))


def finding_to_json(finding: Finding) -> Json:
    """Return a finding as JSON."""
    return {**vars(finding), "path": str(finding.path)}
