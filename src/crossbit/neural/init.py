"""Initialization of networks: random weights, or copies of custom networks."""

from collections.abc import Mapping
from copy import deepcopy

import numpy as np
import torch
from torch import nn

from crossbit.errors import DataError
from crossbit.neural.config import TrainConfig
from crossbit.neural.networks import Network
from crossbit.neural.splits import Subset


def make_networks(
    subset: Subset, config: TrainConfig, custom: Mapping[str, nn.Module]
) -> dict[str, nn.Module]:
    """Return a network for every modality.

    Posteriors mean the same in every modality, so that networks with soft labels have the same
    initial weights.

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
        networks[name] = Network.random(widths, random, dropout=config.dropout)
    return networks


def _check_outputs(name: str, network: nn.Module, subset: Subset, n_bits: int) -> None:
    """Reject a custom network whose output is not one column per bit."""
    first = np.arange(min(2, len(subset.rows[name])))
    rows = torch.from_numpy(np.ascontiguousarray(subset.take(name, first), np.float32))
    with torch.no_grad():
        width = deepcopy(network).cpu().eval()(rows).reshape(len(rows), -1).shape[1]
    if width != n_bits:
        raise DataError(f"the network of {name!r} gives {width} columns, expected {n_bits} bits")
