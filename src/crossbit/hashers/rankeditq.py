"""Principal components, refined until codes keep the neighbors of each row."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import OnStep, StepCounter
from crossbit.codes import prefix_lengths
from crossbit.data.neighbors import NeighborsArgument, find_neighbors, metric_rows
from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError
from crossbit.hashers.base import Hasher
from crossbit.linalg.cca import CCA
from crossbit.linalg.itq import itq, nested_itq, random_rotation
from crossbit.linalg.optimize import Adam
from crossbit.linalg.pca import principal
from crossbit.model.hashmodel import HashModel
from crossbit.model.layers import Affine, Layer, Normalize, Standardize, Tanh

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float32]
_Matrix = NDArray[np.float64]

_SAMPLE = 20_000  # rows for components, directions and the first rotation
_MAX_LINKS = 50_000  # similar pairs
_MAX_AXES = 768
_REGULARIZATIONS = (0.3, 1.0, 3.0)
_POWER = 0.5  # of the correlation that weights a direction
_HELD_OUT = 0.2
_MAX_RANKED = 1000  # held-out pairs that are ranked
_MIN_RANKED = 20
_ROUNDS = 20
_SMALLEST, _LARGEST = 1e-2, 1e4  # limits of a
_SCALES = np.geomspace(1, 200, 40)  # values of b


@dataclass(kw_only=True)
class RankedITQ(Hasher):
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
        perplexity: Number of near rows that matter, roughly.
        pair_weight: Part of $p_i$ that similar rows get.
        pull: $\lambda$, the decay toward the initial weights.
        steps: Number of Adam steps.
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

    perplexity: float = 5.0
    pair_weight: float = 0.5
    pull: float = 1.0
    steps: int = 300
    anchors: int = 100
    learning_rate: float = 0.003
    nested: bool = False

    title: ClassVar[str] = "a rotation refined to keep neighbors, for one kind of embeddings"
    supervision: ClassVar[frozenset[str]] = frozenset()
    modalities: ClassVar[tuple[int, int | None]] = (1, 1)

    def _accepted_neighbors(self, neighbors: NeighborsArgument | None) -> NeighborsArgument | None:
        """Use the neighbors that are asked for; without them, those by the cosine."""
        return neighbors

    def _learn(
        self, data: TrainingSet, *, checkpoint: Path | None, on_step: OnStep | None
    ) -> HashModel:
        if self.pair_weight > 1:
            raise DataError(f"rankeditq: pair_weight must be at most 1, got {self.pair_weight!r}")
        (name,) = data.views
        random = np.random.default_rng(self.seed)
        graph = _graph(data, name, random)
        mean = graph.X.mean(axis=0, dtype=np.float64)
        centered = graph.X - mean
        regularization = self._choose(graph, centered, random)
        W = _directions(graph, centered, regularization, random)
        T = _embedding(centered if regularization is None else centered @ W, graph.unit)
        M, bias = self._refine(graph, centered @ W[:, : self.n_bits], T, random, on_step)
        layers: list[Layer] = [Normalize()] if graph.unit else []
        # The mean is a separate layer, because large means would cost precision in the bias.
        layers += [
            Standardize(mean, np.ones(len(mean))),
            Affine(W[:, : self.n_bits] @ M, bias),
            Tanh(),
        ]
        chosen = "none" if regularization is None else f"{regularization:g}"
        card = {"regularization of similar pairs": chosen} if graph.has_links else {}
        return HashModel({name: layers}, self.n_bits, card=card)

    def _choose(
        self, graph: "_Graph", centered: _Matrix, random: np.random.Generator
    ) -> float | None:
        """Regularization that ranks held-out similar rows best; None if the metric does better."""
        if not graph.has_links:
            return None
        held_out = random.random(len(centered)) < _HELD_OUT
        both = held_out[graph.links]
        ranked = graph.links[both.all(axis=1)][:_MAX_RANKED]
        if len(ranked) < _MIN_RANKED:
            return None
        known = graph.links[~both.any(axis=1)]
        rows = np.flatnonzero(held_out)[: 10 * _MAX_RANKED]
        best = _reciprocal_rank(_embedding(centered, graph.unit), ranked, rows)
        choice = None
        cca = _shared(centered, known)
        for regularization in _REGULARIZATIONS:
            W = cca.directions(_MAX_AXES, regularization, _POWER)["left"]
            score = _reciprocal_rank(_embedding(centered @ W, graph.unit), ranked, rows)
            if score > best:
                best, choice = score, regularization
        return choice

    def _refine(
        self,
        graph: "_Graph",
        projected: _Matrix,
        T: _Floats,
        random: np.random.Generator,
        on_step: OnStep | None,
    ) -> tuple[_Matrix, _Floats]:
        """Train the affine layer; return its weight from projected rows, and its bias."""
        size = max(float(np.sqrt(np.square(projected).mean())), 1e-12)
        Z = (projected / size).astype(np.float32)
        V = Z[random.permutation(len(Z))[:_SAMPLE]].astype(np.float64)
        lengths = prefix_lengths(self.n_bits) if self.nested else [self.n_bits]
        if self.nested:
            start = nested_itq(V, lengths, random, rounds=_ROUNDS)
        else:
            start = itq(V, random_rotation(V.shape[1], self.n_bits, random), rounds=_ROUNDS)
        start /= max(float(np.sqrt(np.square(V @ start).mean())), 1e-12)
        R = start.astype(np.float32)
        rows = graph.draw(self.anchors, random)
        a = self._scale_of_rows(T[rows])
        P = np.exp(_near(T[rows], a))
        scales = {n: _scale_of_codes(Z[rows] @ R[:, :n], P) for n in lengths}
        x = np.concatenate([R.ravel(), np.zeros(self.n_bits, np.float32)])
        adam = Adam(self.learning_rate)
        report = StepCounter(on_step, self.steps)
        for step in range(self.steps):
            rows = graph.draw(self.anchors, random)
            P = graph.mixed(np.exp(_near(T[rows], a)), rows, self.pair_weight)
            objective = partial(_objective, Z=Z[rows], P=P, start=R, scales=scales, pull=self.pull)
            cosine = (1 + np.cos(np.pi * step / self.steps)) / 2
            x, loss = adam.step(x, objective, rate_factor=float(cosine))
            report(loss=loss)
        return x[: R.size].reshape(R.shape) / size, x[R.size :]

    def _scale_of_rows(self, T: _Floats) -> float:
        """Return a such that rows have this perplexity on average, by bisection."""
        target = np.log(min(max(self.perplexity, 1.0), max(len(T) / 2, 1.0)))
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
        X: The rows in use, of unit length if ``unit``.
        unit: Whether the metric is the cosine.
        nearest: Anchors with their nearest rows, the anchor first, shape (anchors, 1 + k).
        links: Similar pairs in both orders, sorted by the first row, shape (links, 2).
    """

    X: _Floats
    unit: bool
    nearest: _Ints
    links: _Ints

    @property
    def has_links(self) -> bool:
        """Whether there are similar pairs."""
        return len(self.links) > 0

    def draw(self, anchors: int, random: np.random.Generator) -> _Ints:
        """Draw anchors; return them and their nearest rows, without repetition."""
        n = len(self.nearest)
        chosen = random.choice(n, min(max(anchors, 1), n), replace=False)
        return np.unique(self.nearest[chosen])

    def mixed(self, P: _Floats, rows: _Ints, weight: float) -> _Floats:
        """Give a part of each row's distribution to the similar rows among ``rows``, if any."""
        if not self.has_links or weight == 0:
            return P
        position = np.full(len(self.X), -1)
        position[rows] = np.arange(len(rows))
        first, last = np.searchsorted(self.links[:, 0], [rows, rows + 1])
        counts = last - first
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        left = np.repeat(np.arange(len(rows)), counts)
        right = position[self.links[np.repeat(first, counts) + offsets, 1]]
        similar = np.zeros_like(P)
        similar[left[right >= 0], right[right >= 0]] = 1
        totals = similar.sum(axis=1, keepdims=True)
        mixture: _Floats = (1 - weight) * P + weight * similar / np.maximum(totals, 1)
        return np.where(totals > 0, mixture, P)


