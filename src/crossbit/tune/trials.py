"""Trials of a search: which settings come next, and the journal that keeps every fold."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crossbit._io.files import atomic_write, check_version, make_folders
from crossbit.errors import DataError, FormatError, MissingExtraError
from crossbit.tune.space import Choice, Space
from crossbit.tune.validation import Trial

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution


@dataclass(frozen=True)
class Sampler:
    """Proposes settings from earlier trials.

    Args:
        space: The fields and their values.
        folds: Folds of a complete trial; a trial with fewer scores was stopped early.
        seed: Together with the trials it determines every proposal.

    Raises:
        MissingExtraError: Optuna is not installed.

    References:
        J. Bergstra et al. "Algorithms for hyper-parameter optimization." NeurIPS 2011.
    """

    space: Space
    folds: int
    seed: int = 0

    def __post_init__(self) -> None:
        """Check that Optuna is installed, before any training."""
        try:
            import optuna  # noqa: F401
        except ImportError as error:
            raise MissingExtraError("optuna") from error

    @property
    def first_round(self) -> int:
        """Number of trials of the quasirandom round, which follows the default setting."""
        return max(5, 2 * len(self.space))

    def suggest(self, trials: Sequence[Trial]) -> dict[str, Any]:
        """Return the fields of the next trial; those of trial 0 are empty, which is the default."""
        number = len(trials)
        if number == 0:
            return {}
        if number <= self.first_round:
            positions = _quasirandom(number, len(self.space), self.seed)
            return _nest(
                {
                    name: dimension.at(position)
                    for (name, dimension), position in zip(
                        self.space.items(), positions, strict=True
                    )
                }
            )
        study = self._study(trials, seed=self.seed + number)
        numbers = study.ask(self._distributions()).params
        return _nest(
            {name: dimension.value(numbers[name]) for name, dimension in self.space.items()}
        )

    def importances(self, trials: Sequence[Trial]) -> dict[str, float]:
        """Return the share of the variance between trials that each field explains.

        The largest share comes first (functional ANOVA). Empty if there are fewer than four
        complete trials or all have the same score.

        References:
            F. Hutter et al. "An efficient approach for assessing hyperparameter importance."
            ICML 2014.
        """
        study = self._study(trials, seed=0)
        values = [trial.value for trial in study.trials if trial.value is not None]
        if len(values) < 4 or np.ptp(values) == 0:
            return {}
        from optuna.importance import FanovaImportanceEvaluator, get_param_importances

        shares = get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=0))
        return {name: float(share) for name, share in shares.items()}

    def _study(self, trials: Sequence[Trial], *, seed: int) -> "Study":
        """Return the trials as an Optuna study; one that was stopped early counts as pruned."""
        import optuna
        from optuna.trial import TrialState, create_trial

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=0, multivariate=True)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for trial in trials:
            if not trial.fields:  # the default need not lie in the space
                continue
            facts: dict[str, Any] = {
                "params": {name: d.number(trial.value(name)) for name, d in self.space.items()},
                "distributions": self._distributions(),
            }
            if len(trial.scores) == self.folds:
                facts["value"] = trial.mean
            else:
                facts["state"] = TrialState.PRUNED
                facts["intermediate_values"] = {len(trial.scores): trial.mean}
            study.add_trial(create_trial(**facts))
        return study

    def _distributions(self) -> "dict[str, BaseDistribution]":
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        distributions: dict[str, BaseDistribution] = {}
        for name, dimension in self.space.items():
            if isinstance(dimension, Choice):
                distributions[name] = CategoricalDistribution(range(len(dimension.options)))
            elif dimension.integer:
                low = int(dimension.low)
                distributions[name] = IntDistribution(low, int(dimension.high), log=dimension.log)
            else:
                distributions[name] = FloatDistribution(
                    dimension.low, dimension.high, log=dimension.log
                )
        return distributions


def _quasirandom(number: int, dimensions: int, seed: int) -> list[float]:
    r"""Return point n of the sequence $\{s + n\,\varphi^{-k}\}$, $\varphi^{d+1} = \varphi + 1$.

    For one dimension $\varphi$ is the golden ratio; see M. Roberts, "The unreasonable
    effectiveness of quasirandom sequences", 2018.
    """
    ratio = 2.0
    for _ in range(64):
        ratio = (1 + ratio) ** (1 / (dimensions + 1))
    start = np.random.default_rng(seed).random(dimensions)
    return [float((start[k] + number * ratio ** -(k + 1)) % 1) for k in range(dimensions)]


def _nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields as a method takes them, from names such as ``"margin.image-text"``.

    Example:
        >>> _nest({"alpha": 0.3, "margin.image-text": "75%", "margin.image": "40%"})
        {'alpha': 0.3, 'margin': {'image-text': '75%', 'image': '40%'}}
    """
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        *outer, last = name.split(".")
        table = nested
        for key in outer:
            table = table.setdefault(key, {})
        table[last] = value
    return nested


