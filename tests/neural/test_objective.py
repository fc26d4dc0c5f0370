"""The objective against the formula of the paper, written out; batches; parts."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from crossbit import MMNN, DataError, Pairs
from crossbit.data import TrainingSet, training_set
from crossbit.neural import losses
from crossbit.neural.batches import MiniBatches, Online, Whole, make_batches, make_terms
from crossbit.neural.gathered import Grid, Listed
from crossbit.neural.networks import Network, random_layers
from crossbit.neural.objective import Features, Objective
from crossbit.neural.parts import Part, split
from crossbit.neural.settings import Settings
from crossbit.neural.sources import LabelSource, PairSource, RowSource, listed, pairs_of

MARGINS = {"image-text": 4.0, "image": 2.0, "text": 3.0}


def data(**known: Any) -> TrainingSet:  # noqa: ANN401
    random = np.random.default_rng(0)
    views = {"image": random.normal(size=(12, 5)), "text": random.normal(size=(12, 4))}
    return training_set(views, **(known or {"labels": np.arange(12) % 3}))


def settings(given: TrainingSet, **fields: Any) -> Settings:  # noqa: ANN401
    hasher = MMNN(
        **{"n_bits": 6, "alpha": {"image": 0.1, "text": 0.4}, "margin": MARGINS, **fields}
    )
    return hasher._settings(given)


def objective(given: TrainingSet, how: Settings) -> Objective:
    random = np.random.default_rng(1)
    part = Part.whole(given)
    networks = {
        name: Network(random_layers([view.shape[1], 7, 6], random), dropout=how.dropout)
        for name, view in given.views.items()
    }
    features = Features(part, {}, torch.device("cpu"), lazy=False)
    made = Objective(networks, make_terms(part, how), features, how)
    made.look_at(make_batches(part, how).batch(1), 1, how.beta[0])
    return made


@pytest.mark.parametrize("sums", [False, True])
def test_two_modalities_of_many_are_the_papers_formula(sums: bool) -> None:
    given = data()
    found = objective(given, settings(given, sums=sums))
    value, gradient = found(found.vector())
    x, y = (
        torch.tanh(found.networks[name](torch.tensor(given.views[name], dtype=torch.float32)))
        for name in given.views
    )
    labels = torch.arange(12) % 3
    i, j = torch.cartesian_prod(torch.arange(12), torch.arange(12)).T
    k, l = i[i != j], j[i != j]  # noqa: E741
    cross = losses.contrastive(x[i], y[j], labels[i] == labels[j], margin=4.0, sums=sums)
    within_x = losses.contrastive(x[k], x[l], labels[k] == labels[l], margin=2.0, sums=sums)
    within_y = losses.contrastive(y[k], y[l], labels[k] == labels[l], margin=3.0, sums=sums)
    expected = cross + 0.1 * within_x + 0.4 * within_y
    assert value == pytest.approx(expected.item(), rel=1e-5)
    wanted = torch.cat([g.reshape(-1) for g in torch.autograd.grad(expected, found.parameters)])
    torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-4 * float(wanted.abs().max()))


def test_the_gradient_of_every_term_together_agrees_with_differences() -> None:
    pairs = Pairs(
        "text", "image", np.array([[0, 1], [2, 3], [4, 4]]), np.array([True, False, True])
    )
    given = data(labels=np.array([0, 1, 2, -1] * 3), pairs=pairs, rows=True)
    how = settings(
        given, loss="auto", quantization=0.2, balance=0.3, decay=0.1, dropout=0.2, beta=1.5
    )
    found = objective(given, how)
    for network in found.networks.values():
        network.double()
    found.features._held = {name: rows.double() for name, rows in found.features._held.items()}
    x = found.vector()
    direction = torch.randn(len(x), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    _, gradient = found(x)
    step = 1e-5
    slope = (found(x + step * direction)[0] - found(x - step * direction)[0]) / (2 * step)
    assert slope == pytest.approx(float(gradient @ direction), rel=1e-5)
    assert found.evaluations == 3


def test_dropout_is_the_same_until_other_noise_is_chosen() -> None:
    given = data()
    found = objective(given, settings(given, dropout=0.5))
    batch = Whole(Part.whole(given), found.terms, found.settings).batch(1)
    values = []
    for noise in (1, 1, 2):
        found.look_at(batch, noise, 1.0)
        values.append(found(found.vector())[0])
    assert values[0] == values[1] != values[2]


def test_batches_depend_on_the_step_alone_and_cover_every_row() -> None:
    given = data()
    how = replace(settings(given, optimizer="adam"), batch=5)
    part = Part.whole(given)
    batches = make_batches(part, how)
    assert isinstance(batches, MiniBatches)
    once, again = batches.batch(7), make_batches(part, how).batch(7)
    np.testing.assert_array_equal(once.positions["image"], again.positions["image"])
    np.testing.assert_array_equal(once.positions["image"], once.positions["text"])
    seen: set[int] = set()
    for step in (1, 2, 3):
        positions = batches.batch(step).positions["image"]
        assert positions is not None
        seen |= set(positions.tolist())
    assert seen == set(range(12))


def test_online_batches_hold_the_rows_of_their_pairs_alone() -> None:
    given = data()
    part = Part.whole(given)
    batches = make_batches(part, replace(settings(given, online=True), batch=1))
    assert isinstance(batches, Online)
    labels = np.arange(12) % 3
    for step in range(1, 30):
        batch = batches.batch(step)
        for term, known in zip(batches.terms, batch.known, strict=True):
            assert isinstance(known, Listed)
            assert len(known.left) <= 2
            left, right = batch.positions[term.source.left], batch.positions[term.source.right]
            assert left is not None
            assert right is not None
            i, j = left[known.left.numpy()], right[known.right.numpy()]
            np.testing.assert_array_equal(labels[i] == labels[j], known.similar.numpy())
            assert term.source.left != term.source.right or (i != j).all()


def test_too_many_pairs_for_every_step_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    given = data(rows=True)
    monkeypatch.setattr("crossbit.neural.batches.MOST_CELLS", 100)
    how = replace(settings(given), batch=None, online=False)
    with pytest.raises(
        DataError,
        match="144 pairs of rows are too many to compare in every step; use optimizer='adam'",
    ):
        make_batches(Part.whole(given), how)
    labeled = data()
    assert isinstance(
        Whole(Part.whole(labeled), make_terms(Part.whole(labeled), how), how).batch(1).known[0],
        Listed,
    )


@pytest.mark.parametrize("several", [False, True])
def test_what_labels_know(several: bool) -> None:
    labels = np.array([0, 0, 1, -1])
    a: Any = (
        np.eye(2, dtype=bool)[np.maximum(labels, 0)] & (labels >= 0)[:, None] if several else labels
    )
    grid = LabelSource("image", "image", a, a).grid(np.arange(4), np.arange(4))
    assert grid.counted is not None
    np.testing.assert_array_equal(
        grid.counted.numpy(),
        (np.arange(4) < 3)[:, None] & (np.arange(4) < 3) & ~np.eye(4, dtype=bool),
    )
    assert list(grid.counts) == [2, 4]
    index, similar = LabelSource("image", "text", a, a).draw(50, np.random.default_rng(0))
    np.testing.assert_array_equal(labels[index[:, 0]] == labels[index[:, 1]], similar)
    assert (labels[index] >= 0).all()


def test_what_rows_and_pairs_know() -> None:
    rows = RowSource("image", "text", np.array([0, 2, 5]), np.array([2, 3, 5]))
    np.testing.assert_array_equal(
        rows.grid(np.arange(3), np.arange(3)).similar.numpy(), [[0, 0, 0], [1, 0, 0], [0, 0, 1]]
    )
    index, similar = rows.draw(20, np.random.default_rng(0))
    np.testing.assert_array_equal(
        np.array([0, 2, 5])[index[:, 0]] == np.array([2, 3, 5])[index[:, 1]], similar
    )
    pairs = PairSource(
        "image", "text", np.array([[0, 4], [2, 1], [2, 4]]), np.array([True, True, False])
    )
    grid = pairs.grid(np.array([0, 2]), np.array([1, 4, 9]))
    np.testing.assert_array_equal(grid.similar.numpy(), [[0, 1, 0], [1, 0, 0]])
    assert isinstance(grid, Grid)


def test_a_split_keeps_classes_in_proportion_and_parts_apart() -> None:
    labels = np.repeat([0, 1, 2], [60, 30, 10])
    random = np.random.default_rng(0)
    given = training_set(
        {"image": random.normal(size=(100, 2)), "text": random.normal(size=(100, 2))}, labels=labels
    )
    kept, out = split(given, 0.2, seed=0)
    np.testing.assert_array_equal(
        np.sort(np.concatenate([kept.rows["image"], out.rows["image"]])), np.arange(100)
    )
    np.testing.assert_array_equal(out.rows["image"], out.rows["text"])
    np.testing.assert_array_equal(np.bincount(labels[out.rows["image"]]), [12, 6, 2])


def test_a_split_of_pairs_alone_keeps_every_row() -> None:
    index = np.stack([np.arange(10), np.arange(10)], axis=1).repeat(20, axis=0)
    pairs = Pairs("image", "text", index, np.arange(200) % 2 == 0)
    kept, out = split(data(pairs=pairs), 0.25, seed=0)
    assert len(kept.rows["image"]) == len(out.rows["image"]) == 12
    assert len(kept.pairs[0]) + len(out.pairs[0]) == 200
    assert 25 <= len(out.pairs[0]) <= 75


@pytest.mark.parametrize("anchored", [False, True])
def test_weights_decay_to_zero_or_to_where_they_began(anchored: bool) -> None:
    given = data()
    how = settings(given)
    plain = objective(given, how)
    decayed = objective(given, replace(how, decay=0.3, anchored=anchored))
    began = [p.detach().clone() for p in decayed.decayed]
    x = decayed.vector() + 0.1
    cost = decayed(x)[0] - plain(x)[0]
    moved = sum(
        ((p - q * anchored) ** 2).sum().item() for p, q in zip(decayed.decayed, began, strict=True)
    )
    assert cost == pytest.approx(0.15 * moved, rel=1e-4)


def test_many_pairs_are_a_grid_with_the_same_loss() -> None:
    random = np.random.default_rng(0)
    index = np.argwhere(random.random((12, 9)) < 0.6)
    similar = random.random(len(index)) < 0.3
    grid, some = pairs_of(index, similar, (12, 9)), listed((index, similar))
    assert isinstance(grid, Grid)
    u, v = (torch.from_numpy(random.normal(size=(n, 4))) for n in (12, 9))
    for sums in (True, False):
        assert grid.contrastive(u, v, margin=2.0, sums=sums) == pytest.approx(
            some.contrastive(u, v, margin=2.0, sums=sums).item()
        )
    assert isinstance(pairs_of(index[:8], similar[:8], (12, 9)), Listed)  # few
    twice = np.concatenate([index, index])
    assert isinstance(
        pairs_of(twice, np.r_[similar, similar], (12, 9)), Listed
    )  # a grid holds a pair once
