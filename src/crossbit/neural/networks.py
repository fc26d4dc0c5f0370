"""Trainable networks, and the conversion of trained networks to a `HashModel`."""

import io
import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError, MissingExtraError
from crossbit.linalg.itq import itq
from crossbit.metrics.health import code_health
from crossbit.model.hashmodel import HashModel
from crossbit.model.layers import Affine, Layer, Onnx, Tanh
from crossbit.neural.splits import Features, Subset

_LOG = logging.getLogger(__name__)
_NEAR_ZERO = 1e-5  # scores below this share of their scale may round to either sign
_COMPARED_ROWS = 256  # of the comparison between torch and ONNX
_ROTATION_ROWS = 20_000
_HEALTH_ROWS = 2000


class Network(nn.Module):
    """Affine layers with tanh or softmax between them, made from model layers.

    The output are scores; the objective applies the last tanh. `to_layers` converts back, so that
    every initialization is expressed in the layers of a `HashModel`.

    Args:
        layers: `Affine`, `Tanh` and `Softmax` layers.
        dropout: Probability of zeroing a value that enters an affine layer, while training.
    """

    def __init__(self, layers: Sequence[Layer], *, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = list(layers)
        self.dropout = dropout
        affine = [layer for layer in self.layers if isinstance(layer, Affine)]
        self.weights = nn.ParameterList(torch.from_numpy(layer.weight.copy()) for layer in affine)
        self.biases = nn.ParameterList(torch.from_numpy(layer.bias.copy()) for layer in affine)
        self.generator: torch.Generator | None = None

    @classmethod
    def random(
        cls, widths: Sequence[int], random: np.random.Generator, *, dropout: float = 0.0
    ) -> Self:
        r"""Make layers between the widths with weights $\mathcal N(0, 1/n_\text{in})$, biases 0."""
        layers: list[Layer] = []
        for n_in, n_out in pairwise(widths):
            weight = random.standard_normal((n_in, n_out)) / np.sqrt(n_in)
            layers += [Affine(weight, np.zeros(n_out)), Tanh()]
        return cls(layers[:-1], dropout=dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores, whose signs are the bits."""
        parameters = iter(zip(self.weights, self.biases, strict=True))
        for layer in self.layers:
            if isinstance(layer, Affine):
                weight, bias = next(parameters)
                x = torch.addmm(bias, self._apply_dropout(x), weight)
            elif isinstance(layer, Tanh):
                x = torch.tanh(layer.beta * x)
            else:
                x = torch.softmax(x, dim=1)
        return x

    def _apply_dropout(self, x: Tensor) -> Tensor:
        if not self.training or not self.dropout:
            return x
        mask = torch.rand(x.shape, generator=self.generator, device=x.device) >= self.dropout
        return x * mask / (1 - self.dropout)

    def to_layers(self) -> list[Layer]:
        """Return the layers with the current weights."""
        parameters = zip(self.weights, self.biases, strict=True)
        trained = (Affine(_to_numpy(weight), _to_numpy(bias)) for weight, bias in parameters)
        return [next(trained) if isinstance(layer, Affine) else layer for layer in self.layers]


def _to_numpy(parameter: Tensor) -> NDArray[np.float32]:
    return np.asarray(parameter.detach().cpu().numpy().copy())


def to_model(
    networks: Mapping[str, nn.Module],
    features: Features,
    data: TrainingSet,
    *,
    n_bits: int,
    beta: float,
    rotation_seed: int | None = None,
) -> HashModel:
    """Convert trained networks to a model.

    The card reports the health of the codes of training rows, and bits that differ between a custom
    network and its ONNX export.

    Args:
        networks: Modality → network.
        features: Inputs of the networks.
        data: The training set.
        n_bits: Length of a code.
        beta: Steepness of the last tanh.
        rotation_seed: Rotate the outputs toward the corners of the cube, with this seed.
    """
    rotation = None if rotation_seed is None else _rotation(networks, features, rotation_seed)
    encoders: dict[str, Sequence[Layer]] = {}
    card: dict[str, Any] = {}
    for name, network in networks.items():
        if isinstance(network, Network):
            layers = network.to_layers()
        else:
            exported, card[f"torch and onnx: {name}"] = _export(name, network, features)
            layers = [exported]
        if rotation is not None:
            layers.append(Affine(rotation, np.zeros(n_bits)))
        encoders[name] = [*_merge_affine(layers), Tanh(beta)]
    model = HashModel(encoders, n_bits)
    return replace(model, card=card | _health(model, data))


def _health(model: HashModel, data: TrainingSet) -> dict[str, Any]:
    """Describe the codes of a sample of training rows for the card; log a warning on collapse."""
    described = {}
    problems = []
    subset = Subset.whole(data)
    for name in model.modalities:
        n = len(subset.rows[name])
        sample = np.linspace(0, n - 1, min(_HEALTH_ROWS, n)).astype(np.int64)
        health = code_health(model.encode(name, subset.take(name, np.unique(sample))))
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


def _rotation(
    networks: Mapping[str, nn.Module], features: Features, seed: int
) -> NDArray[np.float64]:
    """Find one rotation for all modalities by iterative quantization of their scores."""
    scores = [features.scores(name, network).numpy() for name, network in networks.items()]
    V = np.concatenate(scores).astype(np.float64)
    if len(V) > _ROTATION_ROWS:
        random = np.random.default_rng([seed, 6])
        V = V[random.choice(len(V), _ROTATION_ROWS, replace=False)]
    V /= max(float(np.sqrt(np.square(V).mean())), 1e-12)
    # The identity as start leaves outputs that are near the corners unchanged.
    return itq(V, np.eye(V.shape[1]))


def _merge_affine(layers: Sequence[Layer]) -> list[Layer]:
    """Merge consecutive affine layers."""
    merged: list[Layer] = []
    for layer in layers:
        if merged and isinstance(layer, Affine) and isinstance(last := merged[-1], Affine):
            weight = last.weight.astype(np.float64) @ layer.weight
            bias = last.bias @ layer.weight.astype(np.float64) + layer.bias
            merged[-1] = Affine(weight, bias)
        else:
            merged.append(layer)
    return merged


def _export(name: str, network: nn.Module, features: Features) -> tuple[Onnx, dict[str, int]]:
    """Export a custom network and compare its bits with those of the original."""
    n = min(_COMPARED_ROWS, len(features.subset.rows[name]))
    rows = features.take(name, np.arange(n)).cpu().numpy()
    exported = to_onnx(network, rows[:2])
    near_zero, other = _count_disagreements(network, exported, rows)
    if other:
        _LOG.warning("%s: %d bits of %d rows differ between torch and ONNX", name, other, n)
    return exported, {
        "rows compared": n,
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
        raise MissingExtraError("onnx", "onnx") from error
    except Exception as error:  # torch raises many types here
        raise DataError(f"the network cannot be exported to ONNX ({error})") from error
    return Onnx(file.getvalue())


def _count_disagreements(network: nn.Module, exported: Onnx, rows: NDArray[Any]) -> tuple[int, int]:
    """Count bits that differ between torch and ONNX: with a score near zero, and others.

    A score is near zero if it is below 1e-5 of the root mean square of all scores.
    """
    inputs = np.ascontiguousarray(rows, np.float32)
    with torch.no_grad():
        scores = network.cpu().eval()(torch.from_numpy(inputs)).reshape(len(inputs), -1).numpy()
    differ = (scores >= 0) != (exported(inputs) >= 0)
    near_zero = np.abs(scores) <= _NEAR_ZERO * float(np.sqrt(np.square(scores).mean()))
    return int((differ & near_zero).sum()), int((differ & ~near_zero).sum())
