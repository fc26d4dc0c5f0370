"""Shape features: meshes, Laplace–Beltrami spectra, heat kernel signatures, bags of features."""

import gzip
import io
import logging
import re
import warnings
import zlib
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_integer, check_matrix
from crossbit.errors import DataError, MissingExtraError
from crossbit.features._content import read_content
from crossbit.features.extractor import Extractor, RawInput, Rows
from crossbit.features.kmeans import k_means, nearest

_MAX_BYTES = 200_000_000
_MAX_VERTICES = 500_000
_GZIP = b"\x1f\x8b"
_STL_HEADER = 84  # bytes: 80 of free text, and the number of triangles
_STL_TRIANGLE = 50  # bytes
_SHIFT = 1e-6  # of the mean diagonal, because the Laplacian itself is singular
_OCTAVES = np.arange(1, 25 + 1 / 32, 1 / 16)  # t = 2^τ of the scale-invariant signature

logging.getLogger("trimesh").addHandler(logging.NullHandler())  # errors are raised, not printed

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]
_Arrays = tuple[NDArray[Any], Any]
"""Vertices and polygons of a mesh."""


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
            MissingExtraError: trimesh is not installed.
        """
        return cls.clean(*_parse(_read(raw)))

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
        from trimesh import Trimesh

        content: bytes = Trimesh(self.vertices, self.faces, process=False).export(file_type="ply")
        return content

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
    content = read_content(raw, "a mesh", _MAX_BYTES)
    if content.startswith(_GZIP):
        try:
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(_MAX_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"a corrupted gzip file ({error})") from error
    return read_content(content, "a mesh", _MAX_BYTES)


def _parse(content: bytes) -> tuple[_Floats, _Ints]:
    """Return the vertices and triangles of a file; its format is recognized by the content."""
    start = content[:512].lstrip()
    if start.startswith(b"ply"):
        parser = _parse_ply
    elif re.match(rb"(ST)?C?N?4?OFF\b", start):
        parser = _parse_off
    elif _is_binary_stl(content) or start.startswith(b"solid"):
        parser = _parse_stl
    elif re.search(rb"^v\s+\S+\s+\S+\s+\S", content[:100_000], re.MULTILINE):
        parser = _parse_obj
    else:
        raise DataError("not a mesh in one of the formats OFF, OBJ, PLY, STL")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # of NumPy: text is no number
            vertices, faces = parser(content)
            points = np.asarray(vertices, np.float64).reshape(len(vertices), 3)
            return points, np.asarray(_triangulate(faces), np.int64).reshape(-1, 3)
    except DataError:
        raise
    except ImportError as error:
        raise MissingExtraError("trimesh") from error
    except Exception as error:
        # trimesh raises errors of any type for a corrupted file.
        raise DataError(f"a corrupted mesh ({type(error).__name__}: {error})") from error


def _parse_off(content: bytes) -> _Arrays:
    """Read a text; trimesh's reader takes truncated files, and no polygons of five corners."""
    text = re.sub(rb"#[^\n]*", b"", content).lstrip()
    if not text.startswith(b"OFF") or b"BINARY" in text[3:19]:
        variant = text[:16].split()[:2]
        raise DataError(f"an OFF file of the variant {variant}; expected plain text OFF")
    n_vertices, n_faces, _, *words = text[3:].split()
    n = 3 * int(n_vertices)
    if len(words) < n:
        raise DataError(f"truncated: expected {n // 3} vertices, got {len(words) // 3}")
    rest = iter(words[n:])
    polygons: list[list[int]] = []
    for _ in range(int(n_faces)):
        count = int(next(rest, b"1"))
        polygons.append([int(word) for word in islice(rest, count)])
        if len(polygons[-1]) < count:
            raise DataError(
                f"truncated: expected {int(n_faces)} faces, the file ends in face {len(polygons)}"
            )
    return np.array(words[:n], np.float64).reshape(-1, 3), polygons


