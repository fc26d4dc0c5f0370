"""The four usual formats of meshes, from bytes to vertices and triangles.

They are small, and what they leave open (comments, counts on the first line, polygons, binary lists, no indices at
all) is decided here once, in our own words of error.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.errors import DataError
from crossbit.features.shape.plyformat import parse_ply

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
