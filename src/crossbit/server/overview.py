"""What a collection holds: its model, its quality, facets, example words, names of bits."""

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.collection.collection import Collection
from crossbit.collection.values import Item
from crossbit.model.hashmodel import HashModel
from crossbit.server.media import MEDIA_TYPES

_MAX_REPORT_BYTES = 4 << 20
_SAMPLE = 20_000  # items
_SECONDS = 600.0  # that an overview is cached
_MAX_TERMS = 400  # tags that may name a bit: the most frequent ones
_MIN_COUNT = 5  # items that must have a tag, and lack it
_NAMES_PER_BIT = 3
_WORDS = 12
_MAX_FACETS = 8
_MAX_VALUES = 12
_MAX_DISTINCT = 200  # values of a field that is worth choosing from
_TEXT_FIELDS = ("caption", "captions", "title", "name")
_HIDDEN_FIELDS = {*_TEXT_FIELDS, "picture", *MEDIA_TYPES, "held_out"}
_WORD = re.compile(r"[^\W\d_]{4,}")

Answer = dict[str, Any]


class Overview:
    """Facets, words and names of bits of a collection, computed once and cached.

    Args:
        collection: The collection.
    """

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._lock = threading.Lock()
        self._cached: tuple[float, str, Answer] | None = None

    def read(self) -> Answer:
        """Return the overview of the current model; one thread computes it, others wait."""
        with self._lock:
            fingerprint = self._collection.model.fingerprint()
            if self._cached is not None:
                updated, model, answer = self._cached
                if model == fingerprint and time.monotonic() - updated < _SECONDS:
                    return answer
            items = self._collection.sample(_SAMPLE)
            answer = {
                "items": len(items),
                "facets": [
                    facet
                    for facet in facets(item.payload for item in items)
                    if not self._collection.unindexed_fields({facet["field"]: ""})
                ],
                "words": words(item.payload for item in items),
                "bits": name_bits(items, self._collection.model.n_bits),
            }
            self._cached = (time.monotonic(), fingerprint, answer)
            return answer


def facets(payloads: Iterable[dict[str, Any]]) -> list[Answer]:
    """Return the fields that items can be chosen by, with their most frequent values.

    Example:
        >>> facets([{"kind": "cat"}, {"kind": "cat"}, {"kind": "dog"}])
        [{'field': 'kind', 'many': False, 'values': [{'value': 'cat', 'count': 2},
        {'value': 'dog', 'count': 1}]}]
    """
    single: dict[str, Counter[Any]] = {}
    many: dict[str, Counter[Any]] = {}
    for payload in payloads:
        for field, value in payload.items():
            if field in _HIDDEN_FIELDS:
                continue
            if isinstance(value, str | int | bool):
                single.setdefault(field, Counter())[value] += 1
            elif isinstance(value, list):
                strings = {element for element in value if isinstance(element, str)}
                many.setdefault(field, Counter()).update(strings)
    counted = [(name, False, counts) for name, counts in single.items()]
    counted += [(name, True, counts) for name, counts in many.items() if name not in single]
    useful = [
        (name, is_list, counts)
        for name, is_list, counts in counted
        if 2 <= len(counts) <= (_MAX_DISTINCT if not is_list else len(counts))
        and counts.most_common(1)[0][1] > 1
        and all(len(str(value)) <= 60 for value, _ in counts.most_common(_MAX_VALUES))
    ]
    return [
        {
            "field": name,
            "many": is_list,
            "values": [
                {"value": value, "count": count} for value, count in counts.most_common(_MAX_VALUES)
            ],
        }
        for name, is_list, counts in useful[:_MAX_FACETS]
    ]


def words(payloads: Iterable[dict[str, Any]]) -> list[str]:
    """Return frequent tags, or words of captions: examples of what can be searched for."""
    counts = Counter(term for payload in payloads for term in _terms(payload))
    return [term for term, _ in counts.most_common(_WORDS)]


