"""Hyper-parameter search by cross-validation: resumable, with early stopping of poor trials."""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from crossbit._io.files import atomic_write, make_folders
from crossbit._io.folders import dir_lock
from crossbit._progress import OnStep, Step, log_progress
from crossbit._validation import check_integer
from crossbit.data import training_set
from crossbit.data.dataset import Dataset
from crossbit.errors import DataError
from crossbit.hashers.base import Hasher
from crossbit.tune.space import Space, default_space, method_class, parse_space
from crossbit.tune.trials import NAME, Journal, Sampler
from crossbit.tune.validation import CrossValidation, Supervise, Trial, by_labels

_LOG = logging.getLogger(__name__)
_BEST_FILE = "best.toml"
_MIN_COMPLETE = 5  # complete trials before any trial is stopped early


@dataclass(frozen=True)
class SearchResult:
    """The trials of a search.

    Attributes:
        method: The class of the method.
        fixed: Fields that all trials share.
        space: The fields that were searched.
        folds: Folds of the cross-validation.
        trials: In the order they were run; the first is the default setting. A trial with fewer
            scores than folds was stopped early.
    """

    method: type[Hasher]
    fixed: Mapping[str, Any]
    space: Space
    folds: int
    trials: Sequence[Trial] = field(repr=False)

    @property
    def ranked(self) -> list[Trial]:
        """The complete trials, the best first; ties in the order they were run."""
        complete = (trial for trial in self.trials if len(trial.scores) == self.folds)
        return sorted(complete, key=lambda trial: -trial.mean)

    @property
    def best(self) -> Trial:
        """The trial with the highest mean.

        It was selected for its score, so the score is optimistic; see `nested_score`.
        """
        return self.ranked[0]

    @property
    def fields(self) -> dict[str, Any]:
        """The fields to use from now on: those of the best trial and those that all share."""
        return {**self.fixed, **self.best.fields}

    def importances(self) -> dict[str, float]:
        """Return the share of the variance between trials that each field explains."""
        return Sampler(self.space, self.folds).importances(self.trials)

    def write_best(self, folder: Path) -> Path:
        """Write the best setting as ``best.toml``, which ``crossbit fit --config`` reads.

        Example:
            >>> import tempfile
            >>> from crossbit.data import synthetic
            >>> result = search("ccaitq", synthetic(n=60, classes=3), n_bits=8, trials=2)
            >>> "n_bits = 8" in result.write_best(Path(tempfile.mkdtemp())).read_text()
            True
        """
        name = self.method.name()
        default = self.trials[0].mean
        comment = (
            f"# {name}: {self.best.mean:.2f} ± {self.best.error:.2f} % mAP in {self.folds} folds,"
            f" the best of {len(self.trials)} trials; default setting: {default:.2f}.\n"
            "# The best of many scores is optimistic.\n"
            f"# crossbit fit DATASET --method {name} --config {_BEST_FILE} --out MODEL\n"
        )
        path = folder / _BEST_FILE
        make_folders(folder)
        with atomic_write(path) as file:
            file.write((comment + _to_toml(self.fields)).encode())
        return path


