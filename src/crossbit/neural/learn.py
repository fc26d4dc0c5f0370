"""Learning a model: candidates are trained on one part, judged on the other, and the best is trained on all."""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from crossbit.codes import Codes
from crossbit.data import TrainingSet
from crossbit.errors import DataError
from crossbit.metrics import code_health
from crossbit.model import Affine, HashModel, Layer, Tanh
from crossbit.model.inputs import apply
from crossbit.neural.batches import make_batches
from crossbit.neural.checkpoint import Checkpoint
from crossbit.neural.export import disagreements, to_onnx
from crossbit.neural.networks import Network
from crossbit.neural.objective import Features, Objective, scores_of
from crossbit.neural.parts import Part, sample, split
from crossbit.neural.rotation import rotation
from crossbit.neural.settings import Settings
from crossbit.neural.train import Reporting, State, resolve_device, train
from crossbit.neural.validate import validation_metric
from crossbit.progress import OnStep, Step

_LOG = logging.getLogger(__name__)
SECONDS = 10.0  # between two saves of a checkpoint
_JUDGED_ON = 2000  # rows whose labels judge candidates that did not see them
_LOOKED_AT = 2000  # rows whose codes tell about their health

Chain = tuple[list[Layer], list[Layer] | nn.Module]
"""Fixed input layers of a modality, and what is trained: layers, or a user's own network."""


@dataclass(frozen=True)
class Candidate:
    """One way of learning.

    Args:
        name: In the card and in checkpoints.
        settings: Of the training loop.
        begin: Makes the layers of every modality from the rows it is given; the same rows, the same layers.
    """

    name: str
    settings: Settings
    begin: Callable[[Part], Mapping[str, Chain]]


@dataclass(frozen=True)
class Trained:
    """Networks that have been trained, and how it went."""

    candidate: Candidate
    inputs: Mapping[str, Sequence[Layer]]
    networks: Mapping[str, nn.Module]
    features: Features
    state: State


@dataclass
class Learner:
    """Trains candidates one after the other, telling how far all of them are.

    Args:
        data: What to learn from.
        checkpoint: Where progress is kept.
        on_step: Told every step, counted over all candidates.
    """

    data: TrainingSet
    checkpoint: Checkpoint
    on_step: OnStep | None
    done: int = field(default=0, init=False)

    def best(self, candidates: Sequence[Candidate], held_out: float) -> tuple[Trained, dict[str, Any]]:
        """Train all candidates, choose by validation, and train the best again on everything.

        Returns:
            The networks, and what to say about them in the card.
        """
        part, aside = split(self.data, held_out, candidates[0].settings.seed) if held_out else (None, None)
        metric = None if aside is None else validation_metric(aside)
        if part is None or aside is None or metric is None:
            if len(candidates) > 1 or held_out:
                _LOG.warning("too little is known to hold some of it out; training as long as the steps allow")
            trained = self.run(candidates[0], Part.whole(self.data))
            return trained, {"training": _story(trained.state, trained)}
        tried = [self.run(candidate, part, aside) for candidate in candidates]
        scores = [t.state.best_score or 0.0 for t in tried]
        chosen = tried[int(np.argmax(scores))]
        card: dict[str, Any] = {"training": _story(chosen.state, chosen) | {"validated by": metric[0]}}
        if len(tried) > 1:
            card["candidates"] = {t.candidate.name: f"{s:.2f}" for t, s in zip(tried, scores, strict=True)}
        return self.again(chosen, part), card

    def best_of_all_rows(
        self, candidates: Sequence[Candidate], longer: Callable[[Candidate], list[Candidate]]
    ) -> tuple[Trained, dict[str, Any]]:
        """Train candidates that do not look at labels, which may therefore judge them on the same rows.

        All are tried briefly, the best two at length.
        """
        part, judged = Part.whole(self.data), sample(self.data, _JUDGED_ON, candidates[0].settings.seed)
        tried = [self.run(candidate, part, judged) for candidate in candidates]
        leaders = sorted(tried, key=lambda t: -(t.state.best_score or 0.0))[:2]
        tried += [self.run(at_length, part, judged) for t in leaders for at_length in longer(t.candidate)]
        chosen = max(tried, key=lambda t: t.state.best_score or 0.0)
        scores = {t.candidate.name: f"{t.state.best_score or 0.0:.2f}" for t in tried}
        return chosen, {"training": _story(chosen.state, chosen), "candidates": scores}

    def again(self, chosen: Trained, part: Part) -> Trained:
        """Train the chosen candidate on all rows, for as many steps as were best (more, where a step sees a batch)."""
        settings, whole = chosen.candidate.settings, Part.whole(self.data)
        more = 1.0 if settings.batch is None else _rows(whole) / _rows(part)
        steps = round(more * chosen.state.best_step)
        candidate = replace(chosen.candidate, name="all rows", settings=replace(settings, steps=steps))
        return self.run(candidate, whole)

    def run(self, candidate: Candidate, part: Part, aside: Part | None = None) -> Trained:
        """Train one candidate."""
        settings, device = candidate.settings, resolve_device(candidate.settings.device)
        chains = candidate.begin(part)
        _check_outputs(chains, part, settings.n_bits)
        inputs = {name: list(fixed) for name, (fixed, _) in chains.items()}
        networks = {name: _network(free, settings.dropout).to(device) for name, (_, free) in chains.items()}
        features = Features(part, inputs, device, lazy=settings.online)
        batches = make_batches(part, settings)
        objective = Objective(networks, batches.terms, features, settings)
        score = None
        if aside is not None and (metric := validation_metric(aside)) is not None:
            held_out, measure = Features(aside, inputs, device, lazy=False), metric[1]
            score = lambda: measure(encode(networks, held_out))  # noqa: E731
        reporting = Reporting(candidate.name, self.checkpoint, self._tell(settings))
        state = train(objective, batches, settings, reporting, score)
        self.done += state.step
        return Trained(candidate, inputs, networks, features, state)

    def _tell(self, settings: Settings) -> OnStep | None:
        if self.on_step is None:
            return None
        tell, before = self.on_step, self.done
        return lambda s: tell(Step(before + s.number, before + settings.steps, s.loss, s.validation))