def _parse_ply(content: bytes) -> _Arrays:
    from trimesh.exchange.ply import load_ply

    head, end, body = content.partition(b"end_header")
    if not end:
        raise DataError("truncated: the PLY header has no end")
    counts = {name: int(n) for name, n in re.findall(rb"^element (\w+) +(\d+)", head, re.MULTILINE)}
    n, m = counts.get(b"vertex", 0), counts.get(b"face", 0)
    if not n:
        raise DataError("a PLY file without vertices")
    if re.search(rb"^format ascii", head, re.MULTILINE) and list(counts)[1:2] == [b"face"]:
        _check_rows(body.splitlines()[1:], n, m)
    mesh = load_ply(io.BytesIO(content), fix_texture=False, skip_materials=True)
    return mesh["vertices"], mesh.get("faces", [])


def _triangulate(polygons: Any) -> NDArray[Any]:  # noqa: ANN401 - lists or rows of an array
    """Split polygons into triangle fans around their first corner."""
    if isinstance(polygons, np.ndarray) and polygons.shape[1:] == (3,):
        return polygons
    fans = [(p[0], p[k], p[k + 1]) for p in polygons for k in range(1, len(p) - 1)]
    return np.array(fans, np.int64).reshape(-1, 3)


def _check_rows(lines: Sequence[bytes], n_vertices: int, n_faces: int) -> None:
    """Check that a text has all rows, and its last face as many corners as it says."""
    if len(lines) < n_vertices + n_faces:
        raise DataError(
            f"truncated: expected {n_vertices} vertices and {n_faces} faces, got {len(lines)} rows"
        )
    last = lines[n_vertices + n_faces - 1].split()
    if n_faces and len(last) <= int(last[0]):
        raise DataError(f"truncated: the file ends in face {n_faces}")


def _is_binary_stl(content: bytes) -> bool:
    """Binary STL has no magic number, and its free text may start with "solid"."""
    count = int.from_bytes(content[80:_STL_HEADER], "little")
    return len(content) >= _STL_HEADER and len(content) == _STL_HEADER + count * _STL_TRIANGLE


def _parse_stl(content: bytes) -> _Arrays:
    """Read an STL file, which repeats a vertex in each of its triangles."""
    from trimesh.exchange.stl import load_stl

    mesh = load_stl(io.BytesIO(content))
    solids = mesh["geometry"].values() if "geometry" in mesh else [mesh]
    corners = np.concatenate([solid["vertices"] for solid in solids]).astype(np.float64)
    vertices, indices = np.unique(corners, axis=0, return_inverse=True)
    return vertices, indices.reshape(-1, 3)


def _parse_obj(content: bytes) -> _Arrays:
    """Read positions and faces; trimesh's reader would cut the surface along texture seams."""
    vertices: list[list[bytes]] = []
    polygons: list[list[int]] = []
    for line in content.splitlines():
        kind, *words = line.split() or [b""]
        if kind == b"v":
            vertices.append(words[:3])
        elif kind == b"f":
            indices = [int(word.partition(b"/")[0]) for word in words]
            # Indices start at 1; negative ones count from the last vertex.
            polygons.append([i - 1 if i > 0 else len(vertices) + i for i in indices])
    return np.array(vertices, np.float64), polygons


@dataclass(frozen=True, eq=False)
class Spectrum:
    r"""The smallest eigenpairs of the Laplace–Beltrami operator.

    $$ L\phi = \lambda A\phi, \qquad \Phi^\top A \Phi = I $$

    Attributes:
        areas: The diagonal of $A$, shape (n,); it sums to the area of the surface.
        values: $0 \le \lambda_0 \le \lambda_1 \le \dots$, shape (k,).
        vectors: $\Phi$, shape (n, k).
    """

    areas: _Floats
    values: _Floats
    vectors: _Floats


