"""Which rows of two modalities are similar, by labels, alignment and listed pairs."""

from typing import Any

import numpy as np
import pytest

from crossbit.data import training_set
from crossbit.data.relations import ListedPairs, SharedClasses, _Classes, relations


@pytest.mark.parametrize("multi_label", [False, True])
def test_labels_give_all_pairs_of_known_rows(multi_label: bool) -> None:
    labels = np.array([0, 0, 1, -1])
    given: Any = labels
    if multi_label:
        given = np.eye(2, dtype=bool)[np.maximum(labels, 0)] & (labels >= 0)[:, None]
    classes = _Classes(given)
    own = SharedClasses("image", "image", classes, classes)
    likely, unlikely = own.between(np.arange(4), np.arange(4))
    known = np.arange(4) < 3
    np.testing.assert_array_equal(
        likely + unlikely, known[:, None] & known & ~np.eye(4, dtype=bool)
    )
    assert (likely.sum(), unlikely.sum()) == (2, 4)
    index, similar = SharedClasses("image", "text", classes, classes).draw(
        50, np.random.default_rng(0)
    )
    np.testing.assert_array_equal(labels[index[:, 0]] == labels[index[:, 1]], similar)
    assert (labels[index] >= 0).all()


def test_aligned_rows_are_similar_where_the_item_is_the_same() -> None:
    views = {"image": np.ones((4, 2)), "text": np.ones((4, 2))}
    views["image"][1] = np.nan
    (items,) = relations(training_set(views, aligned=True))
    likely, _ = items.between(np.array([0, 2, 3]), np.array([2, 3]))
    np.testing.assert_array_equal(likely, [[0, 0], [1, 0], [0, 1]])
    index, similar = items.draw(20, np.random.default_rng(0))
    np.testing.assert_array_equal(index[:, 0] == index[:, 1], similar)
    assert (index[:, 0] != 1).all()


@pytest.mark.parametrize("multi_label", [False, True])
def test_soft_labels_are_the_probability_of_a_common_class(multi_label: bool) -> None:
    random = np.random.default_rng(0)
    p, q = (random.dirichlet(np.ones(3), size=n).astype(np.float32) for n in (4, 5))
    labels = [np.ones((n, 3), bool) if multi_label else np.zeros(n, int) for n in (4, 5)]
    both = SharedClasses("image", "text", _Classes(labels[0], p), _Classes(labels[1], q))
    rows = [np.array([0, 2, 3]), np.array([1, 4])]
    likely, unlikely = both.between(*rows)
    products = p[rows[0]][:, None] * q[rows[1]]
    expected = 1 - np.prod(1 - products, axis=2) if multi_label else products.sum(axis=2)
    np.testing.assert_allclose(likely, expected, atol=0.01 if multi_label else 1e-6)
    np.testing.assert_allclose(likely + unlikely, 1)


def test_pairs_that_are_not_listed_are_dissimilar_to_a_ranking() -> None:
    index = np.array([[0, 4], [2, 1], [2, 4]])
    explicit = ListedPairs("image", "text", index, np.array([True, True, False]))
    likely, unlikely = explicit.between(np.array([0, 2]), np.array([1, 4, 9]))
    np.testing.assert_array_equal(likely, [[0, 1, 0], [1, 0, 0]])
    np.testing.assert_array_equal(unlikely, [[1, 0, 1], [0, 1, 1]])
    within = ListedPairs("image", "image", np.array([[5, 7]]), np.array([True]))
    likely, unlikely = within.between(np.array([5, 7]), np.array([5, 7]))
    np.testing.assert_array_equal(likely, [[0, 1], [0, 0]])
    np.testing.assert_array_equal(unlikely, [[0, 0], [1, 0]])
