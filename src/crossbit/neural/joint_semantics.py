"""Training of networks whose outputs reproduce the similarities of the features of all views."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crossbit._progress import OnStep, Step
from crossbit.model.layers import Layer
from crossbit.neural.networks import random_network, to_layers

Features = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True, kw_only=True)
class JointSemantics:
    r"""Settings of the training.

    Args:
        second_order: Share of second-order similarities, $\eta$.
        scale: $\mu$, the factor of all similarities.
        within: Weight of the losses within a modality.
        hidden: Width of the hidden layer.
        epochs: Passes over all items.
        batch: Items per step.
        learning_rate: Learning rate of Adam; it falls to 0 linearly.
        seed: Seed of the weights and of the batches.
    """

    second_order: float
    scale: float
    within: float
    hidden: int
    epochs: int
    batch: int
    learning_rate: float
    seed: int

    def train(
        self, features: Features, n_bits: int, on_step: OnStep | None
    ) -> dict[str, list[Layer]]:
        """Return modality → layers from features to scores.

        Args:
            features: Modality → features; row i of every modality is the same item.
            n_bits: Number of outputs.
            on_step: Progress callback, called after every epoch.
        """
        random = np.random.default_rng(self.seed)
        X = {name: torch.from_numpy(np.ascontiguousarray(F)) for name, F in features.items()}
        networks = {
            name: random_network([F.shape[1], self.hidden, n_bits], random) for name, F in X.items()
        }
        parameters = [p for network in networks.values() for p in network.parameters()]
        n = len(next(iter(X.values())))
        n_batches = max(n // self.batch, 1)
        n_steps = self.epochs * n_batches
        adam = torch.optim.Adam(parameters, lr=self.learning_rate)
        schedule = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: 1 - step / n_steps)
        for epoch in range(1, self.epochs + 1):
            total = 0.0
            for rows in np.array_split(random.permutation(n), n_batches):
                chosen = torch.from_numpy(rows)
                inputs = {name: F[chosen] for name, F in X.items()}
                beta = epoch**0.5  # steeper and steeper, so that outputs become signs
                outputs = {
                    name: torch.tanh(beta * network(inputs[name]))
                    for name, network in networks.items()
                }
                loss = self.loss(self.similarities(inputs), outputs)
                adam.zero_grad()
                torch.autograd.backward(loss)
                adam.step()
                schedule.step()
                total += float(loss.detach())
            if on_step is not None:
                on_step(Step(epoch, self.epochs, loss=total / n_batches))
        return {name: to_layers(network) for name, network in networks.items()}

    def similarities(self, inputs: Mapping[str, Tensor]) -> Tensor:
        r"""Return $(1-\eta) S + \eta\, S S^\top / m$, $S$ the mean cosines of all modalities."""
        joint = torch.stack([cosines(x, x) for x in inputs.values()]).mean(dim=0)
        return (1 - self.second_order) * joint + self.second_order * (joint @ joint.T) / len(joint)

    def loss(self, similarities: Tensor, outputs: Mapping[str, Tensor]) -> Tensor:
        """Return the mean squared differences to the cosines of the outputs, over all pairs."""
        target = torch.clamp(self.scale * similarities, -1, 1)
        total = torch.zeros(())
        for a, b in combinations_with_replacement(outputs, 2):
            weight = self.within if a == b else 1.0
            total = total + weight * (target - cosines(outputs[a], outputs[b])).square().mean()
        return total


def cosines(u: Tensor, v: Tensor) -> Tensor:
    """Cosines of the angles between the rows of ``u`` and those of ``v``."""
    return torch.nn.functional.normalize(u) @ torch.nn.functional.normalize(v).T
