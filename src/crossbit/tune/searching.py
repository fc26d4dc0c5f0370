"""The search of settings: trials one after another, each on the same folds, kept in a journal."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from crossbit._io.folders import only_writer
from crossbit._progress import OnStep, Step
from crossbit._validation import whole_number
from crossbit.data import Dataset
from crossbit.errors import DataError
from crossbit.hashers import Hasher
from crossbit.tune.journal import NAME, Journal, data_facts
from crossbit.tune.space import Space, as_space, default_space, method_class
from crossbit.tune.suggest import importances, require, suggest
from crossbit.tune.validation import (
    Supervise,
    Trial,
    across,
    by_labels,
    check_judgeable,
    deal,
    fold_scores,
)

_ENOUGH = 5  # whole trials before any may be given up early


@dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes:
        method: The class of the method.
        fixed: Fields that all trials share.
        space: What was searched.
        folds: Folds of the cross-validation.
        trials: In the order they were run; the first is the method as it comes. One with fewer scores than folds was
            given up early.
    """

    method: type[Hasher]
    fixed: Mapping[str, Any]
    space: Space
    folds: int
    trials: Sequence[Trial] = field(repr=False)

    @property
    def ranked(self) -> list[Trial]:
        """The whole trials, the best first; of equals the earlier."""
        return sorted(
            (trial for trial in self.trials if len(trial.scores) == self.folds),
            key=lambda one: -one.mean,
        )

    @property
    def best(self) -> Trial:
        """The trial with the highest mean. It was chosen for that, so the mean is optimistic; see `nested_score`."""
        return self.ranked[0]

    @property
    def fields(self) -> dict[str, Any]:
        """The fields to use from now on: the best trial's and those that all share."""
        return {**self.fixed, **self.best.fields}

    def importances(self) -> dict[str, float]:
        """Share of the differences between trials that each field explains; empty when there are too few trials."""
        return importances(self.space, self.trials, folds=self.folds)


def search(
    method: str | type[Hasher],
    data: Dataset,
    *,
    n_bits: int = 32,
    space: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
    trials: int = 40,
    folds: int = 3,
    seed: int = 0,
    folder: Path | None = None,
    supervise: Supervise = by_labels,
    on_step: OnStep | None = None,
) -> Found:
    """Search the settings of a method by cross-validation on training rows.

    Trial 0 is the method as it comes, so that the best is never worse. A first round is spread evenly over the space,
    then a tree-structured Parzen estimator proposes. All trials see the same folds; one that is below the median of
    the whole trials on the folds so far is given up. The same arguments give the same trials, interrupted or not.

    Args:
        method: A name of `HASHERS`, or a class.
        data: Aligned training rows with labels. Test rows have no business here.
        n_bits: Length of a code.
        space: Field → `Range`, `Choice` or their plain form (`as_space`); `default_space` unless you say.
        fixed: Fields that all trials share; what is fixed is not searched.
        trials: How many settings are tried, the default among them.
        folds: How many parts the rows are dealt into, class by class.
        seed: Of the folds, the methods and the proposals.
        folder: Keeps a journal here, from which the same call goes on after an interruption; more ``trials`` extend it.
        supervise: What a method is told of the rows it learns from.
        on_step: Told after every fold, with the best mean so far.

    Raises:
        DataError: The data have no labels, the space is not one of this method, or the folder is of another search.
        MissingExtraError: Optuna is not installed.

    Example:
        >>> from crossbit.data import synthetic
        >>> found = search("ccaitq", synthetic(n=90, classes=3), n_bits=8, trials=8)
        >>> len(found.trials), found.best.mean >= found.trials[0].mean
        (8, True)
        >>> sorted(found.fields)
        ['n_bits', 'power', 'regularization', 'rounds', 'seed']
    """
    require()
    check_judgeable(data)
    whole_number(trials, "the number of trials", least=1)
    whole_number(seed, "the seed")
    hasher = method_class(method)
    shared = {"n_bits": n_bits, "seed": seed, **(fixed or {})}
    hasher.from_configuration(shared)
    searched = _without(as_space(default_space(hasher) if space is None else space, hasher), shared)
    task = _Task(hasher, shared, searched, data, folds, seed, supervise)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with nullcontext() if folder is None else only_writer(folder):
        journal = Journal(None if folder is None else folder / NAME, task.subject())
        while len(journal.trials) < trials:
            fields = suggest(searched, journal.trials, folds=folds, seed=seed)
            for done in task.run(fields, journal):
                _tell(on_step, done, trials * folds, journal.trials, folds)
    return Found(hasher, shared, searched, folds, tuple(journal.trials[:trials]))