def _rows(part: Part) -> int:
    return max(len(rows) for rows in part.rows.values())


def _network(free: list[Layer] | nn.Module, dropout: float) -> nn.Module:
    return deepcopy(free) if isinstance(free, nn.Module) else Network(free, dropout=dropout)


def _check_outputs(chains: Mapping[str, Chain], part: Part, n_bits: int) -> None:
    """Refuse a network of one's own whose output is not one column a bit."""
    for name, (fixed, free) in chains.items():
        if isinstance(free, nn.Module):
            rows = torch.from_numpy(apply(fixed, part.take(name, np.arange(min(2, len(part.rows[name]))))))
            with torch.no_grad():
                width = deepcopy(free).cpu().eval()(rows).reshape(len(rows), -1).shape[1]
            if width != n_bits:
                raise DataError(f"the network of {name!r} gives {width} columns, expected {n_bits} bits")


def encode(networks: Mapping[str, nn.Module], features: Features) -> dict[str, Codes]:
    """Codes of all rows of a part."""
    return {name: Codes.pack((scores_of(networks[name], features, name) >= 0).numpy()) for name in networks}


def _story(state: State, trained: Trained) -> dict[str, Any]:
    """How training went, for the card: the curve is thinned to a dozen points."""
    told: dict[str, Any] = {"candidate": trained.candidate.name, "steps": state.step, "loss": state.loss}
    if state.best_score is not None:
        told |= {"best step": state.best_step, "validation": state.best_score}
    points = state.curve[:: max(1, len(state.curve) // 12)]
    told["curve of the loss"] = " ".join(f"{step}: {loss:.4g}" for step, loss, _ in points)
    looks = [(step, value) for step, _, value in points if value is not None]
    if looks:
        told["curve of validation"] = " ".join(f"{step}: {value:.2f}" for step, value in looks)
    return told


def to_model(trained: Trained, *, rotate: bool, card: Mapping[str, Any]) -> HashModel:
    """The layers of a model, agreeing with the networks; disagreements of exported ones go into the card."""
    n_bits, beta = trained.candidate.settings.n_bits, trained.candidate.settings.beta[1]
    turn = rotation(trained.networks, trained.features, trained.candidate.settings.seed) if rotate else None
    encoders, notes = {}, dict(card)
    for name, network in trained.networks.items():
        free, note = _layers(name, network, trained.features)
        notes |= note
        if turn is not None:
            free.append(Affine(turn, np.zeros(n_bits)))
        encoders[name] = [*trained.inputs[name], *_merged(free), Tanh(beta)]
    return HashModel(encoders, n_bits, card=notes)


def _layers(name: str, network: nn.Module, features: Features) -> tuple[list[Layer], dict[str, Any]]:
    if isinstance(network, Network):
        return network.to_layers(), {}
    rows = features.take(name, np.arange(min(256, len(features.part.rows[name])))).cpu().numpy()
    exported = to_onnx(network, rows[:2])
    near, far = disagreements(network, exported, rows)
    if far:
        _LOG.warning("%s: %d bits of %d rows differ between torch and ONNX", name, far, len(rows))
    told = {"rows compared": len(rows), "bits that differ, score near zero": near, "bits that differ otherwise": far}
    return [exported], {f"torch and onnx: {name}": told}


def _merged(layers: Sequence[Layer]) -> list[Layer]:
    """Two affine layers in a row are one."""
    merged: list[Layer] = []
    for layer in layers:
        if merged and isinstance(layer, Affine) and isinstance(last := merged[-1], Affine):
            weight = last.weight.astype(np.float64)
            merged[-1] = Affine(weight @ layer.weight, last.bias @ layer.weight.astype(np.float64) + layer.bias)
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
            warnings.append(f"{name}: {len(health.dead_bits)} of {health.n_bits} bits are the same for every row")
    for warning in warnings:
        _LOG.warning(warning)
    return replace(model, card={**model.card, "health": told} | ({"warnings": warnings} if warnings else {}))


def after(before: Mapping[str, Sequence[Layer]], model: HashModel) -> HashModel:
    """The model with layers put in front of those of each modality."""
    encoders = {name: _merged([*before[name], *layers]) for name, layers in model.encoders.items()}
    return replace(model, encoders=encoders)


def fingerprint(data: TrainingSet, configuration: Mapping[str, Any]) -> str:
    """Of settings and data, so that a checkpoint is not resumed with others; of every array some rows are looked at."""
    digest = hashlib.sha256(json.dumps(configuration, sort_keys=True, default=str).encode())
    arrays = [*data.views.items(), *data.labels.items()]
    arrays += [(key, a) for some in data.pairs for key, a in ((some.key, some.index), (some.key, some.similar))]
    for name, array in arrays:
        digest.update(repr((name, array.shape, array.dtype.str)).encode())
        some = np.unique(np.linspace(0, max(0, len(array) - 1), 1000).astype(np.int64))
        digest.update(np.ascontiguousarray(array[some]).tobytes() if len(array) else b"")
    digest.update(repr((data.aligned, data.rows)).encode())
    return digest.hexdigest()


def learn(
    data: TrainingSet,
    candidates: Sequence[Candidate],
    *,
    held_out: float,
    longer: Callable[[Candidate], list[Candidate]] | None = None,
    rotate: bool,
    configuration: Mapping[str, Any],
    checkpoint: Path | None,
    on_step: OnStep | None,
) -> HashModel:
    """Train candidates, keep the best, and give its model.

    Args:
        data: What to learn from.
        candidates: Ways of learning, the first wins a tie.
        held_out: Share of what is known that decides when to stop and which candidate to take; 0: none.
        longer: How a candidate is trained at length, when candidates learn without labels and labels judge them.
        rotate: Turn the outputs jointly towards the corners of the cube.
        configuration: Of the hasher, so that a checkpoint is resumed with the same one.
        checkpoint: Where progress is kept.
        on_step: Told every step.
    """
    if not 0 <= held_out < 1:
        raise DataError(f"the share held out for validation is at least 0 and below 1, got {held_out!r}")
    kept = Checkpoint(checkpoint, fingerprint(data, configuration), seconds=SECONDS)
    learner = Learner(data, kept, on_step)
    if longer is None:
        trained, card = learner.best(candidates, held_out)
    else:
        trained, card = learner.best_of_all_rows(candidates, longer)
    return to_model(trained, rotate=rotate, card=card)
