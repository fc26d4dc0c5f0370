"""Networks: how they are made, and how trained ones become a `HashModel`."""

import io
import logging
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from crossbit.codes import Codes
from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError, MissingExtraError
from crossbit.metrics.health import code_health
from crossbit.model.hashmodel import HashModel
from crossbit.model.layers import Affine, Layer, Onnx, Tanh
from crossbit.neural.pairs import read_rows

_LOG = logging.getLogger(__name__)
_NEAR_ZERO = 1e-5  # scores below this share of their scale may round to either sign
_COMPARED_ROWS = 256  # of the comparison between torch and ONNX
_HEALTH_ROWS = 2000
_BLOCK = 4096  # rows at a time


def random_network(widths: Sequence[int], random: np.random.Generator) -> nn.Sequential:
    r"""Return affine layers between the widths, with tanh between them.

    Weights are $\mathcal N(0, 1/n_\text{in})$, biases 0. The outputs are scores, whose signs are
    the bits.
    """
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        # Without random numbers of torch.
        linear = nn.utils.skip_init(nn.Linear, n_in, n_out)  # type: ignore[no-untyped-call]
        weight = random.standard_normal((n_in, n_out)) / np.sqrt(n_in)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weight.T))
            linear.bias.zero_()
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def to_layers(network: nn.Sequential) -> list[Layer]:
    """Return a network that `random_network` made as layers of a model."""
    return [
        Affine(each.weight.detach().cpu().numpy().T, each.bias.detach().cpu().numpy().copy())
        if isinstance(each, nn.Linear)
        else Tanh()
        for each in network
    ]


def copy_custom(name: str, network: nn.Module, data: TrainingSet, n_bits: int) -> nn.Module:
    """Return a copy of a custom network.

    Raises:
        DataError: Its output is not one column per bit.
    """
    network = deepcopy(network)
    rows = read_rows(data.views[name], _some_rows(data, name, 2), torch.device("cpu"))
    with torch.no_grad():
        width = deepcopy(network).cpu().eval()(rows).flatten(1).shape[1]
    if width != n_bits:
        raise DataError(f"the network of {name!r} gives {width} columns, expected {n_bits} bits")
    return network


@torch.no_grad()
def encode(networks: Mapping[str, nn.Module], data: TrainingSet) -> dict[str, Codes]:
    """Return the codes of all rows of every view that has rows, by networks in training."""
    codes = {}
    for name, view in data.views.items():
        network = networks[name].eval()
        device = next(network.parameters()).device
        blocks = [np.arange(len(view))[k : k + _BLOCK] for k in range(0, len(view), _BLOCK)]
        scores = [network(read_rows(view, rows, device)).flatten(1) for rows in blocks]
        if scores:
            codes[name] = Codes.pack((torch.cat(scores) >= 0).cpu().numpy())
    return codes


def to_model(
    networks: Mapping[str, nn.Module],
    custom: Mapping[str, nn.Module],
    data: TrainingSet,
    *,
    n_bits: int,
    beta: float,
) -> HashModel:
    """Convert trained networks to a model.

    The card reports the health of the codes of training rows, and bits that differ between a custom
    network and its ONNX export.

    Args:
        networks: Modality → network.
        custom: Those of them that are custom networks.
        data: The training set.
        n_bits: Length of a code.
        beta: Steepness of the last tanh.
    """
    encoders: dict[str, Sequence[Layer]] = {}
    card: dict[str, Any] = {}
    for name, network in networks.items():
        if name in custom:
            exported, card[f"torch and onnx: {name}"] = _export(name, network, data)
            encoders[name] = [exported, Tanh(beta)]
        else:
            assert isinstance(network, nn.Sequential)  # noqa: S101 - made by random_network
            encoders[name] = [*to_layers(network), Tanh(beta)]
    model = HashModel(encoders, n_bits)
    return replace(model, card=card | _health(model, data))