def _graph(data: TrainingSet, name: str, random: np.random.Generator) -> _Graph:
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
    return _Graph(X, neighbors.metric == "cosine", nearest, links)


def _shared(centered: _Matrix, links: _Ints) -> CCA:
    """Directions that similar rows share: both sides of a pair are rows of the same modality."""
    rows, position = np.unique(links, return_inverse=True)
    X = centered[rows]
    index = position.reshape(links.shape)
    return CCA({"left": X, "right": X}, {("left", "right"): index}, max_axes=_MAX_AXES)


def _directions(
    graph: _Graph, centered: _Matrix, regularization: float | None, random: np.random.Generator
) -> _Matrix:
    """Principal axes, or directions that similar rows share; strongest first, shape (d, k)."""
    if regularization is not None:
        return _shared(centered, graph.links).directions(_MAX_AXES, regularization, _POWER)["left"]
    _, _, V = principal(centered[random.permutation(len(centered))[:_SAMPLE]])
    return V[:, ::-1] if V.shape[1] else np.eye(centered.shape[1])


def _embedding(rows: _Matrix, unit: bool) -> _Floats:
    """Rows of unit length, or all divided by one scale."""
    if unit:
        size: Any = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    else:
        size = max(float(np.sqrt(np.square(rows).sum(axis=1).mean())), 1e-12)
    scaled: _Floats = (rows / size).astype(np.float32)
    return scaled


