"""What is stored on the server: one row per code, with keys that keep the rows of an item together.

A key is the item's id and the number of the modality: ``tcat.jpg/0`` and ``tcat.jpg/1`` are the
codes of the item ``"cat.jpg"``, ``n7/-`` is the item ``7`` without codes. Every row repeats the
item's payload, so that a search can filter by it. One row of each item is its *first*, so that
items can be counted. The row ``!state`` describes the collection.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any, Self

import numpy as np

from crossbit.codes import Codes
from crossbit.collection.milvus.uri import INDEX_TYPES
from crossbit.collection.payloads import MAX_ID
from crossbit.collection.stores import item_id
from crossbit.collection.values import Item
from crossbit.errors import FormatError
from crossbit.model.hashmodel import HashModel

FORMAT = "crossbit.milvus/1"
FIELDS = ["key", "modality", "first", "payload", "code"]
STATE_KEY = "!state"
NO_MODALITY = -1  # modality number of an item without codes
_STATE_MODALITY = -2
_MAX_KEY = 12 * MAX_ID + 16  # four bytes per character, three letters per byte


@dataclass(frozen=True)
class MilvusState:
    """State of a collection: one row that every write reads and that an upgrade replaces.

    Args:
        fingerprint: Fingerprint of the model that made the codes.
        n_bits: Length of a code.
        modalities: Modality → number that its rows carry.
        index: Type of the index: ``"flat"`` or ``"ivf"``.
        nlist: Number of clusters of an ``"ivf"`` index.
    """

    fingerprint: str
    n_bits: int
    modalities: Mapping[str, int]
    index: str = "flat"
    nlist: int = 0

    @classmethod
    def of(cls, model: HashModel, first: int, *, index: str, nlist: int) -> Self:
        """Return the state of a collection of a model, its modalities numbered from ``first``."""
        numbers = {name: first + i for i, name in enumerate(model.modalities)}
        return cls(model.fingerprint(), model.n_bits, numbers, index, nlist)

    @property
    def names(self) -> dict[int, str]:
        """Modality of each number."""
        return {number: name for name, number in self.modalities.items()}

    @property
    def code_bytes(self) -> int:
        """Bytes of a code."""
        return -(-self.n_bits // 8)

    @property
    def filter(self) -> str:
        """Expression for the rows of this state: of its modalities, or of items without codes."""
        return f"modality in {[NO_MODALITY, *self.modalities.values()]}"

    def row(self) -> dict[str, Any]:
        """Return the row that stores the state."""
        return {
            "key": STATE_KEY,
            "modality": _STATE_MODALITY,
            "first": False,
            "payload": {"format": FORMAT, **asdict(self)},
            "code": bytes(self.code_bytes),
        }

    @classmethod
    def from_row(cls, path: object, row: Mapping[str, Any]) -> Self:
        """Read the row that stores the state."""
        values = dict(row["payload"])
        if (stored_format := values.pop("format", None)) != FORMAT:
            raise FormatError(
                f"{path}: format {stored_format!r}, expected {FORMAT!r}; upgrade crossbit, or copy"
                " the collection"
            )
        return cls(**values)

    def row_schema(self, library: Any) -> Any:  # noqa: ANN401 - pymilvus has no types
        """Return the fields of a row for the client library."""
        kinds = library.DataType
        schema = library.MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("key", kinds.VARCHAR, is_primary=True, max_length=_MAX_KEY)
        schema.add_field("modality", kinds.INT16)
        schema.add_field("first", kinds.BOOL)
        schema.add_field("payload", kinds.JSON)
        schema.add_field("code", kinds.BINARY_VECTOR, dim=8 * self.code_bytes)
        return schema

    def index_parameters(self, library: Any) -> Any:  # noqa: ANN401
        """Return the index of codes for the client library."""
        parameters = library.MilvusClient.prepare_index_params()
        clusters = {"nlist": self.nlist} if self.index == "ivf" else {}
        index_type = INDEX_TYPES[self.index]
        parameters.add_index("code", index_type=index_type, metric_type="HAMMING", params=clusters)
        return parameters

    def search_parameters(self, nprobe: int) -> dict[str, Any]:
        """Return the parameters of a search that looks at ``nprobe`` clusters."""
        clusters = {"nprobe": min(nprobe, self.nlist)} if self.index == "ivf" else {}
        return {"metric_type": "HAMMING", "params": clusters}


@dataclass
class StoredItem:
    """An item as it is on the server.

    Args:
        payload: Its payload, parsed or as JSON text.
        codes: Number of the modality → bytes of its code.
        keys: Keys of its rows, with the flag "first" of each.
        consistent: Whether all its rows hold the same payload.
    """

    payload: Any = "{}"
    codes: dict[int, bytes] = field(default_factory=dict)
    keys: dict[str, bool] = field(default_factory=dict)
    consistent: bool = True

    @classmethod
    def group(
        cls, rows: Iterable[Mapping[str, Any]], numbers: Iterable[int]
    ) -> Iterator[tuple[str, Self]]:
        """Group rows, ordered by key, into items; rows of other modality numbers are skipped."""
        wanted = {NO_MODALITY, *numbers}
        known = (row for row in rows if row["modality"] in wanted)
        for key, group in groupby(known, lambda row: str(row["key"]).partition("/")[0]):
            item = cls()
            for row in group:
                item.consistent &= not item.keys or row["payload"] == item.payload
                if not item.keys or (row["first"] and not any(item.keys.values())):
                    item.payload = row["payload"]
                item.keys[row["key"]] = row["first"]
                if row["modality"] != NO_MODALITY:
                    item.codes[row["modality"]] = row_code(row)
            yield key, item

    def without(self, number: int) -> "StoredItem":
        """Return the item without the code of a modality."""
        codes = {other: code for other, code in self.codes.items() if other != number}
        return StoredItem(self.payload, codes)

    def rows(self, key: str, code_bytes: int) -> list[dict[str, Any]]:
        """Return the rows that the item must have; the one of its lowest number is the first."""
        codes = dict(sorted(self.codes.items())) or {NO_MODALITY: bytes(code_bytes)}
        return [
            {
                "key": row_key(key, number),
                "modality": number,
                "first": i == 0,
                "payload": self.payload,
                "code": code,
            }
            for i, (number, code) in enumerate(codes.items())
        ]

    def to_item(self, key: str, state: MilvusState) -> Item:
        """Return the item as callers see it."""
        codes = {
            name: unpack_codes([self.codes[number]], state)
            for name, number in state.modalities.items()
            if number in self.codes
        }
        return Item(item_id(key), self.payload, codes)


def row_key(key: str, number: int) -> str:
    """Return the key of an item's row."""
    return f"{key}/{'-' if number == NO_MODALITY else number}"


def row_code(row: Mapping[str, Any]) -> bytes:
    """Return the code in a row of a query's response."""
    (code,) = row["code"]
    return bytes(code)


def pack_codes(codes: Codes) -> list[bytes]:
    """Return codes as the server stores them: whole bytes, padding bits zero."""
    return [row.tobytes() for row in codes.to_bytes()]


def unpack_codes(codes: Sequence[bytes], state: MilvusState) -> Codes:
    """Return codes from their stored bytes."""
    packed = np.frombuffer(b"".join(codes), np.uint8).reshape(len(codes), state.code_bytes)
    return Codes.from_bytes(packed, state.n_bits, model=state.fingerprint)
