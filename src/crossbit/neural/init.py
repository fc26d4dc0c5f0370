"""Initialization of networks: random weights, or the solution of CCA or PCA with ITQ."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np
import torch
from torch import nn

from crossbit._validation import present_rows
from crossbit.codes import prefix_lengths
from crossbit.errors import DataError
from crossbit.linalg.cca import CCA
from crossbit.linalg.itq import itq, nested_itq, random_rotation
from crossbit.linalg.pca import Matrix, principal
from crossbit.model.layers import Affine, Layer
from crossbit.model.preprocessing import apply_layers, fit_preprocessing, projection_layers
from crossbit.neural.config import TrainConfig
from crossbit.neural.networks import Network
from crossbit.neural.splits import Subset

_SAMPLE = 20_000  # rows that principal components are estimated from
_ROUNDS = 30

Chain: TypeAlias = tuple[list[Layer], nn.Module]
"""Fixed input layers of a modality, and the network on top of them."""


@dataclass(frozen=True, kw_only=True)
class RandomInit:
    """Preprocessed inputs and networks with random weights, or copies of custom networks.

    Args:
        networks: Modality → custom network.
        tied: Initialize all modalities with the same weights; valid if their input columns mean
            the same.
    """

    networks: Mapping[str, nn.Module]
    tied: bool

    def __call__(self, subset: Subset, config: TrainConfig) -> dict[str, Chain]:
        """Initialize every modality for the rows of a subset.

        Raises:
            DataError: A custom network does not return one column per bit.
        """
        chains: dict[str, Chain] = {}
        for number, name in enumerate(subset.modalities):
            if name in self.networks:
                network = deepcopy(self.networks[name])
                _check_outputs(name, network, subset, config.n_bits)
                chains[name] = ([], network)
                continue
            random = np.random.default_rng([config.seed, 0 if self.tied else number])
            X = subset.take(name)
            inputs = fit_preprocessing(config.inputs[name], X, random)
            width = next((w for layer in reversed(inputs) if (w := layer.widths()[1])), X.shape[1])
            widths = [width, *config.hidden[name], config.n_bits]
            chains[name] = (inputs, Network.random(widths, random, dropout=config.dropout))
        return chains


def _check_outputs(name: str, network: nn.Module, subset: Subset, n_bits: int) -> None:
    """Reject a custom network whose output is not one column per bit."""
    first = np.arange(min(2, len(subset.rows[name])))
    rows = torch.from_numpy(apply_layers([], subset.take(name, first)))
    with torch.no_grad():
        width = deepcopy(network).cpu().eval()(rows).reshape(len(rows), -1).shape[1]
    if width != n_bits:
        raise DataError(f"the network of {name!r} gives {width} columns, expected {n_bits} bits")


def _rotation(
    V: Matrix, config: TrainConfig, random: np.random.Generator, *, rounds: int
) -> Matrix:
    """Rotate projections toward the corners of the cube; in blocks, if the codes are nested."""
    if config.nested:
        return nested_itq(V, prefix_lengths(config.n_bits), random, rounds=rounds)
    return itq(V, random_rotation(V.shape[1], config.n_bits, random), rounds=rounds)


@dataclass(frozen=True, kw_only=True)
class CCAInit:
    """Standardized inputs and the CCA + ITQ projection of aligned rows, with scores of unit size.

    Args:
        regularization: Regularization of CCA.
        power: Exponent of the correlations that weight the directions.
    """

    regularization: float
    power: float

    def __call__(self, subset: Subset, config: TrainConfig) -> dict[str, Chain]:
        """Initialize every modality for the rows of a subset."""
        random = np.random.default_rng(config.seed)
        items = np.unique(np.concatenate(list(subset.rows.values())))
        inputs = {}
        views = {}
        for name, rows in subset.rows.items():
            X = subset.take(name)
            inputs[name] = fit_preprocessing("standardize", X, random)
            views[name] = np.full((len(items), X.shape[1]), np.nan, np.float32)
            views[name][np.searchsorted(items, rows)] = apply_layers(inputs[name], X)
        cca = CCA(views)
        directions = cca.directions(config.n_bits, self.regularization, self.power)
        centered = {
            name: view[present_rows(view)].astype(np.float64) - cca.mean[name]
            for name, view in views.items()
        }
        V = np.concatenate([centered[name] @ directions[name] for name in views])
        R = _rotation(V, config, np.random.default_rng(config.seed), rounds=50)
        chains: dict[str, Chain] = {}
        for name, view in views.items():
            deviation = centered[name].std(axis=0)
            layers = projection_layers(cca.mean[name], directions[name] @ R, deviation)
            size = max(float(np.sqrt(np.nanmean(np.square(apply_layers(layers, view))))), 1e-12)
            last = cast("Affine", layers[-1])
            scaled = Affine(last.weight / size, last.bias / size)
            network = Network([scaled], dropout=config.dropout)
            chains[name] = ([*inputs[name], *layers[:-1]], network)
        return chains


@dataclass(frozen=True, kw_only=True)
class PCAInit:
    """Principal components of each modality and the ITQ rotation, with scores of unit size.

    Rows are scaled to unit length where neighbors are by the cosine. Modalities are not related to
    each other.
    """

    def __call__(self, subset: Subset, config: TrainConfig) -> dict[str, Chain]:
        """Initialize every modality for the rows of a subset."""
        chains: dict[str, Chain] = {}
        for number, name in enumerate(subset.modalities):
            random = np.random.default_rng([config.seed, number])
            sample = np.sort(random.permutation(len(subset.rows[name]))[:_SAMPLE])
            X = subset.take(name, sample)
            found = subset.data.neighbors.get(name)
            steps = "unit+center" if found and found.metric == "cosine" else "center"
            inputs = fit_preprocessing(steps, X, random)
            Z = apply_layers(inputs, X).astype(np.float64)
            _, _, V = principal(Z)
            axes = V[:, ::-1][:, : config.n_bits]
            P = Z @ axes
            R = _rotation(P, config, random, rounds=_ROUNDS)
            size = max(float(np.sqrt(np.square(P @ R).mean())), 1e-12)
            affine = Affine(axes @ R / size, np.zeros(config.n_bits))
            chains[name] = (inputs, Network([affine], dropout=config.dropout))
        return chains
