"""Methods of a results table: each runs for several seeds and is summarized beside the paper."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from crossbit._io.files import check_version, read_json, write_json
from crossbit._progress import OnStep, Step
from crossbit.data import Dataset
from crossbit.evaluation.evaluate import Evaluation, Protocol, evaluate_model
from crossbit.evaluation.results import read_result, write_result
from crossbit.hashers import Hasher
from crossbit.tune import Supervise, Trial, by_labels, compare
from crossbit_experiments.seed_stats import score, standard_deviation

_SEARCH_FORMAT = "crossbit.search/1"

Baseline = Callable[[Dataset, int], Evaluation]
"""Evaluates a method without codes, from the whole data set and a seed."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One line of a results table.

    Attributes:
        key: Names its result files.
        title: Its name in the table.
        build: Builds the hasher from its fields, ``n_bits`` and ``seed`` included.
        candidates: Settings; cross-validation on the training split chooses one before the runs.
        fit_args: Builds the `fit` arguments from the training split and a seed.
        baseline: Evaluates a method that does not hash; replaces ``build``.
        paper: Direction → the value that the paper prints, in percent.
        bytes_per_item: Size of an item if the method does not hash.
    """

    key: str
    title: str
    build: Callable[..., Hasher] | None = None
    candidates: Sequence[Mapping[str, Any]] = ()
    fit_args: Supervise = by_labels
    baseline: Baseline | None = None
    paper: dict[str, float] = field(default_factory=dict)
    bytes_per_item: int | None = None


@dataclass(frozen=True)
class MethodSummary:
    """Scores of a method over its seeds, in percent.

    Attributes:
        method: The method.
        n_bits: Length of the codes.
        seeds: Number of seeds.
        mean: Direction → mean mAP, for the directions it was measured in; ``"average"`` is the mean
            of all directions and is missing if a direction is.
        deviation: Direction → standard deviation over the seeds.
        worst: The average if every tie falls in the least favorable order.
        best: The average if every tie falls in the most favorable order.
        chance: The average of a random ranking.
        seconds: Mean time to fit and evaluate.
    """

    method: Method
    n_bits: int
    seeds: int
    mean: dict[str, float]
    deviation: dict[str, float]
    worst: float
    best: float
    chance: float
    seconds: float

    @property
    def bytes_per_item(self) -> int:
        """Memory per item."""
        return self.method.bytes_per_item or -(-self.n_bits // 8)


def result_file(folder: Path, method: Method, n_bits: int, seed: int) -> Path:
    """Path of the result of one run."""
    return folder / f"{method.key}-{n_bits}-{seed}.json"


def run_methods(
    methods: Sequence[Method],
    data: Dataset,
    folder: Path,
    *,
    n_bits: int,
    seeds: Iterable[int],
    protocol: Protocol | None = None,
    on_step: OnStep | None = None,
) -> None:
    """Run every method for every seed and skip results that exist, so that a run can be resumed.

    An existing result is run again if it belongs to other data, another protocol or other settings.
    """
    todo = [
        (method, seed)
        for seed in seeds
        for method in methods
        if not _is_current(folder, method, data, n_bits, seed, protocol)
    ]
    for number, (method, seed) in enumerate(todo, start=1):
        began = time.perf_counter()
        cpu_began = time.process_time()
        evaluation, card = _run(method, data, folder, n_bits, seed, protocol)
        write_result(
            result_file(folder, method, n_bits, seed),
            evaluation,
            card=card,
            dataset=data.describe(),
            seconds=time.perf_counter() - began,
            cpu_seconds=time.process_time() - cpu_began,
        )
        if on_step is not None:
            on_step(Step(number, len(todo)))


def _is_current(
    folder: Path, method: Method, data: Dataset, n_bits: int, seed: int, protocol: Protocol | None
) -> bool:
    path = result_file(folder, method, n_bits, seed)
    if not path.exists():
        return False
    result = read_result(path)
    expected = data.describe()
    if any(result["dataset"].get(key) != expected.get(key) for key in ("rows", "splits")):
        return False
    if protocol is not None:
        wanted = protocol.to_dict()
        keys = ("name", "queries", "base", "base_codes")
        if any(result["protocol"][key] != wanted[key] for key in keys):
            return False
    # Settings chosen by cross-validation are stored with the search, not known before it.
    if method.build is None or method.candidates:
        return True
    stored = result["model"]["fields"]
    fields = json.loads(json.dumps(method.build(n_bits=n_bits, seed=seed).configuration()))
    # Only common fields are compared: a later version may add or rename a field.
    return all(stored[name] == fields[name] for name in stored.keys() & fields.keys())


def _run(
    method: Method, data: Dataset, folder: Path, n_bits: int, seed: int, protocol: Protocol | None
) -> tuple[Evaluation, dict[str, Any]]:
    if method.build is None:
        if method.baseline is None:
            raise ValueError(f"method {method.key!r} needs either build or baseline")
        return method.baseline(data, seed), {"method": method.key, "fields": {"seed": seed}}
    train = data.part("train")
    chosen: Mapping[str, Any] = {}
    if method.candidates:
        chosen = search_settings(method, train, folder, n_bits)[0].fields
    model = method.build(n_bits=n_bits, seed=seed, **chosen).fit(**method.fit_args(train, seed))
    return evaluate_model(model, data, protocol), dict(model.card)


def search_file(folder: Path, method: Method, n_bits: int) -> Path:
    """Path of the cross-validation of a method's candidates."""
    return folder / "search" / f"{method.key}-{n_bits}.json"


