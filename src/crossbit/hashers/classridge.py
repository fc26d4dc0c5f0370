"""Class codes, regressed on kernel features."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from crossbit.codes import Codes, hamming
from crossbit.data.training_set import TrainingSet
from crossbit.hashers.base import Hasher, Run
from crossbit.linalg import Matrix
from crossbit.linalg.ridge import Ridge
from crossbit.model.hashmodel import HashModel
from crossbit.model.layers import Affine

_SHARES = 10.0 ** np.arange(-4, 4.5, 0.5)  # decays, as shares of the mean eigenvalue
_DRAWS = 50


@dataclass(kw_only=True)
class ClassRidge(Hasher):
    r"""Every class has a code; each modality predicts the codes of its rows by ridge regression.

    With $\Phi$ the centered kernel features of a modality and $B$ the codes ($\pm 1$) of the rows'
    classes,

    $$ W = (\Phi^\top \Phi + \lambda I)^{-1} \Phi^\top B, $$

    one linear solve per modality. $\lambda$ minimizes the leave-one-out error, which has a closed
    form. The class codes are random, the best separated of several draws. The target of a row with
    several classes is the mean of their codes.

    A fast supervised baseline: it uses neither pairs nor margins, and is hard to beat where classes
    are well separated.

    Example:
        >>> import numpy as np
        >>> from crossbit import ClassRidge
        >>> X, y = np.random.default_rng(0).normal(size=(60, 5)), np.arange(60) % 3
        >>> ClassRidge(n_bits=16).fit({"image": X, "text": X[:, :2]}, labels=y)
        HashModel(image, text → 16 bits)

    References:
        F. Shen et al. "Supervised discrete hashing." CVPR 2015 (codes regressed on kernel
        landmarks).
    """

    inputs: str | dict[str, str] = "standardize+rbf"

    title: ClassVar[str] = "class codes regressed on kernel features: one linear solve"
    supervision: ClassVar[frozenset[str]] = frozenset({"labels"})

    def _learn(self, data: TrainingSet, run: Run) -> HashModel:
        random = np.random.default_rng(self.seed)
        one_hot = data.one_hot()
        codes = _spread_codes(next(iter(one_hot.values())).shape[1], self.n_bits, random)
        encoders = {}
        for name, member in one_hot.items():
            rows = member.any(axis=1)
            B = member[rows] @ codes / member[rows].sum(axis=1, keepdims=True)
            F = np.asarray(data.views[name][rows], np.float64)
            ridge = Ridge(F, B)
            mean_eigenvalue = ridge.eigenvalues.sum() / min(F.shape)
            _, decay = ridge.leave_one_out(_SHARES * max(mean_eigenvalue, 1e-300))
            encoders[name] = [Affine(*ridge.solve(decay))]
        return HashModel(encoders, self.n_bits)


def _spread_codes(n_classes: int, n_bits: int, random: np.random.Generator) -> Matrix:
    """Random codes of ±1: of several draws, the one whose closest two codes are farthest apart."""

    def smallest_distance(bits: NDArray[np.bool_]) -> int:
        codes = Codes.pack(bits)
        distances = hamming(codes, codes)[np.triu_indices(n_classes, 1)]
        return int(distances.min(initial=n_bits))

    draws = [random.random((n_classes, n_bits)) < 0.5 for _ in range(_DRAWS)]
    return np.where(max(draws, key=smallest_distance), 1.0, -1.0)