def search(
    method: str | type[Hasher],
    data: Dataset,
    *,
    n_bits: int = 32,
    space: Mapping[str, Any] | str | PathLike[str] | None = None,
    fixed: Mapping[str, Any] | None = None,
    trials: int = 40,
    folds: int = 3,
    seed: int = 0,
    folder: Path | None = None,
    supervise: Supervise = by_labels,
    on_step: OnStep | None = None,
    verbose: bool = False,
) -> SearchResult:
    """Search the fields of a method by cross-validation on training rows.

    Trial 0 is the default setting, so the best trial is never worse than it. A first round covers
    the space evenly, then a tree-structured Parzen estimator proposes settings. All trials use
    the same folds; a trial below the median of the complete trials on its first folds is stopped.
    The same arguments give the same trials, interrupted or not.

    Args:
        method: A name in `HASHERS`, or a class.
        data: Aligned training rows with labels. Never pass test rows.
        n_bits: Code length.
        space: Field → `Range`, `Choice` or plain value, or the path of a TOML file with them; see
            `parse_space`. Default: those of `default_space` that have an effect on these rows.
        fixed: Fields that all trials share; they are not searched.
        trials: Number of settings, including the default.
        folds: Number of folds.
        seed: Seed of the folds, the methods and the proposals.
        folder: Folder for the journal. The same call continues from it after an interruption;
            more ``trials`` extend the search.
        supervise: Builds the arguments of `Hasher.fit` from the training rows.
        on_step: Called after every fold, with the best mean so far.
        verbose: Show progress on stderr every few seconds, as `Hasher.fit` does.

    Raises:
        DataError: The data have no labels, the space does not fit the method, or the folder
            belongs to another search.
        MissingExtraError: Optuna is not installed.

    Example:
        >>> from crossbit.data import synthetic
        >>> result = search("ccaitq", synthetic(n=90, classes=3), n_bits=8, trials=8)
        >>> len(result.trials), result.best.mean >= result.trials[0].mean
        (8, True)
        >>> sorted(result.fields)
        ['inputs', 'n_bits', 'power', 'rounds', 'seed']
    """
    check_integer(trials, "trials", least=1)
    check_integer(seed, "seed")
    hasher = method_class(method)
    shared = {"n_bits": n_bits, "seed": seed, **(fixed or {})}
    default = hasher.from_configuration(shared)
    validation = CrossValidation(data, folds, seed, supervise)
    if space is None:
        unused = default._unused(training_set(**supervise(data, seed)))
        space = {name: d for name, d in default_space(hasher).items() if name not in unused}
    searched = _without_fixed(parse_space(space, hasher), shared)
    sampler = Sampler(searched, folds, seed)
    task = _Task(hasher, shared, searched, validation)
    if folder is not None:
        make_folders(folder)
    title = f"tuning {hasher.name()}"
    with (
        log_progress(title, _LOG, on_step, verbose=verbose) as report,
        nullcontext() if folder is None else dir_lock(folder),
    ):
        journal = Journal(None if folder is None else folder / NAME, task.subject())
        while len(journal.trials) < trials:
            for done in task.run(sampler.suggest(journal.trials), journal):
                if report is not None:
                    best = max(_complete_means(journal.trials, folds), default=None)
                    report(Step(done, trials * folds, validation=best))
    return SearchResult(hasher, shared, searched, folds, tuple(journal.trials[:trials]))


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
    """Estimate the quality of a searched setting on unseen rows (nested cross-validation).

    Each fold is held out once, `search` runs on the other folds alone, and a model trained on
    them with the best setting is evaluated on the held-out fold. This runs ``folds`` searches.

    Args:
        method: As in `search`, like all arguments that are not listed here.
        data: Aligned training rows with labels.
        folds: Number of outer and of inner folds.
        seed: Seed of both.
        folder: Folder for the journals; that of search k is in ``folder/k``.
        supervise: Builds the arguments of `Hasher.fit` from the training rows.
        on_step: Called after every inner fold.
        **settings: ``n_bits``, ``space``, ``fixed`` and ``trials``.

    Returns:
        The scores of the outer folds; ``fields`` is empty because each fold has its own setting.

    Example:
        >>> from crossbit.data import synthetic
        >>> score = nested_score("ccaitq", synthetic(n=90, classes=3), n_bits=8, trials=3)
        >>> len(score.scores)
        3
    """
    outer = CrossValidation(data, folds, seed, supervise)
    scores: list[float] = []

    def on_inner_step(step: Step) -> None:
        of = step.of or 0
        if on_step is not None:
            number = len(scores) * of + step.number
            on_step(Step(number, folds * of, validation=step.validation))

    for train, held_out in outer.splits():
        rows = data.take(train)
        result = search(
            method,
            rows,
            folds=folds,
            seed=seed,
            folder=None if folder is None else folder / str(len(scores) + 1),
            supervise=supervise,
            on_step=on_inner_step,
            **settings,
        )
        model = result.method.from_configuration(result.fields).fit(**supervise(rows, seed))
        scores.append(outer.score(model, data.take(held_out)))
    return Trial({}, tuple(scores))


