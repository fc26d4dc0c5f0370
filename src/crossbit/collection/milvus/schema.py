"""What is stored: a row for each code of an item, all rows of an item side by side in the order of keys.

A key is the item's id and the number of the modality: ``tcat.jpg/0`` and ``tcat.jpg/1`` are the codes of the item
``"cat.jpg"``, ``n7/-`` is the item ``7`` without any. Each row repeats the item's payload, so that a search can filter
by it; one row of each item is its *first*, so that items can be counted. The row ``!state`` tells whose codes they are.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from crossbit.codes import Codes
from crossbit.collection.milvus.uri import INDEXES, Address
from crossbit.collection.payloads import MAX_ID
from crossbit.collection.types import Id, Item

FIELDS = ["key", "modality", "first", "payload", "code"]
STATE = "!state"
BARE, OF_STATE = -1, -2  # in the place of a modality's number
MAX_PAYLOAD = 65_536  # bytes of JSON that a server takes
_KEPT = " !$&()*+,:;=@~"  # characters that a key shows as they are
_MAX_KEY = 12 * MAX_ID + 16  # four bytes a character, three letters a byte


def item_key(id_: Id) -> str:
    """An id in letters that need no quoting in a filter; ``1`` and ``"1"`` differ."""
    return f"n{id_}" if isinstance(id_, int) else f"t{quote(id_, safe=_KEPT)}"


def item_id(key: str) -> Id:
    """The id in a key of an item, or of one of its rows."""
    spelled = key.partition("/")[0]
    return int(spelled[1:]) if spelled[0] == "n" else unquote(spelled[1:])


def row_key(item: str, number: int) -> str:
    """The key of an item's row."""
    return f"{item}/{'-' if number == BARE else number}"


@dataclass
class Stored:
    """An item as it is on the server.

    Args:
        payload: Its payload, as JSON text or as what it says.
        codes: Number of the modality → the bytes of its code.
        keys: The keys of its rows, with what each says about being the first.
        agrees: Whether all its rows hold the same payload.
    """

    payload: Any = "{}"
    codes: dict[int, bytes] = field(default_factory=dict)
    keys: dict[str, bool] = field(default_factory=dict)
    agrees: bool = True

    def without(self, number: int) -> "Stored":
        """The item when it has lost a modality."""
        return Stored(
            self.payload, {other: code for other, code in self.codes.items() if other != number}
        )

    def rows(self, item: str, width: int) -> list[dict[str, Any]]:
        """The rows that the item should have; the first is the one of its lowest number."""
        codes = dict(sorted(self.codes.items())) or {BARE: bytes(width)}
        return [
            {
                "key": row_key(item, number),
                "modality": number,
                "first": i == 0,
                "payload": self.payload,
                "code": code,
            }
            for i, (number, code) in enumerate(codes.items())
        ]

    def item(self, item: str, names: Mapping[int, str], n_bits: int) -> Item:
        """The item as callers see it."""
        codes = {
            name: unpacked([self.codes[number]], n_bits)
            for number, name in names.items()
            if number in self.codes
        }
        return Item(item_id(item), self.payload, codes)


def gathered(
    rows: Iterable[Mapping[str, Any]], numbers: Iterable[int]
) -> Iterator[tuple[str, Stored]]:
    """Items of rows that stand in the order of keys; rows of modalities with other numbers are passed over."""
    wanted = {BARE, *numbers}
    own = (row for row in rows if row["modality"] in wanted)
    for item, group in groupby(own, lambda row: str(row["key"]).partition("/")[0]):
        stored = Stored()
        for row in group:
            stored.agrees &= not stored.keys or row["payload"] == stored.payload
            if not stored.keys or (row["first"] and not any(stored.keys.values())):
                stored.payload = row["payload"]
            stored.keys[row["key"]] = row["first"]
            if row["modality"] != BARE:
                stored.codes[row["modality"]] = code_of(row)
        yield item, stored


def code_of(row: Mapping[str, Any]) -> bytes:
    """The code in a row that a query gave."""
    (code,) = row["code"]
    return bytes(code)


def packed(codes: Codes) -> list[bytes]:
    """Codes as the server has them: whole bytes, the bits beyond the last one zero."""
    return [row.tobytes() for row in codes.to_bytes()]


def unpacked(codes: Sequence[bytes], n_bits: int) -> Codes:
    """Codes from the server."""
    return Codes.from_bytes(
        np.frombuffer(b"".join(codes), np.uint8).reshape(len(codes), -(-n_bits // 8)), n_bits
    )


def schema(library: Any, n_bits: int) -> Any:  # noqa: ANN401 - pymilvus has no types
    """The fields of a row."""
    kinds = library.DataType
    made = library.MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
    made.add_field("key", kinds.VARCHAR, is_primary=True, max_length=_MAX_KEY)
    made.add_field("modality", kinds.INT16)
    made.add_field("first", kinds.BOOL)
    made.add_field("payload", kinds.JSON)
    made.add_field("code", kinds.BINARY_VECTOR, dim=8 * -(-n_bits // 8))
    return made


def index(library: Any, address: Address) -> Any:  # noqa: ANN401
    """How codes are searched."""
    made = library.MilvusClient.prepare_index_params()
    params = {"nlist": address.nlist} if address.index == "ivf" else {}
    made.add_index("code", index_type=INDEXES[address.index], metric_type="HAMMING", params=params)
    return made
