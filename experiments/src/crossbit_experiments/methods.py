"""Methods of a results table: each runs for several seeds; its runs are stored and summarized."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from crossbit._progress import OnStep, Step
from crossbit.data import Dataset
from crossbit.evaluation.evaluate import Evaluation, Protocol, split_rows
from crossbit.evaluation.results import environment, peak_memory
from crossbit.hashers import Hasher
from crossbit.metrics import AveragePrecision
from crossbit.tune import Supervise, Trial, by_labels, compare
from crossbit_experiments.bootstrap import (
    Difference,
    paired_difference,
    query_interval,
    standard_deviation,
)
from crossbit_experiments.class_codes import NoPosteriorsError
from crossbit_experiments.fingerprint import (
    checksum,
    data_checksum,
    fit_fingerprint,
    function_checksum,
    protocol_checksum,
)
from crossbit_experiments.protocols import evaluate
from crossbit_experiments.runs import Floats, RunStore, StoredRun, Truth, run_scores

Values = Mapping[str, Floats]
Baseline = Callable[[Dataset, int], tuple[Evaluation, Values]]
"""Evaluates a method without codes, from the whole data set and a seed: reports, and direction →
average precision of each query as a fraction."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One line of a results table.

    Attributes:
        key: Names its runs.
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


def hashed(methods: Iterable[Method]) -> list[Method]:
    """The methods that hash."""
    return [method for method in methods if method.build is not None]


def run_name(method: Method, n_bits: int, seed: int, prefix: str = "") -> str:
    """Name of a run in the store."""
    return f"{prefix}{method.key}-{n_bits}-{seed}"


def run_methods(
    methods: Sequence[Method],
    data: Dataset,
    folder: Path,
    *,
    n_bits: int,
    seeds: Iterable[int],
    protocol: Protocol,
    prefix: str = "",
    on_step: OnStep | None = None,
    on_note: Callable[[str], None] | None = None,
) -> set[str]:
    """Run every method for every seed; a stored run with the same fingerprint is reused.

    A protocol with class codes leaves out methods whose inputs are no posteriors. Only training
    shows it, so this is stored too.

    Args:
        methods: The methods.
        data: Data set with the splits of the protocol and a split ``train``.
        folder: Folder of the results.
        n_bits: Code length.
        seeds: Seeds of every method.
        protocol: Queries and base; runs measure its first measure, an average precision.
        prefix: Begins the names of the runs.
        on_step: Progress callback, called after every run.
        on_note: Called with a line for each stored run that is stale: what it was made from has
            changed, so that it runs again; and for each method that is left out.

    Returns:
        Keys of the methods that were left out.
    """
    store = RunStore(folder)
    data_sum = data_checksum(data)
    notes = on_note or (lambda _: None)
    todo = []
    for seed in seeds:
        for method in methods:
            name = run_name(method, n_bits, seed, prefix)
            current = fingerprint(method, data_sum, n_bits, seed, protocol)
            stored = store.fingerprint(name)
            if stored == current:
                continue
            if stored is not None:
                changed = [key for key in current if stored.get(key) != current[key]]
                notes(f"{store.path}: {name} is stale ({', '.join(changed)} changed)")
            todo.append((method, seed, name, current))
    left_out: dict[str, str] = {}  # key → reason
    for number, (method, seed, name, current) in enumerate(todo, start=1):
        if method.key not in left_out:
            reason = _add_run(method, data, store, n_bits, seed, protocol, name, current)
            if reason is not None:
                left_out[method.key] = reason
        if on_step is not None:
            on_step(Step(number, len(todo)))
    for key, reason in left_out.items():
        notes(f"{data.name}: {key} is left out of {protocol.name}: {reason}")
    return set(left_out)


def fingerprint(
    method: Method, data: str, n_bits: int, seed: int, protocol: Protocol
) -> dict[str, str]:
    """Fingerprint of one run; ``data`` is the checksum of the data set."""
    if method.build is None:
        if method.baseline is None:
            raise ValueError(f"method {method.key!r} needs either build or baseline")
        return {
            "settings": checksum([method.key, seed]),
            "supervision": function_checksum(method.baseline),
            "data": data,
            "protocol": protocol_checksum(protocol),
        }
    hasher = method.build(n_bits=n_bits, seed=seed)
    return fit_fingerprint(
        configuration={"fields": hasher.configuration(), "candidates": list(method.candidates)},
        hasher=type(hasher).__module__,
        supervision=method.fit_args,
        data=data,
        protocol=protocol,
    )


