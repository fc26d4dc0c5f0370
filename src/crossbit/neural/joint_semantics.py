"""Training of networks whose outputs reproduce the similarities of the features of all views."""

from collections.abc import Mapping
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crossbit._progress import OnStep, Step
from crossbit.model.layers import Layer
from crossbit.neural.networks import random_network, to_layers

if TYPE_CHECKING:
    from crossbit.hashers.djsrh import DJSRH


def train(
    method: "DJSRH", features: Mapping[str, NDArray[np.float32]], on_step: OnStep | None
) -> dict[str, list[Layer]]:
    """Return modality → layers from features to scores.

    Args:
        method: Its fields are the settings.
        features: Modality → features; row i of every modality is the same item.
        on_step: Progress callback, called after every epoch.
    """
    random = np.random.default_rng(method.seed)
    X = {name: torch.from_numpy(np.ascontiguousarray(F)) for name, F in features.items()}
    networks = {
        name: random_network([F.shape[1], method.hidden, method.n_bits], random)
        for name, F in X.items()
    }
    parameters = [p for network in networks.values() for p in network.parameters()]
    n = len(next(iter(X.values())))
    n_batches = max(n // method.batch, 1)
    n_steps = method.epochs * n_batches
    adam = torch.optim.Adam(parameters, lr=method.learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: 1 - step / n_steps)
    for epoch in range(1, method.epochs + 1):
        total = 0.0
        for rows in np.array_split(random.permutation(n), n_batches):
            chosen = torch.from_numpy(rows)
            inputs = {name: F[chosen] for name, F in X.items()}
            beta = epoch**0.5  # steeper and steeper, so that outputs become signs
            outputs = {
                name: torch.tanh(beta * network(inputs[name])) for name, network in networks.items()
            }
            target = method.scale * similarities(inputs, method.second_order)
            loss = reconstruction(target, outputs, method.within)
            adam.zero_grad()
            torch.autograd.backward(loss)
            adam.step()
            schedule.step()
            total += float(loss.detach())
        if on_step is not None:
            on_step(Step(epoch, method.epochs, loss=total / n_batches))
    return {name: to_layers(network) for name, network in networks.items()}


def similarities(inputs: Mapping[str, Tensor], second_order: float) -> Tensor:
    r"""Return $(1-\eta) S + \eta\, S S^\top / m$, $S$ the mean cosines of all modalities."""
    joint = torch.stack([cosines(x, x) for x in inputs.values()]).mean(dim=0)
    return (1 - second_order) * joint + second_order * (joint @ joint.T) / len(joint)


def reconstruction(target: Tensor, outputs: Mapping[str, Tensor], within: float) -> Tensor:
    """Return the mean squared differences of similarities to the cosines of outputs, over pairs."""
    target = torch.clamp(target, -1, 1)
    total = torch.zeros(())
    for a, b in combinations_with_replacement(outputs, 2):
        weight = within if a == b else 1.0
        total = total + weight * (target - cosines(outputs[a], outputs[b])).square().mean()
    return total


def cosines(u: Tensor, v: Tensor) -> Tensor:
    """Cosines of the angles between the rows of ``u`` and those of ``v``."""
    return torch.nn.functional.normalize(u) @ torch.nn.functional.normalize(v).T
