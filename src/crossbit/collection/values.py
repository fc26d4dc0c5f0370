"""The values that a collection returns, items, hits, statistics and findings, and their JSON."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit._frames import columns_of, to_frame
from crossbit._validation import check_known
from crossbit.codes import Codes
from crossbit.errors import DataError
from crossbit.metrics.drift import FALSE_ALARMS, Drift
from crossbit.metrics.health import CodeHealth

Id: TypeAlias = int | str
"""Id of an item: a string, or a 64-bit integer. ``1`` and ``"1"`` are different ids."""

Payload: TypeAlias = dict[str, Any]
"""Field names mapped to JSON values."""

IMAGE_FIELD = "picture"
"""Payload field with the path of an item's image, relative to the folder of images."""

REPORT_FILE = "report.json"
"""File in the folder of a collection with the quality of its model, written by `learn_table`."""


SCORES = "scores"
"""The real-valued outputs whose signs are the bits, as int8 (`crossbit.index.weights.quantize`)."""

FEATURES = "features"
"""The rows that were encoded."""

KEPT = (SCORES, FEATURES)
"""What a collection can keep beside the codes."""

FEATURE_TYPE = "float16"


def to_hex(codes: Codes) -> list[str]:
    """Return each code in hexadecimal, as JSON has it."""
    return [row.tobytes().hex() for row in codes.to_bytes()]


def from_hex(texts: Sequence[str], n_bits: int, model: str | None) -> Codes:
    """Return codes that `to_hex` has written."""
    width = -(-n_bits // 8)
    digits = re.compile(rf"[0-9a-fA-F]{{{2 * width}}}")
    if not all(map(digits.fullmatch, texts)):
        raise DataError(f"codes of {n_bits} bits take {2 * width} hexadecimal digits each")
    packed = np.frombuffer(bytes.fromhex("".join(texts)), np.uint8).reshape(-1, width)
    return Codes.from_bytes(packed, n_bits, model=model)


@dataclass(frozen=True)
class KeptRows:
    """Codes with the rows that are kept beside them, as `Collection.upsert` and `search` take them.

    Args:
        codes: One code per item.
        scores: Quantized outputs, shape (n, n_bits), or None.
        features: Feature rows, or None.
    """

    codes: Codes
    scores: NDArray[np.int8] | None = None
    features: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        """Check that there is a row for each code, and a score for each bit."""
        expected = (len(self.codes), self.codes.n_bits)
        scores = self.scores
        if scores is not None and (scores.shape != expected or scores.dtype != np.int8):
            raise DataError(
                f"scores: expected int8 of shape {expected}, got {scores.dtype} of shape"
                f" {scores.shape}"
            )
        if self.features is not None and len(self.features) != len(self.codes):
            raise DataError(f"features: expected {len(self.codes)} rows, got {len(self.features)}")

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.codes)


@dataclass(frozen=True)
class Item:
    """One item of a collection.

    Args:
        id: Id of the item.
        payload: Payload of the item, ``{}`` if none was given.
        codes: Code of the item in each modality that it has.
        scores: Kept scores of each modality as int8, if they were requested and the collection
            keeps them.
        features: Kept features of each modality, likewise.
    """

    id: Id
    payload: Payload
    codes: Mapping[str, Codes]
    scores: Mapping[str, NDArray[np.int8]] = field(default_factory=dict, repr=False, compare=False)
    features: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def modalities(self) -> list[str]:
        """Modalities that the item has."""
        return list(self.codes)

    def view(self, modality: str) -> KeptRows:
        """Return the code of a modality with the rows that were read with it, such as a query."""
        scores = self.scores.get(modality)
        features = self.features.get(modality)
        return KeptRows(
            self.codes[check_known(modality, self.codes, "modality of the item")],
            None if scores is None else scores[None],
            None if features is None else features[None],
        )

    def to_json(self) -> dict[str, Any]:
        """Return the item as JSON: codes and scores in hexadecimal, features as numbers."""
        kept: dict[str, Any] = {}
        if self.scores:
            kept[SCORES] = {name: row.tobytes().hex() for name, row in self.scores.items()}
        if self.features:
            kept[FEATURES] = {name: row.tolist() for name, row in self.features.items()}
        codes = {name: to_hex(code)[0] for name, code in self.codes.items()}
        return {"id": self.id, "payload": self.payload, "codes": codes, **kept}

    @classmethod
    def from_json(cls, content: Mapping[str, Any], n_bits: int, model: str | None) -> Self:
        """Return the item that `to_json` has written."""
        codes = {name: from_hex([text], n_bits, model) for name, text in content["codes"].items()}
        scores = {
            name: np.frombuffer(bytes.fromhex(digits), np.int8)
            for name, digits in content.get(SCORES, {}).items()
        }
        features = {
            name: np.array(row, np.float32) for name, row in content.get(FEATURES, {}).items()
        }
        return cls(content["id"], content["payload"], codes, scores, features)