def _add_run(
    method: Method,
    data: Dataset,
    store: RunStore,
    n_bits: int,
    seed: int,
    protocol: Protocol,
    name: str,
    current: Mapping[str, str],
) -> str | None:
    """Run a method and store the run; if the protocol leaves it out, store and return why."""
    stored = store.facts(name)
    if stored.get("fingerprint") == current:
        return str(stored["left_out"])
    try:
        store.add(_run(method, data, store, n_bits, seed, protocol, name, current))
    except NoPosteriorsError as error:
        store.add_facts(name, {"left_out": str(error), "fingerprint": current})
        return str(error)
    return None


def _run(
    method: Method,
    data: Dataset,
    store: RunStore,
    n_bits: int,
    seed: int,
    protocol: Protocol,
    name: str,
    current: Mapping[str, str],
) -> StoredRun:
    began = time.perf_counter()
    cpu_began = time.process_time()
    values: Values = {}
    if method.build is None:
        assert method.baseline is not None  # noqa: S101 - checked by fingerprint
        evaluation, values = method.baseline(data, seed)
        settings = {"method": method.key, "fields": {"seed": seed}}
    else:
        model = _fit(method, data, store, n_bits, seed, name)
        first = replace(protocol, measures=protocol.measures[:1])
        evaluation = evaluate(model, data, first)
        settings = json.loads(json.dumps(dict(model.card)))
    truth = _truth(data, evaluation, protocol)
    codes = {f"query.{m}": own for m, own in evaluation.queries.items()}
    codes |= {f"base.{m}": own for m, own in evaluation.base.items()}
    measure = protocol.measures[0]
    if not isinstance(measure, AveragePrecision):
        raise ValueError(f"protocol {protocol.name!r}: the first measure is no average precision")
    return StoredRun(
        name=name,
        fingerprint=current,
        truth=truth,
        truth_name=checksum([current["data"], current["protocol"], sorted(truth.rows)]),
        at=measure.at,
        settings=settings,
        scores=run_scores(evaluation),
        codes=codes,
        values=values,
        facts={
            "environment": environment(),
            "seconds": round(time.perf_counter() - began, 2),
            "cpu_seconds": round(time.process_time() - cpu_began, 2),
            "peak_gib": peak_memory(),
        },
    )


def _fit(method: Method, data: Dataset, store: RunStore, n_bits: int, seed: int, name: str) -> Any:  # noqa: ANN401 - a HashModel
    train = data.part("train")
    chosen: Mapping[str, Any] = {}
    if method.candidates:
        search = name.rpartition("-")[0]
        chosen = search_settings(method, train, store, n_bits, search)[0].fields
    assert method.build is not None  # noqa: S101 - checked by the caller
    return method.build(n_bits=n_bits, seed=seed, **chosen).fit(**method.fit_args(train, seed))


def _truth(data: Dataset, evaluation: Evaluation, protocol: Protocol) -> Truth:
    """Rows and labels of queries and base, of every modality that was searched."""
    names = sorted({name for direction in evaluation.reports for name in direction})
    labels = data.labels_by_modality()
    rows = {
        f"{side}.{name}": split_rows(data, split, name)
        for side, split in (("query", protocol.queries), ("base", protocol.base))
        for name in names
    }
    own = {key: np.asarray(labels[key.partition(".")[2]])[numbers] for key, numbers in rows.items()}
    return Truth(rows, own, protocol.include_self)


