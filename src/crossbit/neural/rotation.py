"""One rotation for all modalities that brings outputs near the corners of the cube (iterative quantization)."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import nn

from crossbit.neural.objective import Features, scores_of

_ROUNDS = 50
_ROWS = 20_000


def rotation(
    networks: Mapping[str, nn.Module], features: Features, seed: int
) -> NDArray[np.float64]:
    r"""An orthogonal $R$ that minimizes $\|\operatorname{sign}(VR) - VR\|$ over the scores $V$ of all modalities.

    Signs and an orthogonal Procrustes problem alternate. It begins at the identity: networks whose outputs
    are near the corners already are left alone.
    """
    V = np.concatenate(
        [scores_of(networks[name], features, name).numpy() for name in networks]
    ).astype(np.float64)
    if len(V) > _ROWS:
        V = V[np.random.default_rng([seed, 6]).choice(len(V), _ROWS, replace=False)]
    V /= max(float(np.sqrt(np.square(V).mean())), 1e-12)
    R = np.eye(V.shape[1])
    for _ in range(_ROUNDS):
        U, _, Wt = np.linalg.svd(V.T @ np.where(V @ R >= 0, 1.0, -1.0))
        R = U @ Wt
    return R
