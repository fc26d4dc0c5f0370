"""Triangle meshes: reading, cleaning and writing."""

import gzip
import io
import zlib
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crossbit.errors import DataError
from crossbit.features.extractor import RawInput
from crossbit.features.shape.formats import parse

_MAX_BYTES = 200_000_000
_MAX_VERTICES = 500_000
_GZIP = b"\x1f\x8b"

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Mesh:
    """A triangle mesh.

    Attributes:
        vertices: Points, shape (n, 3).
        faces: Three vertex indices per triangle, shape (m, 3).
    """

    vertices: _Floats
    faces: _Ints

    @classmethod
    def read(cls, raw: RawInput) -> Self:
        """Read and clean a mesh.

        Reads OFF, OBJ, PLY and STL files, text or binary, optionally gzipped; the format is
        recognized by the content. Polygons are triangulated. Coordinates keep the file's units.

        Args:
            raw: Path or content of a file.

        Raises:
            DataError: Not a mesh, corrupted, too large, or no surface is left after cleaning.
        """
        content = _read(raw)
        try:
            vertices, faces = parse(content)
        except DataError:
            raise
        except (ValueError, IndexError, KeyError, OverflowError, MemoryError) as error:
            raise DataError(f"a corrupted mesh ({error})") from error
        return cls.clean(vertices, faces)

    @classmethod
    def clean(cls, vertices: NDArray[Any], faces: NDArray[Any]) -> Self:
        """Create a mesh, without degenerate and duplicate triangles and unused vertices.

        Args:
            vertices: Points, shape (n, 3).
            faces: Vertex indices, shape (m, 3).

        Raises:
            DataError: A coordinate is not finite, an index is out of range, or no surface is left.
        """
        points = np.asarray(vertices, np.float64)
        corners = np.asarray(faces, np.int64).reshape(-1, 3)
        if len(points) > _MAX_VERTICES:
            raise DataError(f"a mesh of more than {_MAX_VERTICES:,} vertices; simplify it first")
        if not np.isfinite(points).all():
            raise DataError("some coordinates are NaN or infinite; repair the mesh first")
        if len(corners) and not 0 <= corners.min() <= corners.max() < len(points):
            raise DataError(
                f"faces refer to vertices {corners.min()} to {corners.max()}, but there are"
                f" {len(points)}; repair the mesh first"
            )
        a, b, c = corners.T
        corners = corners[(a != b) & (b != c) & (c != a)]
        _, first = np.unique(np.sort(corners, axis=1), axis=0, return_index=True)
        corners = corners[np.sort(first)]
        used, indices = np.unique(corners, return_inverse=True)
        mesh = cls(points[used], indices.reshape(-1, 3).astype(np.int64))
        if len(used) < 4 or not mesh.area > 0:
            raise DataError(
                f"expected a surface of at least 4 vertices, got {len(used)} with a total area of"
                f" {mesh.area:g}"
            )
        return mesh

    def to_ply(self) -> bytes:
        """Return the content of a binary PLY file, with coordinates in single precision."""
        header = (
            "ply\nformat binary_little_endian 1.0\n"
            f"element vertex {len(self.vertices)}\n"
            "property float x\nproperty float y\nproperty float z\n"
            f"element face {len(self.faces)}\n"
            "property list uchar int vertex_indices\nend_header\n"
        )
        faces = np.empty(len(self.faces), [("n", "u1"), ("corners", "<i4", 3)])
        faces["n"] = 3
        faces["corners"] = self.faces
        return header.encode() + self.vertices.astype("<f4").tobytes() + faces.tobytes()

    @property
    def area(self) -> float:
        """Total area of the triangles."""
        return float(self.face_areas().sum())

    def face_areas(self) -> _Floats:
        """Area of each triangle, shape (m,)."""
        return np.asarray(np.linalg.norm(self._cross(), axis=1) / 2)

    def vertex_areas(self) -> _Floats:
        """A third of the area of the triangles around each vertex, shape (n,)."""
        thirds = np.repeat(self.face_areas() / 3, 3)
        return np.asarray(np.bincount(self.faces.ravel(), thirds, len(self.vertices)), float)

    def vertex_normals(self) -> _Floats:
        """Unit normals: the area-weighted mean over the triangles around each vertex, (n, 3)."""
        sums = np.zeros_like(self.vertices)
        np.add.at(sums, self.faces.ravel(), np.repeat(self._cross(), 3, axis=0))
        return np.asarray(sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-300))

    def edges(self) -> _Ints:
        """Every edge once, as two vertex indices in ascending order, shape (e, 2)."""
        n = len(self.vertices)
        a, b = np.sort(self.faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), axis=1).T
        return np.stack(np.divmod(np.unique(a * n + b), n), axis=1)

    def _cross(self) -> _Floats:
        a, b, c = (self.vertices[self.faces[:, corner]] for corner in range(3))
        return np.cross(b - a, c - a)


def _read(raw: RawInput) -> bytes:
    """Content of a mesh file, decompressed, within the size limit."""
    if isinstance(raw, str | PathLike):
        try:
            with open(Path(raw), "rb") as file:
                content = file.read(_MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DataError(f"cannot be read ({reason})") from error
    elif isinstance(raw, bytes):
        content = raw
    else:
        raise DataError(f"expected the path or the bytes of a mesh, got {type(raw).__name__}")
    if content.startswith(_GZIP):
        try:
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(_MAX_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"a corrupted gzip file ({error})") from error
    if len(content) > _MAX_BYTES:
        raise DataError(f"a mesh of more than {_MAX_BYTES // 10**6} MB; simplify it first")
    return content
