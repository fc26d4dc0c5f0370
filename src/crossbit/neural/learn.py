"""Learning a model: candidates are trained on one part, judged on the other, and the best is trained on all."""

import logging
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from crossbit._progress import OnStep, Step
from crossbit.codes import Codes
from crossbit.data import TrainingSet
from crossbit.errors import DataError
from crossbit.model import HashModel, Layer
from crossbit.model.inputs import apply
from crossbit.neural.batches import make_batches
from crossbit.neural.candidate import Candidate, Chain, Plan, Trained
from crossbit.neural.checkpoint import Checkpoint, fingerprint
from crossbit.neural.finish import to_model
from crossbit.neural.networks import Network
from crossbit.neural.objective import Features, scores_of
from crossbit.neural.parts import Part, sample, split
from crossbit.neural.settings import Settings
from crossbit.neural.shared import group, make_objective
from crossbit.neural.train import Reporting, resolve_device, train
from crossbit.neural.validate import validation_metric

_LOG = logging.getLogger(__name__)
SECONDS = 10.0  # between two saves of a checkpoint
_JUDGED_ON = 2000  # rows whose labels judge candidates that did not see them


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

    def best(self, plan: Plan) -> Trained:
        """Train all candidates, choose by validation, and train the best again on everything."""
        candidates, held_out = plan.candidates, plan.held_out
        if held_out is None:
            judged = sample(self.data, _JUDGED_ON, candidates[0].settings.seed)
            return self.race(plan, Part.whole(self.data), judged)
        part, aside = (
            split(self.data, held_out, candidates[0].settings.seed) if held_out else (None, None)
        )
        metric = None if aside is None else validation_metric(aside)
        if part is None or aside is None or metric is None:
            if len(candidates) > 1 or held_out:
                _LOG.warning(
                    "too little is known to hold some of it out; training as long as the steps allow"
                )
            trained = self.run(candidates[0], Part.whole(self.data))
            return replace(trained, story={"training": _story(trained)})
        chosen = self.race(plan, part, aside)
        training = chosen.story["training"] | {"validated by": metric[0]}
        return replace(self.again(chosen, part), story={**chosen.story, "training": training})

    def race(self, plan: Plan, part: Part, aside: Part) -> Trained:
        """The best of the candidates and of those that each round makes of the best so far; an earlier one on a tie."""
        tried = [self.run(candidate, part, aside) for candidate in plan.candidates]
        for further in plan.rounds:
            tried.sort(key=lambda t: -t.score)
            tried += [
                self.run(candidate, part, aside)
                for candidate in further([t.candidate for t in tried])
            ]
        best = max(tried, key=lambda t: t.score)
        story: dict[str, Any] = {"training": _story(best)}
        if len(tried) > 1:
            story["candidates"] = {t.candidate.name: f"{t.score:.2f}" for t in tried}
        return replace(best, story=story)

    def again(self, chosen: Trained, part: Part) -> Trained:
        """Train the chosen candidate on all rows, for as many steps as were best (more, where a step sees a batch)."""
        settings, whole = chosen.candidate.settings, Part.whole(self.data)
        more = 1.0 if settings.batch is None else _rows(whole) / _rows(part)
        steps = round(more * chosen.state.best_step)
        candidate = replace(
            chosen.candidate, name="all rows", settings=replace(settings, steps=steps)
        )
        return self.run(candidate, whole)

    def run(self, candidate: Candidate, part: Part, aside: Part | None = None) -> Trained:
        """Train one candidate."""
        settings, device = candidate.settings, resolve_device(candidate.settings.device)
        chains = candidate.begin(part)
        _check_outputs(chains, part, settings.n_bits)
        inputs = {name: list(fixed) for name, (fixed, _) in chains.items()}
        networks = {
            name: _network(free, settings.dropout).to(device) for name, (_, free) in chains.items()
        }
        features = Features(part, inputs, device, lazy=settings.online)
        batches = make_batches(part, settings)
        objective = make_objective(networks, batches.terms, features, settings)
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
        return lambda s: tell(
            Step(before + s.number, before + settings.steps, s.loss, s.validation)
        )


def _rows(part: Part) -> int:
    return max(len(rows) for rows in part.rows.values())


def _network(free: list[Layer] | nn.Module, dropout: float) -> nn.Module:
    return deepcopy(free) if isinstance(free, nn.Module) else Network(free, dropout=dropout)


def _check_outputs(chains: Mapping[str, Chain], part: Part, n_bits: int) -> None:
    """Refuse a network of one's own whose output is not one column a bit."""
    for name, (fixed, free) in chains.items():
        if isinstance(free, nn.Module):
            rows = torch.from_numpy(
                apply(fixed, part.take(name, np.arange(min(2, len(part.rows[name])))))
            )
            with torch.no_grad():
                width = deepcopy(free).cpu().eval()(rows).reshape(len(rows), -1).shape[1]
            if width != n_bits:
                raise DataError(
                    f"the network of {name!r} gives {width} columns, expected {n_bits} bits"
                )


def encode(networks: Mapping[str, nn.Module], features: Features) -> dict[str, Codes]:
    """Codes of all rows of a part."""
    return {
        name: Codes.pack((scores_of(networks[name], features, name) >= 0).numpy())
        for name in networks
    }


def _story(trained: Trained) -> dict[str, Any]:
    """How training went, for the card: the curve is thinned to a dozen points."""
    state = trained.state
    told: dict[str, Any] = {
        "candidate": trained.candidate.name,
        "steps": state.step,
        "loss": state.loss,
    }
    if state.best_score is not None:
        told |= {"best step": state.best_step, "validation": state.best_score}
    points = state.curve[:: max(1, len(state.curve) // 12)]
    told["curve of the loss"] = " ".join(f"{step}: {loss:.4g}" for step, loss, _ in points)
    looks = [(step, value) for step, _, value in points if value is not None]
    if looks:
        told["curve of validation"] = " ".join(f"{step}: {value:.2f}" for step, value in looks)
    return told


def learn(
    data: TrainingSet,
    plan: Plan,
    *,
    rotate: bool,
    configuration: Mapping[str, Any],
    checkpoint: Path | None,
    on_step: OnStep | None,
) -> HashModel:
    """Train candidates, keep the best, and give its model.

    Args:
        data: What to learn from.
        plan: What is tried.
        rotate: Turn the outputs jointly toward the corners of the cube.
        configuration: Of the hasher, so that a checkpoint is resumed with the same one.
        checkpoint: Where progress is kept.
        on_step: Told every step.
    """
    if plan.held_out is not None and not 0 <= plan.held_out < 1:
        raise DataError(
            f"the share held out for validation is at least 0 and below 1, got {plan.held_out!r}"
        )
    kept = Checkpoint(
        checkpoint, fingerprint(data, configuration), seconds=SECONDS, writes=group().rank == 0
    )
    return to_model(Learner(data, kept, on_step).best(plan), rotate=rotate)
