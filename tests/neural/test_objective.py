"""The objective compared with the formula of the paper."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from crossbit import MMNN, DataError, Pairs
from crossbit.data import TrainingSet, training_set
from crossbit.neural import losses
from crossbit.neural.batches import make_batches
from crossbit.neural.config import TrainConfig
from crossbit.neural.networks import Network
from crossbit.neural.objective import Objective
from crossbit.neural.splits import Features, Subset

MARGINS = {"image-text": 4.0, "image": 2.0, "text": 3.0}


def make_data(**supervision: Any) -> TrainingSet:  # noqa: ANN401
    random = np.random.default_rng(0)
    views = {"image": random.normal(size=(12, 5)), "text": random.normal(size=(12, 4))}
    return training_set(views, **(supervision or {"labels": np.arange(12) % 3}))


def make_config(data: TrainingSet, **fields: Any) -> TrainConfig:  # noqa: ANN401
    hasher = MMNN(
        **{"n_bits": 6, "alpha": {"image": 0.1, "text": 0.4}, "margin": MARGINS, **fields}
    )
    return TrainConfig.resolve(vars(hasher), data)


def make_objective(data: TrainingSet, config: TrainConfig) -> Objective:
    random = np.random.default_rng(1)
    subset = Subset.whole(data)
    networks = {
        name: Network.random([view.shape[1], 7, config.n_bits], random, dropout=config.dropout)
        for name, view in data.views.items()
    }
    features = Features(subset, torch.device("cpu"), lazy=False)
    return Objective(networks, make_batches(subset, config).terms, features, config)


def at_first_batch(
    objective: Objective, *, noise: int = 1
) -> Callable[[Tensor], tuple[float, Tensor]]:
    config = objective.config
    batch = make_batches(objective.features.subset, config).batch(1)
    return objective.at(batch, noise=noise, beta=config.beta[0])


@pytest.mark.parametrize("sums", [False, True])
def test_the_objective_of_two_modalities_is_the_formula_of_the_paper(sums: bool) -> None:
    data = make_data()
    objective = make_objective(data, make_config(data, sums=sums))
    value, gradient = at_first_batch(objective)(objective.vector())
    x, y = (
        torch.tanh(objective.networks[name](torch.tensor(view, dtype=torch.float32)))
        for name, view in data.views.items()
    )
    labels = torch.arange(12) % 3
    i, j = torch.cartesian_prod(torch.arange(12), torch.arange(12)).T
    k, l = i[i != j], j[i != j]  # noqa: E741
    cross = losses.contrastive(x[i], y[j], labels[i] == labels[j], margin=4.0, sums=sums)
    within_x = losses.contrastive(x[k], x[l], labels[k] == labels[l], margin=2.0, sums=sums)
    within_y = losses.contrastive(y[k], y[l], labels[k] == labels[l], margin=3.0, sums=sums)
    expected = cross + 0.1 * within_x + 0.4 * within_y
    assert value == pytest.approx(expected.item(), rel=1e-5)
    slopes = torch.autograd.grad(expected, objective.parameters)
    wanted = torch.cat([slope.reshape(-1) for slope in slopes])
    torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-4 * float(wanted.abs().max()))


@pytest.mark.parametrize("loss", ["contrastive", "ranking", "precision"])
def test_the_objective_of_nested_codes_is_the_mean_over_prefixes(loss: str) -> None:
    data = make_data()
    options = {"n_bits": 40, "alpha": 0.5, "margin": "80%", "loss": loss, "temperature": 0.3}
    objective = make_objective(data, make_config(data, nested=True, **options))
    x, y = (
        torch.tanh(objective.networks[name](torch.tensor(view, dtype=torch.float32)))
        for name, view in data.views.items()
    )
    similar = (torch.arange(12) % 3)[:, None] == torch.arange(12) % 3
    others = ~torch.eye(12, dtype=torch.bool)

    def cost(u: Tensor, v: Tensor, mask: Tensor, n_bits: int) -> Tensor:
        if loss == "ranking":  # the temperature falls with the root of the number of bits
            temperature = 0.3 * (40 / n_bits) ** 0.5
            return losses.ranking(u, v, similar, mask, temperature=temperature)
        if loss == "precision":
            return losses.precision(u, v, similar, mask)
        i, j = mask.nonzero().T
        margin = 0.8 * 2 * n_bits**0.5
        return losses.contrastive(u[i], v[j], similar[i, j], margin=margin) * 40 / n_bits

    means = []
    for n_bits in (16, 32, 40):
        u = x[:, :n_bits]
        v = y[:, :n_bits]
        across = cost(u, v, torch.ones_like(similar), n_bits)
        within = cost(u, u, others, n_bits) + cost(v, v, others, n_bits)
        means.append((across + 0.5 * within).item())
    value, _ = at_first_batch(objective)(objective.vector())
    assert value == pytest.approx(np.mean(means), rel=1e-5)


def test_the_gradient_of_all_terms_agrees_with_finite_differences() -> None:
    index = np.array([[0, 1], [2, 3], [4, 4]])
    pairs = Pairs("text", "image", index, np.array([True, False, True]))
    data = make_data(labels=np.array([0, 1, 2, -1] * 3), pairs=pairs, aligned=True)
    config = make_config(data, quantization=0.2, balance=0.3, decay=0.1, dropout=0.2, beta=1.5)
    objective = make_objective(data, config)
    for network in objective.networks.values():
        network.double()
    loaded = objective.features._loaded
    objective.features._loaded = {name: rows.double() for name, rows in loaded.items()}
    evaluate = at_first_batch(objective)
    x = objective.vector()
    direction = torch.randn(len(x), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    _, gradient = evaluate(x)
    step = 1e-5
    slope = (evaluate(x + step * direction)[0] - evaluate(x - step * direction)[0]) / (2 * step)
    assert slope == pytest.approx(float(gradient @ direction), rel=1e-5)
    assert objective.evaluations == 3


def test_the_dropout_mask_depends_on_the_noise_number_only() -> None:
    data = make_data()
    objective = make_objective(data, make_config(data, dropout=0.5))
    x = objective.vector()
    values = [at_first_batch(objective, noise=noise)(x)[0] for noise in (1, 2, 1)]
    assert values[0] == values[2] != values[1]


def test_weights_decay_to_zero_and_biases_do_not() -> None:
    data = make_data()
    config = make_config(data)
    plain = make_objective(data, config)
    decayed = make_objective(data, replace(config, decay=0.3))
    x = decayed.vector() + 0.1
    cost = at_first_batch(decayed)(x)[0] - at_first_batch(plain)(x)[0]
    squares = sum(p.square().sum().item() for p in decayed.parameters if p.ndim > 1)
    assert cost == pytest.approx(0.15 * squares, rel=1e-4)


def test_an_unknown_loss_is_rejected_with_the_known_ones() -> None:
    with pytest.raises(DataError, match=r"'hinge'.*'contrastive'"):
        make_config(make_data(), loss="hinge")


def test_options_of_the_hasher_are_the_fields_of_the_configuration() -> None:
    config = make_config(make_data(), temperature=0.7, dropout=0.1, patience=4, beta=2.0)
    assert (config.temperature, config.dropout, config.patience) == (0.7, 0.1, 4)
    assert config.beta == (2.0, 2.0)
    assert config.weight("text", "image") == 1.0
    assert config.weight("text", "text") == 0.4
    assert config.margin("text", "image") == 4.0
    assert config.with_margin("50%").margin("image", "image") == pytest.approx(6**0.5)
