"""Surfaces, transformations, distractors and the list of shapes."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from crossbit import DataError
from crossbit.features.shape import Mesh
from crossbit_experiments.shapegoogle.distractors import FAMILIES, distractor
from crossbit_experiments.shapegoogle.shapes import (
    CLASSES,
    N_DISTRACTORS,
    N_SHAPES,
    count_poses,
    find_poses,
    list_shapes,
)
from crossbit_experiments.shapegoogle.surfaces import (
    VERTICES,
    ball,
    coarsen,
    distances,
    isosurface,
    tube,
    without,
)
from crossbit_experiments.shapegoogle.transformations import MAGNITUDES, transform
from tests.experiments.meshes import small_sources

pytest.importorskip("scipy")
SHAPE = distractor("knot", 0, [1e4])  # it comes near itself, as the topology transformation needs


def _euler(mesh: Mesh) -> int:
    return len(mesh.vertices) - len(mesh.edges()) + len(mesh.faces)


def test_a_ball_is_round_and_closed() -> None:
    mesh = ball(4)
    assert _euler(mesh) == 2
    assert mesh.area == pytest.approx(4 * np.pi, rel=0.01)
    outward = (mesh.vertex_normals() * mesh.vertices).sum(axis=1)
    assert (outward > 0.9).all() or (outward < -0.9).all()


def test_a_tube_is_a_torus() -> None:
    angle = np.linspace(0, 2 * np.pi, 100, endpoint=False)
    mesh = tube(
        np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=1), np.full(100, 0.2), around=30
    )
    assert _euler(mesh) == 0
    assert mesh.area == pytest.approx(4 * np.pi**2 * 0.2, rel=0.02)


def test_an_isosurface_encloses_negative_values() -> None:
    low, high = np.full(3, -1.5), np.full(3, 1.5)
    mesh = isosurface(lambda points: np.linalg.norm(points, axis=1) - 1, low, high, cells=30)
    assert _euler(mesh) == 2
    np.testing.assert_allclose(np.linalg.norm(mesh.vertices, axis=1), 1, atol=0.01)
    assert mesh.area == pytest.approx(4 * np.pi, rel=0.02)
    # All triangles face the same way: normals of neighbors agree, so they add up.
    assert np.abs((mesh.vertex_normals() * mesh.vertices).sum(axis=1)).min() > 0.9


def test_coarsening_keeps_the_surface() -> None:
    mesh = coarsen(ball(5), 800, seed=0)
    assert len(mesh.vertices) == 800
    assert _euler(mesh) == 2
    assert mesh.area == pytest.approx(4 * np.pi, rel=0.02)


def test_distances_follow_the_surface() -> None:
    mesh = ball(4)
    far = distances(mesh, np.array([0]))[0]
    opposite = (mesh.vertices @ mesh.vertices[0]).argmin()
    assert 0.99 * np.pi < far[opposite] < 1.1 * np.pi  # chords are a little shorter than arcs


def test_the_largest_piece_is_kept() -> None:
    mesh = ball(3)
    belt = np.abs(mesh.vertices[:, 2] - 0.3) < 0.15
    left = without(mesh, belt)
    assert (left.vertices[:, 2] < 0.3).all()


@pytest.mark.parametrize("kind", MAGNITUDES)
def test_stronger_transformations_change_more(kind: str) -> None:
    def change(strength: float) -> float:
        mesh = transform(SHAPE, kind, strength, 5)
        assert np.isfinite(mesh.vertices).all()
        if mesh.vertices.shape == SHAPE.vertices.shape:
            return float(np.abs(mesh.vertices - SHAPE.vertices).max())
        return float(len(SHAPE.vertices) - len(mesh.vertices))

    weak, strong = change(0.2), change(1.0)
    assert 0 < weak < strong or (kind == "shot noise" and 0 <= weak <= strong)


def test_the_same_seed_gives_the_same_shape() -> None:
    first, again, other = (transform(SHAPE, "noise", 1.0, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.vertices, again.vertices)
    assert not np.array_equal(first.vertices, other.vertices)


@pytest.mark.parametrize("family", FAMILIES)
def test_distractors_are_closed_surfaces_of_the_size_of_a_class(family: str) -> None:
    mesh = distractor(family, 7, [2e4])
    assert 1e4 < mesh.area < 4e4
    assert 300 < len(mesh.vertices) <= VERTICES
    sides = np.sort(mesh.faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), axis=1)
    uses = np.unique(sides, axis=0, return_counts=True)[1]
    assert (uses == 2).mean() > 0.99  # a closed surface: every edge has two sides
    assert mesh.area != distractor(family, 8, [2e4]).area


def test_there_are_as_many_shapes_as_in_the_paper_split_evenly() -> None:
    items = list_shapes()
    shapes = [item for item in items if item.label is not None]
    assert (len(shapes), len(items) - len(shapes)) == (N_SHAPES, N_DISTRACTORS) == (583, 456)
    assert len({item.name for item in items}) == len(items)
    sizes = Counter(item.label for item in shapes)
    assert set(sizes) == set(CLASSES)
    assert max(sizes.values()) - min(sizes.values()) == 1
    n_poses = dict.fromkeys(CLASSES, 6)
    halves = Counter(item.label for item in shapes if item.in_train(n_poses))
    assert all(23 <= halves[label] <= 26 for label in CLASSES)
    seen = Counter(item.kind for item in items if item.label is None and item.in_train(n_poses))
    assert seen == dict.fromkeys(FAMILIES, 19)


def test_poses_are_counted_by_name(tmp_path: Path) -> None:
    folder = small_sources(tmp_path)
    assert count_poses(folder) == {name: len(own) for name, own in find_poses(folder).items()}


def test_poses_are_scaled_to_common_units(tmp_path: Path) -> None:
    poses = find_poses(small_sources(tmp_path))
    assert [pose.path.name for pose in poses["person"]] == ["8_man_01.off", "person1.off"]
    assert poses["cat"][0].factor == 1
    lion = next(pose for pose in poses["lion"] if "reference" in pose.path.name)
    assert lion.read().area == pytest.approx(20_000, rel=1e-3)


def test_missing_classes_are_named(tmp_path: Path) -> None:
    small_sources(tmp_path)
    (tmp_path / "tosca" / "wolf0.off").unlink()
    (tmp_path / "tosca" / "wolf1.off").unlink()
    with pytest.raises(DataError, match=r"no meshes of \['wolf'\]"):
        find_poses(tmp_path)


def test_the_real_meshes_make_twelve_classes(shapes_folder: Path) -> None:
    poses = find_poses(shapes_folder)
    assert {label: len(of_class) for label, of_class in poses.items()} == {
        **{"cat": 21, "centaur": 6, "david": 7, "dog": 9, "horse": 19, "michael": 20},
        **{"victoria": 12, "wolf": 3, "gorilla": 5, "person": 19, "lion": 10, "camel": 11},
    }
    camel = poses["camel"][0].read()
    assert len(camel.vertices) == VERTICES
    assert camel.area == pytest.approx(20_000, rel=0.1)
