"""Principal components, refined until codes keep the neighbors of each row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from crossbit._progress import StepCounter
from crossbit._validation import Fraction, Limits
from crossbit.codes import prefix_lengths
from crossbit.data.neighbors import NeighborsArgument, find_neighbors, metric_rows
from crossbit.data.sampling import hold_out
from crossbit.data.training_set import TrainingSet
from crossbit.hashers._ranking import Batch, Refinement, log_softmax, rank_loss, refined_layers
from crossbit.hashers.base import Hasher, Run
from crossbit.linalg import Floats, Ints, Matrix
from crossbit.linalg.cca import CCA
from crossbit.linalg.itq import nested_itq, signs
from crossbit.linalg.pca import principal
from crossbit.metrics.counterparts import own_ranks
from crossbit.model.hashmodel import HashModel
from crossbit.model.layers import Layer, Normalize

_SAMPLE = 20_000  # rows for components, directions and the first rotation
_MAX_LINKS = 50_000  # similar pairs
_MAX_AXES = 768
_REGULARIZATIONS = (0.3, 1.0, 3.0)
_POWER = 0.5  # of the correlation that weights a direction
_HELD_OUT = 0.2
_MAX_RANKED = 2000  # held-out pairs that are ranked
_MIN_RANKED = 20
_ROUNDS = 20
_SMALLEST, _LARGEST = 1e-2, 1e4  # limits of a
_SCALES = np.geomspace(1, 200, 40)  # values of b


@dataclass(kw_only=True)
class RankedITQ(Refinement, Hasher):
    r"""Iterative quantization, refined until codes rank the rows near each row as embeddings do.

    For one kind of embeddings. The affine layer that makes the bits starts as `ITQ`. Then it learns
    that among a row and its nearest ones, those that are near in the embedding $t$ are near in the
    code $u$, as in stochastic neighbor embedding:

    $$ \min \sum_i \operatorname{KL}(p_i \,\|\, q_i) + \frac{\lambda}{2 q} \|W - R\|^2, \qquad
       p_{ij} \propto e^{-a \|t_i - t_j\|^2 / 2}, \qquad q_{ij} \propto e^{b\, u_i \cdot u_j / q} $$

    with $u = \operatorname{sign}$ of the $q$ outputs in the forward pass and $\tanh$ in the
    backward pass (a straight-through estimator), by Adam with gradients in closed form. It needs
    NumPy only, and seconds. The perplexity of $p_i$ sets $a$; $b$ is the one that fits the first
    codes.

    Similar pairs, such as captions of the same picture, change what near means: directions are then
    those that similar rows share (canonical correlations), with a regularization that held-out
    pairs choose, and similar rows get a part of $p_i$. Dissimilar pairs are not used.

    Args:
        perplexity: Number of near rows that matter, roughly; at least 1.
        pair_weight: Part of $p_i$ that similar rows get; refused without similar pairs.
        pull: $\lambda$, the decay toward the initial weights.
        steps: Number of Adam steps; 0 keeps the rotation.
        anchors: Rows per step, each with its nearest rows.
        learning_rate: Initial learning rate of Adam; it decays to 0 as a cosine.
        nested: Make the first 16, 32, 64, … bits good codes of their own: training starts from
            blocks of rotations for these lengths, and every prefix has a loss.

    Example:
        >>> import numpy as np
        >>> from crossbit import RankedITQ
        >>> X = np.random.default_rng(0).normal(size=(100, 16))
        >>> RankedITQ(n_bits=8, steps=20).fit({"text": X})
        HashModel(text → 8 bits)

    References:
        Y. Gong, S. Lazebnik, A. Gordo, F. Perronnin. "Iterative quantization." TPAMI 2013.
        G. Hinton, S. Roweis. "Stochastic neighbor embedding." NIPS 2002.
        Y. Bengio, N. Léonard, A. Courville. "Estimating or propagating gradients through stochastic
        neurons." 2013.
    """

    perplexity: Annotated[float, Limits("of at least 1", least=1)] = 5.0
    pair_weight: Fraction = 0.5
    anchors: int = 100
    nested: bool = False

    title: ClassVar[str] = "a rotation refined to keep neighbors, for one kind of embeddings"
    supervision: ClassVar[frozenset[str]] = frozenset()
    modalities: ClassVar[tuple[int, int | None]] = (1, 1)

    def _accepted_neighbors(self, neighbors: NeighborsArgument | None) -> NeighborsArgument | None:
        """Use the neighbors that are asked for; without them, those by the cosine."""
        return neighbors

    def _unused(self, data: TrainingSet) -> dict[str, str]:
        if not self.steps:
            refining = ("perplexity", "pair_weight", "pull", "anchors", "learning_rate")
            return dict.fromkeys(refining, "steps=0 keeps the rotation")
        if not any(pairs.similar.any() for pairs in data.pairs):
            return {"pair_weight": "no similar pairs are given"}
        return {}

    def _learn(self, data: TrainingSet, run: Run) -> HashModel:
        (name,) = data.views
        graph = _Graph.of(data, name, np.random.default_rng(self.seed))
        regularization = graph.choose_regularization()
        W = graph.directions(regularization)
        T = graph.embedding(None if regularization is None else W)
        W = W[:, : self.n_bits]
        M, bias = self._refine(graph, graph.rows @ W, T, StepCounter(run.on_step, self.steps))
        first: list[Layer] = [Normalize()] if graph.unit else []
        layers = [*first, *refined_layers(graph.mean, W @ M, bias)]
        chosen = "none" if regularization is None else f"{regularization:g}"
        card = {"regularization of similar pairs": chosen} if len(graph.links) else {}
        return HashModel({name: layers}, self.n_bits, card=card)

    def _refine(
        self, graph: "_Graph", projected: Matrix, T: Floats, report: StepCounter
    ) -> tuple[Matrix, Floats]:
        """Train the affine layer; return its weight from projected rows, and its bias."""
        size = max(float(np.sqrt(np.square(projected).mean())), 1e-12)
        Z = (projected / size).astype(np.float32)
        V = Z[graph.random.permutation(len(Z))[:_SAMPLE]].astype(np.float64)
        lengths = prefix_lengths(self.n_bits) if self.nested else [self.n_bits]
        R = nested_itq(V, lengths, graph.random, rounds=_ROUNDS).astype(np.float32)
        outputs = Z @ R
        rows = graph.draw(self.anchors)
        a = self._scale_of_rows(T[rows])
        P = np.exp(_near(T[rows], a))
        scales = {n: _scale_of_codes(signs(outputs[rows, :n]), P) for n in lengths}

        def draw() -> Batch:
            rows = graph.draw(self.anchors)
            P = graph.mixed(np.exp(_near(T[rows], a)), rows, self.pair_weight)

            def loss(codes: Sequence[Floats], scale: float) -> tuple[float, list[Floats]]:
                value, ranking, ranked = rank_loss(codes[0], codes[0], P, scale, skip_own=True)
                return value, [ranking + ranked]

            return Batch([Z[rows]], [outputs[rows]], loss)

        change, bias = self.refine((1, *R.shape), draw, scales, report)
        return (R + change[0]) / size, bias[0]

    def _scale_of_rows(self, T: Floats) -> float:
        """Return a such that rows have this perplexity on average, by bisection."""
        target = np.log(min(self.perplexity, max(len(T) / 2, 1.0)))
        low, high = _SMALLEST, _LARGEST
        for _ in range(30):
            middle = float(np.sqrt(low * high))
            logs = _near(T, middle)
            entropy = -(np.exp(logs) * np.maximum(logs, -80)).sum(axis=1).mean()
            low, high = (middle, high) if entropy > target else (low, middle)
        return middle


@dataclass(frozen=True, eq=False)
class _Graph:
    """Rows with their nearest rows and similar rows, by position among the rows in use.

    Attributes:
        mean: Mean of the rows in use, after they were scaled to unit length if ``unit``.
        rows: The rows in use minus their mean.
        unit: Whether the metric is the cosine.
        nearest: Anchors with their nearest rows, the anchor first, shape (anchors, 1 + k).
        links: Similar pairs in both orders, shape (links, 2).
        random: Draws anchors and samples.
    """

    mean: Matrix
    rows: Matrix
    unit: bool
    nearest: Ints
    links: Ints
    random: np.random.Generator

    @classmethod
    def of(cls, data: TrainingSet, name: str, random: np.random.Generator) -> "_Graph":
        """Find the nearest rows, unless they are given, and collect similar pairs."""
        neighbors = data.neighbors.get(name)
        if neighbors is None:
            neighbors = find_neighbors(name, data.views[name], data.present[name], "cosine")
        near = neighbors.pairs.index[neighbors.pairs.similar].reshape(-1, neighbors.k, 2)
        nearest = np.hstack([near[:, :1, 0], near[:, :, 1]])
        similar = [pairs.index[pairs.similar] for pairs in data.pairs]
        links = np.concatenate([np.empty((0, 2), np.int64), *similar])
        links = links[links[:, 0] != links[:, 1]]
        links = links[random.permutation(len(links))[:_MAX_LINKS]]
        used = np.unique(np.concatenate([nearest.ravel(), links.ravel()]))
        nearest = np.searchsorted(used, nearest)
        links = np.searchsorted(used, links)
        links = np.unique(np.concatenate([links, links[:, ::-1]]), axis=0)
        X = metric_rows(data.views[name][used], neighbors.metric)
        mean = X.mean(axis=0, dtype=np.float64)
        return cls(mean, X - mean, neighbors.metric == "cosine", nearest, links, random)

    def choose_regularization(self) -> float | None:
        """Regularization that ranks held-out similar rows best; None if the metric does better."""
        if not len(self.links):
            return None
        n = len(self.rows)
        held_out = hold_out(np.zeros(n), _HELD_OUT, self.random, most=n)[self.links]
        ranked = self.links[held_out.all(axis=1)]
        ranked = ranked[np.unique(ranked[:, 1], return_index=True)[1]][:_MAX_RANKED]
        if len(ranked) < _MIN_RANKED:
            return None
        cca = self._shared(self.links[~held_out.any(axis=1)])
        scores: dict[float | None, float] = {None: _reciprocal_rank(self.embedding(None), ranked)}
        for regularization in _REGULARIZATIONS:
            W = cca.directions(_MAX_AXES, regularization, _POWER)["left"]
            scores[regularization] = _reciprocal_rank(self.embedding(W), ranked)
        return max(scores, key=lambda choice: scores[choice])

    def directions(self, regularization: float | None) -> Matrix:
        """Principal axes, or directions that similar rows share; strongest first, shape (d, k)."""
        if regularization is not None:
            cca = self._shared(self.links)
            return cca.directions(_MAX_AXES, regularization, _POWER)["left"]
        _, _, V = principal(self.rows[self.random.permutation(len(self.rows))[:_SAMPLE]])
        return V[:, ::-1] if V.shape[1] else np.eye(self.rows.shape[1])

    def _shared(self, links: Ints) -> CCA:
        """Directions that similar rows share: both sides of a pair are rows of one modality."""
        used, position = np.unique(links, return_inverse=True)
        X = self.rows[used]
        index = position.reshape(links.shape)
        return CCA({"left": X, "right": X}, {("left", "right"): index}, max_axes=_MAX_AXES)

    def embedding(self, W: Matrix | None) -> Floats:
        """Rows, projected if directions are given, of unit length or all divided by one scale."""
        rows = self.rows if W is None else self.rows @ W
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        size = lengths if self.unit else np.sqrt(np.square(lengths).mean())
        return np.asarray(rows / np.maximum(size, 1e-12), np.float32)

    def draw(self, anchors: int) -> Ints:
        """Draw anchors; return them and their nearest rows, without repetition."""
        n = len(self.nearest)
        chosen = self.random.choice(n, min(max(anchors, 1), n), replace=False)
        return np.unique(self.nearest[chosen])

    def mixed(self, P: Floats, rows: Ints, weight: float) -> Floats:
        """Give a part of each row's distribution to the similar rows among ``rows``, if any."""
        if not len(self.links) or weight == 0:
            return P
        position = np.full(len(self.rows), -1)
        position[rows] = np.arange(len(rows))
        left, right = position[self.links].T
        both = (left >= 0) & (right >= 0)
        similar = np.zeros_like(P)
        similar[left[both], right[both]] = 1
        totals = similar.sum(axis=1, keepdims=True)
        mixture = (1 - weight) * P + weight * similar / np.maximum(totals, 1)
        return np.where(totals > 0, mixture, P)


def _reciprocal_rank(T: Floats, links: Ints) -> float:
    """Mean of 1 / rank of the second row of each pair among all second rows, by distance."""
    left, right = T[links[:, 0]], T[links[:, 1]]
    similarity = left @ right.T - np.square(right).sum(axis=1) / 2
    similarity[links[:, :1] == links[:, 1]] = -np.inf  # no row finds itself
    return float(own_ranks(similarity).mean())


def _near(T: Floats, scale: float) -> Floats:
    """Log probabilities that rows choose each other by their distance; none chooses itself."""
    logits = np.float32(scale) * (T @ T.T - np.square(T).sum(axis=1) / 2)
    np.fill_diagonal(logits, -1e9)
    return log_softmax(logits)


def _scale_of_codes(codes: Floats, P: Floats) -> float:
    """Return b such that the codes fit the probabilities P best."""
    return float(min(_SCALES, key=lambda b: rank_loss(codes, codes, P, b, skip_own=True)[0]))
