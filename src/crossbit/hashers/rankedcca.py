"""Canonical correlations, refined by a ranking loss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import ClassVar

import numpy as np

from crossbit._progress import StepCounter
from crossbit._validation import Positive, present_rows
from crossbit.codes import prefix_lengths
from crossbit.data.correspondence import Bags, group_rows
from crossbit.data.sampling import row_batches
from crossbit.data.training_set import TrainingSet
from crossbit.hashers._ranking import Batch, Loss, Refinement, info_nce, refined_layers
from crossbit.hashers.base import Hasher, Run
from crossbit.inputs.counterparts import (
    MAX_AXES,
    N_DIRECTIONS,
    hold_out_items,
    search_regularization,
)
from crossbit.linalg import Floats, Ints, Matrix
from crossbit.linalg.cca import CCA
from crossbit.linalg.itq import nested_itq
from crossbit.metrics.counterparts import reciprocal_rank
from crossbit.model.hashmodel import HashModel

_REGULARIZATION = 0.3  # the first to try, and the one where too few items can be held out
_ROUNDS = 20


@dataclass(kw_only=True)
class RankedCCA(Refinement, Hasher):
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
        steps: Number of Adam steps; 0 leaves the ranking loss out.
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
    sharpness: Positive = 0.9
    batch: int = 1000
    nested: bool = False
    inputs: str | dict[str, str] = "auto"

    title: ClassVar[str] = "canonical correlations refined by a ranking loss, from pairs alone"
    supervision: ClassVar[frozenset[str]] = frozenset({"pairs", "aligned"})
    modalities: ClassVar[tuple[int, int | None]] = (2, None)

    def _learn(self, data: TrainingSet, run: Run) -> HashModel:
        bags = group_rows(data)
        X = {name: np.asarray(view, np.float64) for name, view in data.views.items()}
        means = {name: bags[name].means(X[name]) for name in X}
        report = StepCounter(run.on_step, self.steps)
        regularization, steps = self.regularization, self.steps
        if regularization is None:
            regularization, steps = self._choose(means, report)
        cca = CCA(means, max_axes=MAX_AXES)
        W, Z = self._project(cca, X, regularization)
        trained = replace(self, steps=steps)._rank(Z, bags, report)
        encoders = {
            name: refined_layers(cca.mean[name], W[name] @ M, bias)
            for name, (M, bias) in trained.items()
        }
        card = {"regularization": regularization, "steps": steps}
        return HashModel(encoders, self.n_bits, card=card)

    def _unused(self, data: TrainingSet) -> dict[str, str]:
        if self.steps:
            return {}
        ranking = ("sharpness", "pull", "batch", "learning_rate")
        return dict.fromkeys(ranking, "steps=0 leaves the ranking loss out")

    @property
    def _scales(self) -> dict[int, float]:
        """Length → 1 / temperature of the parts of a code that have a loss."""
        lengths = prefix_lengths(self.n_bits) if self.nested else [self.n_bits]
        return {length: self.sharpness * length**0.5 for length in lengths}

    @property
    def _n_directions(self) -> int:
        return max(N_DIRECTIONS, self.n_bits)

    def _project(
        self, cca: CCA, X: Mapping[str, Matrix], regularization: float
    ) -> tuple[dict[str, Matrix], dict[str, Matrix]]:
        """Canonical directions and the rows in them, scaled to unit size; NaN stays NaN."""
        W = cca.directions(self._n_directions, regularization, self.power)
        Z = {}
        for name, rows in X.items():
            Z[name] = (rows - cca.mean[name]) @ W[name]
            size = max(float(np.sqrt(np.nanmean(np.square(Z[name])))), 1e-12)
            W[name] = W[name] / size
            Z[name] /= size
        return W, Z

    def _choose(self, means: Mapping[str, Matrix], report: StepCounter) -> tuple[float, int]:
        """Choose the regularization and the number of steps by the ranks of held-out items.

        The steps are all or none, if held-out items rank better without the ranking loss.
        """
        held_out = hold_out_items(len(next(iter(means.values()))), self.seed)
        if held_out is None:
            return _REGULARIZATION, self.steps
        report.of = 2 * self.steps
        search = search_regularization(
            means, held_out, _REGULARIZATION, n_directions=self._n_directions, power=self.power
        )
        _, Z = self._project(search.cca, means, search.regularization)
        bags = {name: Bags.single(present_rows(rows) & ~held_out) for name, rows in Z.items()}
        scores = {}
        for steps in (0, self.steps):
            trained = replace(self, steps=steps)._rank(Z, bags, report)
            codes = {
                name: np.sign(Z[name][held_out] @ weight + bias)  # NaN stays NaN: absent
                for name, (weight, bias) in trained.items()
            }
            by_length = [
                reciprocal_rank({name: rows[:, :length] for name, rows in codes.items()})
                for length in self._scales
            ]
            scores[steps] = float(np.mean(by_length))
        best = max(scores, key=lambda steps: scores[steps])
        report.of = self.steps + best
        return search.regularization, best

    def _rank(
        self, Z: Mapping[str, Matrix], bags: Mapping[str, Bags], report: StepCounter
    ) -> dict[str, tuple[Floats, Floats]]:
        """Rotate the directions toward the corners of the cube, then train the ranking loss.

        Returns:
            Modality → weight (k, bits) and bias (bits,).
        """
        random = np.random.default_rng(self.seed)
        means = [bags[name].means(rows) for name, rows in Z.items()]
        V = np.concatenate([rows[present_rows(rows)] for rows in means])
        start = nested_itq(V, list(self._scales), random, rounds=_ROUNDS).astype(np.float32)
        rows = [projected.astype(np.float32) for projected in Z.values()]
        own_bags = [bags[name] for name in Z]
        # Only items with rows of at least two modalities have a counterpart.
        n_modalities = np.sum([bag.counts > 0 for bag in own_bags], axis=0)
        batches = row_batches(np.flatnonzero(n_modalities > 1), self.batch, random)

        def draw() -> Batch:
            items = next(batches)
            present = [np.flatnonzero(bag.counts[items] > 0) for bag in own_bags]
            mixtures = [
                bag.mean_or_mixture(own, items[at], random)
                for bag, own, at in zip(own_bags, rows, present, strict=True)
            ]
            return Batch(mixtures, [own @ start for own in mixtures], _counterpart_loss(present))

        changes, biases = self.refine((len(Z), *start.shape), draw, self._scales, report)
        return dict(zip(Z, zip(start + changes, biases, strict=True), strict=True))


def _counterpart_loss(present: Sequence[Ints]) -> Loss:
    """InfoNCE summed over pairs of modalities, given the items of each modality's rows."""
    pairs = list(combinations(range(len(present)), 2))
    matches = [
        np.intersect1d(present[a], present[b], assume_unique=True, return_indices=True)[1:]
        for a, b in pairs
    ]

    def loss(codes: Sequence[Floats], scale: float) -> tuple[float, list[Floats]]:
        total = 0.0
        slopes = [np.zeros_like(own) for own in codes]
        for (a, b), (left, right) in zip(pairs, matches, strict=True):
            if len(left) < 2:  # nothing to tell apart
                continue
            value, by_a, by_b = info_nce(codes[a][left], codes[b][right], scale)
            total += value
            slopes[a][left] += by_a
            slopes[b][right] += by_b
        return total, slopes

    return loss
