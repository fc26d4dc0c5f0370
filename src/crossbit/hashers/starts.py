"""How networks begin: by chance, or as canonical correlations."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import numpy as np

from crossbit.hashers.ccaitq import CCAITQ
from crossbit.model import Affine, Layer
from crossbit.model.inputs import apply, fit_inputs

if TYPE_CHECKING:
    from torch import nn

    from crossbit.neural.candidate import Chain
    from crossbit.neural.parts import Part


def by_chance(
    part: "Part",
    *,
    inputs: Mapping[str, str],
    hidden: Mapping[str, tuple[int, ...]],
    networks: "Mapping[str, nn.Module]",
    n_bits: int,
    seed: int,
    alike: bool,
) -> "dict[str, Chain]":
    """Prepared inputs and random weights; or a network of one's own.

    Args:
        part: The rows that inputs are fitted on.
        inputs: Steps that prepare them.
        hidden: Widths of hidden layers.
        networks: Those of one's own.
        n_bits: Length of a code.
        seed: Of weights and landmarks.
        alike: The same weights for all modalities, whose columns mean the same.
    """
    from crossbit.neural.networks import random_layers

    chains: dict[str, Chain] = {name: ([], network) for name, network in networks.items()}
    for number, name in enumerate(part.modalities):
        if name not in networks:
            random = np.random.default_rng([seed, 0 if alike else number])
            X = part.take(name)
            fixed = fit_inputs(inputs[name], X, random)
            width = next((w for layer in reversed(fixed) if (w := layer.widths()[1])), X.shape[1])
            chains[name] = (fixed, random_layers([width, *hidden[name], n_bits], random))
    return {name: chains[name] for name in part.modalities}


def by_correlations(
    part: "Part", *, regularization: float, power: float, n_bits: int, seed: int
) -> "dict[str, Chain]":
    """Standardized inputs, then what `CCAITQ` makes of rows that belong together, scores of about unit size."""
    random = np.random.default_rng(seed)
    items = np.unique(np.concatenate(list(part.rows.values())))
    inputs, views = {}, {}
    for name, rows in part.rows.items():
        X = part.take(name)
        inputs[name] = fit_inputs("standardize", X, random)
        views[name] = np.full((len(items), X.shape[1]), np.nan, np.float32)
        views[name][np.searchsorted(items, rows)] = apply(inputs[name], X)
    model = CCAITQ(n_bits=n_bits, seed=seed, regularization=regularization, power=power).fit(views)
    chains: dict[str, Chain] = {}
    for name, layers in model.encoders.items():
        size = max(float(np.sqrt(np.nanmean(np.square(apply(layers, views[name]))))), 1e-12)
        last = cast("Affine", layers[-1])
        free: list[Layer] = [Affine(last.weight / size, last.bias / size)]
        chains[name] = ([*inputs[name], *layers[:-1]], free)
    return chains
