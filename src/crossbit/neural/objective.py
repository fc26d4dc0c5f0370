"""The training objective as a function of all parameters in one vector."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from crossbit.neural.batches import Batch, Prefix, Term
from crossbit.neural.config import TrainConfig
from crossbit.neural.losses import balance, quantization
from crossbit.neural.networks import Network
from crossbit.neural.pairs import PairSet
from crossbit.neural.splits import Features, Ints

Evaluation: TypeAlias = Callable[[Tensor], tuple[float, Tensor]]
"""A parameter vector → the value of the objective and its gradient."""


class Objective:
    r"""$\sum \text{weight} \cdot \text{loss} + \text{penalties} + \tfrac12 \lambda \|W\|^2$.

    Losses compare the outputs $\tanh(\beta s)$, where $s$ are the scores of the networks. Each row
    of a batch is embedded once.

    Args:
        networks: Modality → network, which the objective modifies.
        terms: Losses and their weights.
        features: Inputs of the networks.
        config: Penalties, weight decay, dropout and seed.
    """

    def __init__(
        self,
        networks: Mapping[str, nn.Module],
        terms: Sequence[Term],
        features: Features,
        config: TrainConfig,
    ) -> None:
        self.networks = networks
        self.terms = terms
        self.features = features
        self.config = config
        self.parameters = [
            p for network in networks.values() for p in network.parameters() if p.requires_grad
        ]
        self.evaluations = 0
        self._decayed = [p for p in self.parameters if p.ndim > 1]
        self._has_custom = any(not isinstance(n, Network) for n in networks.values())

    @property
    def noisy(self) -> bool:
        """Whether evaluations are random: custom networks may be, networks with dropout are."""
        return self._has_custom or self.config.dropout > 0

    def at(self, batch: Batch, *, noise: int, beta: float) -> Evaluation:
        """Return the objective for one batch as a function of the parameters.

        Args:
            batch: Rows and pairs.
            noise: Number of the dropout mask; the same number gives the same mask.
            beta: Steepness of the tanh.
        """
        return partial(self._evaluate, self._localize(batch), noise, beta)

    def vector(self) -> Tensor:
        """Return a copy of all parameters in one vector."""
        return nn.utils.parameters_to_vector(self.parameters).detach().clone()

    def load(self, x: Tensor) -> None:
        """Set all parameters."""
        nn.utils.vector_to_parameters(x, self.parameters)

    def buffers(self) -> list[Tensor]:
        """Return the state of the networks besides parameters, such as running means."""
        return [buffer for network in self.networks.values() for buffer in network.buffers()]

    def _localize(self, batch: Batch) -> Batch:
        """Return the batch with its pairs on the device."""
        return replace(batch, pairs=[pairs.to(self.features.device) for pairs in batch.pairs])

    def _evaluate(self, batch: Batch, noise: int, beta: float, x: Tensor) -> tuple[float, Tensor]:
        self.evaluations += 1
        self.load(x)
        # Dropout of a custom network uses torch's global generator, which must stay untouched.
        with torch.random.fork_rng(enabled=self._has_custom):
            loss = self._loss(batch, noise, beta)
        gradient = torch.autograd.grad(
            loss, self.parameters, allow_unused=True, materialize_grads=True
        )
        return loss.item(), nn.utils.parameters_to_vector(gradient).detach()

    def _loss(self, batch: Batch, noise: int, beta: float) -> Tensor:
        self._seed_dropout(noise)
        outputs = self._outputs(batch, beta)
        loss = torch.zeros((), device=self.features.device)
        for term, pairs in zip(self.terms, batch.pairs, strict=True):
            for prefix in term.prefixes:
                u = outputs[term.supervision.left][:, : prefix.n_bits]
                v = u
                if term.supervision.left != term.supervision.right:
                    v = outputs[term.supervision.right][:, : prefix.n_bits]
                loss = loss + prefix.weight * self._cost(term, prefix, u, v, pairs)
        return self._add_penalties(loss, outputs)

    def _cost(self, term: Term, prefix: Prefix, u: Tensor, v: Tensor, pairs: PairSet) -> Tensor:
        return term.loss(u, v, pairs, prefix.options)

    def _outputs(self, batch: Batch, beta: float) -> dict[str, Tensor]:
        """Return the outputs for the rows of a batch by modality."""
        return {name: self._embed(name, rows, beta) for name, rows in batch.positions.items()}

    def _embed(self, name: str, positions: Ints | slice | None, beta: float) -> Tensor:
        scores = self.networks[name](self.features.take(name, positions))
        return torch.tanh(beta * scores.reshape(len(scores), -1))

    def _add_penalties(self, loss: Tensor, outputs: Mapping[str, Tensor]) -> Tensor:
        config = self.config
        for u in outputs.values():
            if config.quantization:
                loss = loss + config.quantization * quantization(u)
            if config.balance:
                loss = loss + config.balance * balance(u)
        if config.decay:
            squares = [p.square().sum() for p in self._decayed]
            loss = loss + 0.5 * config.decay * torch.stack(squares).sum()
        return loss

    def _seed_dropout(self, noise: int) -> None:
        """Seed all random numbers, so that a line search compares values under the same mask."""
        if not self.noisy:
            return
        seed = int(np.random.SeedSequence([self.config.seed, 4, noise]).generate_state(1)[0])
        if self._has_custom:
            torch.manual_seed(seed)
        for network in self.networks.values():
            network.train()
            if isinstance(network, Network):
                network.generator = torch.Generator(self.features.device).manual_seed(seed)