def compute_spectrum(mesh: Mesh, n_pairs: int = 100) -> Spectrum:
    r"""Compute the smallest eigenpairs of a mesh, or all of them if it has fewer vertices.

    The Laplacian uses the tufted intrinsic Delaunay triangulation, which also handles holes,
    slivers and nonmanifold edges. It depends on edge lengths only, so bending without stretching
    does not change it.

    Args:
        mesh: The surface.
        n_pairs: Number of eigenpairs; $e^{-\lambda t}$ of the first omitted one bounds the error of
            the heat kernel.

    Raises:
        DataError: The mesh is too degenerate for a Laplacian.
        MissingExtraError: robust-laplacian or SciPy is not installed.

    References:
        N. Sharp, K. Crane. "A Laplacian for nonmanifold triangle meshes." SGP 2020.
    """
    check_integer(n_pairs, "the number of eigenpairs", least=1)
    try:
        from robust_laplacian import mesh_laplacian
        from scipy import sparse
    except ImportError as error:
        raise MissingExtraError("robust-laplacian") from error
    stiffness, mass = mesh_laplacian(mesh.vertices, mesh.faces)
    areas: _Floats = mass.diagonal()
    if not (np.isfinite(stiffness.data).all() and (areas > 0).all()):
        raise DataError("the triangles are too degenerate for a Laplacian; repair the mesh first")
    scale = sparse.diags_array(1 / np.sqrt(areas))
    values, vectors = _smallest((scale @ stiffness @ scale).tocsc(), np.sqrt(areas), n_pairs)
    return Spectrum(areas, np.maximum(values, 0.0), vectors / np.sqrt(areas)[:, None])