def search_settings(
    method: Method, train: Dataset, store: RunStore, n_bits: int, name: str | None = None
) -> list[Trial]:
    """Cross-validate the candidates of a method, or reuse an equal search; best first."""
    if method.build is None:
        raise ValueError(f"method {method.key!r} has no build, so no settings to search")
    name = name or f"{method.key}-{n_bits}"
    hasher = method.build(n_bits=n_bits, seed=0)
    current = fit_fingerprint(
        configuration={"fields": hasher.configuration(), "candidates": list(method.candidates)},
        hasher=type(hasher).__module__,
        supervision=method.fit_args,
        data=data_checksum(train),
        protocol=Protocol(name="cross-validation"),
    )
    if store.fingerprint(name, "search") != current:
        trials = compare(
            partial(method.build, n_bits=n_bits),
            method.candidates,
            train,
            supervise=method.fit_args,
        )
        rows = [{"fields": dict(trial.fields), "scores": list(trial.scores)} for trial in trials]
        store.add_search(name, current, rows)
    return stored_trials(store, name)


def stored_trials(store: RunStore, name: str) -> list[Trial]:
    """Trials of a stored search, best first; empty if there is none."""
    return [Trial(trial["fields"], tuple(trial["scores"])) for trial in store.search(name) or ()]


def stored_runs(store: RunStore, method: Method, n_bits: int, prefix: str = "") -> list[StoredRun]:
    """Runs of a method with the seeds 0, 1, … as far as they are stored."""
    runs: list[StoredRun] = []
    while (name := run_name(method, n_bits, len(runs), prefix)) in store:
        runs.append(store[name])
    return runs


def query_values(
    runs: Sequence[StoredRun], directions: Sequence[str], n_bits: int | None = None
) -> Floats:
    """Average precision in percent, shape (seeds, rows), the mean of the directions."""
    return np.array(
        [
            np.mean([run.per_query(direction, n_bits) for direction in directions], axis=0)
            for run in runs
        ]
    )


def compare_methods(
    store: RunStore,
    first: Method,
    second: Method,
    directions: Sequence[str],
    *,
    n_bits: int,
    prefix: str = "",
) -> Difference | None:
    """Paired difference of two methods over the seeds that both have; None without any."""
    runs = [stored_runs(store, method, n_bits, prefix) for method in (first, second)]
    seeds = min(map(len, runs))
    if not seeds:
        return None
    return paired_difference(*(query_values(own[:seeds], directions) for own in runs))


def method_rows(
    store: RunStore,
    methods: Sequence[Method],
    directions: Sequence[str],
    *,
    n_bits: int,
    prefix: str = "",
    truncate: int | None = None,
    title: str = "{}",
) -> list[dict[str, Any]]:
    """Rows of a results table for the methods that have runs, in percent, from their codes.

    Args:
        store: The runs.
        methods: The methods.
        directions: Directions; ``"average"`` is their mean if a method has all of them.
        n_bits: Length of the codes.
        prefix: Begins the names of the runs.
        truncate: Use only the first bits of the codes.
        title: Title with ``{}`` for that of the method.
    """
    rows = []
    for method in methods:
        runs = stored_runs(store, method, n_bits, prefix)
        if runs:
            row = _method_row(method, runs, directions, truncate)
            rows.append(row | {"title": title.format(method.title)})
    return rows


def _method_row(
    method: Method, runs: Sequence[StoredRun], directions: Sequence[str], truncate: int | None
) -> dict[str, Any]:
    measured = [direction for direction in directions if direction in runs[0].scores]
    values = {d: query_values(runs, [d], truncate) for d in measured}
    if len(measured) == len(directions) and len({own.shape for own in values.values()}) == 1:
        values["average"] = np.mean(list(values.values()), axis=0)
    bits = runs[0].n_bits if truncate is None else truncate
    row = {
        "key": method.key,
        "bits": bits,
        "seeds": len(runs),
        "mean": {d: float(np.nanmean(own)) for d, own in values.items()},
        "deviation": {d: standard_deviation(np.nanmean(own, axis=1)) for d, own in values.items()},
        "interval": {d: query_interval(own) for d, own in values.items()},
        "paper": method.paper,
        "bytes": method.bytes_per_item or -(-(bits or 8) // 8),
        "seconds": float(np.mean([run.facts["cpu_seconds"] for run in runs])),
    }
    if truncate is None:
        row |= {
            field: float(np.mean([run.mean_score(measured, field) for run in runs]))
            for field in ("worst", "best", "chance")
        }
    return row
