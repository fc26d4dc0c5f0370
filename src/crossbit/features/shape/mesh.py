"""Triangle meshes: read from files or bytes, cleaned, written."""

import gzip
import io
import zlib
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.errors import DataError
from crossbit.features.extractor import RawInput
from crossbit.features.shape.formats import parse

MOST_BYTES = 200_000_000
MOST_VERTICES = 500_000
_GZIP = b"\x1f\x8b"

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Mesh:
    """A surface of triangles.

    Attributes:
        vertices: Points, shape (n, 3).
        faces: Three vertex numbers each, shape (m, 3).
    """

    vertices: Floats
    faces: Ints

    @property
    def area(self) -> float:
        """Of all triangles together."""
        return float(self.face_areas().sum())

    def face_areas(self) -> Floats:
        """Of each triangle."""
        return np.asarray(np.linalg.norm(self._cross(), axis=1) / 2)

    def vertex_areas(self) -> Floats:
        """A third of the triangles around each vertex."""
        return np.asarray(
            np.bincount(
                self.faces.ravel(), np.repeat(self.face_areas() / 3, 3), len(self.vertices)
            ),
            float,
        )

    def vertex_normals(self) -> Floats:
        """Unit normals of the vertices, the mean of those of the triangles around by their areas."""
        sums = np.zeros_like(self.vertices)
        np.add.at(sums, self.faces.ravel(), np.repeat(self._cross(), 3, axis=0))
        return np.asarray(sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-300))

    def edges(self) -> Ints:
        """Every edge once, as two vertex numbers, the smaller first."""
        a, b = np.sort(self.faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), axis=1).T
        return np.stack(
            np.divmod(np.unique(a * len(self.vertices) + b), len(self.vertices)), axis=1
        )

    def _cross(self) -> Floats:
        a, b, c = (self.vertices[self.faces[:, corner]] for corner in range(3))
        return np.cross(b - a, c - a)


def read_mesh(thing: RawInput) -> Mesh:
    """Read a mesh and clean it.

    OFF, OBJ, PLY and STL, in text or binary as each format has it, gzipped or not, are told apart by their content.
    Faces of more corners are cut into triangles. Coordinates are kept in the units of the file.

    Args:
        thing: The path of a file, or its bytes.

    Raises:
        DataError: It is no mesh, broken, too large, or nothing is left of it once it is clean.
    """
    raw = _read(thing)
    try:
        vertices, faces = parse(raw)
    except DataError:
        raise
    except (ValueError, IndexError, KeyError, OverflowError, MemoryError) as error:
        raise DataError(f"a broken mesh ({error})") from error
    return clean_mesh(vertices, faces)


def clean_mesh(vertices: NDArray[Any], faces: NDArray[Any]) -> Mesh:
    """A mesh without what carries no surface: triangles with a corner twice, doubled triangles, unused vertices.

    Args:
        vertices: Points, shape (n, 3).
        faces: Vertex numbers, shape (m, 3).

    Raises:
        DataError: A coordinate is not finite, a vertex does not exist, or no surface is left.
    """
    points = np.asarray(vertices, np.float64)
    corners = np.asarray(faces, np.int64).reshape(-1, 3)
    if len(points) > MOST_VERTICES:
        raise DataError(f"a mesh of more than {MOST_VERTICES:,} vertices; simplify it first")
    if not np.isfinite(points).all():
        raise DataError("some coordinates are NaN or infinite; repair the mesh first")
    if len(corners) and not 0 <= corners.min() <= corners.max() < len(points):
        raise DataError(
            f"faces name vertices up to {corners.max()}, but there are {len(points)}; repair the mesh first"
        )
    a, b, c = corners.T
    corners = corners[(a != b) & (b != c) & (c != a)]
    _, first = np.unique(np.sort(corners, axis=1), axis=0, return_index=True)
    corners = corners[np.sort(first)]
    used, places = np.unique(corners, return_inverse=True)
    mesh = Mesh(points[used], places.reshape(-1, 3).astype(np.int64))
    if len(used) < 4 or not mesh.area > 0:
        raise DataError(
            f"{len(used)} vertices with an area of {mesh.area:g} are no surface; expected at least 4"
        )
    return mesh


def to_ply(mesh: Mesh) -> bytes:
    """A mesh as the bytes of a binary PLY file, coordinates in single precision."""
    header = (
        "ply\nformat binary_little_endian 1.0\n"
        f"element vertex {len(mesh.vertices)}\nproperty float x\nproperty float y\nproperty float z\n"
        f"element face {len(mesh.faces)}\nproperty list uchar int vertex_indices\nend_header\n"
    )
    faces = np.empty(len(mesh.faces), [("n", "u1"), ("corners", "<i4", 3)])
    faces["n"], faces["corners"] = 3, mesh.faces
    return header.encode() + mesh.vertices.astype("<f4").tobytes() + faces.tobytes()


def _read(thing: RawInput) -> bytes:
    """The bytes of a mesh, unzipped, within bounds."""
    if isinstance(thing, str | PathLike):
        try:
            with open(Path(thing), "rb") as file:
                raw = file.read(MOST_BYTES + 1)
        except (OSError, ValueError) as error:
            raise DataError(
                f"cannot be read ({getattr(error, 'strerror', None) or error})"
            ) from error
    elif isinstance(thing, bytes):
        raw = thing
    else:
        raise DataError(f"expected the path or the bytes of a mesh, got {type(thing).__name__}")
    if raw.startswith(_GZIP):
        try:
            raw = gzip.GzipFile(fileobj=io.BytesIO(raw)).read(MOST_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"a broken gzip file ({error})") from error
    if len(raw) > MOST_BYTES:
        raise DataError(f"a mesh of more than {MOST_BYTES // 10**6} MB; simplify it first")
    return raw
