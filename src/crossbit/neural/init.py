"""Initialization of networks: random weights, or copies of custom networks."""

from collections.abc import Mapping
from copy import deepcopy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from crossbit.errors import DataError
from crossbit.neural.config import TrainConfig
from crossbit.neural.networks import Network
from crossbit.neural.splits import Subset

_BIAS = 0.5  # in standard deviations of the scores


def make_networks(
    subset: Subset, config: TrainConfig, custom: Mapping[str, nn.Module]
) -> dict[str, nn.Module]:
    """Return a network for every modality.

    Posteriors mean the same in every modality, so that networks with soft labels have the same
    initial weights. Their first biases are on opposite sides: two rows of uncertain classes are
    probably not similar, but equal networks would give them equal codes.

    Args:
        subset: The rows to train on.
        config: Widths, dropout and seed.
        custom: Modality → custom network, of which a copy is returned.

    Raises:
        DataError: A custom network does not return one column per bit.
    """
    networks: dict[str, nn.Module] = {}
    for number, name in enumerate(subset.modalities):
        if name in custom:
            networks[name] = deepcopy(custom[name])
            _check_outputs(name, networks[name], subset, config.n_bits)
            continue
        random = np.random.default_rng([config.seed, 0 if config.soft_labels else number])
        widths = [subset.data.views[name].shape[1], *config.hidden[name], config.n_bits]
        network = networks[name] = Network.random(widths, random, dropout=config.dropout)
        if config.soft_labels:
            network.biases[-1].data += torch.from_numpy(_sides(subset, config)[number])
    return networks


def _sides(subset: Subset, config: TrainConfig) -> NDArray[np.float32]:
    """First biases of every modality and bit: half of the modalities on each side of 0."""
    n = len(subset.modalities)
    random = np.random.default_rng([config.seed, 13])
    ranks = random.permuted(np.tile(np.arange(n), (config.n_bits, 1)), axis=1).T
    sides = _BIAS * (2.0 * (ranks % 2) - 1) if n > 1 else np.zeros(ranks.shape)
    return sides.astype(np.float32)


def _check_outputs(name: str, network: nn.Module, subset: Subset, n_bits: int) -> None:
    """Reject a custom network whose output is not one column per bit."""
    first = np.arange(min(2, len(subset.rows[name])))
    rows = torch.from_numpy(np.ascontiguousarray(subset.take(name, first), np.float32))
    with torch.no_grad():
        width = deepcopy(network).cpu().eval()(rows).reshape(len(rows), -1).shape[1]
    if width != n_bits:
        raise DataError(f"the network of {name!r} gives {width} columns, expected {n_bits} bits")
