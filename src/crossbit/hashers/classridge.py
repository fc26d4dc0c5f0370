"""Codes of classes, regressed on kernel features."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import OnStep
from crossbit.codes import Codes, hamming
from crossbit.data import TrainingSet
from crossbit.hashers.base import Hasher
from crossbit.hashers.canonical import Matrix
from crossbit.model import Affine, HashModel
from crossbit.model.inputs import apply, fit_inputs

_RIDGES = 10.0 ** np.arange(-4, 4.5, 0.5)
_TRIALS = 50


@dataclass(kw_only=True)
class ClassRidge(Hasher):
    r"""Every class gets a code; each modality regresses its kernel features on the codes of its classes.

    With $\Phi$ the centered features of a modality and $B$ the codes ($\pm 1$) of the rows' classes,

    $$ W = (\Phi^\top \Phi + \lambda I)^{-1} \Phi^\top B, $$

    one linear solve a modality, with $\lambda$ by the leave-one-out error, which has a closed form. The codes of the
    classes are random, the best spread of several draws. A row of several classes aims at the mean of their codes.

    A quick supervised reference: it knows nothing of pairs and margins, and is hard to beat where classes are clear.

    Args:
        inputs: Steps that prepare the features, as in `MMNN`.

    Example:
        >>> import numpy as np
        >>> from crossbit import ClassRidge
        >>> X, y = np.random.default_rng(0).normal(size=(60, 5)), np.arange(60) % 3
        >>> ClassRidge(n_bits=16).fit({"image": X, "text": X[:, :2]}, labels=y)
        HashModel(image, text → 16 bits)

    References:
        F. Shen et al. "Supervised discrete hashing." CVPR 2015 (codes regressed on kernel landmarks).
    """

    inputs: str = "standardize+rbf"

    title: ClassVar[str] = "class codes regressed on kernel features: one linear solve"
    learns_from: ClassVar[frozenset[str]] = frozenset({"labels"})

    def _learn(
        self, data: TrainingSet, *, checkpoint: Path | None, on_step: OnStep | None
    ) -> HashModel:
        random = np.random.default_rng(self.seed)
        members = data.memberships()
        codes = spread_codes(next(iter(members.values())).shape[1], self.n_bits, random)
        encoders = {}
        for name, member in members.items():
            rows = member.any(axis=1)
            X = np.asarray(data.views[name][rows], np.float32)
            layers = fit_inputs(self.inputs, X, random)
            B = member[rows] @ codes / member[rows].sum(axis=1, keepdims=True)
            encoders[name] = [*layers, _regress(apply(layers, X).astype(np.float64), B)]
        return HashModel(encoders, self.n_bits)


def spread_codes(n_classes: int, n_bits: int, random: np.random.Generator) -> Matrix:
    """Random codes of ±1, those of several draws whose nearest two are farthest apart."""
    best, widest = np.ones((n_classes, n_bits)), -1
    for _ in range(_TRIALS):
        bits = random.random((n_classes, n_bits)) < 0.5
        distances = hamming(Codes.pack(bits), Codes.pack(bits))
        nearest = int(distances[np.triu_indices(n_classes, 1)].min(initial=n_bits))
        if nearest > widest:
            best, widest = np.where(bits, 1.0, -1.0), nearest
    return best


def _regress(X: NDArray[Any], B: Matrix) -> Affine:
    """Ridge regression with the ridge of the smallest leave-one-out error.

    With $H$ the hat matrix, the residual of a left-out row is its residual divided by $1 - H_{ii}$.
    """
    mean, offset = X.mean(axis=0), B.mean(axis=0)
    U, s, Vt = np.linalg.svd(X - mean, full_matrices=False)
    projected = U.T @ (B - offset)
    scale = float(np.square(s).mean())

    def left_out(share: float) -> float:
        shrink = np.square(s) / (np.square(s) + share * scale)
        leverage = np.square(U) @ shrink + 1 / len(X)
        residual = B - offset - U @ (shrink[:, None] * projected)
        return float(np.square(residual / np.maximum(1 - leverage, 1e-6)[:, None]).mean())

    ridge = min(_RIDGES, key=left_out) * scale
    W = Vt.T @ ((s / (np.square(s) + ridge))[:, None] * projected)
    return Affine(W, offset - mean @ W)