def _reciprocal_rank(T: _Floats, links: _Ints, rows: _Ints) -> float:
    """Mean of 1 / rank of the second row of each pair among ``rows``, by distance to the first."""
    squares = np.square(T[rows]).sum(axis=1) / 2
    values = []
    for left, right in links:
        scores = T[rows] @ T[left] - squares
        own = T[right] @ T[left] - np.square(T[right]).sum() / 2
        better = (scores > own) & (rows != left) & (rows != right)
        values.append(1 / (1 + better.sum()))
    return float(np.mean(values))


def _near(T: _Floats, scale: float) -> _Floats:
    """Log probabilities that rows choose each other by their distance; none chooses itself."""
    logits = np.float32(scale) * (T @ T.T - np.square(T).sum(axis=1) / 2)
    np.fill_diagonal(logits, -1e9)
    return log_softmax(logits)


def _scale_of_codes(outputs: _Floats, P: _Floats) -> float:
    """Return b such that the codes of some outputs fit the probabilities P best."""
    codes = signs(outputs)
    return float(min(_SCALES, key=lambda b: rank_loss(outputs, codes, P, b, own=True)[0]))


def _objective(
    x: _Floats,
    *,
    Z: _Floats,
    P: _Floats,
    start: _Floats,
    scales: Mapping[int, float],
    pull: float,
) -> tuple[float, _Floats]:
    """Loss of some rows, and its gradient with the decay toward the start.

    ``scales`` are those of the prefixes that have a loss, by their length.
    """
    W = x[: start.size].reshape(start.shape)
    outputs = Z @ W + x[start.size :]
    slope = np.zeros_like(outputs)
    loss = 0.0
    for n_bits, scale in scales.items():
        part = outputs[:, :n_bits]
        value, own_slope = rank_loss(part, signs(part), P, scale, own=True)
        loss += value / len(scales)
        slope[:, :n_bits] += own_slope / len(scales)
    decay = np.float32(pull / start.shape[1]) * (W - start)
    return loss, np.concatenate([(Z.T @ slope + decay).ravel(), slope.sum(axis=0)])


def log_softmax(logits: NDArray[Any]) -> _Floats:
    """Return log probabilities along each row."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    logs: _Floats = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return logs


def signs(outputs: NDArray[Any]) -> _Floats:
    """Return −1 and 1, the bits of real-valued outputs."""
    return np.copysign(np.float32(1), outputs.astype(np.float32, copy=False))


def rank_loss(
    outputs: _Floats, codes: _Floats, P: _Floats, scale: float, *, own: bool
) -> tuple[float, _Floats]:
    r"""Cross entropy of probabilities and of those that codes give, and its gradient by outputs.

    $$ -\frac1n \sum_{ij} p_{ij} \log q_{ij}, \qquad
       q_{ij} \propto e^{b\, \operatorname{sign}(o_i) \cdot c_j / q}, $$

    with the gradient of tanh in place of that of the sign (a straight-through estimator).

    Args:
        outputs: $o$, shape (n, bits).
        codes: $c$, values −1 and 1, shape (m, bits).
        P: $p$, shape (n, m); rows sum to 1.
        scale: $b$.
        own: The codes are the signs of the outputs: they are learned as well, and no row ranks
            itself.
    """
    n, bits = outputs.shape
    U = signs(outputs)
    logits = np.float32(scale / bits) * (U @ codes.T)
    if own:
        np.fill_diagonal(logits, -1e9)
    logs = log_softmax(logits)
    loss = float(-(P * np.maximum(logs, -80)).sum() / n)
    G = (np.exp(logs) - P) * np.float32(scale / (n * bits))
    slope: _Floats = (G + G.T if own else G) @ codes * (1 - np.tanh(outputs) ** 2)
    return loss, slope