def _smallest(A: Any, start: _Floats, n: int) -> tuple[_Floats, _Floats]:  # noqa: ANN401 - sparse
    """Smallest eigenpairs of a symmetric sparse matrix, ascending."""
    from scipy import sparse
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh, splu

    if 2 * n >= len(start):
        values, vectors = np.linalg.eigh(A.toarray())
        return values[:n], vectors[:, :n]
    shift = _SHIFT * float(A.diagonal().mean())
    shifted = (A + shift * sparse.eye_array(len(start))).tocsc()
    try:
        factors = splu(
            shifted,
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
        inverse = LinearOperator(A.shape, factors.solve, dtype=np.float64)
        # A fixed start keeps results reproducible. The constant vector is an eigenvector, hence
        # orthogonal to all others, so it is perturbed.
        perturbed = start * (1 + 0.1 * np.sin(np.arange(len(start))))
        values, vectors = eigsh(A, n, sigma=-shift, OPinv=inverse, v0=perturbed)
    except (RuntimeError, ArpackError) as error:
        raise DataError(
            f"the eigenpairs cannot be computed ({error}); repair the mesh first"
        ) from error
    order = np.argsort(values)
    return values[order], vectors[:, order]


def heat_kernel_signature(spectrum: Spectrum, times: _Floats) -> _Floats:
    r"""Heat kernel signature $h(x, t) = \sum_k e^{-\lambda_k t} \phi_k(x)^2$, shape (n, times).

    Args:
        spectrum: Eigenpairs of the surface.
        times: $t$, in squared units of the mesh; heat spreads over about $2\sqrt t$ in that time.

    References:
        J. Sun, M. Ovsjanikov, L. Guibas. "A concise and provably informative multi-scale signature
        based on heat diffusion." SGP 2009.
    """
    return np.square(spectrum.vectors) @ np.exp(-np.outer(spectrum.values, times))


def scale_invariant_signature(spectrum: Spectrum, n: int = 6) -> _Floats:
    r"""Scale-invariant heat kernel signature, shape (number of points, ``n``).

    Scaling a surface by $s$ shifts $\log h(x, 2^\tau)$ along $\tau$ and adds a constant. The
    derivative in $\tau$ removes the constant, the modulus of the Fourier transform the shift.

    Args:
        spectrum: Eigenpairs of the surface.
        n: Number of frequencies; the lowest ones are kept.

    References:
        M. M. Bronstein, I. Kokkinos. "Scale-invariant heat kernel signatures for non-rigid shape
        recognition." CVPR 2010.
    """
    heat = heat_kernel_signature(spectrum, 2.0**_OCTAVES)
    slope = np.diff(np.log(np.maximum(heat, np.finfo(float).tiny)), axis=1)
    return np.asarray(np.abs(np.fft.rfft(slope, axis=1))[:, :n])


@dataclass(frozen=True, eq=False)
class HeatPatches:
    r"""A surface as patches of points with similar signatures: the input of bags of features.

    Bags depend on a point $x$ only through its signature $h(x)$, and on the heat kernel only
    through $\sum_x a(x)\,\theta(h(x))\,\phi_k(x)$. Points with similar signatures therefore share a
    patch, and only sums over patches are kept. Areas and eigenvector integrals are preserved, so
    the sums of bags are exact.

    Attributes:
        areas: $\sum a(x)$ of each patch, shape (p,).
        signatures: Area-weighted mean of $h(x)$, shape (p, d).
        integrals: $\sum a(x)\,\phi_k(x)$ of each patch, shape (p, k).
        values: $\lambda_k$, shape (k,).
    """

    areas: _Floats
    signatures: _Floats
    integrals: _Floats
    values: _Floats

    @classmethod
    def from_spectrum(
        cls, spectrum: Spectrum, signatures: _Floats, *, patches: int | None = None
    ) -> Self:
        """Group the points of a surface into patches.

        Args:
            spectrum: Eigenpairs of the surface.
            signatures: One row per vertex.
            patches: Largest number of patches; None makes every vertex a patch.
        """
        n = len(spectrum.areas)
        if patches is None or n <= patches:
            patch = np.arange(n)
        else:
            patch = _group_by_signature(signatures, patches)
        weights = spectrum.areas[:, None]
        areas = _sums(weights, patch)
        return cls(
            areas[:, 0],
            _sums(weights * signatures, patch) / areas,
            _sums(weights * spectrum.vectors, patch),
            spectrum.values,
        )

    def to_row(self, patches: int, n_values: int) -> NDArray[np.float32]:
        """Flatten to one row whose width depends only on the arguments; missing values are 0."""
        p = len(self.areas)
        d = self.signatures.shape[1]
        k = min(len(self.values), n_values)
        table = np.zeros((patches, 1 + d + n_values), np.float32)
        table[:p, 0] = self.areas
        table[:p, 1 : 1 + d] = self.signatures
        table[:p, 1 + d : 1 + d + k] = self.integrals[:, :k]
        values = np.zeros(n_values, np.float32)
        values[:k] = self.values[:k]
        return np.concatenate([values, table.ravel()])

    @classmethod
    def from_row(cls, row: NDArray[np.float32], patches: int, n_values: int) -> Self:
        """Invert `to_row`."""
        values = row[:n_values].astype(np.float64)
        table = row[n_values:].reshape(patches, -1).astype(np.float64)
        table = table[table[:, 0] > 0]
        d = table.shape[1] - 1 - n_values
        return cls(table[:, 0], table[:, 1 : 1 + d], table[:, 1 + d :], values)


def _sums(rows: _Floats, patch: _Ints) -> _Floats:
    order = np.argsort(patch, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(patch[order]) > 0])
    return np.asarray(np.add.reduceat(rows[order], starts, axis=0))


