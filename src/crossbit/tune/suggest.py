"""What to try next: first spread evenly over the space, then where earlier trials did well."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from crossbit.errors import MissingExtraError
from crossbit.tune.space import Choice, Space, nested, pick
from crossbit.tune.validation import Trial

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution


def suggest(space: Space, trials: Sequence[Trial], *, folds: int, seed: int) -> dict[str, Any]:
    """Fields of the next trial, which depend on nothing but the trials before it, the space and the seed.

    Trial 0 is the method as it comes. A first round follows a sequence of low discrepancy; from then on a
    tree-structured Parzen estimator proposes what resembles the good trials more than the bad ones.

    References:
        J. Bergstra et al. "Algorithms for hyper-parameter optimization." NeurIPS 2011.
    """
    number = len(trials)
    if number == 0:
        return {}
    if number <= first_round(space):
        places = _spread(number, len(space), seed)
        return nested(
            {name: one.at(place) for (name, one), place in zip(space.items(), places, strict=True)}
        )
    proposed = (
        _study(space, trials, folds=folds, seed=seed + number).ask(_distributions(space)).params
    )
    return nested(
        {
            name: one.options[proposed[name]]
            if isinstance(one, Choice)
            else one.tidy(proposed[name])
            for name, one in space.items()
        }
    )


def first_round(space: Space) -> int:
    """Trials that are spread evenly, after the default."""
    return max(5, 2 * len(space))


def importances(space: Space, trials: Sequence[Trial], *, folds: int) -> dict[str, float]:
    """Share of the differences between trials that each field explains, the largest first (functional ANOVA).

    Empty when the trials are too few, or all alike.

    References:
        F. Hutter et al. "An efficient approach for assessing hyperparameter importance." ICML 2014.
    """
    study = _study(space, trials, folds=folds, seed=0)
    complete = [trial.value for trial in study.trials if trial.value is not None]
    if len(complete) < 4 or np.ptp(complete) == 0:
        return {}
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    found = get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=0))
    return {name: float(share) for name, share in found.items()}


def require() -> None:
    """Refuse to begin without the library that will be needed later."""
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("optuna", "tune") from error


def _spread(number: int, dimensions: int, seed: int) -> list[float]:
    r"""Point ``number`` of the additive sequence $\{s + n\,\varphi^{-k}\}$, where $\varphi^{d+1} = \varphi + 1$.

    For one dimension this is the golden ratio, the most even of all such sequences; see M. Roberts, "The unreasonable
    effectiveness of quasirandom sequences", 2018.
    """
    ratio = 2.0
    for _ in range(64):
        ratio = (1 + ratio) ** (1 / (dimensions + 1))
    start = np.random.default_rng(seed).random(dimensions)
    return [float((start[k] + number * ratio ** -(k + 1)) % 1) for k in range(dimensions)]


def _study(space: Space, trials: Sequence[Trial], *, folds: int, seed: int) -> "Study":
    """The trials as Optuna knows them; one that was given up early is known by what it showed."""
    require()
    import optuna
    from optuna.trial import TrialState, create_trial

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=0, multivariate=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    distributions = _distributions(space)
    for trial in trials:
        if (params := _places(space, trial.fields)) is None:
            continue
        if len(trial.scores) == folds:
            study.add_trial(
                create_trial(params=params, distributions=distributions, value=trial.mean)
            )
        else:
            shown = {len(trial.scores): trial.mean}
            pruned = TrialState.PRUNED
            study.add_trial(
                create_trial(
                    state=pruned,
                    params=params,
                    distributions=distributions,
                    intermediate_values=shown,
                )
            )
    return study


def _distributions(space: Space) -> "dict[str, BaseDistribution]":
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    made: dict[str, BaseDistribution] = {}
    for name, one in space.items():
        if isinstance(one, Choice):
            made[name] = CategoricalDistribution(range(len(one.options)))
        elif one.whole:
            made[name] = IntDistribution(int(one.low), int(one.high), log=one.log)
        else:
            made[name] = FloatDistribution(one.low, one.high, log=one.log)
    return made


def _places(space: Space, fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """Where in the space fields are; None for the default, which need not lie in it."""
    if not fields:
        return None
    places: dict[str, Any] = {}
    for name, one in space.items():
        value = pick(fields, name)
        places[name] = (
            list(one.options).index(value) if isinstance(one, Choice) else one.number(value)
        )
        if not isinstance(one, Choice) and one.whole:
            places[name] = int(places[name])
    return places
