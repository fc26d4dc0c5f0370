"""Eq. (5) compared with the formula of the paper, and with the loss that training reports."""

from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from crossbit import MMNN, DataError, Pairs
from crossbit.data import TrainingSet, training_set
from crossbit.data.relations import relations
from crossbit.hashers import Run
from crossbit.model import Affine, Tanh
from crossbit.neural import losses
from crossbit.neural.pairs import Batches, PairBatch
from crossbit.neural.training import Objective

MARGINS: dict[str, float | str] = {"image-text": 4.0, "image": 2.0, "text": 3.0}
ALPHA = {"image": 0.1, "text": 0.4}
LABELS = np.arange(12) % 3


def make_data(**supervision: Any) -> TrainingSet:  # noqa: ANN401
    random = np.random.default_rng(0)
    views = {"image": random.normal(size=(12, 5)), "text": random.normal(size=(12, 4))}
    return training_set(views, **(supervision or {"labels": LABELS}))


def make_batches(data: TrainingSet, **options: Any) -> Batches:  # noqa: ANN401
    defaults = {
        "relations": relations(data),
        "size": None,
        "online": False,
        "n_pairs": None,
        "all_pairs": False,
        "seed": 0,
        "device": torch.device("cpu"),
    }
    return Batches(data=data, **{**defaults, **options})


def make_objective(data: TrainingSet, **fields: Any) -> tuple[Objective, Batches]:  # noqa: ANN401
    """The objective of a hasher with random networks, and its batches."""
    defaults: dict[str, Any] = {"n_bits": 6, "alpha": ALPHA, "margin": MARGINS, "hidden": (7,)}
    hasher = MMNN(**defaults | {"validation": 0.0} | fields)
    terms = hasher._terms(data)
    used = [term.relation for term in terms]
    networks = hasher._networks(data)
    objective = Objective(networks, terms, beta=hasher.beta, decay=hasher.decay)
    return objective, make_batches(
        data, relations=used, all_pairs=hasher.loss not in losses.OVER_PAIRS
    )


def outputs(objective: Objective, data: TrainingSet) -> list[NDArray[np.float64]]:
    return [
        torch.tanh(network(torch.tensor(view, dtype=torch.float32))).detach().double().numpy()
        for network, view in zip(objective.networks, data.views.values(), strict=True)
    ]


def plain(
    u: NDArray[Any],
    v: NDArray[Any],
    pairs: Iterable[tuple[int, ...]],
    margin: float | str,
    *,
    sums: bool,
) -> float:
    """Eq. (3) or (4), pair by pair; similar are rows of the same class."""
    pairs = list(pairs)
    pull, push, n_similar = 0.0, 0.0, 0
    for i, j in pairs:
        distance = float(np.linalg.norm(u[i] - v[j]))
        if LABELS[i] == LABELS[j]:
            n_similar += 1
            pull += 0.5 * distance**2
        else:
            push += 0.5 * max(0.0, float(margin) - distance) ** 2
    return pull + push if sums else pull / n_similar + push / (len(pairs) - n_similar)


@pytest.mark.parametrize("sums", [False, True])
def test_the_objective_of_two_modalities_is_eq_5_of_the_paper(sums: bool) -> None:
    data = make_data()
    objective, batches = make_objective(data, sums=sums)
    x, y = outputs(objective, data)
    every = list(product(range(12), repeat=2))
    others = [(i, j) for i, j in every if i != j]
    expected = plain(x, y, every, 4.0, sums=sums)
    expected += 0.1 * plain(x, x, others, 2.0, sums=sums)
    expected += 0.4 * plain(y, y, others, 3.0, sums=sums)
    assert objective(batches.at(1)).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("hidden", [(), (5,)])