def search_settings(method: Method, train: Dataset, folder: Path, n_bits: int) -> list[Trial]:
    """Cross-validate the candidates of a method, or load an earlier search; best first."""
    path = search_file(folder, method, n_bits)
    if not path.exists():
        if method.build is None:
            raise ValueError(f"method {method.key!r} has no build, so no settings to search")
        trials = compare(
            partial(method.build, n_bits=n_bits),
            method.candidates,
            train,
            supervise=method.fit_args,
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [{"fields": dict(trial.fields), "scores": list(trial.scores)} for trial in trials]
        write_json(path, {"format": _SEARCH_FORMAT, "rows": len(train), "trials": rows})
    content = read_json(path)
    format_ = content.get("format") if isinstance(content, dict) else None
    check_version(path, format_, _SEARCH_FORMAT)
    return [Trial(trial["fields"], tuple(trial["scores"])) for trial in content["trials"]]


def summarize(
    methods: Sequence[Method],
    folder: Path,
    directions: Sequence[str],
    *,
    n_bits: int,
    seeds: Sequence[int],
) -> list[MethodSummary]:
    """Summarize the methods whose results are complete."""
    summaries = []
    for method in methods:
        paths = [result_file(folder, method, n_bits, seed) for seed in seeds]
        if all(path.exists() for path in paths):
            results = [read_result(path) for path in paths]
            summaries.append(_summarize_method(method, results, directions, n_bits))
    return summaries


def _summarize_method(
    method: Method, results: list[dict[str, Any]], directions: Sequence[str], n_bits: int
) -> MethodSummary:
    """Mean and deviation over the seeds, for each direction and for their average."""
    measured = [direction for direction in directions if direction in results[0]["directions"]]

    def by_direction(name: str) -> dict[str, Any]:
        scores = {d: np.array([score(result, d, name) for result in results]) for d in measured}
        return scores | {"average": np.mean(list(scores.values()), axis=0)}

    values = by_direction("value")
    if len(measured) < len(directions):
        del values["average"]
    return MethodSummary(
        method,
        n_bits,
        len(results),
        {direction: float(scores.mean()) for direction, scores in values.items()},
        {direction: standard_deviation(scores) for direction, scores in values.items()},
        float(by_direction("worst")["average"].mean()),
        float(by_direction("best")["average"].mean()),
        float(by_direction("chance")["average"].mean()),
        float(np.mean([result["seconds"] for result in results])),
    )
