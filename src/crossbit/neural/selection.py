"""Model selection: which networks are trained, which of them validation selects, and the result."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from crossbit._progress import OnStep, Step
from crossbit.codes import prefix_lengths
from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError
from crossbit.model.hashmodel import HashModel
from crossbit.neural.batches import make_batches
from crossbit.neural.config import TrainConfig
from crossbit.neural.distributed import current_group, make_objective
from crossbit.neural.init import make_networks
from crossbit.neural.networks import to_model
from crossbit.neural.splits import Features, Subset, ValidationMetric
from crossbit.neural.trainer import Checkpoint, TrainState, train

_LOG = logging.getLogger(__name__)
_PERFECT = 99.99  # validation score, in percent, at which no other candidate is tried
_MARGINS = ("75%", "50%", "100%")  # the first wins a tie


@dataclass(frozen=True)
class _Candidate:
    """One configuration; the name is for the card and for checkpoints."""

    name: str
    config: TrainConfig


@dataclass(frozen=True)
class _Trained:
    """Trained networks; ``card`` describes how training went."""

    candidate: _Candidate
    networks: Mapping[str, nn.Module]
    features: Features
    state: TrainState
    card: Mapping[str, Any] = field(default_factory=dict)

    @property
    def score(self) -> float:
        """The best validation score."""
        return self.state.best_score or 0.0

    def history(self) -> dict[str, Any]:
        """Summarize training for the card, with about a dozen points of each curve."""
        state = self.state
        summary: dict[str, Any] = {
            "candidate": self.candidate.name,
            "steps": state.step,
            "loss": state.loss,
        }
        if state.best_score is not None:
            summary |= {"best step": state.best_step, "validation": state.best_score}
        points = state.history[:: max(1, len(state.history) // 12)]
        summary["curve of the loss"] = " ".join(f"{step}: {loss:.4g}" for step, loss, _ in points)
        scores = [f"{step}: {score:.2f}" for step, _, score in points if score is not None]
        if scores:
            summary["curve of validation"] = " ".join(scores)
        return summary


def fit_networks(
    data: TrainingSet,
    options: Mapping[str, Any],
    *,
    configuration: Mapping[str, Any],
    checkpoint: Path | None,
    on_step: OnStep | None,
) -> HashModel:
    """Train networks, with the best of several margins if that is left open, and return the model.

    Args:
        data: The training set with prepared views.
        options: The fields of `MMNN` by name.
        configuration: The same as JSON; a checkpoint of another configuration is rejected.
        checkpoint: File for progress, None for none.
        on_step: Progress callback.

    Raises:
        DataError: An option has an impossible value, or there is nothing to learn from.
    """
    validation = options["validation"]
    if not 0 <= validation < 1:
        raise DataError(f"validation must be at least 0 and below 1, got {validation!r}")
    config = TrainConfig.resolve(options, data)
    candidates = [_Candidate("network", config)]
    if options["margin"] == "auto" and options["loss"] == "contrastive" and validation:
        candidates = [
            _Candidate(f"margin {margin}", config.with_margin(margin)) for margin in _MARGINS
        ]
    progress = Checkpoint.for_training(
        checkpoint, data, configuration, writes=current_group().rank == 0
    )
    selection = _Selection(data, options["networks"] or {}, progress, on_step)
    trained = selection.select(candidates, validation)
    config = trained.candidate.config
    model = to_model(
        trained.networks,
        trained.features,
        data,
        n_bits=config.n_bits,
        beta=config.beta[1],
        rotation_seed=config.seed if options["rotate"] else None,
    )
    return replace(model, card={**trained.card, **model.card})


@dataclass
class _Selection:
    """Trains candidates one after the other and counts the steps of all of them.

    Args:
        data: The training set.
        custom: Modality → custom network.
        checkpoint: Where progress is saved.
        on_step: Progress callback.
    """

    data: TrainingSet
    custom: Mapping[str, nn.Module]
    checkpoint: Checkpoint
    on_step: OnStep | None
    steps_done: int = field(default=0, init=False)
    runs_left: int = field(default=1, init=False)  # of those that are known so far

    def select(self, candidates: Sequence[_Candidate], share: float) -> _Trained:
        """Train all candidates, choose by validation, and train the best on all rows.

        Args:
            candidates: The first wins a tie.
            share: Share of the supervision that is held out; 0 trains the first candidate.
        """
        all_rows = Subset.whole(self.data)
        metric = None
        if share:
            training, validation = Subset.split(self.data, share, candidates[0].config.seed)
            metric = ValidationMetric.of(validation)
        if metric is None:
            if share:
                _LOG.warning(
                    "too little supervision for a validation split; training without early stopping"
                )
            trained = self._train(candidates[0], all_rows)
            return replace(trained, card={"training": trained.history()})
        best = self._compare(candidates, training, validation)
        history = best.card["training"] | {"validated by": metric.name}
        return replace(
            self._refit(best, training, all_rows), card={**best.card, "training": history}
        )

    def _compare(
        self, candidates: Sequence[_Candidate], training: Subset, validation: Subset
    ) -> _Trained:
        """Return the best of the candidates."""
        self.runs_left += len(candidates)
        trained: list[_Trained] = []
        for candidate in candidates:
            trained.append(self._train(candidate, training, validation))
            if trained[-1].score >= _PERFECT:
                break
        best = max(trained, key=lambda t: t.score)
        card: dict[str, Any] = {"training": best.history()}
        if len(trained) > 1:
            card["candidates"] = {t.candidate.name: f"{t.score:.2f}" for t in trained}
        return replace(best, card=card)

    def _refit(self, best: _Trained, training: Subset, all_rows: Subset) -> _Trained:
        """Train the selected candidate on all rows for its best number of steps.

        Mini-batches need more steps for more rows.
        """
        config = best.candidate.config
        factor = 1.0 if config.batch is None else all_rows.n_rows / training.n_rows
        config = replace(config, steps=round(factor * best.state.best_step))
        return self._train(replace(best.candidate, name="all rows", config=config), all_rows)

    def _train(
        self, candidate: _Candidate, subset: Subset, validation: Subset | None = None
    ) -> _Trained:
        config = candidate.config
        device = config.torch_device()
        networks = {
            name: network.to(device)
            for name, network in make_networks(subset, config, self.custom).items()
        }
        features = Features(subset, device, lazy=config.online)
        batches = make_batches(subset, config)
        objective = make_objective(networks, batches.terms, features, config)
        score = None
        if validation is not None and (metric := ValidationMetric.of(validation)) is not None:
            held_out = Features(validation, device, lazy=False)
            lengths = prefix_lengths(config.n_bits) if config.nested else [config.n_bits]
            measure = metric.mean_over
            score = lambda: measure(held_out.encode(networks), lengths)  # noqa: E731
        state = train(
            objective,
            batches,
            config,
            run=candidate.name,
            checkpoint=self.checkpoint,
            on_step=self._count_steps(config),
            score=score,
        )
        self.steps_done += state.step
        self.runs_left -= 1
        return _Trained(candidate, networks, features, state)

    def _count_steps(self, config: TrainConfig) -> OnStep | None:
        """Return a callback that numbers the steps over all candidates."""
        if self.on_step is None:
            return None
        report = self.on_step
        before = self.steps_done
        # Early stopping and the steps of a last run on all rows can only make it less.
        most = before + max(1, self.runs_left) * config.steps
        return lambda step: report(Step(before + step.number, most, step.loss, step.validation))
