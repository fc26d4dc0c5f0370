r"""Ridge regression for comparing features: one eigendecomposition tells the error of unseen rows for all decays."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_DECAYS = 10.0 ** np.arange(-6, 2.01, 0.5)


def principal(A: Floats) -> tuple[Floats, Floats, Floats]:
    """Squared singular values (increasing), left and right vectors, from the smaller of the two products."""
    n, d = A.shape
    w, Q = np.linalg.eigh(A.T @ A if d <= n else A @ A.T)
    kept = w > 1e-9 * max(w[-1], 1e-300)
    w, Q = w[kept], Q[:, kept]
    other = (A @ Q if d <= n else A.T @ Q) / np.sqrt(w)
    return (w, other, Q) if d <= n else (w, Q, other)


def leave_one_out(F: NDArray[np.float32], T: NDArray[np.float32]) -> tuple[float, float]:
    r"""The least squared error of rows left out, over all decays, and the decay that has it.

    With singular values $\sqrt{w}$ and left vectors $U$ of the centered features, predictions are $U g U^\top T$ with
    $g = w / (w + \lambda)$, and the residual of row $i$ left out is its residual over $1 - h_i$,
    $h_i = \tfrac1n + \sum_k g_k U_{ik}^2$.

    Args:
        F: Features, shape (n, m).
        T: What is predicted, shape (n, classes).
    """
    w, U, _ = principal(F - F.mean(axis=0, dtype=np.float64))
    B, n = T - T.mean(axis=0, dtype=np.float64), len(F)
    projected, squares, largest = U.T @ B, np.square(U), w.max(initial=1e-300)
    best = (np.inf, float(_DECAYS[-1] * largest))
    for decay in _DECAYS * largest:
        g = w / (w + decay)
        if g.sum() > 0.9 * (n - 1):  # as many directions as rows: leaving one out tells nothing
            continue
        h = squares @ g + 1 / n
        residual = (B - (U * g) @ projected) / np.maximum(1 - h, 1e-6)[:, None]
        best = min(best, (float(np.square(residual).sum(axis=1).mean()), float(decay)))
    return best


def leave_folds_out(
    F: NDArray[np.float32],
    T: NDArray[np.float32],
    folds: NDArray[np.int64],
    origin: NDArray[np.int64],
) -> tuple[float, float]:
    """The least squared error of folds left out, over all decays, and the decay that has it, for all rows.

    A column that was made from a row of the fold is left out with it: no unseen row will ever be its own landmark.

    Args:
        F: Features, shape (n, m).
        T: What is predicted, shape (n, classes).
        folds: The fold of each row.
        origin: The fold of the row that each column was made from.
    """
    numbers = np.unique(folds)
    errors, largest = np.zeros(len(_DECAYS)), None
    for k in numbers:
        seen = folds != k
        A, G = F[seen][:, origin != k].astype(np.float64), F[~seen][:, origin != k]
        mean, target = A.mean(axis=0), T[seen].mean(axis=0, dtype=np.float64)
        A -= mean
        w, V = np.linalg.eigh(A.T @ A)
        largest = largest or max(float(w[-1]), 1e-300) / seen.mean()
        projected, turned = V.T @ (A.T @ (T[seen] - target)), (G - mean) @ V
        for i, decay in enumerate(_DECAYS * largest * seen.mean()):
            predicted = turned @ (projected / (np.maximum(w, 0) + decay)[:, None])
            errors[i] += np.square(predicted + target - T[~seen]).sum()
    best = int(errors.argmin())
    return float(errors[best]) / len(F), float(_DECAYS[best] * (largest or 1.0))
