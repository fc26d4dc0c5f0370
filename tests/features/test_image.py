import cv2
import numpy as np
import pytest
from PIL import Image
from sklearn.cluster import KMeans

from crossbit import DataError, features
from crossbit.features import BagOfSift, ColorHistogram
from crossbit.features.image import decode_image
from crossbit.features.kmeans import k_means, nearest
from tests.features.images import encoded, gradient, spots

IMAGES = [encoded(spots(seed)) for seed in range(4)]
BAG = BagOfSift.fit(IMAGES, size=10)


def test_nearest_equals_its_definition() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(50, 3)).astype(np.float32)
    centers = random.normal(size=(7, 3)).astype(np.float32)
    expected = np.square(X[:, None] - centers).sum(axis=2)
    labels, distances = nearest(X, centers)
    np.testing.assert_array_equal(labels, expected.argmin(axis=1))
    np.testing.assert_allclose(distances, expected.min(axis=1), atol=1e-5)


def test_k_means_is_as_good_as_scikit_learn() -> None:
    random = np.random.default_rng(1)
    X = (random.normal(size=(600, 4)) + 3 * random.normal(size=(12, 4)).repeat(50, axis=0)).astype(
        np.float32
    )
    ours = min(nearest(X, k_means(X, 12, seed=seed))[1].sum() for seed in range(3))
    peer = KMeans(12, init="random", n_init=3, random_state=0).fit(X)
    assert ours < 1.05 * peer.inertia_


def test_k_means_finds_few_distinct_rows() -> None:
    X = np.repeat(np.eye(4, dtype=np.float32), 5, axis=0)
    np.testing.assert_array_equal(np.sort(k_means(X, 4), axis=0), np.sort(np.eye(4), axis=0))
    with pytest.raises(DataError, match="5 words need at least 5 distinct features, got 4"):
        k_means(X, 5)


def test_a_center_without_rows_restarts() -> None:
    X = np.concatenate([np.zeros((300, 2)), np.full((1, 2), 9.0), np.full((1, 2), 20.0)]).astype(
        np.float32
    )
    assert nearest(X, k_means(X, 3))[1].sum() == 0


def test_a_bag_of_sift_counts_words() -> None:
    gray = np.asarray(decode_image(IMAGES[0], side=512).convert("L"))
    _, sift = cv2.SIFT.create().detectAndCompute(gray, None)
    labels = np.square(sift[:, None].astype(float) - BAG.words).sum(axis=2).argmin(axis=1)
    expected = np.bincount(labels, minlength=10) / len(labels)
    np.testing.assert_allclose(BAG.extract(IMAGES[:1])[0], expected, atol=1e-6)


def test_the_same_seed_gives_the_same_vocabulary() -> None:
    again = BagOfSift.fit([*IMAGES, b"not an image"], size=10, seed=0)
    np.testing.assert_array_equal(again.words, BAG.words)


def test_a_vocabulary_from_sampled_features() -> None:
    assert BagOfSift.fit(IMAGES, size=5, max_features=20).width == 5


def test_a_uniform_image_has_no_sift_features() -> None:
    with pytest.raises(DataError, match="has no SIFT features"):
        BAG.extract([encoded(Image.new("RGB", (64, 64), "blue"))])


def test_a_vocabulary_of_another_width_is_rejected() -> None:
    with pytest.raises(DataError, match="words: expected 128 columns, got 3"):
        BagOfSift(np.ones((5, 3)))


def test_a_uniform_image_has_colors_but_no_orientations() -> None:
    row = ColorHistogram().extract([encoded(Image.new("RGB", (30, 40), (255, 0, 0)))])[0]
    assert row.shape == (192,)
    assert row[3 * 16] == pytest.approx(0.5)  # all red, neither green nor blue
    assert row.sum() == pytest.approx(0.5)  # and no edges


def test_edges_are_counted_by_cell_and_orientation() -> None:
    stripes = np.zeros((96, 96), np.uint8)
    stripes[:, 70:] = 255  # a vertical edge in the third of four columns of cells
    row = ColorHistogram().extract([encoded(Image.fromarray(stripes))])[0]
    edges = row[64:].reshape(4, 4, 8)
    assert edges.sum() == pytest.approx(0.5)
    assert edges[:, 2, 0].sum() == pytest.approx(0.5)


def test_an_extractor_survives_its_recipe() -> None:
    for extractor in (BAG, ColorHistogram(side=32, levels=2, cells=2, angles=4)):
        again = features.load_extractor(extractor.recipe())
        assert again.recipe() == extractor.recipe()
        np.testing.assert_array_equal(again.extract(IMAGES), extractor.extract(IMAGES))
        assert again.extract(IMAGES).shape == (4, again.width)


def test_a_grid_needs_enough_pixels() -> None:
    with pytest.raises(DataError, match="side: 4 cells need at least 8 pixels, got 6"):
        ColorHistogram(side=6)
    with pytest.raises(DataError, match="levels must be an integer of at least 1, got 0"):
        ColorHistogram(levels=0)


def test_a_row_does_not_depend_on_the_format() -> None:
    rows = ColorHistogram().extract([encoded(gradient(), "PNG"), encoded(gradient(), "BMP")])
    np.testing.assert_array_equal(rows[0], rows[1])
