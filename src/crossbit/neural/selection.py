"""Model selection: which networks are trained, which of them validation selects, and the result."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from torch import nn

from crossbit._progress import OnStep, Step
from crossbit.codes import prefix_lengths
from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError
from crossbit.model.hashmodel import HashModel
from crossbit.neural.batches import make_batches
from crossbit.neural.config import TrainConfig
from crossbit.neural.distributed import current_group, make_objective
from crossbit.neural.init import CCAInit, PCAInit, RandomInit
from crossbit.neural.networks import to_model
from crossbit.neural.splits import Features, Subset, ValidationMetric
from crossbit.neural.stacking import can_stack
from crossbit.neural.trainer import Checkpoint, TrainState, train
from crossbit.neural.weak_labels import stack_weak_labels, without_few_labels

_LOG = logging.getLogger(__name__)
_PERFECT = 99.99  # validation score, in percent, at which no other candidate is tried
_JUDGED_ROWS = 2000  # rows whose labels compare candidates that are trained without labels
_FULL_BATCH_ROWS = 256  # up to this many rows, a step on posteriors uses all of them

# Class balance, margin in percent of the maximum distance, β: noisy classes need balanced weights
# and large margins, clean ones the opposite.
_ON_POSTERIORS = ((0.0, 71, 4.0), (1.0, 90, 1.0), (1.0, 100, 1.0))
_PRECISION_BETAS = (2.0, 4.0)
_REGULARIZATIONS = (0.1, 0.01, 1.0, 10.0)
_POWERS = (2.0, 0.5)
_NEIGHBOR_SHARPNESS = (1.13, 0.8, 1.6)  # temperature times the root of the number of bits


@dataclass(frozen=True)
class _Candidate:
    """One configuration with its initialization; the name is for the card and for checkpoints."""

    name: str
    config: TrainConfig
    init: RandomInit | CCAInit | PCAInit


_Round: TypeAlias = Callable[[Sequence[_Candidate]], list[_Candidate]]
"""All candidates so far, the best first → further candidates."""


@dataclass(frozen=True)
class _SearchPlan:
    """Candidates and how to choose among them.

    Args:
        candidates: The first wins a tie.
        rounds: Further candidates, derived from the best ones so far.
        validation: Share of the supervision that is held out to stop training and to choose; 0 for
            none. None: candidates are trained without labels, and labels of training rows choose.
    """

    candidates: Sequence[_Candidate]
    rounds: Sequence[_Round] = ()
    validation: float | None = None


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
    """Train candidate networks, select the best and return its model.

    Args:
        data: The training set.
        options: The fields of `MMNN` by name.
        configuration: The same as JSON; a checkpoint of another configuration is rejected.
        checkpoint: File for progress, None for none.
        on_step: Progress callback.

    Raises:
        DataError: An option has an impossible value, or there is nothing to learn from.
    """
    custom = options["networks"] or options["online"] or options["inputs"] != "auto"
    inputs = data
    stacked = None
    if not custom and not data.neighbors:
        inputs = without_few_labels(data)
        if inputs is not data:
            _LOG.warning("too few labels to learn classes; learning from aligned rows instead")
        if can_stack(inputs):
            stacked = stack_weak_labels(data, options["seed"], options["landmarks"])
            inputs = stacked.data
    plan = _make_plan(inputs, options, stacked=stacked is not None)
    progress = Checkpoint.for_training(
        checkpoint, inputs, configuration, writes=current_group().rank == 0
    )
    trained = _Selection(inputs, progress, on_step).select(plan)
    config = trained.candidate.config
    model = to_model(
        trained.networks,
        trained.features,
        data,
        n_bits=config.n_bits,
        beta=config.beta[1],
        rotation_seed=config.seed if options["rotate"] else None,
        before=None if stacked is None else stacked.layers,
    )
    if stacked is None:
        left_out = {"labels": "too few, left out"} if data.labels and not inputs.labels else {}
        return replace(model, card={**left_out, **trained.card, **model.card})
    card = {"inputs": stacked.summary, **trained.card, **model.card}
    return replace(model, card=card)


def _make_plan(data: TrainingSet, options: Mapping[str, Any], *, stacked: bool) -> _SearchPlan:
    """Return the candidates: on posteriors, from CCA, or the networks that the options describe."""
    default_inputs = _default_inputs(data) if stacked else "standardize"
    config = TrainConfig.resolve(options, data, default_inputs=default_inputs)
    init = RandomInit(networks=options["networks"] or {}, tied=stacked)
    automatic = options["loss"] == "auto" and options["margin"] == "auto"
    if automatic and stacked:
        steps = options["steps"]
        config = replace(config, steps=steps or 80, decay=config.decay or 0.002)
        return _plan_on_posteriors(config, init, Subset.whole(data).n_rows, steps or 250)
    validation = options["validation"]
    if not 0 <= validation < 1:
        raise DataError(f"validation must be at least 0 and below 1, got {validation!r}")
    plain = options["inputs"] == "auto" and not (
        options["networks"] or options["online"] or options["hidden"]
    )
    only_aligned = data.aligned_supervision and not data.labels and not data.pairs
    if automatic and plain and only_aligned and len(data.views) > 1:
        return _plan_from_cca(replace(config, steps=options["steps"] or 300), validation)
    within = all(pairs.left == pairs.right for pairs in data.pairs)
    if automatic and plain and data.neighbors and within and not data.labels:
        return _plan_from_neighbors(config, options["steps"], validation)
    candidates = [_Candidate("network", config, init)]
    if automatic and data.labels:
        ranking = config.with_loss("labels", "ranking")
        candidates.append(_Candidate("network, ranking", ranking, init))
    return _SearchPlan(candidates, validation=validation)


def _default_inputs(data: TrainingSet) -> str:
    """Return the preparation of posteriors: square roots where each row has one class.

    Inner products of the roots measure the Hellinger distance of two posteriors.
    """
    multi_label = next(iter(data.labels.values())).ndim == 2
    return "center" if multi_label else "sqrt+center"


def _plan_on_posteriors(
    base: TrainConfig, init: RandomInit, n_rows: int, final_steps: int
) -> _SearchPlan:
    """Networks on class posteriors, trained with soft labels.

    All candidates are trained briefly, then the best two for ``final_steps``.
    """
    base = replace(
        base,
        soft_labels=True,
        optimizer="adam",
        learning_rate=0.02,
        batch=192 if n_rows > _FULL_BATCH_ROWS else None,
        eval_every=20,
        patience=3,
    )
    candidates = []
    for class_balance, share, beta in _ON_POSTERIORS:
        config = base.with_margin(f"{share}%")
        config = replace(config, class_balance=class_balance, beta=(beta, beta))
        name = f"margin {share}%, evenness {class_balance:g}, beta {beta:g}"
        candidates.append(_Candidate(name, config, init))
    for beta in _PRECISION_BETAS:
        config = replace(base.with_loss("labels", "precision"), beta=(beta, beta), decay=0.0)
        candidates.append(_Candidate(f"precision, beta {beta:g}", config, init))
    return _SearchPlan(candidates, [partial(_continue_longer, steps=final_steps)])


def _continue_longer(ranked: Sequence[_Candidate], steps: int) -> list[_Candidate]:
    """Return the best two candidates with more steps and larger batches."""
    longer = []
    for candidate in ranked[:2]:
        batch = candidate.config.batch and 256
        config = replace(candidate.config, steps=steps, eval_every=steps, batch=batch)
        longer.append(replace(candidate, name=f"{candidate.name}, longer", config=config))
    return longer


def _plan_from_cca(base: TrainConfig, validation: float) -> _SearchPlan:
    """Networks initialized by CCA on aligned rows.

    The regularization is chosen first, then the weights of the directions, then whether to
    fine-tune with the ranking loss.
    """
    base = replace(
        base, optimizer="adam", learning_rate=0.005, batch=256, eval_every=50, patience=3
    )
    candidates = [_cca_candidate(base, regularization, 1.0) for regularization in _REGULARIZATIONS]
    rounds = [partial(_other_powers, base=base), partial(_fine_tune, base=base)]
    return _SearchPlan(candidates, rounds, validation)


def _plan_from_neighbors(base: TrainConfig, steps: int | None, validation: float) -> _SearchPlan:
    """Networks initialized by PCA + ITQ, as they are or trained to keep the order of near rows."""
    adam = replace(base, optimizer="adam", learning_rate=0.001, batch=base.batch or 256)
    trained = replace(adam, steps=steps or 600, eval_every=100, patience=2, straight_through=True)
    candidates = [_Candidate("principal components", replace(trained, steps=0), PCAInit())]
    for sharpness in _NEIGHBOR_SHARPNESS:
        config = replace(trained, temperature=sharpness / base.n_bits**0.5)
        name = f"near rows, temperature {config.temperature:.2g}"
        candidates.append(_Candidate(name, config, PCAInit()))
    return _SearchPlan(candidates, validation=validation)


def _cca_candidate(base: TrainConfig, regularization: float, power: float) -> _Candidate:
    """CCA without training."""
    init = CCAInit(regularization=regularization, power=power)
    name = f"correlations, regularization {regularization:g}, power {power:g}"
    return _Candidate(name, replace(base, steps=0), init)


def _other_powers(ranked: Sequence[_Candidate], base: TrainConfig) -> list[_Candidate]:
    """Return the best regularization with other weights of the directions."""
    best = ranked[0].init
    if not isinstance(best, CCAInit):  # never, in a plan that starts from CCA
        return []
    return [_cca_candidate(base, best.regularization, power) for power in _POWERS]


def _fine_tune(ranked: Sequence[_Candidate], base: TrainConfig) -> list[_Candidate]:
    """Fine-tune the best CCA with the ranking loss and decay toward the initial weights."""
    best = ranked[0]
    candidates = []
    for sharpness, decay in product((1.0, 0.3), (0.1, 0.01)):
        temperature = sharpness / base.n_bits**0.5
        config = replace(base, temperature=temperature, decay=decay, decay_to_init=True)
        name = f"{best.name}, ranking, temperature {temperature:.2g}, decay {decay:g}"
        candidates.append(replace(best, name=name, config=config))
    return candidates


@dataclass
class _Selection:
    """Trains candidates one after the other and counts the steps of all of them.

    Args:
        data: The training set.
        checkpoint: Where progress is saved.
        on_step: Progress callback.
    """

    data: TrainingSet
    checkpoint: Checkpoint
    on_step: OnStep | None
    steps_done: int = field(default=0, init=False)
    runs_left: int = field(default=1, init=False)  # of those that are known so far

    def select(self, plan: _SearchPlan) -> _Trained:
        """Train all candidates, choose by validation, and train the best on all rows."""
        first = plan.candidates[0]
        seed = first.config.seed
        all_rows = Subset.whole(self.data)
        if plan.validation is None:
            self.runs_left = 0
            return self._compare(plan, all_rows, Subset.sample(self.data, _JUDGED_ROWS, seed))
        metric = None
        if plan.validation:
            training, validation = Subset.split(self.data, plan.validation, seed)
            metric = ValidationMetric.of(validation)
        if metric is None:
            if len(plan.candidates) > 1 or plan.validation:
                _LOG.warning(
                    "too little supervision for a validation split; training without early stopping"
                )
            trained = self._train(first, all_rows)
            return replace(trained, card={"training": trained.history()})
        best = self._compare(plan, training, validation)
        history = best.card["training"] | {"validated by": metric.name}
        return replace(
            self._refit(best, training, all_rows), card={**best.card, "training": history}
        )

    def _compare(self, plan: _SearchPlan, training: Subset, validation: Subset) -> _Trained:
        """Return the best of the candidates and of those of further rounds."""
        self.runs_left += len(plan.candidates)
        trained: list[_Trained] = []
        for candidate in plan.candidates:
            trained.append(self._train(candidate, training, validation))
            if trained[-1].score >= _PERFECT:
                break
        for further in plan.rounds:
            if max(t.score for t in trained) >= _PERFECT:
                break
            trained.sort(key=lambda t: -t.score)
            candidates = further([t.candidate for t in trained])
            self.runs_left += len(candidates)
            trained += [self._train(candidate, training, validation) for candidate in candidates]
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
        chains = candidate.init(subset, config)
        inputs = {name: layers for name, (layers, _) in chains.items()}
        networks = {name: network.to(device) for name, (_, network) in chains.items()}
        features = Features(subset, inputs, device, lazy=config.online)
        batches = make_batches(subset, config)
        objective = make_objective(networks, batches.terms, features, config)
        score = None
        if validation is not None and (metric := ValidationMetric.of(validation)) is not None:
            held_out = Features(validation, inputs, device, lazy=False)
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