@dataclass(slots=True)
class Hit:
    r"""One search result.

    Args:
        id: Id of the item.
        distance: Hamming distance between its code and the query's.
        similarity: $1 - \text{distance} / \text{bits}$: 1 for equal codes, about ½ for unrelated
            ones.
        modality: The modality whose code matched.
        payload: Payload of the item.
        code: The code that matched, if the search was asked for codes.
        weak: Whether the distance is larger than the best of 95 % of held-out queries, so that the
            item may have nothing to do with the query; None if the model has no threshold for the
            direction (see `crossbit.metrics.weak`).
    """

    id: Id
    distance: int
    similarity: float
    modality: str
    payload: Payload
    code: Codes | None = field(default=None, repr=False, compare=False)
    weak: bool | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return the hit as JSON, its code in hexadecimal if it has one."""
        content = {name: getattr(self, name) for name in self.__slots__ if name != "code"}
        return content if self.code is None else {**content, "code": to_hex(self.code)[0]}

    @classmethod
    def from_json(cls, content: Mapping[str, Any], n_bits: int, model: str | None) -> Self:
        """Return the hit that `to_json` has written; further fields are ignored."""
        known = {name: content[name] for name in cls.__slots__ if name != "code"}
        code = content.get("code")
        return cls(**known, code=None if code is None else from_hex([code], n_bits, model))


class Results(list[Hit]):
    """The hits of one query, nearest first, and how the collection understood the query.

    Args:
        hits: The hits.
        queries: Codes of all queries of the call.
        row: Row of this query in ``queries``.
        terms: Words or tags that the extractor recognized in a text query.
        exact_terms: Whether every term is a tag of the extractor's vocabulary (a bag of tags), so
            that an item either has it or not.
    """

    def __init__(
        self,
        hits: Iterable[Hit],
        queries: Codes,
        row: int = 0,
        *,
        terms: Sequence[str] = (),
        exact_terms: bool = False,
    ) -> None:
        super().__init__(hits)
        self.terms = list(terms)
        self.exact_terms = exact_terms
        self._queries = queries
        self._row = row

    def to_frame(self, library: str = "pandas") -> Any:  # noqa: ANN401 - a frame
        """Return one row per hit: its fields, and one column per field of the payloads.

        A payload field that is named like a field of `Hit` gets the prefix ``payload.``.

        Args:
            library: ``"pandas"`` or ``"polars"``.
        """
        own = ["id", "distance", "similarity", "modality"]
        if any(hit.weak is not None for hit in self):
            own.append("weak")
        columns = columns_of([{name: getattr(hit, name) for name in own} for hit in self])
        payloads = columns_of([hit.payload for hit in self])
        for name, values in payloads.items():
            columns[f"payload.{name}" if name in own else name] = values
        return to_frame(columns or {name: [] for name in own}, library)

    @property
    def code(self) -> Codes:
        """Code of the query, one row."""
        # Sliced on demand: most callers of a large batch never look at it.
        return self._queries[self._row]


@dataclass(frozen=True)
class Finding:
    """A problem that `Collection.check` found.

    Args:
        path: The corrupted file, or the address of the server that holds it.
        problem: What is wrong, and the remedy.
        repaired: Whether it was rebuilt from the stored items.
    """

    path: Path | str
    problem: str
    repaired: bool = False

    def __str__(self) -> str:
        """Such as ``…/index/1.index: the header is truncated or altered; rebuilt``."""
        return f"{self.path}: {self.problem}{'; rebuilt' if self.repaired else ''}"

    def to_json(self) -> dict[str, Any]:
        """Return the finding as JSON."""
        return {**vars(self), "path": str(self.path)}


@dataclass(frozen=True)
class Stats:
    """Statistics of a collection.

    Args:
        items: Number of items.
        modalities: Number of items that have each modality.
        n_bits: Length of a code.
        nbytes: Bytes on disk, everything included. A server does not report them, so for it this is
            an estimate of the stored data.
        model_nbytes: Those of the model; 0 on a server, which does not keep it.
        fields: Payload fields that have an index.
        features: Data type of stored features, or None.
        drift: Codes of the items that arrived last beside those before them, of each modality with
            at least 800 codes; empty on a server, which does not know the order of arrival.
        keep: What is kept beside the codes: ``"scores"``, ``"features"``, both or nothing.
        generation: Number of writes so far; 0 on a server, which does not count them.
        model: Fingerprint of the model.
        health: Health of the codes (or of a sample) of each modality that has any.
        recall: Where search is approximate, the measured recall of the 10 nearest per modality.
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
    keep: tuple[str, ...] = ()
    drift: Mapping[str, Drift] = field(default_factory=dict)
    model_nbytes: int = 0

    @property
    def drifting(self) -> list[str]:
        """Modalities whose recent codes differ, with false alarms in at most 1 % of all checks."""
        tests = max(1, len(self.drift))
        return [name for name, d in self.drift.items() if d.p_value * tests <= FALSE_ALARMS]

    @property
    def bytes_per_item(self) -> float:
        """Bytes on disk per item, without the model; 0 for an empty collection."""
        return (self.nbytes - self.model_nbytes) / self.items if self.items else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plain = {name: value for name, value in vars(self).items() if name != "health"}
        health = {modality: health.to_dict() for modality, health in self.health.items()}
        drift = {modality: drift.to_dict() for modality, drift in self.drift.items()}
        plain |= {"drift": drift, "drifting": self.drifting}
        counts = {"modalities": dict(self.modalities), "bytes_per_item": self.bytes_per_item}
        return {**plain, **counts, "health": health, "recall": dict(self.recall)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Return the statistics that `to_dict` has described."""
        known = {each.name: content[each.name] for each in fields(cls) if each.name in content}
        health = {name: CodeHealth.from_dict(each) for name, each in content["health"].items()}
        drift = {name: Drift(**each) for name, each in content.get("drift", {}).items()}
        tuples = {name: tuple(content[name]) for name in ("fields", "keep")}
        return cls(**(known | tuples | {"health": health, "drift": drift}))
