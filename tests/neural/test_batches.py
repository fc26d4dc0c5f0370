"""Batches, the supervision behind them, and splits."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from crossbit import DataError, Pairs
from crossbit.data import training_set
from crossbit.neural.batches import _FullBatches, _MiniBatches, _OnlineBatches, make_batches
from crossbit.neural.pairs import DensePairs, PairList
from crossbit.neural.splits import Subset
from crossbit.neural.supervision import _AlignedRows, _ExplicitPairs, _Labels, _SoftLabels
from tests.neural.test_objective import make_config, make_data


def test_batches_depend_on_the_step_only_and_cover_every_row() -> None:
    data = make_data()
    config = replace(make_config(data, optimizer="adam"), batch=5)
    subset = Subset.whole(data)
    batches = make_batches(subset, config)
    assert isinstance(batches, _MiniBatches)
    first = batches.batch(7)
    second = make_batches(subset, config).batch(7)
    np.testing.assert_array_equal(first.positions["image"], second.positions["image"])
    np.testing.assert_array_equal(first.positions["image"], first.positions["text"])
    seen: set[int] = set()
    for step in (1, 2, 3):
        positions = batches.batch(step).positions["image"]
        assert positions is not None
        seen |= set(positions.tolist())
    assert seen == set(range(12))


def test_online_batches_contain_only_the_rows_of_their_pairs() -> None:
    data = make_data()
    batches = make_batches(Subset.whole(data), replace(make_config(data, online=True), batch=1))
    assert isinstance(batches, _OnlineBatches)
    labels = np.arange(12) % 3
    for step in range(1, 30):
        batch = batches.batch(step)
        for term, pairs in zip(batches.terms, batch.pairs, strict=True):
            assert isinstance(pairs, PairList)
            assert len(pairs.left) <= 2
            left = batch.positions[term.supervision.left]
            right = batch.positions[term.supervision.right]
            assert left is not None
            assert right is not None
            i = left[pairs.left.numpy()]
            j = right[pairs.right.numpy()]
            np.testing.assert_array_equal(labels[i] == labels[j], pairs.similar.numpy())
            assert term.supervision.left != term.supervision.right or (i != j).all()


def test_too_many_pairs_for_a_full_batch_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_data(aligned=True)
    monkeypatch.setattr("crossbit.neural.batches.MAX_DENSE_PAIRS", 100)
    config = replace(make_config(data), batch=None, online=False)
    with pytest.raises(
        DataError,
        match="144 pairs are too many to compare in every step; use optimizer='adam'",
    ):
        make_batches(Subset.whole(data), config)
    batches = make_batches(Subset.whole(make_data()), config)
    assert isinstance(batches, _FullBatches)
    assert isinstance(batches.batch(1).pairs[0], PairList)


@pytest.mark.parametrize("multi_label", [False, True])
def test_labels_give_all_pairs_of_known_rows(multi_label: bool) -> None:
    labels = np.array([0, 0, 1, -1])
    a: Any = labels
    if multi_label:
        a = np.eye(2, dtype=bool)[np.maximum(labels, 0)] & (labels >= 0)[:, None]
    pairs = _Labels("image", "image", a, a).dense(np.arange(4), np.arange(4))
    assert pairs.mask is not None
    known = np.arange(4) < 3
    np.testing.assert_array_equal(
        pairs.mask.numpy(), known[:, None] & known & ~np.eye(4, dtype=bool)
    )
    assert list(pairs.counts) == [2, 4]
    index, similar = _Labels("image", "text", a, a).draw(50, np.random.default_rng(0))
    np.testing.assert_array_equal(labels[index[:, 0]] == labels[index[:, 1]], similar)
    assert (labels[index] >= 0).all()


def test_aligned_rows_are_similar_where_the_item_is_the_same() -> None:
    left = np.array([0, 2, 5])
    right = np.array([2, 3, 5])
    rows = _AlignedRows("image", "text", left, right)
    np.testing.assert_array_equal(
        rows.dense(np.arange(3), np.arange(3)).similar.numpy(), [[0, 0, 0], [1, 0, 0], [0, 0, 1]]
    )
    index, similar = rows.draw(20, np.random.default_rng(0))
    np.testing.assert_array_equal(left[index[:, 0]] == right[index[:, 1]], similar)


@pytest.mark.parametrize("multi_label", [False, True])
def test_soft_labels_are_the_probability_of_a_common_class(multi_label: bool) -> None:
    random = np.random.default_rng(0)
    p, q = (random.dirichlet(np.ones(3), size=n).astype(np.float32) for n in (4, 5))
    labels = [np.zeros((n, 3), bool) if multi_label else np.zeros(n, int) for n in (4, 5)]
    pairs = _SoftLabels("image", "text", labels[0], labels[1], p, q)
    rows = [np.array([0, 2, 3]), np.array([1, 4])]
    similar = pairs.dense(*rows).similar.numpy()
    products = p[rows[0]][:, None] * q[rows[1]]
    expected = 1 - np.prod(1 - products, axis=2) if multi_label else products.sum(axis=2)
    np.testing.assert_allclose(similar, expected, atol=0.01 if multi_label else 1e-6)
    assert pairs.dense(*rows).mask is None
    own = _SoftLabels("image", "image", labels[0], labels[0], p, p)
    mask = own.dense(np.arange(4), np.arange(4)).mask
    assert mask is not None
    np.testing.assert_array_equal(mask.numpy(), ~np.eye(4, dtype=bool))


def test_pairs_that_are_not_listed_are_dissimilar() -> None:
    index = np.array([[0, 4], [2, 1], [2, 4]])
    explicit = _ExplicitPairs("image", "text", index, np.array([True, True, False]))
    pairs = explicit.dense(np.array([0, 2]), np.array([1, 4, 9]))
    np.testing.assert_array_equal(pairs.similar.numpy(), [[0, 1, 0], [1, 0, 0]])


def test_a_list_of_many_pairs_becomes_dense_with_the_same_loss() -> None:
    random = np.random.default_rng(0)
    index = np.argwhere(random.random((12, 9)) < 0.6)
    similar = random.random(len(index)) < 0.3
    listed = PairList.from_index(index, similar)
    dense = listed.densify((12, 9))
    assert isinstance(dense, DensePairs)
    u, v = (torch.from_numpy(random.normal(size=(n, 4))) for n in (12, 9))
    for sums in (True, False):
        assert dense.contrastive(u, v, margin=2.0, sums=sums) == pytest.approx(
            listed.contrastive(u, v, margin=2.0, sums=sums).item()
        )
    short_list = PairList.from_index(index[:8], similar[:8])
    assert short_list.densify((12, 9)) is short_list
    repeated = PairList.from_index(np.concatenate([index, index]), np.r_[similar, similar])
    assert repeated.densify((12, 9)) is repeated  # a dense matrix has each pair once


def test_a_split_is_stratified_and_disjoint() -> None:
    labels = np.repeat([0, 1, 2], [60, 30, 10])
    random = np.random.default_rng(0)
    views = {"image": random.normal(size=(100, 2)), "text": random.normal(size=(100, 2))}
    training, validation = Subset.split(training_set(views, labels=labels), 0.2, seed=0)
    both = np.concatenate([training.rows["image"], validation.rows["image"]])
    np.testing.assert_array_equal(np.sort(both), np.arange(100))
    np.testing.assert_array_equal(validation.rows["image"], validation.rows["text"])
    np.testing.assert_array_equal(np.bincount(labels[validation.rows["image"]]), [12, 6, 2])


def test_a_split_of_pairs_keeps_every_row() -> None:
    index = np.stack([np.arange(10), np.arange(10)], axis=1).repeat(20, axis=0)
    pairs = Pairs("image", "text", index, np.arange(200) % 2 == 0)
    training, validation = Subset.split(make_data(pairs=pairs), 0.25, seed=0)
    assert len(training.rows["image"]) == len(validation.rows["image"]) == 12
    assert len(training.pairs[0]) + len(validation.pairs[0]) == 200
    assert 25 <= len(validation.pairs[0]) <= 75
