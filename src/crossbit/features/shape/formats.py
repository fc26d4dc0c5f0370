"""The four usual formats of meshes, from bytes to vertices and triangles.

They are small, and what they leave open (comments, counts on the first line, polygons, binary lists, no indices at
all) is decided here once, in our own words of error.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crossbit.errors import DataError

Parsed = tuple[NDArray[np.float64], NDArray[np.int64]]

_STL_HEADER = 84  # eighty bytes of anything, and the number of triangles
_STL_TRIANGLE = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("rest", "<u2")])


def parse(raw: bytes) -> Parsed:
    """Vertices and triangles of a mesh in one of the formats.

    Raises:
        DataError: The content is of no known format, or does not hold what its header promises.
    """
    found = _format(raw)
    if found is None:
        raise DataError("not a mesh in one of the formats OFF, OBJ, PLY, STL")
    return found(raw)


def _format(raw: bytes) -> Callable[[bytes], Parsed] | None:
    start = raw[:512].lstrip()
    if start.startswith(b"ply"):
        return _ply
    if re.match(rb"(ST)?C?N?4?OFF\b", start):
        return _off
    if (
        len(raw) >= _STL_HEADER
        and _triangles(raw) * _STL_TRIANGLE.itemsize == len(raw) - _STL_HEADER
    ):
        return _stl_binary
    if start.startswith(b"solid"):
        return _stl_text
    if re.search(rb"^v\s+\S+\s+\S+\s+\S", raw[:100_000], re.MULTILINE):
        return _obj
    return None


def _ply(raw: bytes) -> Parsed:
    vertices, polygons = parse_ply(raw)
    return vertices, polygons if isinstance(polygons, np.ndarray) else triangles(polygons)


def _off(raw: bytes) -> Parsed:
    kind, _, rest = re.sub(rb"#[^\n]*", b"", raw).lstrip().partition(b"OFF")
    if kind or b"BINARY" in rest[:16]:
        raise DataError(
            f"an OFF file of the kind {(kind + b'OFF' + rest[:8]).split()[:2]}; expected plain text OFF"
        )
    words = rest.split()
    n, m = int(words[0]), int(words[1])
    vertices = _numbers(words[3 : 3 + 3 * n], 3 * n).reshape(n, 3)
    return vertices, _polygons(words[3 + 3 * n :], m)


def _polygons(words: Sequence[bytes], m: int) -> NDArray[np.int64]:
    """Faces told as a count and so many vertex numbers."""
    if len(words) >= 4 * m and all(words[4 * k] == b"3" for k in range(0, m, max(1, m // 64))):
        faces = np.array(words[: 4 * m], np.float64).astype(np.int64).reshape(m, 4)
        if (faces[:, 0] == 3).all():
            return faces[:, 1:]
    corners, place = [], 0
    for _ in range(m):
        count = int(words[place])
        corners.append([int(word) for word in words[place + 1 : place + 1 + count]])
        if len(corners[-1]) < count:
            raise DataError(f"truncated: {m} faces are promised, it ends in number {len(corners)}")
        place += 1 + count
    return triangles(corners)


def _obj(raw: bytes) -> Parsed:
    vertices: list[bytes] = []
    corners = []
    for line in raw.splitlines():
        words = line.split()
        if words[:1] == [b"v"]:
            vertices += words[1:4]
        elif words[:1] == [b"f"]:
            numbers = [int(word.partition(b"/")[0]) for word in words[1:]]
            corners.append(
                [number - 1 if number > 0 else len(vertices) // 3 + number for number in numbers]
            )
    return _numbers(vertices, len(vertices)).reshape(-1, 3), triangles(corners)


def _stl_binary(raw: bytes) -> Parsed:
    corners = np.frombuffer(raw, _STL_TRIANGLE, _triangles(raw), _STL_HEADER)["corners"]
    return _joined(corners.astype(np.float64).reshape(-1, 3))


def _stl_text(raw: bytes) -> Parsed:
    found = re.findall(rb"vertex\s+(\S+)\s+(\S+)\s+(\S+)", raw)
    points = _numbers([word for corner in found for word in corner], 3 * len(found)).reshape(-1, 3)
    return _joined(points[: len(points) // 3 * 3])


def _triangles(raw: bytes) -> int:
    return int.from_bytes(raw[80:84], "little")


def _joined(points: NDArray[np.float64]) -> Parsed:
    """STL repeats every corner: equal points are one vertex."""
    vertices, places = np.unique(points, axis=0, return_inverse=True)
    return vertices, places.reshape(-1, 3).astype(np.int64)


def _numbers(words: Sequence[bytes], expected: int) -> NDArray[np.float64]:
    if len(words) < expected:
        raise DataError(
            f"truncated: {expected // 3} vertices are promised, {len(words) // 3} are there"
        )
    return np.array(words, np.float64)


def triangles(polygons: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Polygons cut into triangles, fans around their first corner."""

    def fans() -> Iterator[tuple[Any, Any, Any]]:
        for polygon in polygons:
            for k in range(1, len(polygon) - 1):
                yield polygon[0], polygon[k], polygon[k + 1]

    return np.array(list(fans()), np.int64).reshape(-1, 3)


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