def nested_score(
    method: str | type[Hasher],
    data: Dataset,
    *,
    folds: int = 3,
    seed: int = 0,
    folder: Path | None = None,
    supervise: Supervise = by_labels,
    on_step: OnStep | None = None,
    **settings: Any,  # noqa: ANN401 - those of `search`
) -> Trial:
    """What searching is worth on rows that the search has not seen: without the optimism of a chosen best.

    Each fold is held out once, settings are searched on the others alone, and a model that learned from those with the
    settings found is measured on it. That takes ``folds`` searches.

    Args:
        method: As in `search`, like everything that is not here.
        data: Aligned training rows with labels.
        folds: Of the outer and of the inner validation.
        seed: Of both.
        folder: Keeps the journal of search k in ``folder/k``.
        supervise: What a method is told of the rows it learns from.
        on_step: Told after every inner fold.
        **settings: ``n_bits``, ``space``, ``fixed`` and ``trials``.

    Returns:
        The scores of the outer folds, without fields: each has settings of its own.

    Example:
        >>> from crossbit.data import synthetic
        >>> score = nested_score("ccaitq", synthetic(n=90, classes=3), n_bits=8, trials=3)
        >>> len(score.scores)
        3
    """
    check_judgeable(data)
    scores = []
    for number, (seen, held_out) in enumerate(deal(np.asarray(data.labels), folds, seed), start=1):
        part = data.take(seen)
        found = search(
            method,
            part,
            folds=folds,
            seed=seed,
            folder=None if folder is None else folder / str(number),
            supervise=supervise,
            on_step=None if on_step is None else partial(_later, on_step, number - 1, folds),
            **settings,
        )
        model = found.method.from_configuration(found.fields).fit(**supervise(part, seed))
        scores.append(across(model, data.take(held_out)))
    return Trial({}, tuple(scores))


@dataclass(frozen=True)
class _Task:
    """What all trials of a search share."""

    hasher: type[Hasher]
    shared: Mapping[str, Any]
    space: Space
    data: Dataset
    folds: int
    seed: int
    supervise: Supervise

    def subject(self) -> dict[str, Any]:
        """What the journal says that it is of."""
        return {
            "method": self.hasher.name(),
            "fixed": dict(self.shared),
            "space": {name: one.plain() for name, one in self.space.items()},
            "folds": self.folds,
            "seed": self.seed,
            "data": data_facts(self.data),
        }

    def run(self, fields: Mapping[str, Any], journal: Journal) -> Iterator[int]:
        """Try one setting, fold by fold from where the journal left it; gives the folds done so far in the search."""
        running, before = journal.running, len(journal.trials) * self.folds
        scores = list(running.scores) if running is not None and running.fields == fields else []
        hasher = self.hasher.from_configuration({**self.shared, **fields})
        try:
            coming = fold_scores(
                hasher,
                self.data,
                folds=self.folds,
                seed=self.seed,
                supervise=self.supervise,
                skip=len(scores),
            )
            for score in coming:
                scores.append(score)
                ended = len(scores) == self.folds or _hopeless(scores, journal.trials, self.folds)
                journal.record(fields, scores, ended=ended)
                yield before + (self.folds if ended else len(scores))
                if ended:
                    return
        except DataError as error:
            raise DataError(
                f"trial {len(journal.trials)}, {dict(fields) or 'the default'}: {error}"
            ) from error


def _hopeless(scores: Sequence[float], trials: Sequence[Trial], folds: int) -> bool:
    """Whether a trial is below the median of the whole ones on the folds it has been tried on."""
    whole = [
        float(np.mean(trial.scores[: len(scores)]))
        for trial in trials
        if len(trial.scores) == folds
    ]
    return len(whole) >= _ENOUGH and float(np.mean(scores)) < float(np.median(whole))


def _without(space: Space, shared: Mapping[str, Any]) -> Space:
    left = {name: one for name, one in space.items() if name.partition(".")[0] not in shared}
    if not left:
        raise DataError(
            f"every field of the space is fixed ({sorted(space)}); there is nothing to search"
        )
    return left


def _tell(on_step: OnStep | None, done: int, of: int, trials: Sequence[Trial], folds: int) -> None:
    if on_step is not None:
        best = max((trial.mean for trial in trials if len(trial.scores) == folds), default=None)
        on_step(Step(done, of, validation=best))


def _later(on_step: OnStep, before: int, times: int, step: Step) -> None:
    """A step of one of several searches, counted over all of them."""
    of = step.of or 0
    on_step(Step(before * of + step.number, times * of, validation=step.validation))
