"""A table of methods: each row run for several seeds, kept in result files, summed up beside what a paper prints."""

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
from crossbit.evaluation.evaluate import Evaluation, evaluate_model
from crossbit.evaluation.protocol import Protocol
from crossbit.evaluation.results import read_result, write_result
from crossbit.hashers import Hasher
from crossbit.tune import Supervise, Trial, by_labels, compare
from crossbit_experiments.seed_stats import deviation, percent

SEARCH = "crossbit.search/1"

Make = Callable[..., Hasher]
"""Fields, ``n_bits`` and ``seed`` among them → a method."""

Reference = Callable[[Dataset, int], Evaluation]
"""The data set, whole, and a seed → what a method without codes achieves."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a table.

    Attributes:
        key: Names its result files.
        title: How the table calls it.
        make: Makes the method, where it hashes.
        candidates: Settings of which one is chosen by cross-validation on the training rows, before any other run.
        supervise: What the method is told of its training rows.
        reference: Runs it, where it does not.
        paper: Direction → the value that the paper prints, in percent.
        bytes_an_item: Where it does not hash.
        note: What is particular about it.
    """

    key: str
    title: str
    make: Make | None = None
    candidates: Sequence[Mapping[str, Any]] = ()
    supervise: Supervise = by_labels
    reference: Reference | None = None
    paper: dict[str, float] = field(default_factory=dict)
    bytes_an_item: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Summary:
    """A row's numbers over its seeds, in percent.

    Attributes:
        row: The row.
        n_bits: Length of the codes.
        seeds: How many seeds were run.
        mean: Direction → mean mAP, for those it was measured in; ``"average"`` is their mean where it is all of them.
        deviation: Direction → standard deviation over the seeds.
        worst: The average with every tie in the least favorable order.
        best: The average with every tie in the most favorable order.
        chance: The average for a ranking at random.
        seconds: Mean time of learning and measuring.
    """

    row: Row
    n_bits: int
    seeds: int
    mean: dict[str, float]
    deviation: dict[str, float]
    worst: float
    best: float
    chance: float
    seconds: float

    @property
    def bytes_an_item(self) -> int:
        """What an item takes in memory."""
        return self.row.bytes_an_item or -(-self.n_bits // 8)


def result_file(folder: Path, row: Row, n_bits: int, seed: int) -> Path:
    """Where the result of one run of a row is kept."""
    return folder / f"{row.key}-{n_bits}-{seed}.json"


def run_rows(
    rows: Sequence[Row],
    data: Dataset,
    folder: Path,
    *,
    n_bits: int,
    seeds: Iterable[int],
    protocol: Protocol | None = None,
    on_step: OnStep | None = None,
) -> None:
    """Run every row for every seed; what is there already is not run again, so that an interrupted table goes on."""
    todo = [
        (row, seed)
        for seed in seeds
        for row in rows
        if not result_file(folder, row, n_bits, seed).exists()
    ]
    for number, (row, seed) in enumerate(todo, start=1):
        began, cpu = time.perf_counter(), time.process_time()
        evaluation, card = _run(row, data, folder, n_bits, seed, protocol)
        took = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
        path = result_file(folder, row, n_bits, seed)
        write_result(path, evaluation, card=card, dataset=data.describe(), **took)
        if on_step is not None:
            on_step(Step(number, len(todo)))


def _run(
    row: Row, data: Dataset, folder: Path, n_bits: int, seed: int, protocol: Protocol | None
) -> tuple[Evaluation, dict[str, Any]]:
    if row.make is None:
        if row.reference is None:
            raise ValueError(f"row {row.key!r} neither makes a method nor refers to one")
        return row.reference(data, seed), {"method": row.key, "fields": {"seed": seed}}
    train = data.part("train")
    chosen = search(row, train, folder, n_bits)[0].fields if row.candidates else {}
    model = row.make(n_bits=n_bits, seed=seed, **chosen).fit(**row.supervise(train, seed))
    return evaluate_model(model, data, protocol), dict(model.card)


def search_file(folder: Path, row: Row, n_bits: int) -> Path:
    """Where the cross-validation of a row's candidates is kept."""
    return folder / "search" / f"{row.key}-{n_bits}.json"


def search(row: Row, train: Dataset, folder: Path, n_bits: int) -> list[Trial]:
    """Cross-validate a row's candidates, the best first; what is there already is read."""
    path = search_file(folder, row, n_bits)
    if not path.exists():
        if row.make is None:
            raise ValueError(f"row {row.key!r} makes no method to search the settings of")
        trials = compare(
            partial(row.make, n_bits=n_bits), row.candidates, train, supervise=row.supervise
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        told = [{"fields": dict(trial.fields), "scores": list(trial.scores)} for trial in trials]
        write_json(path, {"format": SEARCH, "rows": len(train), "trials": told})
    found = read_json(path)
    check_version(path, found.get("format") if isinstance(found, dict) else None, SEARCH)
    return [Trial(trial["fields"], tuple(trial["scores"])) for trial in found["trials"]]


def summarize(
    rows: Sequence[Row],
    folder: Path,
    directions: Sequence[str],
    *,
    n_bits: int,
    seeds: Sequence[int],
) -> list[Summary]:
    """Sum up the rows whose results are all there."""
    summaries = []
    for row in rows:
        paths = [result_file(folder, row, n_bits, seed) for seed in seeds]
        if all(path.exists() for path in paths):
            summaries.append(
                _summary(row, [read_result(path) for path in paths], directions, n_bits)
            )
    return summaries


def _summary(
    row: Row, results: list[dict[str, Any]], directions: Sequence[str], n_bits: int
) -> Summary:
    """Mean and deviation over seeds of each direction and of their average."""
    ways = [way for way in directions if way in results[0]["directions"]]

    def values(name: str) -> dict[str, Any]:
        by_way = {way: np.array([percent(result, way, name) for result in results]) for way in ways}
        return by_way | {"average": np.mean(list(by_way.values()), axis=0)}

    found = values("value")
    if len(ways) < len(directions):
        del found["average"]
    return Summary(
        row,
        n_bits,
        len(results),
        {way: float(each.mean()) for way, each in found.items()},
        {way: deviation(each) for way, each in found.items()},
        float(values("worst")["average"].mean()),
        float(values("best")["average"].mean()),
        float(values("chance")["average"].mean()),
        float(np.mean([result["seconds"] for result in results])),
    )
