"""Canonical correlations, refined by a ranking loss."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import OnStep, StepCounter
from crossbit._validation import check_number, present_rows
from crossbit.codes import prefix_lengths
from crossbit.data.correspondence import Bags, group_rows
from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError
from crossbit.hashers.base import Hasher
from crossbit.linalg.cca import CCA, best_regularization
from crossbit.linalg.itq import itq, nested_itq, random_rotation
from crossbit.linalg.optimize import Adam
from crossbit.metrics.counterparts import reciprocal_rank
from crossbit.model.hashmodel import HashModel
from crossbit.model.layers import Affine, Layer, Standardize, Tanh

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float32]
_Matrix = NDArray[np.float64]
_Weights = dict[str, tuple[_Floats, _Floats]]
"""Modality → weight (k, bits) and bias (bits,)."""

_HELD_OUT = 0.2
_MAX_HELD_OUT = 1000
_MIN_HELD_OUT = 10
_FEW_ITEMS = 0.3  # regularization where too few items can be held out, else the first to try
_MAX_AXES = 768  # principal axes of a modality
_DIRECTIONS = 512
_ROUNDS = 20


@dataclass(kw_only=True)
class RankedCCA(Hasher):
    r"""Canonical directions, refined until each item's code finds its counterpart.

    Each modality is projected on its canonical directions, weighted by their correlation. In this
    space, where directions that do not generalize are small, an affine layer per modality starts as
    the rotation of `CCAITQ` and learns to find each item's counterpart within a batch (InfoNCE),

    $$ \min\; \sum_{a \ne b} -\log \frac{\exp(u_i^a \cdot u_i^b / \tau q)}
       {\sum_j \exp(u_i^a \cdot u_j^b / \tau q)} + \frac{\lambda}{2 q} \sum_a \|W_a - R\|^2 , $$

    with $u = \operatorname{sign}$ of the $q$ outputs in the forward pass and $\tanh$ in the
    backward pass (a straight-through estimator), by Adam with gradients in closed form. It needs
    NumPy only, and seconds. An item with several rows of a modality, such as an image with five
    captions, is represented by a new random mixture of them in every step.

    By default the features are linear or similarities to landmarks. A held-out fifth of the items
    chooses between them, the regularization and whether the ranking loss helps, by the mean
    reciprocal rank of their counterparts. The recommended method if only correspondence is known.

    Args:
        regularization: Regularization of the canonical directions, in mean variances; None searches
            the one at which held-out items best find their counterparts, and whether the ranking
            loss helps.
        power: Directions are weighted by their correlation to this power.
        sharpness: $1 / (\tau \sqrt q)$: short codes, whose distances are coarse, get a higher
            temperature.
        pull: $\lambda$, the decay toward the initial weights.
        steps: Number of Adam steps.
        batch: Items per step.
        learning_rate: Initial learning rate of Adam; it decays to 0 as a cosine.
        nested: Make the first 16, 32, 64, … bits good codes of their own: training starts from
            blocks of rotations for these lengths, and every prefix has a loss.

    Example:
        >>> import numpy as np
        >>> from crossbit import RankedCCA
        >>> Z = np.random.default_rng(0).normal(size=(200, 8))
        >>> RankedCCA(n_bits=16, steps=20).fit({"image": Z @ np.ones((8, 20)) + 0.1, "text": Z})
        HashModel(image, text → 16 bits)

    References:
        H. Hotelling. "Relations between two sets of variates." Biometrika 1936.
        A. van den Oord, Y. Li, O. Vinyals. "Representation learning with contrastive predictive
        coding." 2018.
        Y. Bengio, N. Léonard, A. Courville. "Estimating or propagating gradients through stochastic
        neurons." 2013.
    """

    regularization: float | None = None
    power: float = 1.0
    sharpness: float = 0.9
    pull: float = 1.0
    steps: int = 300
    batch: int = 1000
    learning_rate: float = 0.003
    nested: bool = False
    inputs: str | dict[str, str] = "auto"

    title: ClassVar[str] = "canonical correlations refined by a ranking loss, from pairs alone"
    supervision: ClassVar[frozenset[str]] = frozenset({"pairs", "aligned"})
    modalities: ClassVar[tuple[int, int | None]] = (2, None)

    def _learn(
        self, data: TrainingSet, *, checkpoint: Path | None, on_step: OnStep | None
    ) -> HashModel:
        bags = group_rows(data)
        X = {name: np.asarray(view, np.float64) for name, view in data.views.items()}
        report = StepCounter(on_step, self.steps)
        regularization, steps = self.regularization, self.steps
        if regularization is None:
            report.of *= 2  # try the ranking loss, train
            regularization, steps = self._choose(X, bags, report)
            report.of -= self.steps - steps
        cca = CCA({name: bags[name].means(X[name]) for name in X}, max_axes=_MAX_AXES)
        W, Z = self._project(cca, X, regularization)
        learned = self._rank(Z, bags, steps, report)
        encoders: dict[str, list[Layer]] = {}
        for name, (M, bias) in learned.items():
            # The mean is a separate layer, because large means would cost precision in the bias.
            center = Standardize(cca.mean[name], np.ones(len(cca.mean[name])))
            encoders[name] = [center, Affine(W[name] @ M, bias), Tanh()]
        card = {"regularization": regularization, "steps": steps}
        return HashModel(encoders, self.n_bits, card=card)

    def _check_fields(self) -> None:
        super()._check_fields()
        value = self.regularization
        if value is not None and check_number(value, "regularization") < 0:
            raise DataError(f"regularization must not be negative, got {value!r}")

    def _project(
        self, cca: CCA, X: Mapping[str, _Matrix], regularization: float
    ) -> tuple[dict[str, _Matrix], dict[str, _Matrix]]:
        """Canonical directions and the rows in them, scaled to unit size; NaN stays NaN."""
        W = cca.directions(max(_DIRECTIONS, self.n_bits), regularization, self.power)
        Z = {}
        for name, rows in X.items():
            Z[name] = (rows - cca.mean[name]) @ W[name]
            size = max(float(np.sqrt(np.nanmean(np.square(Z[name])))), 1e-12)
            W[name] = W[name] / size
            Z[name] /= size
        return W, Z

    def _rank(
        self,
        Z: Mapping[str, _Matrix],
        bags: Mapping[str, Bags],
        steps: int,
        report: StepCounter,
    ) -> _Weights:
        """Rotate the directions toward the corners of the cube, then train the ranking loss."""
        random = np.random.default_rng(self.seed)
        means = [bags[name].means(rows) for name, rows in Z.items()]
        V = np.concatenate([rows[present_rows(rows)] for rows in means])
        if self.nested:
            start = nested_itq(V, prefix_lengths(self.n_bits), random, rounds=_ROUNDS)
        else:
            start = itq(V, random_rotation(V.shape[1], self.n_bits, random), rounds=_ROUNDS)
        start /= max(float(np.sqrt(np.square(V @ start).mean())), 1e-12)
        rows = {name: projected.astype(np.float32) for name, projected in Z.items()}
        return self._train_ranking(rows, bags, start.astype(np.float32), steps, random, report)

    def _temperatures(self) -> dict[int, float]:
        """Length → temperature of the parts of a code that have a loss."""
        lengths = prefix_lengths(self.n_bits) if self.nested else [self.n_bits]
        return {length: 1 / (max(self.sharpness, 1e-6) * length**0.5) for length in lengths}

    def _train_ranking(
        self,
        Z: Mapping[str, _Floats],
        bags: Mapping[str, Bags],
        start: _Floats,
        steps: int,
        random: np.random.Generator,
        report: StepCounter,
    ) -> _Weights:
        """Train one affine layer per modality, all of them from the weights ``start``."""
        k, bits = start.shape
        size = start.size + bits
        temperatures = self._temperatures()
        initial = np.concatenate([start.ravel(), np.zeros(bits, np.float32)])
        x = np.tile(initial, len(Z))

        def unpack(parameters: _Floats) -> _Weights:
            parts = parameters.reshape(len(Z), size)
            return {
                name: (part[: start.size].reshape(k, bits), part[start.size :])
                for name, part in zip(Z, parts, strict=True)
            }

        def gradient(parameters: _Floats, batch: _Ints) -> tuple[float, _Floats]:
            loss, slopes = _batch_gradient(Z, bags, unpack(parameters), batch, temperatures, random)
            flat = []
            for name, (weight, _) in unpack(parameters).items():
                slope, bias_slope = slopes[name]
                slope = slope + self.pull / bits * (weight - start)
                flat += [slope.ravel(), bias_slope]
            return loss, np.concatenate(flat).astype(np.float32, copy=False)

        # Only items with rows of at least two modalities have a counterpart.
        counts = np.sum([bag.counts > 0 for bag in bags.values()], axis=0)
        items = np.flatnonzero(counts > 1)
        order = np.empty(0, np.int64)
        adam = Adam(self.learning_rate)
        for step in range(steps):
            if len(order) < min(self.batch, len(items)):
                order = random.permutation(items)
            batch = order[: self.batch]
            order = order[self.batch :]
            cosine = (1 + np.cos(np.pi * step / steps)) / 2
            objective = partial(gradient, batch=batch)
            x, loss = adam.step(x, objective, rate_factor=float(cosine))
            report(loss=loss)
        return unpack(x)

    def _choose(
        self, X: Mapping[str, _Matrix], bags: Mapping[str, Bags], report: StepCounter
    ) -> tuple[float, int]:
        """Choose the regularization and the number of steps by the ranks of held-out items."""
        n = len(next(iter(bags.values())).counts)
        n_held_out = min(int(_HELD_OUT * n), _MAX_HELD_OUT)
        held_out = np.random.default_rng([self.seed, 1]).permutation(n)[:n_held_out]
        if len(held_out) < _MIN_HELD_OUT:
            report.of = self.steps
            return _FEW_ITEMS, self.steps
        train = np.setdiff1d(np.arange(n), held_out)
        means = {name: bag.means(X[name]) for name, bag in bags.items()}
        cca = CCA({name: rows[train] for name, rows in means.items()}, max_axes=_MAX_AXES)

        def score(regularization: float) -> float:
            _, Z = self._project(cca, means, regularization)
            return reciprocal_rank({name: rows[held_out] for name, rows in Z.items()})

        regularization, _ = best_regularization(score, _FEW_ITEMS)
        _, Z = self._project(cca, means, regularization)
        return regularization, self._useful_steps(Z, train, held_out, report)

    def _useful_steps(
        self, Z: Mapping[str, _Matrix], train: _Ints, held_out: _Ints, report: StepCounter
    ) -> int:
        """All steps, or none if held-out items rank better without the ranking loss."""
        known = {name: rows[train] for name, rows in Z.items()}
        bags = {}
        for name, rows in known.items():
            present = present_rows(rows)
            bags[name] = Bags(np.flatnonzero(present), present.astype(np.int64))
        scores = {}
        for steps in (0, self.steps):
            codes = {
                name: np.sign(Z[name][held_out] @ weight + bias)  # NaN stays NaN: absent
                for name, (weight, bias) in self._rank(known, bags, steps, report).items()
            }
            by_length = [
                reciprocal_rank({name: rows[:, :n_bits] for name, rows in codes.items()})
                for n_bits in self._temperatures()
            ]
            scores[steps] = float(np.mean(by_length))
        return max(scores, key=lambda steps: scores[steps])


def _batch_gradient(
    Z: Mapping[str, _Floats],
    bags: Mapping[str, Bags],
    layers: _Weights,
    batch: _Ints,
    temperatures: Mapping[int, float],
    random: np.random.Generator,
) -> tuple[float, _Weights]:
    """Loss of a batch and its gradient, summed over pairs of modalities."""
    present = {}
    mixtures = {}
    outputs = {}
    for name, (weight, bias) in layers.items():
        present[name] = np.flatnonzero(bags[name].counts[batch] > 0)
        items = batch[present[name]]
        mixtures[name] = bags[name].mean_or_mixture(Z[name], items, random)
        outputs[name] = mixtures[name] @ weight + bias
    total = 0.0
    slopes = {name: np.zeros_like(output) for name, output in outputs.items()}
    for a, b in combinations(layers, 2):
        _, left, right = np.intersect1d(
            present[a], present[b], assume_unique=True, return_indices=True
        )
        if len(left) > 1:
            for n_bits, temperature in temperatures.items():
                u = outputs[a][left, :n_bits]
                v = outputs[b][right, :n_bits]
                loss, slope_a, slope_b = _info_nce(u, v, temperature)
                slopes[a][left, :n_bits] += slope_a / len(temperatures)
                slopes[b][right, :n_bits] += slope_b / len(temperatures)
                total += loss / len(temperatures)
    return total, {
        name: (mixtures[name].T @ slope, slope.sum(axis=0)) for name, slope in slopes.items()
    }


def _info_nce(
    a: _Floats, b: _Floats, temperature: float, *, hard: bool = True
) -> tuple[float, _Floats, _Floats]:
    r"""InfoNCE loss of matching rows and its gradient with respect to both arguments.

    $$ -\frac{1}{2n} \sum_i \Big( \log \frac{e^{l_{ii}}}{\sum_j e^{l_{ij}}}
       + \log \frac{e^{l_{ii}}}{\sum_j e^{l_{ji}}} \Big),
       \qquad l_{ij} = \frac{u_i \cdot v_j}{\tau q} $$

    It equals `crossbit.neural.losses`' ranking loss of one similar row per row. The gradient is in
    closed form, so that training needs no torch.

    Args:
        a: Outputs of one modality, shape (n, q).
        b: Outputs of the other modality; row i matches row i of ``a``.
        temperature: $\tau$.
        hard: $u$ and $v$ are signs with the gradient of tanh; otherwise they are tanh itself.
    """
    n, bits = a.shape
    soft_a = np.tanh(a)
    soft_b = np.tanh(b)
    u, v = soft_a, soft_b
    if hard:
        u = np.copysign(np.float32(1), a)
        v = np.copysign(np.float32(1), b)
    logits = (u @ v.T / (temperature * bits)).astype(np.float32)
    by_row = _log_softmax(logits, 1)
    by_column = _log_softmax(logits, 0)
    loss = -(np.trace(by_row) + np.trace(by_column)) / (2 * n)
    G = np.exp(by_row) + np.exp(by_column)
    G[np.diag_indices(n)] -= 2
    G /= np.float32(2 * n * temperature * bits)
    return float(loss), (G @ v) * (1 - soft_a**2), (G.T @ u) * (1 - soft_b**2)


def _log_softmax(x: _Floats, axis: int) -> _Floats:
    shifted = x - x.max(axis=axis, keepdims=True)
    out: _Floats = shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    return out