FORMAT = "crossbit.tune/1"
NAME = "trials.jsonl"


class Journal:
    """Trials of one search, in a file or only in memory.

    The first line identifies the search; each later line is a trial after one more fold.

    Args:
        path: The file; None keeps the trials in memory.
        subject: Method, space, data and so on as plain JSON: what identifies the search.

    Raises:
        DataError: The file belongs to another search; the message names the differences.
        FormatError: The file is damaged or has an unknown version.
    """

    def __init__(self, path: Path | None, subject: Mapping[str, Any]) -> None:
        self.path = path
        self.trials: list[Trial] = []
        self.running: Trial | None = None
        if path is None:
            return
        header = {"format": FORMAT, **json.loads(json.dumps(subject))}
        lines = _read_lines(path) if path.exists() else []
        if lines:
            check_version(path, lines[0].get("format"), FORMAT)
        if len(lines) > 1:
            _check_subject(path, lines[0], header)
            self._replay(lines[1:])
        else:  # a search that failed before its first fold has nothing worth keeping
            make_folders(path.parent)
            with atomic_write(path) as file:
                file.write(_line(header))

    def record(self, fields: Mapping[str, Any], scores: Sequence[float], *, ended: bool) -> None:
        """Record a trial after a fold."""
        number = len(self.trials)
        self._add(Trial(dict(fields), tuple(scores)), ended=ended)
        self._append(
            {"trial": number, "fields": dict(fields), "scores": list(scores), "ended": ended}
        )

    def _add(self, trial: Trial, *, ended: bool) -> None:
        if ended:
            self.trials.append(trial)
        self.running = None if ended else trial

    def _replay(self, lines: Sequence[Mapping[str, Any]]) -> None:
        for number, line in enumerate(lines, start=2):
            try:
                trial = Trial(dict(line["fields"]), tuple(map(float, line["scores"])))
                self._add(trial, ended=line["ended"])
            except (KeyError, TypeError, ValueError) as error:
                raise FormatError(
                    f"{self.path}: line {number} is not a trial; the file was altered"
                ) from error

    def _append(self, line: Mapping[str, Any]) -> None:
        if self.path is None:
            return
        with open(self.path, "ab") as file:
            file.write(_line(line))
            file.flush()
            os.fsync(file.fileno())


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a journal; an incomplete last line is cut off the file."""
    raw = path.read_bytes()
    complete = raw[: raw.rfind(b"\n") + 1]
    last = complete.rfind(b"\n", 0, -1) + 1
    if b"\0" in complete[last:]:  # a power failure may leave zeros in place of data
        complete = complete[:last]
    if complete != raw:
        os.truncate(path, len(complete))
    lines = []
    for number, line in enumerate(complete.splitlines(), start=1):
        try:
            lines.append(dict(json.loads(line)))
        except (ValueError, TypeError) as error:
            raise FormatError(
                f"{path}: line {number} is not a JSON object; the file was altered or damaged"
            ) from error
    return lines


def _check_subject(path: Path, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise if a journal belongs to another search, and name the differences."""
    differences = "; ".join(
        f"{key}: {_shorten(stored.get(key))} there, {_shorten(wanted[key])} here"
        for key in wanted
        if stored.get(key) != wanted[key]
    )
    if differences:
        raise DataError(
            f"{path} belongs to another search ({differences});"
            " choose another folder, or the same settings as before"
        )


def _shorten(value: Any, limit: int = 160) -> str:  # noqa: ANN401 - plain JSON
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else text[: limit - 1] + "…"
