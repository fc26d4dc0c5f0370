"""Semantics-preserving hashing with kernel logistic regression (SePH-klr)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from crossbit._progress import StepCounter
from crossbit._validation import Limits
from crossbit.data.training_set import TrainingSet
from crossbit.hashers._items import Items, unit_rows
from crossbit.hashers.base import Hasher, Run
from crossbit.inputs.logistic import fit_logistic
from crossbit.linalg import Floats, Matrix
from crossbit.model.hashmodel import HashModel


@dataclass(kw_only=True)
class SePH(Hasher):
    r"""Codes whose distances follow the labels as a distribution, then regression (SePH-klr).

    The cosines of the labels of all pairs of items are a distribution $p$; the codes $H$ define
    another one, $q_{ij} \propto (1 + \tfrac14 \|h_i - h_j\|^2)^{-1}$ (a quarter of the squared
    distance of codes is their Hamming distance), and minimize

    $$ \sum_{i \ne j} p_{ij} \log \frac{p_{ij}}{q_{ij}}
       + \frac{\alpha}{n r} \big\| |H| - 1 \big\|^2 . $$

    Logistic regression then predicts each bit from the kernel features of each modality;
    cross-validation chooses its penalty. The time grows with the square of the number of items, so
    the codes are learned for a sample of them.

    Args:
        quantization: $\alpha$.
        sample: Maximum number of items, at least 2.
        steps: Maximum number of L-BFGS steps.

    Example:
        >>> import numpy as np
        >>> from crossbit import SePH
        >>> X, y = np.random.default_rng(0).normal(size=(60, 5)), np.arange(60) % 3
        >>> SePH(n_bits=16).fit({"image": X, "text": X[:, :2]}, labels=y)
        HashModel(image, text → 16 bits)

    References:
        Z. Lin, G. Ding, M. Hu, J. Wang. "Semantics-preserving hashing for cross-view retrieval."
        CVPR 2015.
    """

    quantization: float = 0.01
    sample: Annotated[int, Limits("of at least 2", least=2)] = 3000
    steps: int = 100
    inputs: str | dict[str, str] = "center+rbf(500, 0.5)"

    title: ClassVar[str] = "codes as a distribution over pairs, kernel logistic regression per bit"
    supervision: ClassVar[frozenset[str]] = frozenset({"labels"})
    libraries: ClassVar[tuple[str, ...]] = ("sklearn",)

    def _learn(self, data: TrainingSet, run: Run) -> HashModel:
        random = np.random.default_rng(self.seed)
        items = Items.labeled(data)
        chosen = np.sort(random.permutation(len(items))[: self.sample])
        H = self._codes(unit_rows(items.labels[chosen]).astype(np.float32), random, run)
        encoders = {}
        for name, view in items.views.items():
            own = np.isin(view.rows, chosen)
            F = view.features[own] + view.mean
            bits = H[np.searchsorted(chosen, view.rows[own])] >= 0
            encoders[name] = [fit_logistic(F, bits, multi_label=True, seed=self.seed)]
        return HashModel(encoders, self.n_bits)

    def _codes(self, G: Floats, random: np.random.Generator, run: Run) -> Floats:
        """Return real-valued codes of items, given their labels as rows of unit length."""
        from scipy.optimize import minimize

        n = len(G)
        p = G @ G.T
        np.fill_diagonal(p, 0)
        p /= max(float(p.sum()), 1e-30)
        scale = np.float32(self.quantization / (n * self.n_bits))

        def objective(x: Matrix) -> tuple[float, Matrix]:
            H = x.reshape(n, self.n_bits).astype(np.float32)
            kernel = _kernel(H)
            total = float(kernel.sum(dtype=np.float64))
            value = -float((p * np.log(kernel + np.eye(n, dtype=np.float32))).sum()) + np.log(total)
            pull = kernel * (p - kernel / np.float32(total))
            gradient = pull.sum(axis=1)[:, None] * H - pull @ H
            rest = np.abs(H) - 1
            value += float(scale) * float(np.square(rest).sum())
            gradient += 2 * scale * rest * np.sign(H)
            # Single pairs count little; a factor of n makes gradients of the size of the codes.
            return n * value, (n * gradient).ravel().astype(np.float64)

        report = StepCounter(run.on_step, self.steps)
        result = minimize(
            objective,
            random.standard_normal(n * self.n_bits),
            jac=True,
            method="L-BFGS-B",
            callback=lambda _: report(),
            options={"maxiter": self.steps},
        )
        return np.asarray(result.x.reshape(n, self.n_bits), np.float32)


def _kernel(H: Floats) -> Floats:
    """1 / (1 + ¼ ‖hᵢ − hⱼ‖²) for all pairs of rows, 0 on the diagonal."""
    norms = np.square(H).sum(axis=1)
    squared = np.maximum(norms[:, None] + norms - 2 * H @ H.T, 0)
    kernel: Floats = 1 / (1 + squared / 4)
    np.fill_diagonal(kernel, 0)
    return kernel
