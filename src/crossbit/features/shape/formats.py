"""Parsers of the mesh formats OFF, OBJ, PLY and STL: from bytes to vertices and triangles.

The formats are simple but loosely specified. This module decides once what they leave open
(comments, optional counts, polygons, binary lists, missing indices) and reports errors uniformly.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.errors import DataError

_Parsed = tuple[NDArray[np.float64], NDArray[np.int64]]

_STL_HEADER = 84  # bytes: 80 of free text, and the number of triangles
_STL_TRIANGLE = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("rest", "<u2")])


def parse(raw: bytes) -> _Parsed:
    """Return the vertices and triangles of a mesh; the format is recognized by the content.

    Raises:
        DataError: The format is unknown, or the file ends too early.
    """
    parser = _recognize(raw)
    if parser is None:
        raise DataError("not a mesh in one of the formats OFF, OBJ, PLY, STL")
    return parser(raw)


def _recognize(raw: bytes) -> Callable[[bytes], _Parsed] | None:
    start = raw[:512].lstrip()
    if start.startswith(b"ply"):
        return _parse_ply
    if re.match(rb"(ST)?C?N?4?OFF\b", start):
        return _parse_off
    # Binary STL has no magic number, and its free text may start with "solid".
    if (
        len(raw) >= _STL_HEADER
        and _stl_count(raw) * _STL_TRIANGLE.itemsize == len(raw) - _STL_HEADER
    ):
        return _parse_binary_stl
    if start.startswith(b"solid"):
        return _parse_text_stl
    if re.search(rb"^v\s+\S+\s+\S+\s+\S", raw[:100_000], re.MULTILINE):
        return _parse_obj
    return None


def _parse_off(raw: bytes) -> _Parsed:
    variant, _, rest = re.sub(rb"#[^\n]*", b"", raw).lstrip().partition(b"OFF")
    if variant or b"BINARY" in rest[:16]:
        header = (variant + b"OFF" + rest[:8]).split()[:2]
        raise DataError(f"an OFF file of the variant {header}; expected plain text OFF")
    words = rest.split()
    n = int(words[0])
    m = int(words[1])
    vertices = _numbers(words[3 : 3 + 3 * n], 3 * n).reshape(n, 3)
    return vertices, _off_faces(words[3 + 3 * n :], m)


def _off_faces(words: Sequence[bytes], m: int) -> NDArray[np.int64]:
    """Triangles of faces that are given as a count followed by vertex indices."""
    # Most files hold triangles only: check a sample before parsing all faces at once.
    if len(words) >= 4 * m and all(words[4 * k] == b"3" for k in range(0, m, max(1, m // 64))):
        faces = np.array(words[: 4 * m], np.float64).astype(np.int64).reshape(m, 4)
        if (faces[:, 0] == 3).all():
            return faces[:, 1:]
    polygons: list[list[int]] = []
    position = 0
    for _ in range(m):
        count = int(words[position])
        polygons.append([int(word) for word in words[position + 1 : position + 1 + count]])
        if len(polygons[-1]) < count:
            raise DataError(f"truncated: expected {m} faces, the file ends in face {len(polygons)}")
        position += 1 + count
    return _triangulate(polygons)


def _parse_obj(raw: bytes) -> _Parsed:
    coordinates: list[bytes] = []
    polygons: list[list[int]] = []
    for line in raw.splitlines():
        words = line.split()
        if words[:1] == [b"v"]:
            coordinates += words[1:4]
        elif words[:1] == [b"f"]:
            n = len(coordinates) // 3
            indices = [int(word.partition(b"/")[0]) for word in words[1:]]
            # Indices start at 1; negative ones count from the last vertex.
            polygons.append([index - 1 if index > 0 else n + index for index in indices])
    vertices = _numbers(coordinates, len(coordinates)).reshape(-1, 3)
    return vertices, _triangulate(polygons)


def _parse_binary_stl(raw: bytes) -> _Parsed:
    corners = np.frombuffer(raw, _STL_TRIANGLE, _stl_count(raw), _STL_HEADER)["corners"]
    return _merge_vertices(corners.astype(np.float64).reshape(-1, 3))


def _parse_text_stl(raw: bytes) -> _Parsed:
    matches = re.findall(rb"vertex\s+(\S+)\s+(\S+)\s+(\S+)", raw)
    words = [word for corner in matches for word in corner]
    points = _numbers(words, 3 * len(matches)).reshape(-1, 3)
    return _merge_vertices(points[: len(points) // 3 * 3])


def _stl_count(raw: bytes) -> int:
    return int.from_bytes(raw[80:84], "little")


def _merge_vertices(points: NDArray[np.float64]) -> _Parsed:
    """Index the corners of an STL file, which repeats a vertex in each of its triangles."""
    vertices, indices = np.unique(points, axis=0, return_inverse=True)
    return vertices, indices.reshape(-1, 3).astype(np.int64)


def _numbers(words: Sequence[bytes], expected: int) -> NDArray[np.float64]:
    if len(words) < expected:
        raise DataError(f"truncated: expected {expected // 3} vertices, got {len(words) // 3}")
    return np.array(words, np.float64)


def _triangulate(polygons: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Split polygons into triangle fans around their first corner."""

    def fans() -> Iterator[tuple[Any, Any, Any]]:
        for polygon in polygons:
            for k in range(1, len(polygon) - 1):
                yield polygon[0], polygon[k], polygon[k + 1]

    return np.array(list(fans()), np.int64).reshape(-1, 3)


