"""Models made by hand, for tests of what an experiment does with a model."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit import HashModel
from crossbit.model import Affine, Layer, Power, Softmax, Standardize, Tanh

_SCALE = 4.0  # of class scores


def model_on_posteriors(
    views: Mapping[str, NDArray[Any]], labels: NDArray[Any], *, n_bits: int
) -> HashModel:
    """Least squares to class scores, posteriors, then hyperplanes that all modalities share.

    Of several classes per row the posteriors are mapped to 0 … 1, of one class they get square
    roots.
    """
    several = np.ndim(labels) == 2
    targets = labels if several else labels[:, None] == np.unique(labels[labels >= 0])
    n_classes = targets.shape[1]
    squash: list[Layer] = [Softmax(), Power(0.5)]
    if several:
        squash = [Tanh(_SCALE), Standardize(-np.ones(n_classes), np.full(n_classes, 2.0))]
    P = np.random.default_rng(0).normal(size=(n_classes, n_bits))
    encoders: dict[str, list[Layer]] = {}
    for name, X in views.items():
        rows = np.column_stack([X, np.ones(len(X))])
        solved = np.linalg.lstsq(rows, 2.0 * targets - 1, rcond=None)[0]
        weight, bias = solved[:-1], solved[-1]
        scale = 1.0 if several else _SCALE
        encoders[name] = [
            Affine(scale * weight, scale * bias),
            *squash,
            Affine(P, -P.mean(axis=0)),
            Tanh(),
        ]
    return HashModel(encoders, n_bits, n_inputs=dict.fromkeys(encoders, 3))