def _some_rows(data: TrainingSet, name: str, most: int) -> NDArray[np.int64]:
    """Return rows that are present, at equal distances."""
    rows = np.flatnonzero(data.present[name])
    return np.unique(rows[np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(np.int64)])


def _health(model: HashModel, data: TrainingSet) -> dict[str, Any]:
    """Describe the codes of a sample of training rows for the card; log a warning on collapse."""
    described: dict[str, str] = {}
    problems: list[str] = []
    for name in model.modalities:
        rows = _some_rows(data, name, _HEALTH_ROWS)
        health = code_health(model.encode(name, data.views[name][rows]))
        n_dead = len(health.dead_bits)
        described[name] = (
            f"{health.unique_codes} different codes of {health.n_codes}, {n_dead} constant bits,"
            f" {health.effective_bits:.1f} effective bits of {health.n_bits}"
        )
        if health.unique_codes == 1 < health.n_codes:
            problems.append(f"{name}: every row has the same code; the network has collapsed")
        elif 2 * n_dead > health.n_bits and health.n_codes > 1:
            problems.append(f"{name}: {n_dead} of {health.n_bits} bits are the same for every row")
    for problem in problems:
        _LOG.warning(problem)
    return {"health": described} | ({"warnings": problems} if problems else {})


def _export(name: str, network: nn.Module, data: TrainingSet) -> tuple[Onnx, dict[str, int]]:
    """Export a custom network and compare its bits with those of the original."""
    sample = _some_rows(data, name, _COMPARED_ROWS)
    rows = np.ascontiguousarray(data.views[name][sample], np.float32)
    exported = to_onnx(network, rows[:2])
    near_zero, other = _count_disagreements(network, exported, rows)
    if other:
        _LOG.warning("%s: %d bits of %d rows differ between torch and ONNX", name, other, len(rows))
    return exported, {
        "rows compared": len(rows),
        "bits that differ, score near zero": near_zero,
        "bits that differ otherwise": other,
    }


def to_onnx(network: nn.Module, example: NDArray[Any], *, any_length: bool = False) -> Onnx:
    """Export a network with one input and one output to ONNX.

    Args:
        network: The network, on any device; it is exported in evaluation mode.
        example: Rows of its input; only their shape and type matter. Integers stay integers.
        any_length: The second dimension may vary too, such as the number of tokens.

    Raises:
        MissingExtraError: ``onnx`` is not installed.
        DataError: ONNX does not support the network.
    """
    file = io.BytesIO()
    dtype = None if example.dtype.kind == "i" else np.float32
    rows = torch.from_numpy(np.ascontiguousarray(example, dtype))
    axes = {"x": {0: "n", 1: "length"} if any_length else {0: "n"}, "y": {0: "n"}}
    try:
        with warnings.catch_warnings():
            # Torch deprecates this exporter, but its successor needs another library.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                network.cpu().eval(),
                (rows,),
                file,  # type: ignore[arg-type] # any file-like object works
                dynamo=False,
                input_names=["x"],
                output_names=["y"],
                dynamic_axes=axes,
            )
    except ImportError as error:
        raise MissingExtraError("onnx") from error
    except Exception as error:  # torch raises many types here
        raise DataError(f"the network cannot be exported to ONNX ({error})") from error
    return Onnx(file.getvalue())


def _count_disagreements(network: nn.Module, exported: Onnx, rows: NDArray[Any]) -> tuple[int, int]:
    """Count bits that differ between torch and ONNX: with a score near zero, and others.

    A score is near zero if it is below 1e-5 of the root mean square of all scores.
    """
    with torch.no_grad():
        scores = network.cpu().eval()(torch.from_numpy(rows)).flatten(1).numpy()
    differ = (scores >= 0) != (exported(rows) >= 0)
    near_zero = np.abs(scores) <= _NEAR_ZERO * float(np.sqrt(np.square(scores).mean()))
    return int((differ & near_zero).sum()), int((differ & ~near_zero).sum())
