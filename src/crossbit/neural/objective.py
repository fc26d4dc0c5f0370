"""The objective: what is minimized, as a function of all parameters in one vector."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from crossbit.model import Layer
from crossbit.model.inputs import apply
from crossbit.neural import losses
from crossbit.neural.batches import Batch, Known, Term
from crossbit.neural.gathered import Grid, Listed
from crossbit.neural.networks import Network
from crossbit.neural.parts import Ints, Part
from crossbit.neural.settings import Settings


class Features:
    """Prepared rows of a part: all in memory, or read and prepared when a step asks for them."""

    def __init__(
        self, part: Part, inputs: Mapping[str, Sequence[Layer]], device: torch.device, *, lazy: bool
    ) -> None:
        self.part, self.inputs, self.device = part, inputs, device
        self._held = {} if lazy else {name: self._prepare(name, None) for name in part.modalities}

    def _prepare(self, name: str, positions: Ints | slice | None) -> Tensor:
        rows = apply(self.inputs.get(name, ()), self.part.take(name, positions))
        return torch.from_numpy(rows).to(self.device)

    def take(self, name: str, positions: Ints | slice | None) -> Tensor:
        """Rows of a modality at some positions, or all."""
        if name not in self._held:
            return self._prepare(name, positions)
        held = self._held[name]
        if positions is None or isinstance(positions, slice):
            return held if positions is None else held[positions]
        return held[torch.from_numpy(positions).to(self.device)]


class Objective:
    r"""$\sum \text{weight} \cdot \text{loss} + \text{penalties} + \tfrac12 \lambda \|W\|^2$ of a batch.

    Outputs are $\tanh(\beta s)$ of the scores $s$ that the networks give; each row is embedded once.
    """

    def __init__(
        self,
        networks: Mapping[str, nn.Module],
        terms: Sequence[Term],
        features: Features,
        settings: Settings,
    ) -> None:
        self.networks, self.terms, self.features, self.settings = (
            networks,
            terms,
            features,
            settings,
        )
        self.parameters = [
            p for network in networks.values() for p in network.parameters() if p.requires_grad
        ]
        self.decayed = [p for p in self.parameters if p.ndim > 1]
        self._toward = [
            p.detach().clone() if settings.anchored else torch.zeros_like(p) for p in self.decayed
        ]
        self.evaluations = 0
        self._own = any(not isinstance(network, Network) for network in networks.values())
        self._at: tuple[Batch, int, float] | None = None

    @property
    def noisy(self) -> bool:
        """Whether networks draw something at random while training."""
        return self._own or self.settings.dropout > 0

    def look_at(self, batch: Batch, noise: int, beta: float) -> None:
        """Choose the batch, the seed of dropout and the steepness for the evaluations to come."""
        known = [_to(known, self.features.device) for known in batch.known]
        self._at = (replace(batch, known=known), noise, beta)

    def vector(self) -> Tensor:
        """All parameters in one vector."""
        return nn.utils.parameters_to_vector(self.parameters).detach().clone()

    def load(self, x: Tensor) -> None:
        """Set all parameters."""
        nn.utils.vector_to_parameters(x, self.parameters)

    def buffers(self) -> list[Tensor]:
        """What the networks keep besides parameters, such as running means."""
        return [buffer for network in self.networks.values() for buffer in network.buffers()]

    def __call__(self, x: Tensor) -> tuple[float, Tensor]:
        """The value and the gradient."""
        self.evaluations += 1
        self.load(x)
        with torch.random.fork_rng(
            enabled=self._own
        ):  # a user's own dropout draws from torch's global generator
            loss = self._loss()
        gradient = torch.autograd.grad(
            loss, self.parameters, allow_unused=True, materialize_grads=True
        )
        return loss.item(), nn.utils.parameters_to_vector(gradient).detach()

    def _loss(self) -> Tensor:
        batch, noise, beta = cast("tuple[Batch, int, float]", self._at)
        self._seed(noise)
        u = self._outputs(batch, beta)
        loss = torch.zeros((), device=self.features.device)
        for term, known in zip(self.terms, batch.known, strict=True):
            loss = loss + term.weight * self._cost(
                term, u[term.source.left], u[term.source.right], known
            )
        return self._penalized(loss, u)

    def _outputs(self, batch: Batch, beta: float) -> dict[str, Tensor]:
        """Outputs for the rows of a batch, by modality."""
        return {name: self._embed(name, rows, beta) for name, rows in batch.positions.items()}

    def _penalized(self, loss: Tensor, u: Mapping[str, Tensor]) -> Tensor:
        """The loss and what outputs and weights cost by themselves."""
        s = self.settings
        for outputs in u.values():
            if s.quantization:
                loss = loss + s.quantization * losses.quantization(outputs)
            if s.balance:
                loss = loss + s.balance * losses.balance(outputs)
        if s.decay:
            moved = [
                (p - q).square().sum() for p, q in zip(self.decayed, self._toward, strict=True)
            ]
            loss = loss + 0.5 * s.decay * torch.stack(moved).sum()
        return loss

    def _seed(self, noise: int) -> None:
        """The same noise in every evaluation until another is chosen: a line search compares their values."""
        if not self.noisy:
            return
        seed = int(np.random.SeedSequence([self.settings.seed, 4, noise]).generate_state(1)[0])
        if self._own:
            torch.manual_seed(seed)
        for network in self.networks.values():
            network.train()
            if isinstance(network, Network):
                network.random = torch.Generator(self.features.device).manual_seed(seed)

    def _embed(self, name: str, positions: Ints | slice | None, beta: float) -> Tensor:
        scores = self.networks[name](self.features.take(name, positions))
        return torch.tanh(beta * scores.reshape(len(scores), -1))

    def _cost(self, term: Term, u: Tensor, v: Tensor, known: Known) -> Tensor:
        if term.loss != "contrastive":
            grid = cast("Grid", known)
            if term.loss == "precision":
                return losses.precision(u, v, grid.similar, grid.counted)
            return losses.ranking(
                u, v, grid.similar, grid.counted, temperature=self.settings.temperature
            )
        s = self.settings
        return known.contrastive(u, v, margin=term.margin, sums=s.sums, evenness=s.evenness)


@torch.no_grad()
def scores_of(network: nn.Module, features: Features, name: str) -> Tensor:
    """What a network gives for all rows of a part, some at a time."""
    network.eval()
    n = len(features.part.rows[name])
    blocks = [np.arange(start, min(start + 4096, n)) for start in range(0, n, 4096)]
    return torch.cat(
        [network(features.take(name, rows)).reshape(len(rows), -1) for rows in blocks]
    ).cpu()


def _to(known: Known, device: torch.device) -> Known:
    if device.type == "cpu":
        return known
    similar = known.similar.to(device)
    if isinstance(known, Listed):
        return replace(
            known, left=known.left.to(device), right=known.right.to(device), similar=similar
        )
    return replace(
        known, similar=similar, counted=None if known.counted is None else known.counted.to(device)
    )
