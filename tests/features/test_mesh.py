"""Meshes in all formats, valid and corrupted."""

import contextlib
import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossbit import DataError
from crossbit.features.shape import Mesh
from tests.features.surfaces import sphere

BALL = sphere(1)
CUBE = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], float)
SQUARES = [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]]


def _off(
    vertices: np.ndarray[tuple[int, int], np.dtype[np.float64]], faces: list[list[int]]
) -> bytes:
    points = "\n".join(" ".join(map(str, row)) for row in vertices.tolist())
    corners = "\n".join(f"{len(face)} {' '.join(map(str, face))}" for face in faces)
    return f"OFF # a comment\n{len(vertices)} {len(faces)} 0\n{points}\n{corners}\n".encode()


def _obj() -> bytes:
    points = "\n".join(f"v {x} {y} {z}" for x, y, z in CUBE)
    return (
        "# cube\n"
        + points
        + "\nvn 0 0 1\n"
        + "\n".join("f " + " ".join(f"{k + 1}//1" for k in face) for face in SQUARES[:5])
        + "\nf -7 -3 -1 -5\n"
    ).encode()


def _text_ply() -> bytes:
    head = (
        "ply\nformat ascii 1.0\ncomment cube\nelement vertex 8\n"
        "property float x\nproperty float y\nproperty float z\n"
    )
    head += (
        "property uchar red\nelement face 6\nproperty list uchar int vertex_index\n"
        "element edge 1\nproperty int a\n"
    )
    points = "\n".join(f"{x} {y} {z} 255" for x, y, z in CUBE)
    faces = "\n".join("4 " + " ".join(map(str, face)) for face in SQUARES)
    return f"{head}end_header\n{points}\n{faces}\n7\n".encode()


def _big_ply() -> bytes:
    head = (
        "ply\nformat binary_big_endian 1.0\nelement vertex 8\n"
        "property double x\nproperty double y\nproperty double z\n"
        "element face 6\nproperty list uchar uint vertex_indices\n"
        "property float quality\nend_header\n"
    )
    faces = b"".join(struct.pack(">B4If", 4, *face, 0.5) for face in SQUARES)
    return head.encode() + CUBE.astype(">f8").tobytes() + faces


def _stl(*, binary: bool) -> bytes:
    corners = BALL.vertices[BALL.faces].astype(np.float32)
    if binary:
        rows = b"".join(bytes(12) + triangle.tobytes() + b"\0\0" for triangle in corners)
        return b"solid but binary".ljust(80) + struct.pack("<I", len(corners)) + rows
    lines = ["solid ball"]
    for triangle in corners:
        lines += [
            "facet normal 0 0 0",
            "outer loop",
            *(f"vertex {x!r} {y!r} {z!r}" for x, y, z in triangle.tolist()),
        ]
        lines += ["endloop", "endfacet"]
    return "\n".join([*lines, "endsolid"]).encode()


@pytest.mark.parametrize(
    "raw", [_off(CUBE, SQUARES), _obj(), _text_ply(), _big_ply()], ids=["off", "obj", "ply", "big"]
)
def test_a_cube_of_squares_is_read(raw: bytes) -> None:
    mesh = Mesh.read(raw)
    assert mesh.vertices.shape == (8, 3)
    assert mesh.faces.shape == (12, 3)
    assert mesh.area == pytest.approx(6)
    assert len(mesh.edges()) == 18