@pytest.mark.parametrize("n_pairs", [None, (40, 60)])
def test_the_reported_loss_is_that_of_the_stored_weights(
    hidden: tuple[int, ...], n_pairs: tuple[int, int] | None
) -> None:
    data = make_data()
    hasher = MMNN(
        n_bits=6, inputs="none", alpha=ALPHA, margin=MARGINS, beta=1.5, sums=True, steps=25,
        hidden=hidden, n_pairs=n_pairs, optimizer="cg", validation=0.0,
    )  # fmt: skip
    model = hasher.fit(data.views, labels=LABELS)
    scores = {name: model.scores(name, view) for name, view in data.views.items()}
    total = 0.0
    for number, (left, right) in enumerate(
        [("image", "image"), ("image", "text"), ("text", "text")]
    ):
        index = [(i, j) for i, j in product(range(12), repeat=2) if left != right or i != j]
        if n_pairs is not None:
            relation = relations(data)[number]
            seed = np.random.SeedSequence([0, 5, number]).generate_state(1)[0]
            index = list(map(tuple, relation.sample(n_pairs, int(seed))[0]))
        margin = MARGINS[left if left == right else f"{left}-{right}"]
        weight = ALPHA[left] if left == right else 1.0
        u, v = (np.asarray(scores[name], np.float64) for name in (left, right))
        total += weight * plain(u, v, index, margin, sums=True)
    assert model.card["training"]["loss"] == pytest.approx(total, rel=1e-5)
    rows = data.views["text"].astype(np.float64)
    for layer in model.encoders["text"]:
        if isinstance(layer, Affine):
            rows = rows @ layer.weight + layer.bias
        elif isinstance(layer, Tanh):
            rows = np.tanh(layer.beta * rows)
    codes = model.encode("text", data.views["text"])
    np.testing.assert_array_equal(codes.unpack(), rows >= 0)


@pytest.mark.parametrize("loss", ["contrastive", "unhinged", "ranking", "precision"])
def test_the_objective_of_nested_codes_is_the_mean_over_prefixes(loss: str) -> None:
    data = make_data()
    fields: dict[str, Any] = {"n_bits": 40, "alpha": 0.5, "margin": "80%", "loss": loss}
    objective, batches = make_objective(data, nested=True, temperature=0.3, **fields)
    x, y = (torch.from_numpy(rows).float() for rows in outputs(objective, data))
    batch = batches.at(1)

    def cost(u: torch.Tensor, v: torch.Tensor, pairs: PairBatch, n_bits: int) -> torch.Tensor:
        u, v = u[:, :n_bits], v[:, :n_bits]
        if loss == "ranking":  # the temperature falls with the root of the number of bits
            return losses.ranking(u, v, pairs, temperature=0.3 * (40 / n_bits) ** 0.5)
        if loss == "precision":
            return losses.precision(u, v, pairs)
        if loss == "unhinged":
            return losses.unhinged(u, v, pairs) * 40 / n_bits
        margin = 0.8 * 2 * n_bits**0.5
        return losses.contrastive(u, v, pairs, margin=margin) * 40 / n_bits

    means = []
    for n in (16, 32, 40):
        within_x, across, within_y = batch.pairs
        within = cost(x, x, within_x, n) + cost(y, y, within_y, n)
        means.append((cost(x, y, across, n) + 0.5 * within).item())
    assert objective(batch).item() == pytest.approx(np.mean(means), rel=1e-5)


def test_the_gradient_of_all_terms_agrees_with_finite_differences() -> None:
    index = np.array([[0, 1], [2, 3], [4, 4]])
    pairs = Pairs("text", "image", index, np.array([True, False, True]))
    data = make_data(labels=np.array([0, 1, 2, -1] * 3), pairs=pairs, aligned=True)
    objective, batches = make_objective(data, decay=0.1, beta=1.5)
    objective.double()
    batch = batches.at(1)
    rows = {name: own.double() for name, own in batch.rows.items()}
    batch = type(batch)(rows, batch.pairs)
    parameters = list(objective.parameters())
    gradient = torch.autograd.grad(objective(batch), parameters)
    random = torch.Generator().manual_seed(0)
    directions = [torch.randn(p.shape, generator=random, dtype=torch.float64) for p in parameters]

    def moved(step: float) -> float:
        with torch.no_grad():
            for p, direction in zip(parameters, directions, strict=True):
                p.add_(direction, alpha=step)
            value = float(objective(batch))
            for p, direction in zip(parameters, directions, strict=True):
                p.sub_(direction, alpha=step)
        return value

    slope = (moved(1e-5) - moved(-1e-5)) / 2e-5
    expected = sum(float((g * d).sum()) for g, d in zip(gradient, directions, strict=True))
    assert slope == pytest.approx(expected, rel=1e-5)


def test_weights_decay_to_zero_and_biases_do_not() -> None:
    data = make_data()
    plain_objective, batches = make_objective(data)
    decayed, _ = make_objective(data, decay=0.3)
    squares = sum(p.square().sum().item() for p in decayed.parameters() if p.ndim > 1)
    cost = decayed(batches.at(1)) - plain_objective(batches.at(1))
    assert cost.item() == pytest.approx(0.15 * squares, rel=1e-4)


def test_nothing_to_learn_from_is_refused() -> None:
    hasher = MMNN(n_bits=6, alpha=0.0, validation=0.0)
    data = make_data(labels={"image": LABELS})
    with pytest.raises(DataError, match="nothing to learn from"):
        hasher._learn(data, Run())
