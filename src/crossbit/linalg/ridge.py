"""Ridge regression whose penalty is chosen by the error of held-out rows, in closed form."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.linalg import Matrix
from crossbit.linalg.pca import principal

_SHARES = 10.0 ** np.arange(-6, 2.01, 0.5)  # decays, as shares of the largest eigenvalue


class Ridge:
    r"""Ridge regression of $T$ on $F$, for all decays from one eigendecomposition.

    With $U \operatorname{diag}(\sqrt w) V^\top$ the centered features, the predictions at decay
    $\lambda$ are $U g U^\top T$ with $g = w / (w + \lambda)$, and the residual of a left-out row
    $i$ is its residual divided by $1 - h_i$, $h_i = \tfrac1n + \sum_k g_k U_{ik}^2$.

    Args:
        F: Features, shape (n, m).
        T: Targets, shape (n, outputs).

    Attributes:
        eigenvalues: $w$, in increasing order.
        directions: $V$, shape (m, k).
    """

    def __init__(self, F: NDArray[Any], T: NDArray[Any]) -> None:
        self._mean = F.mean(axis=0, dtype=np.float64)
        self._offset = T.mean(axis=0, dtype=np.float64)
        self._targets = T - self._offset
        self.eigenvalues, self._U, self.directions = principal(F - self._mean)
        self._projected = self._U.T @ self._targets

    def leave_one_out(
        self, decays: Matrix | None = None, power: float = 1.0
    ) -> tuple[float, float]:
        """Return the smallest leave-one-out error over decays and the decay that attains it.

        The error is the mean over rows of the squared error, summed over outputs.

        Args:
            decays: Candidates; by default 17 between 1e-6 and 100 largest eigenvalues.
            power: Exponent of the eigenvalues relative to the largest, as if the features had been
                projected on the directions and rescaled; above 1 it prefers the leading directions.
        """
        largest = self.eigenvalues.max(initial=1e-300)
        w = largest * (self.eigenvalues / largest) ** power
        n = len(self._targets)
        if decays is None:
            decays = _SHARES * w.max(initial=1e-300)
        squares = np.square(self._U)
        best = (np.inf, float(decays[-1]))
        for decay in decays:
            g = w / (w + decay)
            # With as many directions as rows the closed form is rounding noise.
            if g.sum() > 0.9 * (n - 1):
                continue
            leverage = squares @ g + 1 / n
            residual = self._targets - (self._U * g) @ self._projected
            residual /= np.maximum(1 - leverage, 1e-6)[:, None]
            best = min(best, (float(np.square(residual).sum(axis=1).mean()), float(decay)))
        return best

    def solve(self, decay: float) -> tuple[Matrix, Matrix]:
        """Return weight, shape (m, outputs), and bias of the regression at a decay."""
        w = self.eigenvalues
        weight = self.directions @ ((np.sqrt(w) / (w + decay))[:, None] * self._projected)
        return weight, self._offset - self._mean @ weight
