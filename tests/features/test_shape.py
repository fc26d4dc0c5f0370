"""Eigenpairs, signatures and bags against closed forms and invariances."""

import sys
from pathlib import Path

import numpy as np
import pytest

from crossbit import DataError, MissingExtraError, features
from crossbit.features.shape import (
    BagOfGeometry,
    HeatKernelExtractor,
    HeatPatches,
    Mesh,
    SpatialBag,
    compute_spectrum,
    heat_kernel_signature,
    scale_invariant_signature,
)
from tests.features.surfaces import flat_torus, sheet, sphere

pytest.importorskip("robust_laplacian")
TIMES = np.geomspace(0.02, 0.2, 6)
SMALL = {"first": 0.02, "last": 0.2, "n_pairs": 60, "patches": 64}


def _heat(mesh: Mesh, *, patches: int | None = None) -> HeatPatches:
    pairs = compute_spectrum(mesh, 60)
    return HeatPatches.from_spectrum(pairs, heat_kernel_signature(pairs, TIMES), patches=patches)


def _bumpy(seed: int = 0) -> Mesh:
    """Return a sphere with bumps, whose signatures vary over the surface."""
    ball = sphere()
    waves = np.random.default_rng(seed).normal(size=(3, 3)) * 2
    return Mesh(
        ball.vertices * (1 + 0.2 * np.sin(ball.vertices @ waves).sum(axis=1, keepdims=True)),
        ball.faces,
    )


def test_the_spectrum_of_a_sphere_is_known() -> None:
    radius = 3.0
    result = compute_spectrum(sphere(5, radius), 25)
    expected = np.repeat([l * (l + 1) for l in range(5)], [2 * l + 1 for l in range(5)]) / radius**2  # noqa: E741
    np.testing.assert_allclose(result.values, expected, rtol=0.01, atol=1e-8)
    assert result.areas.sum() == pytest.approx(4 * np.pi * radius**2, rel=0.01)


def test_the_spectrum_of_a_flat_torus_is_known() -> None:
    width, height = 2.0, 3.0
    i, j = np.mgrid[-4:5, -4:5]
    expected = np.sort((4 * np.pi**2 * ((i / width) ** 2 + (j / height) ** 2)).ravel())[:20]
    np.testing.assert_allclose(
        compute_spectrum(flat_torus(48, width, height), 20).values, expected, rtol=0.015, atol=1e-8
    )


def test_eigenvectors_are_orthonormal_by_area() -> None:
    result = compute_spectrum(_bumpy(), 30)
    product = result.vectors.T @ (result.areas[:, None] * result.vectors)
    np.testing.assert_allclose(product, np.eye(30), atol=1e-8)


def test_small_meshes_have_all_their_eigenpairs() -> None:
    tetrahedron = Mesh.clean(
        np.vstack([np.zeros(3), np.eye(3)]), np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
    )
    assert compute_spectrum(tetrahedron, 100).values.shape == (4,)


def test_the_signature_of_a_sphere_is_constant_and_known() -> None:
    heat = heat_kernel_signature(compute_spectrum(sphere(5), 120), np.array([0.2, 0.5]))
    degrees = np.arange(30)
    exact = [
        ((2 * degrees + 1) * np.exp(-degrees * (degrees + 1) * t)).sum() / (4 * np.pi)
        for t in (0.2, 0.5)
    ]
    np.testing.assert_allclose(heat, np.tile(exact, (len(heat), 1)), rtol=0.02)


def test_bags_are_invariant_to_rigid_motion() -> None:
    mesh = _bumpy()
    turn, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))
    moved = Mesh(mesh.vertices @ turn + 5.0, mesh.faces)
    bag = BagOfGeometry.fit([_heat(mesh)], size=8)
    np.testing.assert_allclose(bag.bag(_heat(moved)), bag.bag(_heat(mesh)), atol=1e-5)


def test_bags_are_invariant_to_bending() -> None:
    flat, folded = sheet(), sheet(bend=1.5)
    assert not np.allclose(flat.vertices, folded.vertices)
    for cls in (BagOfGeometry, SpatialBag):
        bag = cls.fit([_heat(flat)], size=4)
        np.testing.assert_allclose(bag.bag(_heat(folded)), bag.bag(_heat(flat)), atol=1e-5)


def test_size_matters_unless_signatures_are_scale_invariant() -> None:
    mesh = _bumpy()
    large = Mesh(4 * mesh.vertices, mesh.faces)
    pairs, scaled = compute_spectrum(mesh, 60), compute_spectrum(large, 60)
    np.testing.assert_allclose(
        heat_kernel_signature(scaled, 16 * TIMES) * 16, heat_kernel_signature(pairs, TIMES)
    )
    # A factor of 4 is a shift by 4 octaves; t from 2 to 2^25 covers both on large surfaces only.
    far = [compute_spectrum(Mesh(s * mesh.vertices, mesh.faces), 60) for s in (60.0, 240.0)]
    first, second = (scale_invariant_signature(pairs) for pairs in far)
    np.testing.assert_allclose(first, second, atol=0.03 * np.abs(first).max())
    small, big = (heat_kernel_signature(pairs, np.array([100.0])) for pairs in far)
    assert not np.allclose(small, big, rtol=0.1)


