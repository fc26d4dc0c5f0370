"""Canonical correlations, carried on by a ranking loss."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import OnStep
from crossbit.data import TrainingSet
from crossbit.hashers.base import Hasher
from crossbit.hashers.canonical import Matrix
from crossbit.hashers.ccaitq import quantizing_rotation
from crossbit.hashers.ranking import Ranking, learn_to_find
from crossbit.hashers.together import Bags, SharedDirections, things_of
from crossbit.model import Affine, HashModel, Layer, Standardize, Tanh
from crossbit.model.inputs import apply, fit_inputs

Ints = NDArray[np.int64]
Rows = NDArray[np.float32]

# Preparations of the features, each with regularizations to try.
_TRIED = {
    "standardize": (0.1, 0.3, 1.0, 3.0),
    "standardize+rbf(1500)+standardize": (0.01, 0.03, 0.1, 0.3),
}
_HELD_OUT = 0.2
_JUDGED = 1000  # held-out things that choose
_FEWEST = 10
_DIRECTIONS = 512
_ROUNDS = 20


@dataclass(kw_only=True)
class RankedCCA(Hasher):
    r"""Directions that modalities share, turned and bent by a ranking loss until their signs tell things apart.

    Each modality is projected on its canonical directions, weighted by their correlation. In this space, where
    directions that do not generalize are small, an affine layer for each modality begins as the rotation of `CCAITQ`
    and learns to find each thing's own counterpart among those of a batch,

    $$ \min\; \sum_{a \ne b} -\log \frac{\exp(u_i^a \cdot u_i^b / \tau q)}{\sum_j \exp(u_i^a \cdot u_j^b / \tau q)}
       + \frac{\lambda}{2 q} \sum_a \|W_a - R\|^2 , $$

    with $u = \operatorname{sign}$ of the $q$ outputs forwards and $\tanh$ backwards (a straight-through estimator),
    by Adam with gradients in closed form: it needs NumPy alone, and seconds. A thing with several rows of a modality,
    such as a picture with five captions, shows a random mixture of them each time.

    Features are linear, or nearness to landmarks; a fifth of the things, held out, chooses that, the regularization and
    whether ranking helps, by the mean reciprocal rank of their own counterparts. The choice when all that is known is
    what belongs together.

    Args:
        inputs: How features are prepared: ``"auto"``, or the steps of `crossbit.model.inputs.KNOWN`.
        regularization: Of the canonical directions, in mean variances; with ``inputs="auto"`` it is chosen.
        power: Directions are weighted by their correlation to this power.
        sharpness: $1 / (\tau \sqrt q)$: short codes, whose distances are coarse, are ranked more gently.
        pull: $\lambda$, which does not let the layers go far from where they began.
        steps: Of Adam.
        batch: Things a step.
        learning_rate: Of Adam; it falls to 0 as a cosine.

    Example:
        >>> import numpy as np
        >>> from crossbit import RankedCCA
        >>> Z = np.random.default_rng(0).normal(size=(200, 8))
        >>> RankedCCA(n_bits=16, steps=20).fit({"image": Z @ np.ones((8, 20)) + 0.1, "text": Z})
        HashModel(image, text → 16 bits)

    References:
        H. Hotelling. "Relations between two sets of variates." Biometrika 1936.
        A. van den Oord, Y. Li, O. Vinyals. "Representation learning with contrastive predictive coding." 2018.
        Y. Bengio, N. Léonard, A. Courville. "Estimating or propagating gradients through stochastic neurons." 2013.
    """

    inputs: str = "auto"
    regularization: float = 0.3
    power: float = 1.0
    sharpness: float = 0.9
    pull: float = 1.0
    steps: int = 300
    batch: int = 1000
    learning_rate: float = 0.003

    title: ClassVar[str] = (
        "canonical correlations, carried on by a ranking loss: what belongs together finds itself"
    )
    learns_from: ClassVar[frozenset[str]] = frozenset({"pairs", "rows"})
    modalities: ClassVar[tuple[int, int | None]] = (2, None)

    def _learn(
        self, data: TrainingSet, *, checkpoint: Path | None, on_step: OnStep | None
    ) -> HashModel:
        things = things_of(data)
        chosen = _Chosen(self.inputs, self.regularization, self.steps)
        if self.inputs == "auto":
            chosen = self._choose(data, things)
        prepared = {
            name: _prepare(data, name, chosen.inputs, things[name].rows, self.seed)
            for name in data.views
        }
        shared = SharedDirections(
            {name: _means(X, things[name]) for name, (_, X) in prepared.items()}
        )
        W, Z = self._project(
            shared, {name: X for name, (_, X) in prepared.items()}, chosen.regularization
        )
        learned = self._rank(Z, things, chosen.steps, on_step)
        encoders: dict[str, list[Layer]] = {}
        for name, (layers, _) in prepared.items():
            mean, (M, bias) = shared.mean[name], learned[name]
            # The mean goes first, in a layer of its own, so that large means do not cost precision.
            center = Standardize(mean, np.ones(len(mean)))
            encoders[name] = [*layers, center, Affine(W[name] @ M, bias), Tanh()]
        return HashModel(encoders, self.n_bits, card={"chosen": chosen.told()})

    def _project(
        self, shared: SharedDirections, X: Mapping[str, Matrix], regularization: float
    ) -> tuple[dict[str, Matrix], dict[str, Matrix]]:
        """Directions, and the rows in them, scaled to unit size; NaN stays NaN."""
        W = shared.directions(max(_DIRECTIONS, self.n_bits), regularization, self.power)
        Z = {name: (rows - shared.mean[name]) @ W[name] for name, rows in X.items()}
        size = {
            name: max(float(np.sqrt(np.nanmean(np.square(rows)))), 1e-12)
            for name, rows in Z.items()
        }
        return {name: W[name] / size[name] for name in W}, {
            name: Z[name] / size[name] for name in Z
        }

    def _rank(
        self,
        Z: Mapping[str, Matrix],
        things: Mapping[str, Bags],
        steps: int,
        on_step: OnStep | None = None,
    ) -> dict[str, tuple[Rows, Rows]]:
        """Turn the directions toward the corners of the cube, then let things find their own counterparts."""
        random = np.random.default_rng(self.seed)
        V = np.concatenate(
            [means[_there(means)] for name in Z if len(means := _means(Z[name], things[name]))]
        )
        start = quantizing_rotation(V, self.n_bits, rounds=_ROUNDS, random=random)
        start /= max(float(np.sqrt(np.square(V @ start).mean())), 1e-12)
        how = Ranking(
            temperature=1 / (max(self.sharpness, 1e-6) * self.n_bits**0.5),
            pull=self.pull,
            steps=steps,
            batch=self.batch,
            rate=self.learning_rate,
        )
        rows = {name: each.astype(np.float32) for name, each in Z.items()}
        return learn_to_find(rows, things, start.astype(np.float32), how, random, on_step)

    def _choose(self, data: TrainingSet, things: Mapping[str, Bags]) -> "_Chosen":
        """Inputs, regularization and whether to rank at all, by how held-out things find their counterparts."""
        n = len(next(iter(things.values())).counts)
        aside = np.random.default_rng([self.seed, 1]).permutation(n)[
            : min(int(_HELD_OUT * n), _JUDGED)
        ]
        if len(aside) < _FEWEST:
            return _Chosen("standardize", self.regularization, self.steps)
        learning = np.setdiff1d(np.arange(n), aside)
        best: tuple[float, _Chosen, dict[str, Matrix]] | None = None
        for inputs, regularizations in _TRIED.items():
            means = {}
            for name, bags in things.items():
                used = bags.rows[np.repeat(np.isin(np.arange(n), learning), bags.counts)]
                means[name] = _means(_prepare(data, name, inputs, used, self.seed)[1], bags)
            shared = SharedDirections({name: rows[learning] for name, rows in means.items()})
            for regularization in regularizations:
                _, Z = self._project(shared, means, regularization)
                score = reciprocal_rank({name: rows[aside] for name, rows in Z.items()})
                if best is None or score > best[0]:
                    best = (score, _Chosen(inputs, regularization, self.steps), Z)
        _, chosen, Z = cast("tuple[float, _Chosen, dict[str, Matrix]]", best)
        return replace(chosen, steps=self._steps_that_help(Z, learning, aside))

    def _steps_that_help(self, Z: Mapping[str, Matrix], learning: Ints, aside: Ints) -> int:
        """All steps, or none where codes find held-out counterparts better without."""
        known = {name: rows[learning] for name, rows in Z.items()}
        bags = {
            name: Bags(np.flatnonzero(_there(rows)), _there(rows).astype(np.int64))
            for name, rows in known.items()
        }
        scores = {}
        for steps in (0, self.steps):
            layers = self._rank(known, bags, steps)
            codes = {
                name: np.copysign(1.0, Z[name][aside] @ W + bias)
                for name, (W, bias) in layers.items()
            }
            scores[steps] = reciprocal_rank(codes)
        return max(scores, key=lambda steps: scores[steps])


@dataclass(frozen=True)
class _Chosen:
    """What the held-out things chose."""

    inputs: str
    regularization: float
    steps: int

    def told(self) -> str:
        """In a line, for the card."""
        return f"inputs {self.inputs}, regularization {self.regularization:g}, {self.steps} steps"


def _there(rows: Matrix) -> NDArray[np.bool_]:
    return ~np.isnan(rows[:, 0])


def _prepare(
    data: TrainingSet, name: str, inputs: str, rows: Ints, seed: int
) -> tuple[list[Layer], Matrix]:
    """Layers of prepared inputs, fitted on some rows, and what they make of all; NaN where a row is absent."""
    view, there = data.views[name], data.present[name]
    number = list(data.views).index(name)
    layers = fit_inputs(inputs, view[np.unique(rows)], np.random.default_rng([seed, 2, number]))
    made = apply(layers, view[there])
    X = np.full((len(view), made.shape[1]), np.nan)
    X[there] = made
    return layers, X


def _means(X: NDArray[Any], bags: Bags) -> Matrix:
    """One row a thing, NaN where it has none."""
    means = np.full((len(bags.counts), X.shape[1]), np.nan)
    having = np.flatnonzero(bags.counts)
    means[having] = bags.mixed(X, having)
    return means


def reciprocal_rank(Z: Mapping[str, Matrix]) -> float:
    """Mean of 1 / rank of the own counterpart by cosine, from every modality to every other; ties in the middle.

    Args:
        Z: Modality → one row a thing, in one space; NaN where a thing lacks the modality.
    """
    found = []
    for a, b in permutations(Z, 2):
        both = _there(Z[a]) & _there(Z[b])
        A, B = (
            Z[m][both] / np.maximum(np.linalg.norm(Z[m][both], axis=1, keepdims=True), 1e-12)
            for m in (a, b)
        )
        similar = (A @ B.T).round(9)
        own = np.diag(similar)[:, None]
        found.append(1 / ((similar > own).sum(axis=1) + ((similar == own).sum(axis=1) + 1) / 2))
    ranks = np.concatenate(found)
    return float(ranks.mean()) if len(ranks) else 0.0
