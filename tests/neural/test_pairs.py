"""Which pairs are similar, and the batches that contain them."""

from typing import Any

import numpy as np
import pytest
import torch

from crossbit import DataError, Pairs
from crossbit.data import training_set
from tests.neural.test_objective import LABELS, make_batches, make_data


def test_batches_depend_on_seed_step_and_worker_only() -> None:
    data = make_data()
    first = make_batches(data, size=5).at(7).rows
    again = make_batches(data, size=5).at(7).rows
    other = make_batches(data, size=5, worker=1).at(7).rows
    assert torch.equal(first["image"], again["image"])
    assert not torch.equal(first["image"], other["image"])
    assert len(first["image"]) == len(first["text"]) == 5


def test_mini_batches_reach_every_row_and_hold_items_with_all_their_views() -> None:
    data = make_data()
    seen = set()
    for step in range(1, 30):
        rows = make_batches(data, size=5).at(step).rows
        items = [
            int(np.flatnonzero((np.float32(data.views["image"]) == row).all(axis=1))[0])
            for row in rows["image"].numpy()
        ]
        np.testing.assert_array_equal(rows["text"].numpy(), np.float32(data.views["text"][items]))
        seen |= set(items)
    assert seen == set(range(12))


def test_online_batches_contain_only_the_rows_of_their_pairs() -> None:
    data = make_data()
    batches = make_batches(data, size=1, online=True)
    for step in range(1, 30):
        batch = batches.at(step)
        assert all(len(rows) <= 6 for rows in batch.rows.values())
        for relation, pairs in zip(batches.relations, batch.pairs, strict=True):
            assert pairs.index is not None
            assert pairs.index.shape[1] <= 2
            labels = []
            for side, name in enumerate((relation.left, relation.right)):
                rows = batch.rows[name][pairs.index[side]].numpy()
                view = np.float32(data.views[name])
                labels.append([LABELS[(view == row).all(axis=1)][0] for row in rows])
            np.testing.assert_array_equal(
                np.equal(labels[0], labels[1]), pairs.similar.numpy().astype(bool)
            )


def test_online_training_reads_only_the_rows_of_its_pairs() -> None:
    class Counted(np.ndarray):
        read = 0

        def __getitem__(self, rows: Any) -> Any:  # noqa: ANN401
            type(self).read += np.size(rows)
            return np.asarray(self)[rows]

    random = np.random.default_rng(0)
    view = random.normal(size=(500, 3)).astype(np.float32)
    data = training_set({"a": view, "b": view}, labels=np.arange(500) % 5)
    data.views["a"] = view.view(Counted)
    batches = make_batches(data, size=2, online=True)
    for step in range(1, 11):
        batches.at(step)
    assert 0 < Counted.read <= 10 * 12  # of three losses, four pairs each


def test_modalities_that_share_no_row_draw_no_pairs_online() -> None:
    random = np.random.default_rng(0)
    views = {name: random.normal(size=(20, 3)) for name in "abc"}
    views["b"][:10] = np.nan
    views["c"][10:] = np.nan
    data = training_set(views, aligned=True)
    batch = make_batches(data, size=4, online=True).at(1)
    assert [0 if p.index is None else int(p.similar.sum()) for p in batch.pairs] == [4, 4, 0]


def test_too_many_pairs_for_a_full_batch_are_drawn_or_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("crossbit.neural.pairs.MAX_ALL_PAIRS", 100)
    with pytest.raises(
        DataError, match="144 pairs are too many to compare in every step; use optimizer='adam'"
    ):
        make_batches(make_data(), all_pairs=True).at(1)
    assert make_batches(make_data()).at(1).pairs[0].index is not None


def test_rows_that_are_absent_are_in_no_pair() -> None:
    views = {"image": np.ones((12, 2)), "text": np.ones((12, 2))}
    views["image"][:3] = np.nan
    index = np.stack([np.arange(3, 9), np.arange(6)], axis=1)
    data = training_set(
        views, labels=LABELS, pairs=Pairs("image", "text", index, np.arange(6) % 2 == 0)
    )
    batch = make_batches(data).at(1)
    assert len(batch.rows["image"]) == 9
    assert not any(torch.isnan(rows).any() for rows in batch.rows.values())