@dataclass(frozen=True)
class _Task:
    """What all trials of a search share."""

    hasher: type[Hasher]
    shared: Mapping[str, Any]
    space: Space
    validation: CrossValidation

    def subject(self) -> dict[str, Any]:
        """Return what identifies the search in its journal."""
        return {
            "method": self.hasher.name(),
            "fixed": dict(self.shared),
            "space": {name: dimension.plain() for name, dimension in self.space.items()},
            "folds": self.validation.folds,
            "seed": self.validation.seed,
            "data": _data_facts(self.validation.data),
        }

    def run(self, fields: Mapping[str, Any], journal: Journal) -> Iterator[int]:
        """Run a trial from where the journal left it; yield the folds done so far in the search."""
        folds = self.validation.folds
        before = len(journal.trials) * folds
        running = journal.running
        scores = list(running.scores) if running is not None and running.fields == fields else []
        hasher = self.hasher.from_configuration({**self.shared, **fields})
        try:
            for score in self.validation.scores(hasher, skip=len(scores)):
                scores.append(score)
                ended = len(scores) == folds or _is_hopeless(scores, journal.trials, folds)
                journal.record(fields, scores, ended=ended)
                yield before + (folds if ended else len(scores))
                if ended:
                    return
        except DataError as error:
            setting = dict(fields) or "the default"
            raise DataError(f"trial {len(journal.trials)}, {setting}: {error}") from error


def _data_facts(data: Dataset) -> dict[str, Any]:
    """Return shapes and a checksum of views and labels, which identify the training rows."""
    digest = hashlib.sha256()
    for name, view in sorted(data.views.items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(view).data)
    digest.update(np.ascontiguousarray(data.labels).data)
    shapes = {name: list(view.shape) for name, view in sorted(data.views.items())}
    return {"views": shapes, "sha256": digest.hexdigest()[:16]}


def _is_hopeless(scores: Sequence[float], trials: Sequence[Trial], folds: int) -> bool:
    """Return whether a trial is below the median of the complete trials on the same folds."""
    means = _complete_means(trials, folds, first=len(scores))
    return len(means) >= _MIN_COMPLETE and float(np.mean(scores)) < float(np.median(means))


def _complete_means(
    trials: Sequence[Trial], folds: int, *, first: int | None = None
) -> list[float]:
    """Return the means of the complete trials over their ``first`` folds."""
    return [float(np.mean(t.scores[:first])) for t in trials if len(t.scores) == folds]


def _without_fixed(space: Space, fixed: Mapping[str, Any]) -> Space:
    free = {name: d for name, d in space.items() if name.partition(".")[0] not in fixed}
    if not free:
        raise DataError(f"all fields of the space are fixed ({sorted(space)}); nothing to search")
    return free


def _to_toml(fields: Mapping[str, Any]) -> str:
    """Return fields of a method as TOML; None is left out, which means the same.

    Example:
        >>> print(_to_toml({"n_bits": 32, "hidden": [64], "margin": {"image-text": "75%"}}), end="")
        n_bits = 32
        hidden = [64]
        margin = { "image-text" = "75%" }
    """
    lines = (f"{name} = {_toml_value(v)}\n" for name, v in fields.items() if v is not None)
    return "".join(lines)


def _toml_value(value: Any) -> str:  # noqa: ANN401 - any plain value
    if isinstance(value, Mapping):
        items = (f"{json.dumps(str(key))} = {_toml_value(item)}" for key, item in value.items())
        return "{ " + ", ".join(items) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False)  # numbers, booleans and text are as in JSON