@pytest.mark.parametrize(
    "raw",
    [
        _off(BALL.vertices, BALL.faces.tolist()),
        BALL.to_ply(),
        _stl(binary=True),
        _stl(binary=False),
    ],
    ids=["off", "ply", "stl", "text stl"],
)
def test_a_ball_is_read_plain_and_gzipped(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "ball"
    path.write_bytes(gzip.compress(raw))
    for mesh in (Mesh.read(raw), Mesh.read(path), Mesh.read(str(path))):
        assert mesh.vertices.shape == BALL.vertices.shape
        assert mesh.faces.shape == BALL.faces.shape
        assert mesh.area == pytest.approx(BALL.area, rel=1e-6)


def test_texture_seams_and_materials_do_not_cut_the_surface() -> None:
    points = "\n".join(f"v {x!r} {y!r} {z!r}" for x, y, z in BALL.vertices.tolist())
    first, second = (
        "\n".join(f"f {a + 1}/{k} {b + 1}/1 {c + 1}/2" for a, b, c in part)
        for k, part in ((1, BALL.faces[:9]), (2, BALL.faces[9:]))
    )
    head = f"mtllib none.mtl\n{points}\nvt 0 0\nvt 1 1\nusemtl one"
    mesh = Mesh.read(f"{head}\n{first}\nusemtl two\n{second}\n".encode())
    np.testing.assert_array_equal(mesh.vertices, BALL.vertices)
    np.testing.assert_array_equal(mesh.faces, BALL.faces)


def test_texture_coordinates_of_ply_do_not_cut_the_surface() -> None:
    head, _, body = BALL.to_ply().partition(b"end_header\n")
    n = len(BALL.vertices)
    points = np.frombuffer(body, "<f4", 3 * n).reshape(n, 3)
    textured = np.hstack([points, np.arange(2 * n).reshape(n, 2)]).astype("<f4")
    head = head.replace(b" z\n", b" z\nproperty float s\nproperty float t\n")
    mesh = Mesh.read(head + b"end_header\n" + textured.tobytes() + body[12 * n :])
    np.testing.assert_array_equal(mesh.vertices, points)
    np.testing.assert_array_equal(mesh.faces, BALL.faces)


def test_polygons_of_any_size_become_fans() -> None:
    points = "\n".join(f"v {x} {y} {z}" for x, y, z in CUBE)
    mesh = Mesh.read(f"{points}\nf 1 2 4 3\nv 2 2 2\nf -9 -8 -4\nf 1 5 7 8 9\n".encode())
    expected = [[0, 1, 3], [0, 3, 2], [0, 1, 5], [0, 4, 6], [0, 6, 7], [0, 7, 8]]
    np.testing.assert_array_equal(mesh.faces, expected)
    off = Mesh.read(_off(CUBE, [[0, 1, 3, 2], [4, 6, 7], [0, 4, 5, 7, 3]]))
    expected = [[0, 1, 3], [0, 3, 2], [4, 6, 7], [0, 4, 5], [0, 5, 7], [0, 7, 3]]
    np.testing.assert_array_equal(off.faces, expected)


@settings(max_examples=100)
@given(data=st.data())
def test_corrupted_files_are_rejected_or_decoded(data: st.DataObject) -> None:
    files = [_off(CUBE, SQUARES), _obj(), _text_ply(), _big_ply(), _stl(binary=True)]
    raw = bytearray(data.draw(st.sampled_from([*files, gzip.compress(files[0])])))
    for _ in range(data.draw(st.integers(1, 8))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DataError):
        mesh = Mesh.read(bytes(raw[: data.draw(st.integers(len(raw) // 2, len(raw)))]))
        assert np.isfinite(mesh.vertices).all()
        assert mesh.faces.max() < len(mesh.vertices)


def test_degenerate_parts_are_removed() -> None:
    vertices = np.vstack([BALL.vertices, [9, 9, 9]])
    faces = np.vstack([BALL.faces, BALL.faces[:2, [1, 2, 0]], [[0, 0, 1]]])
    mesh = Mesh.clean(vertices, faces)
    assert mesh.vertices.shape == BALL.vertices.shape
    np.testing.assert_array_equal(mesh.faces, BALL.faces)


def test_areas_and_normals() -> None:
    assert BALL.vertex_areas().sum() == pytest.approx(BALL.area)
    np.testing.assert_allclose(
        np.abs((BALL.vertex_normals() * BALL.vertices).sum(axis=1)), 1, atol=0.05
    )


TRUNCATED = BALL.to_ply()[:-100]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "not a mesh in one of the formats OFF, OBJ, PLY, STL"),
        (b"\xff\xd8 a picture", "not a mesh in one of the formats"),
        (b"OFF\n4 1 0\n0 0 0\n1 0 0\n", "truncated: expected 4 vertices, got 2"),
        (
            b"OFF\n4 2 0\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n3 0 1 2\n3 0 1",
            "truncated: expected 2 faces, the file ends in face 2",
        ),
        (b"OFF\nfour faces\n", "a corrupted mesh"),
        (b"OFF BINARY\n", "expected plain text OFF"),
        (
            b"OFF\n4 1 0\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n3 0 1 7\n",
            "faces refer to vertices 0 to 7, but there are 4",
        ),
        (
            b"OFF\n4 1 0\n0 0 nan\n1 0 0\n0 1 0\n0 0 1\n3 0 1 2\n",
            "some coordinates are NaN or infinite",
        ),
        (
            b"OFF\n4 1 0\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n3 0 1 2\n",
            "at least 4 vertices, got 3 with a total area of 0.5",
        ),
        (
            b"OFF\n4 2 0\n0 0 0\n0 0 0\n0 0 0\n0 0 0\n3 0 1 2\n3 1 2 3\n",
            "at least 4 vertices, got 4 with a total area of 0",
        ),
        (b"v 0 0 0\nv 1 0 0\n", "at least 4 vertices, got 0 with a total area of 0"),
        (TRUNCATED, "a corrupted mesh .*unexpected length"),
        (_text_ply()[:-30], "truncated: expected 8 vertices and 6 faces, got 12 rows"),
        (b"v 0 0 0\nv 1 0\nf 1 2 1\n", "a corrupted mesh"),
        (_obj()[:60], "a corrupted mesh|at least 4 vertices"),
        (_stl(binary=False)[:-200], "a corrupted mesh"),
        (_stl(binary=True)[:-20], "a corrupted mesh"),
        (b"ply\nformat ascii 1.0\n", "truncated: the PLY header has no end"),
        (b"ply\nformat ascii 1.0\nelement vertex 0\nend_header\n", "a PLY file without vertices"),
        (b"ply\nformat ebcdic 1.0\nelement vertex 9\nend_header\n", "a corrupted mesh"),
        (gzip.compress(BALL.to_ply())[:-9], "a corrupted gzip file"),
        (["a", "mesh"], "expected the path or the bytes of a mesh, got list"),
        (Path("nowhere.off"), "cannot be read"),
    ],
)
def test_unusable_meshes_are_rejected(raw: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Mesh.read(raw)


def test_a_mesh_that_is_too_large_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossbit.features.shape._MAX_VERTICES", 10)
    with pytest.raises(DataError, match="more than 10 vertices"):
        Mesh.read(BALL.to_ply())
    monkeypatch.setattr("crossbit.features.shape._MAX_BYTES", 1000)
    with pytest.raises(DataError, match="more than 0 MB"):
        Mesh.read(gzip.compress(bytes(2000)))


def test_a_mesh_survives_ply() -> None:
    mesh = Mesh.read(Mesh(BALL.vertices, BALL.faces).to_ply())
    np.testing.assert_allclose(mesh.vertices, BALL.vertices, atol=1e-6)
    np.testing.assert_array_equal(mesh.faces, BALL.faces)
