"""Logistic regression of several folds at once, each in coordinates of its own."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from crossbit.neural.optimizers import LBFGS
from crossbit.neural.ridge import Floats, principal

_DIRECTIONS = 400  # of the features that a regression may use
_TOLD_BY = 2500  # rows that tell the directions


@dataclass(frozen=True, eq=False)
class Coordinates:
    r"""Principal directions of features, each scaled by what a ridge penalty leaves of it.

    In $z = (f - \mu) V \sqrt{n / (w + \lambda)}$ the problem is nearly round, so that few steps solve it.

    Attributes:
        mean: $\mu$, of every feature.
        turn: The directions times their scales, shape (features, directions).
        penalty: The square of the scale of each direction: what its weight costs.
    """

    mean: Floats
    turn: Floats
    penalty: Floats

    @classmethod
    def of(cls, F: NDArray[np.float32], decay: float) -> "Coordinates":
        """Of features, for a decay at which directions much weaker than it have no say."""
        mean = F.mean(axis=0, dtype=np.float64)
        some = (
            F if len(F) <= _TOLD_BY else F[np.random.default_rng(0).permutation(len(F))[:_TOLD_BY]]
        )
        w, _, V = principal(some - mean)
        w *= len(F) / len(some)
        kept = w > 1e-3 * decay
        kept[: max(0, len(w) - _DIRECTIONS)] = False
        penalty = len(F) / (w[kept] + decay)
        return cls(mean, V[:, kept] * np.sqrt(penalty), penalty)

    def __call__(self, F: NDArray[np.float32]) -> NDArray[np.float32]:
        """The coordinates of rows."""
        return ((F - self.mean) @ self.turn).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Folded:
    """Logistic regressions of the same rows, each of which sees some of them; the last parameter is the bias.

    Attributes:
        Z: Coordinates of all rows: shape (n, directions), or (fits, n, directions) where they differ.
        penalty: What the weight of a direction costs, shape (directions, 1), or (fits, directions, 1).
        T: Zeros and ones, shape (n, classes).
        seen: Which rows each fit sees, shape (fits, n).
        several: Whether each class is decided by itself.
    """

    Z: Tensor
    penalty: Tensor
    T: Tensor
    seen: Tensor
    several: bool

    @classmethod
    def of(
        cls,
        rows: Sequence[NDArray[np.float32]],
        penalties: Sequence[Floats],
        T: NDArray[np.float32],
        seen: NDArray[np.bool_],
        several: bool,
    ) -> "Folded":
        """Of the coordinates of each fit, or of one for all; fits of fewer directions get some that are empty."""
        width = max(len(penalty) for penalty in penalties)
        Z = torch.zeros(len(rows), len(T), width)
        penalty = torch.ones(len(rows), width, 1)
        for k, (some, costs) in enumerate(zip(rows, penalties, strict=True)):
            Z[k, :, : len(costs)] = torch.from_numpy(some)
            penalty[k, : len(costs), 0] = torch.from_numpy(costs)
        if len(rows) == 1:
            Z, penalty = Z[0], penalty[0]
        return cls(Z, penalty, torch.from_numpy(T), torch.from_numpy(seen), several)

    def start(self) -> Tensor:
        """Weights 0, and the biases that give each class its share; shape (fits, directions + 1, classes)."""
        least = 0.5 / len(self.T)
        share = self.T.mean(dim=0).clamp(least, 1 - least)
        bias = share.logit() if self.several else share.log()
        one = torch.cat([torch.zeros(self.Z.shape[-1], len(share)), bias[None]])
        return one.repeat(len(self.seen), 1, 1)

    def fit(self, decay: float, start: Tensor, steps: int = 22) -> Tensor:
        """Minimize the log-loss of the rows that each fit sees plus its penalty, all fits at once.

        Args:
            decay: Weight of the penalty, as if all rows were seen.
            start: Where to begin, shape (fits, directions + 1, classes).
            steps: Steps at most.
        """
        weights = self.seen / self.seen.sum(dim=1, keepdim=True)
        shrink = decay / len(self.T) * self.penalty

        def objective(x: Tensor) -> tuple[float, Tensor]:
            W = x.view(start.shape)
            losses, slope = self._losses(self.Z @ W[:, :-1] + W[:, -1:])
            slope *= weights[:, :, None]
            value = (weights * losses).sum() + 0.5 * (shrink * W[:, :-1].square()).sum()
            gradient = torch.cat(
                [self.Z.mT @ slope + shrink * W[:, :-1], slope.sum(dim=1, keepdim=True)], dim=1
            )
            return float(value), gradient.view(-1)

        method, x = LBFGS(), start.reshape(-1)
        for _ in range(steps):
            if method.converged:
                break
            x, _ = method.step(x, objective)
        return x.view(start.shape)

    def unseen(self, fits: Tensor) -> Tensor:
        """Scores of every row by the one fit that did not see it."""
        scores = torch.empty_like(self.T)
        for k, (rows, W) in enumerate(zip(self.seen, fits, strict=True)):
            Z = self.Z if self.Z.ndim == 2 else self.Z[k]
            scores[~rows] = torch.addmm(W[-1], Z[~rows], W[:-1])
        return scores

    def losses(self, scores: Tensor) -> Tensor:
        """Log-loss of every row, for scores of shape (…, n, classes)."""
        return self._losses(scores.clone())[0]

    def _losses(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Log-loss of every row, and its derivative with respect to the scores, which it overwrites."""
        if self.several:
            losses = (functional.softplus(scores) - self.T * scores).sum(dim=-1)
            return losses, scores.sigmoid_().sub_(self.T)
        log_posteriors = scores.log_softmax(dim=-1)
        return -(self.T * log_posteriors).sum(dim=-1), log_posteriors.exp_().sub_(self.T)
