"""From trained networks to a model: layers, agreement with what was trained, and a word on the codes."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from crossbit.data import TrainingSet
from crossbit.metrics import code_health
from crossbit.model import Affine, HashModel, Layer, Tanh
from crossbit.neural.candidate import Trained
from crossbit.neural.export import disagreements, to_onnx
from crossbit.neural.networks import Network
from crossbit.neural.objective import Features
from crossbit.neural.parts import Part
from crossbit.neural.rotation import rotation

_LOG = logging.getLogger(__name__)
_LOOKED_AT = 2000  # rows whose codes tell about their health


def to_model(trained: Trained, *, rotate: bool) -> HashModel:
    """The layers of a model, agreeing with the networks; disagreements of exported ones go into the card."""
    n_bits, beta = trained.candidate.settings.n_bits, trained.candidate.settings.beta[1]
    turn = (
        rotation(trained.networks, trained.features, trained.candidate.settings.seed)
        if rotate
        else None
    )
    encoders, notes = {}, dict(trained.story)
    for name, network in trained.networks.items():
        free, note = _layers(name, network, trained.features)
        notes |= note
        if turn is not None:
            free.append(Affine(turn, np.zeros(n_bits)))
        encoders[name] = [*trained.inputs[name], *_merged(free), Tanh(beta)]
    return HashModel(encoders, n_bits, card=notes)


def _layers(
    name: str, network: nn.Module, features: Features
) -> tuple[list[Layer], dict[str, Any]]:
    if isinstance(network, Network):
        return network.to_layers(), {}
    rows = features.take(name, np.arange(min(256, len(features.part.rows[name])))).cpu().numpy()
    exported = to_onnx(network, rows[:2])
    near, far = disagreements(network, exported, rows)
    if far:
        _LOG.warning("%s: %d bits of %d rows differ between torch and ONNX", name, far, len(rows))
    told = {
        "rows compared": len(rows),
        "bits that differ, score near zero": near,
        "bits that differ otherwise": far,
    }
    return [exported], {f"torch and onnx: {name}": told}


def _merged(layers: Sequence[Layer]) -> list[Layer]:
    """Two affine layers in a row are one."""
    merged: list[Layer] = []
    for layer in layers:
        if merged and isinstance(layer, Affine) and isinstance(last := merged[-1], Affine):
            weight = last.weight.astype(np.float64)
            merged[-1] = Affine(
                weight @ layer.weight, last.bias @ layer.weight.astype(np.float64) + layer.bias
            )
        else:
            merged.append(layer)
    return merged


def with_health(model: HashModel, data: TrainingSet) -> HashModel:
    """The model with a word in its card on how the codes of some training rows look; a collapse is said aloud."""
    told, warnings, part = {}, [], Part.whole(data)
    for name in model.modalities:
        rows = part.rows[name]
        some = np.unique(np.linspace(0, len(rows) - 1, min(_LOOKED_AT, len(rows))).astype(np.int64))
        health = code_health(model.encode(name, part.take(name, some)))
        told[name] = (
            f"{health.unique_codes} different codes of {health.n_codes}, {len(health.dead_bits)} constant bits,"
            f" {health.effective_bits:.1f} effective bits of {health.n_bits}"
        )
        if health.unique_codes == 1 < health.n_codes:
            warnings.append(f"{name}: every row has the same code; the network has collapsed")
        elif health.dead_bits and health.n_codes > 1:
            warnings.append(
                f"{name}: {len(health.dead_bits)} of {health.n_bits} bits are the same for every row"
            )
    for warning in warnings:
        _LOG.warning(warning)
    return replace(
        model, card={**model.card, "health": told} | ({"warnings": warnings} if warnings else {})
    )


def after(before: Mapping[str, Sequence[Layer]], model: HashModel) -> HashModel:
    """The model with layers put in front of those of each modality."""
    encoders = {name: _merged([*before[name], *layers]) for name, layers in model.encoders.items()}
    return replace(model, encoders=encoders)