_PLY_TYPES = {
    **dict.fromkeys(("char", "int8"), "i1"),
    **dict.fromkeys(("uchar", "uint8"), "u1"),
    **dict.fromkeys(("short", "int16"), "i2"),
    **dict.fromkeys(("ushort", "uint16"), "u2"),
    **dict.fromkeys(("int", "int32"), "i4"),
    **dict.fromkeys(("uint", "uint32"), "u4"),
    **dict.fromkeys(("float", "float32"), "f4"),
    **dict.fromkeys(("double", "float64"), "f8"),
}
_PLY_BYTE_ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_PLY_FACES = ("vertex_indices", "vertex_index")


@dataclass
class _Element:
    """An element of a PLY header; a property is (name, type, type of its count if it is a list)."""

    name: str
    count: int
    properties: list[tuple[str, str, str | None]] = field(default_factory=list)


def _parse_ply(raw: bytes) -> _Parsed:
    """Parse a PLY file; elements and properties other than vertices and faces are ignored."""
    head, mark, body = raw.partition(b"end_header")
    if not mark:
        raise DataError("truncated: the PLY header has no end")
    order, elements = _ply_header(head.decode("ascii", "replace"))
    body = body[body.index(b"\n") + 1 :]
    reader = _TextReader(body) if order == "" else _BinaryReader(body, order)
    content = {element.name: _read_element(element, reader) for element in elements}
    axes = content.get("vertex", {})
    if not {"x", "y", "z"} <= axes.keys():
        raise DataError("a PLY file without vertices; expected an element vertex with x, y and z")
    vertices = np.stack([np.asarray(axes[axis], np.float64).reshape(-1) for axis in "xyz"], axis=1)
    faces = content.get("face", {})
    polygons: Any = next((faces[name] for name in _PLY_FACES if name in faces), [])
    return vertices, polygons if isinstance(polygons, np.ndarray) else _triangulate(polygons)


def _ply_header(text: str) -> tuple[str, list[_Element]]:
    order = ""
    elements: list[_Element] = []
    for line in text.splitlines():
        match line.split():
            case ["format", name, *_]:
                order = _PLY_BYTE_ORDERS[name]
            case ["element", name, count]:
                elements.append(_Element(name, int(count)))
            case ["property", "list", counter, type_, name]:
                elements[-1].properties.append((name, _PLY_TYPES[type_], _PLY_TYPES[counter]))
            case ["property", type_, name]:
                elements[-1].properties.append((name, _PLY_TYPES[type_], None))
    return order, elements


class _TextReader:
    """Reads the values of a text PLY file."""

    def __init__(self, body: bytes) -> None:
        self._words = body.split()
        self._position = 0
        self._previous = 0

    def table(self, types: list[str], count: int) -> list[NDArray[Any]] | None:
        """Read ``count`` rows as columns; None, without advancing, if the file is too short."""
        self._previous = self._position
        end = self._position + len(types) * count
        if end > len(self._words):
            return None
        self._position = end
        words = self._words[self._previous : end]
        return list(np.array(words, np.float64).reshape(count, len(types)).T)

    def undo(self) -> None:
        """Return to the position before the last table."""
        self._position = self._previous


class _BinaryReader(_TextReader):
    """Reads the values of a binary PLY file."""

    def __init__(self, body: bytes, order: str) -> None:
        super().__init__(b"")
        self._body = body
        self._order = order

    def table(self, types: list[str], count: int) -> list[NDArray[Any]] | None:
        """Read ``count`` rows as columns; None, without advancing, if the file is too short."""
        row = np.dtype([(str(i), self._order + type_) for i, type_ in enumerate(types)])
        self._previous = self._position
        end = self._position + row.itemsize * count
        if end > len(self._body):
            return None
        self._position = end
        rows = np.frombuffer(self._body, row, count, self._previous)
        return [rows[name] for name in rows.dtype.names or ()]


def _read_element(element: _Element, reader: _TextReader) -> dict[str, Any]:
    """Values of an element's properties: one table if every list has three entries."""
    types = [
        t
        for _, type_, counter in element.properties
        for t in ((counter, *[type_] * 3) if counter else (type_,))
    ]
    columns = reader.table(types, element.count)
    if columns is not None:
        values = _triangle_columns(element, columns)
        if values is not None:
            return values
        reader.undo()
    lists: dict[str, Any] = {name: [] for name, _, _ in element.properties}
    for _ in range(element.count):
        for name, type_, counter in element.properties:
            size = 1 if counter is None else int(_read_row(reader, [counter], element)[0][0])
            row = _read_row(reader, [type_] * size, element)
            lists[name].append([column[0] for column in row])
    return lists


def _read_row(reader: _TextReader, types: list[str], element: _Element) -> list[NDArray[Any]]:
    columns = reader.table(types, 1)
    if columns is None:
        raise DataError(f"truncated: expected {element.count} of {element.name!r}, got fewer")
    return columns


def _triangle_columns(element: _Element, columns: list[NDArray[Any]]) -> dict[str, Any] | None:
    """Columns by property name; None if a list has other than three entries."""
    values: dict[str, Any] = {}
    position = 0
    for name, _, counter in element.properties:
        if counter is None:
            values[name] = columns[position]
            position += 1
            continue
        if not (columns[position] == 3).all():
            return None
        values[name] = np.stack(columns[position + 1 : position + 4], axis=1).astype(np.int64)
        position += 4
    return values