@pytest.mark.parametrize("patches", [None, 64])
def test_sums_of_bags_are_exact(patches: int | None) -> None:
    heat = _heat(_bumpy(), patches=patches)
    spatial = SpatialBag.fit([heat], size=8, nearness=0.05)
    words = BagOfGeometry(words=spatial.words, softness=spatial.softness)
    F, f = spatial.bag(heat).reshape(8, 8), words.bag(heat)
    assert f.sum() == pytest.approx(1, abs=1e-6)
    assert F.sum() == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(F.sum(axis=1), f, atol=1e-6)
    np.testing.assert_allclose(F, F.T, atol=1e-7)
    forever = SpatialBag(words=spatial.words, softness=spatial.softness, nearness=1e6)
    np.testing.assert_allclose(forever.bag(heat).reshape(8, 8), np.outer(f, f), atol=1e-6)


def test_a_spatial_bag_equals_its_definition() -> None:
    """Compare with the explicit kernel matrix of all pairs of points."""
    mesh = _bumpy()
    pairs, heat = compute_spectrum(mesh, 60), _heat(mesh)
    bag = SpatialBag.fit([heat], size=4, nearness=0.05)
    kernel = (pairs.vectors * np.exp(-0.05 * pairs.values)) @ pairs.vectors.T
    shares = bag.assignments(heat) * pairs.areas[:, None]
    np.testing.assert_allclose(
        bag.bag(heat).reshape(4, 4), shares.T @ kernel @ shares / pairs.areas.sum(), atol=1e-6
    )


def test_patches_hardly_change_a_bag() -> None:
    whole, patched = _heat(_bumpy()), _heat(_bumpy(), patches=256)
    assert len(patched.areas) == 256
    for cls, size in ((BagOfGeometry, 32), (SpatialBag, 8)):
        bag = cls.fit([whole], size=size)
        np.testing.assert_allclose(bag.bag(patched), bag.bag(whole), atol=5e-3)


def test_extractors_equal_their_parts() -> None:
    mesh = _bumpy()
    extractor = HeatKernelExtractor(**SMALL, n_values=40)  # type: ignore[arg-type]
    row = extractor.extract_one(mesh.to_ply())
    assert row.shape == (extractor.width,)
    heat = extractor.from_row(row)
    for cls, size in ((BagOfGeometry, 8), (SpatialBag, 4)):
        bag = cls.fit([heat], size=size, **extractor.signature_settings())
        again = features.load_extractor(bag.recipe())
        assert isinstance(again, cls)
        np.testing.assert_array_equal(
            again.extract_one(mesh.to_ply()), bag.extract_one(mesh.to_ply())
        )
        np.testing.assert_allclose(bag.extract_one(mesh.to_ply()), bag.bag(heat), atol=1e-4)
        assert bag.extract_one(mesh.to_ply()).shape == (bag.width,)


def test_a_mesh_of_few_vertices_is_padded() -> None:
    extractor = HeatKernelExtractor(**SMALL, n_values=40)  # type: ignore[arg-type]
    heat = extractor.from_row(extractor.extract_one(sphere(1).to_ply()))
    assert len(heat.areas) == 18
    assert heat.areas.sum() == pytest.approx(sphere(1).area, rel=1e-5)


def test_scale_invariant_extractors_ignore_size() -> None:
    mesh = Mesh(100 * _bumpy().vertices, _bumpy().faces)
    extractor = HeatKernelExtractor(**{**SMALL, "invariant": True})  # type: ignore[arg-type]
    bag = BagOfGeometry.fit(
        [extractor.heat_patches(mesh.to_ply())], size=4, **extractor.signature_settings()
    )
    twice = Mesh(2 * mesh.vertices, mesh.faces)
    np.testing.assert_allclose(
        bag.extract_one(twice.to_ply()), bag.extract_one(mesh.to_ply()), atol=0.05
    )


def test_many_meshes_are_extracted_and_corrupted_ones_named(tmp_path: Path) -> None:
    meshes = [_bumpy(seed).to_ply() for seed in range(2)]
    (tmp_path / "corrupted.off").write_text("OFF\n3 1 0\n0 0 0\n")
    extractor = HeatKernelExtractor(**SMALL)  # type: ignore[arg-type]
    result = features.extract(
        extractor, [meshes[0], tmp_path / "corrupted.off", meshes[1]], cache=tmp_path / "cache"
    )
    assert result.positions.tolist() == [0, 2]
    assert result.skipped == [
        f"{tmp_path / 'corrupted.off'}: truncated: expected 3 vertices, got 1"
    ]
    again = features.extract(extractor, meshes, cache=tmp_path / "cache")
    np.testing.assert_array_equal(again.rows, result.rows)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"patches": 100}, "patches must be a power of two, got 100"),
        ({"n_pairs": 0}, "n_pairs must be an integer of at least 1, got 0"),
        ({"first": 5.0, "last": 2.0}, "expected 0 < first <= last, got 5.0 and 2.0"),
    ],
)
def test_settings_are_validated(fields: dict[str, float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        HeatKernelExtractor(**fields)  # type: ignore[arg-type]


def test_a_vocabulary_must_match_its_signatures() -> None:
    with pytest.raises(DataError, match="words: expected 6 columns, got 3"):
        BagOfGeometry(words=np.ones((2, 3)), softness=1.0)
    with pytest.raises(DataError, match="softness must be positive and finite, got 0"):
        BagOfGeometry(words=np.ones((2, 6)), softness=0)


def test_degenerate_triangles_are_reported() -> None:
    thin = Mesh(np.zeros((5, 3)), np.array([[0, 1, 2], [1, 2, 3], [2, 3, 4]]))
    with pytest.raises(DataError, match="too degenerate for a Laplacian"):
        compute_spectrum(thin)


def test_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "robust_laplacian", None)
    with pytest.raises(MissingExtraError, match=r"\[media\]'"):
        compute_spectrum(sphere(1))