def name_bits(items: list[Item], n_bits: int) -> list[Answer]:
    r"""Name each bit by the tags that it tells apart best.

    The AUC of a bit for a tag is the probability that an item with the tag has the bit set and one
    without it has not, ties counted half: $\frac12 + \frac12 (P(b \mid t) - P(b \mid \lnot t))$.

    Args:
        items: A sample of items; every code of an item counts.
        n_bits: Length of a code.

    Returns:
        Per bit the best tags of items that have it set, and of items that have not, with AUC.
    """
    rows = [(_terms(item.payload), code) for item in items for code in item.codes.values()]
    counts = Counter(term for terms, _ in rows for term in terms)
    frequent = [
        term
        for term, count in counts.most_common(_MAX_TERMS)
        if _MIN_COUNT <= count <= len(rows) - _MIN_COUNT
    ]
    if not frequent:
        return [{"set": [], "unset": []} for _ in range(n_bits)]
    column = {term: i for i, term in enumerate(frequent)}
    has = np.zeros((len(rows), len(frequent)), np.float32)
    for i, (terms, _) in enumerate(rows):
        has[i, [column[term] for term in terms if term in column]] = 1
    codes = np.concatenate([code.unpack() for _, code in rows]).astype(np.float32)
    auc = _auc(has, codes)
    return [
        {"set": _best(auc[:, bit], frequent), "unset": _best(1 - auc[:, bit], frequent)}
        for bit in range(n_bits)
    ]


def _auc(has: NDArray[np.float32], codes: NDArray[np.float32]) -> NDArray[np.float64]:
    """AUC of each bit (column) for each tag (row)."""
    with_tag = has.sum(axis=0, dtype=np.float64)[:, None]
    both = (has.T @ codes).astype(np.float64)
    true_rate = both / with_tag
    false_rate = (codes.sum(axis=0, dtype=np.float64) - both) / (len(has) - with_tag)
    auc: NDArray[np.float64] = 0.5 + 0.5 * (true_rate - false_rate)
    return auc


def _best(auc: NDArray[np.float64], names: list[str]) -> list[Answer]:
    order = np.argsort(-auc, kind="stable")[:_NAMES_PER_BIT].tolist()
    return [{"name": names[i], "auc": round(float(auc[i]), 3)} for i in order if auc[i] > 0.5]


def _terms(payload: dict[str, Any]) -> set[str]:
    """Tags of an item; without any its label, or else the words that describe it."""
    tags = payload.get("tags")
    if isinstance(tags, list) and tags:
        return {tag for tag in tags if isinstance(tag, str)}
    label = payload.get("label")
    if isinstance(label, str):
        return {label}
    return {word for text in _texts(payload) for word in _WORD.findall(text.lower())}


def _texts(payload: dict[str, Any]) -> Iterator[str]:
    for field in _TEXT_FIELDS:
        value = payload.get(field)
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str):
                yield text


def describe_model(model: HashModel, accepts: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the modalities, bits, layers and card of a model as JSON values.

    Args:
        model: The model.
        accepts: Modality → kind of raw input that it accepts from clients.
    """
    modalities = [
        {
            "name": name,
            "accepts": kind,
            "width": model.width(name),
            "recipe": model.recipes[name].kind if name in model.recipes else None,
            "layers": [layer.kind for layer in model.encoders[name]],
        }
        for name, kind in accepts.items()
    ]
    return {"modalities": modalities, "n_bits": model.n_bits, "card": _plain(model.card)}


def read_report(path: Path) -> dict[str, Any]:
    """Return the quality report in a file; empty if there is none."""
    try:
        if path.stat().st_size > _MAX_REPORT_BYTES:
            return {}
        report = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return _plain(report) if isinstance(report, dict) else {}


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value of a model card
    """Convert to JSON types; NaN and infinity become None, other types strings."""
    match value:
        case Mapping():
            return {str(key): _plain(element) for key, element in value.items()}
        case list() | tuple():
            return [_plain(element) for element in value]
        case bool() | int() | str() | None:
            return value
        case float():
            return value if abs(value) < float("inf") else None
        case _:
            return str(value)
