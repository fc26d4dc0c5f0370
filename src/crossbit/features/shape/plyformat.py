"""PLY: a header that says what elements there are and of what properties, in text or binary."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crossbit.errors import DataError

_TYPES = {
    **dict.fromkeys(("char", "int8"), "i1"),
    **dict.fromkeys(("uchar", "uint8"), "u1"),
    **dict.fromkeys(("short", "int16"), "i2"),
    **dict.fromkeys(("ushort", "uint16"), "u2"),
    **dict.fromkeys(("int", "int32"), "i4"),
    **dict.fromkeys(("uint", "uint32"), "u4"),
    **dict.fromkeys(("float", "float32"), "f4"),
    **dict.fromkeys(("double", "float64"), "f8"),
}
_ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_FACES = ("vertex_indices", "vertex_index")


@dataclass
class _Element:
    """One kind of thing in the file; a property is its name, its type and, for a list, the type of its count."""

    name: str
    count: int
    properties: list[tuple[str, str, str | None]] = field(default_factory=list)


class _Reader(Protocol):
    def table(self, types: list[str], count: int) -> list[NDArray[Any]] | None:
        """So many rows of values as columns; nothing, and nothing taken, where they are not there."""

    def back(self) -> None:
        """Undo the last table."""


def parse_ply(raw: bytes) -> tuple[NDArray[np.float64], list[Any] | NDArray[np.int64]]:
    """Vertices and polygons of a PLY file; other elements and properties are passed over."""
    head, mark, body = raw.partition(b"end_header")
    if not mark:
        raise DataError("truncated: the PLY header has no end")
    order, elements = _header(head.decode("ascii", "replace"))
    body = body[body.index(b"\n") + 1 :]
    reader: _Reader = _Words(body) if order == "" else _Bytes(body, order)
    found = {element.name: _read(element, reader) for element in elements}
    vertices = found.get("vertex", {})
    if not {"x", "y", "z"} <= vertices.keys():
        raise DataError("a PLY file without vertices; expected an element vertex with x, y and z")
    faces: Any = next((found["face"][name] for name in _FACES if name in found.get("face", {})), [])
    return np.stack(
        [np.asarray(vertices[axis], np.float64).reshape(-1) for axis in "xyz"], axis=1
    ), faces


def _header(text: str) -> tuple[str, list[_Element]]:
    order, elements = "", list[_Element]()
    for line in text.splitlines():
        match line.split():
            case ["format", name, *_]:
                order = _ORDERS[name]
            case ["element", name, count]:
                elements.append(_Element(name, int(count)))
            case ["property", "list", counter, type_, name]:
                elements[-1].properties.append((name, _TYPES[type_], _TYPES[counter]))
            case ["property", type_, name]:
                elements[-1].properties.append((name, _TYPES[type_], None))
    return order, elements


def _read(element: _Element, reader: _Reader) -> dict[str, Any]:
    """Property → values of all things of a kind; at once where every list has three entries, else one by one."""
    types = [
        t
        for _, type_, counter in element.properties
        for t in ((counter, *[type_] * 3) if counter else (type_,))
    ]
    columns = reader.table(types, element.count)
    if columns is not None:
        values = _by_name(element, columns)
        if values is not None:
            return values
        reader.back()
    found: dict[str, Any] = {name: [] for name, _, _ in element.properties}
    for _ in range(element.count):
        for name, type_, counter in element.properties:
            size = 1 if counter is None else int(_one(reader, [counter], element)[0][0])
            found[name].append([column[0] for column in _one(reader, [type_] * size, element)])
    return found


def _one(reader: _Reader, types: list[str], element: _Element) -> list[NDArray[Any]]:
    columns = reader.table(types, 1)
    if columns is None:
        raise DataError(
            f"truncated: {element.count} of {element.name!r} are promised, fewer are there"
        )
    return columns


def _by_name(element: _Element, columns: list[NDArray[Any]]) -> dict[str, Any] | None:
    """Columns by the names of their properties; nothing where a list is not of three."""
    found: dict[str, Any] = {}
    place = 0
    for name, _, counter in element.properties:
        if counter is None:
            found[name] = columns[place]
            place += 1
            continue
        if not (columns[place] == 3).all():
            return None
        found[name] = np.stack(columns[place + 1 : place + 4], axis=1).astype(np.int64)
        place += 4
    return found


class _Words:
    """Values told as words."""

    def __init__(self, body: bytes) -> None:
        self._words, self._place, self._last = body.split(), 0, 0

    def table(self, types: list[str], count: int) -> list[NDArray[Any]] | None:
        self._last, end = self._place, self._place + len(types) * count
        if end > len(self._words):
            return None
        self._place = end
        values = np.array(self._words[self._last : end], np.float64).reshape(count, len(types))
        return list(values.T)

    def back(self) -> None:
        self._place = self._last


class _Bytes:
    """Values as the machine has them."""

    def __init__(self, body: bytes, order: str) -> None:
        self._body, self._order, self._place, self._last = body, order, 0, 0

    def table(self, types: list[str], count: int) -> list[NDArray[Any]] | None:
        kind = np.dtype([(str(number), self._order + type_) for number, type_ in enumerate(types)])
        self._last, end = self._place, self._place + kind.itemsize * count
        if end > len(self._body):
            return None
        self._place = end
        rows = np.frombuffer(self._body, kind, count, self._last)
        return [rows[name] for name in rows.dtype.names or ()]

    def back(self) -> None:
        self._place = self._last