def _group_by_signature(signatures: _Floats, patches: int) -> _Ints:
    """Patch number of each point: split at the median of the widest coordinate, recursively."""
    patch = np.zeros(len(signatures), np.int64)
    scaled = signatures / np.maximum(signatures.std(axis=0), 1e-300)
    for _ in range(patches.bit_length() - 1):
        half = np.zeros(len(signatures), np.int64)
        for number in range(patch.max() + 1):
            points = np.flatnonzero(patch == number)
            widest = np.ptp(scaled[points], axis=0).argmax()
            order = np.argsort(scaled[points, widest], kind="stable")
            half[points[order[len(points) // 2 :]]] = 1
        patch = 2 * patch + half
    return patch


@dataclass(frozen=True, eq=False, kw_only=True)
class _HeatKernelBase(Extractor):
    """Base class of shape extractors: which heat kernel signatures describe a mesh.

    Args:
        first: Smallest time, in squared units of the mesh.
        last: Largest time.
        times: Number of times, spaced evenly in their logarithm.
        invariant: Use scale-invariant signatures instead of those at the times; ``times`` is then
            the number of frequencies.
        n_pairs: Number of eigenpairs.
        patches: Largest number of patches, a power of two; points with similar signatures share a
            patch.
    """

    accepts = "mesh"

    first: float = 1024.0
    last: float = 4096.0
    times: int = 6
    invariant: bool = False
    n_pairs: int = 100
    patches: int = 512

    def __post_init__(self) -> None:
        """Validate the numbers."""
        for name in ("times", "n_pairs", "patches"):
            check_integer(getattr(self, name), name, least=1)
        if self.patches & (self.patches - 1):
            raise DataError(f"patches must be a power of two, got {self.patches}")
        if not 0 < self.first <= self.last < float("inf"):
            raise DataError(f"expected 0 < first <= last, got {self.first} and {self.last}")

    def heat_patches(self, raw: RawInput) -> HeatPatches:
        """Compute the patches of a mesh, given by the path or the content of a file."""
        spectrum = compute_spectrum(Mesh.read(raw), self.n_pairs)
        signatures = self._signatures(spectrum)
        return HeatPatches.from_spectrum(spectrum, signatures, patches=self.patches)

    def _signatures(self, spectrum: Spectrum) -> _Floats:
        if self.invariant:
            return scale_invariant_signature(spectrum, self.times)
        return heat_kernel_signature(spectrum, np.geomspace(self.first, self.last, self.times))

    def signature_settings(self) -> dict[str, Any]:
        """Return the fields that all shape extractors share, by name."""
        return {f.name: getattr(self, f.name) for f in fields(_HeatKernelBase)}


@dataclass(frozen=True, eq=False, kw_only=True)
class HeatKernelExtractor(_HeatKernelBase, kind="shape-heat"):
    """Everything that bags of features need from a mesh before a vocabulary exists.

    Solving for eigenpairs is the slow part. A row stores its result as flattened `HeatPatches`;
    `from_row` restores them, and learning a vocabulary or computing bags then takes milliseconds.
    The other fields are those of `BagOfGeometry`.

    Args:
        n_values: Number of eigenpairs whose integrals are kept; the default suffices for heat that
            has diffused for 1024 units.
    """

    n_values: int = 64

    @property
    def width(self) -> int:
        """Eigenvalues, then the area, signature and integrals of each patch."""
        return self.n_values + self.patches * (1 + self.times + self.n_values)

    def extract_one(self, raw: RawInput) -> Rows:
        """Compute the eigenpairs of a mesh."""
        return self.heat_patches(raw).to_row(self.patches, self.n_values)

    def from_row(self, row: Rows) -> HeatPatches:
        """Restore the patches that a row stores."""
        return HeatPatches.from_row(row, self.patches, self.n_values)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Bag(_HeatKernelBase):
    """Base class of extractors with a vocabulary of signatures.

    Args:
        words: The vocabulary, shape (k, times).
        softness: $σ$ of the soft assignment of signatures to words.
    """

    words: NDArray[Any]
    softness: float

    def __post_init__(self) -> None:
        """Validate the vocabulary."""
        super().__post_init__()
        words = check_matrix(self.words, "words", width=self.times)
        object.__setattr__(self, "words", np.ascontiguousarray(words, float))
        if not 0 < self.softness < float("inf"):
            raise DataError(f"softness must be positive and finite, got {self.softness}")

    @classmethod
    def fit(
        cls,
        surfaces: Iterable[HeatPatches],
        *,
        size: int,
        seed: int = 0,
        **settings: Any,  # noqa: ANN401 - fields of several types
    ) -> Self:
        """Learn a vocabulary by k-means; the softness is twice the median radius of its clusters.

        Args:
            surfaces: Training surfaces, as `HeatKernelExtractor` stores them.
            size: Number of words.
            seed: Seed of k-means.
            settings: Other fields; signature fields must equal the ones of ``surfaces``.
        """
        points = np.concatenate([surface.signatures for surface in surfaces]).astype(np.float32)
        # Signatures can be tiny, and k-means works in single precision.
        scale = float(points.std()) or 1.0
        words = k_means(points / scale, size, seed=seed)
        labels, squares = nearest(points / scale, words)
        radii = [np.sqrt(squares[labels == label]).mean() for label in np.unique(labels)]
        return cls(
            words=words.astype(float) * scale,
            softness=2 * scale * float(np.median(radii)),
            **settings,
        )

    def extract_one(self, raw: RawInput) -> Rows:
        """Compute the bag of a mesh."""
        return self.bag(self.heat_patches(raw))

    @abstractmethod
    def bag(self, patches: HeatPatches) -> Rows:
        """Compute the bag of a surface whose patches are known."""

    def assignments(self, patches: HeatPatches) -> _Floats:
        r"""Soft assignment $\theta_i \propto e^{-\|h - c_i\|^2 / 2\sigma^2}$; rows sum to 1."""
        squares = np.square(patches.signatures[:, None] - self.words).sum(axis=2)
        weights = np.exp(-(squares - squares.min(axis=1, keepdims=True)) / (2 * self.softness**2))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False, kw_only=True)
class BagOfGeometry(_Bag, kind="shape-bag"):
    r"""Bag of geometric words: the share of a surface's area assigned to each word; sums to one.

    $$ f_i = \frac{1}{\sum_x a(x)} \sum_x a(x)\,\theta_i(h(x)), \qquad
       \theta_i(h) = \frac{e^{-\|h - c_i\|^2/2\sigma^2}}{\sum_j e^{-\|h - c_j\|^2/2\sigma^2}} $$

    The words $c_i$ are heat kernel signatures. The bag is invariant to rigid motion and bending.
    Times are in squared units of the mesh, so it depends on size unless ``invariant`` is set.

    Args:
        words: The vocabulary $c$, shape (k, times).
        softness: $σ$.
        first: Smallest time of the signatures.
        last: Largest time.
        times: Number of times, spaced evenly in their logarithm.
        invariant: Use scale-invariant signatures instead of those at the times.
        n_pairs: Number of eigenpairs.
        patches: Largest number of patches, a power of two; points with similar signatures share a
            patch.

    References:
        A. M. Bronstein, M. M. Bronstein, L. J. Guibas, M. Ovsjanikov. "Shape Google: geometric
        words and expressions for invariant shape retrieval." ACM TOG 2011.
    """

    @property
    def width(self) -> int:
        """One column per word."""
        return len(self.words)

    def bag(self, patches: HeatPatches) -> Rows:
        """Compute the shares of the area."""
        return np.asarray(
            patches.areas @ self.assignments(patches) / patches.areas.sum(), np.float32
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class SpatialBag(_Bag, kind="shape-spatial-bag"):
    r"""Spatially sensitive bag: the share of each *pair* of nearby words; the k² shares sum to one.

    $$ F_{ij}
       = \frac{1}{\sum_x a(x)} \sum_{x, y} a(x)\,a(y)\,\theta_i(h(x))\,\theta_j(h(y))\,K_t(x, y)
       = \frac{(G e^{-\Lambda t} G^\top)_{ij}}{\sum_x a(x)},
       \qquad G = (\Theta \circ a)^\top \Phi $$

    The heat kernel $K_t$ weights pairs by their distance; its eigenpairs avoid the matrix of all
    pairs of points. The rows of $F$ sum to the `BagOfGeometry` of the same vocabulary, and $F$
    tends to $f f^\top$ as $t \to \infty$.

    The other fields and the reference are those of `BagOfGeometry`.

    Args:
        nearness: $t$, in squared units of the mesh.
    """

    nearness: float = 1024.0

    @property
    def width(self) -> int:
        """One column per pair of words."""
        return len(self.words) ** 2

    def bag(self, patches: HeatPatches) -> Rows:
        """Compute the shares of pairs of points, weighted by the heat kernel."""
        G = self.assignments(patches).T @ patches.integrals
        F = (G * np.exp(-patches.values * self.nearness)) @ G.T / patches.areas.sum()
        return np.asarray(F.ravel(), np.float32)
