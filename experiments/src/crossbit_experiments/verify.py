"""Recompute everything that the documentation shows, from the codes in the results."""

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crossbit._progress import OnStep, StepCounter
from crossbit.errors import DataError
from crossbit.hashers import HASHERS
from crossbit_experiments.docs import EXPERIMENTS, fill
from crossbit_experiments.fingerprint import code_version
from crossbit_experiments.runs import RUNS_FILE, RunStore, StoredRun
from crossbit_experiments.summary import SUMMARY_FILE, read_summary, rounded

_TOLERANCE = 1e-6  # of scores as fractions: values per query are stored with 32 bits
_HEADER = ("format", "experiment", "environment")
_MARK = "<!-- from results: "


@dataclass
class Verification:
    """What was recomputed.

    Attributes:
        runs: Number of runs.
        scores: Number of scores computed from codes.
        tables: Number of tables made from summaries.
        problems: One line for every difference.
        notes: One line for every method and file whose runs other code than today's made. Their
            scores are right for their codes, but training today may give other codes.
        other_code: Number of such runs.
        without_codes: Number of runs of which only the scores are kept.
    """

    runs: int = 0
    scores: int = 0
    tables: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    other_code: int = 0
    without_codes: int = 0


def verify_results(results: Path, docs: Path, *, on_step: OnStep | None = None) -> Verification:
    """Recompute scores from codes, summaries from runs, and tables from summaries.

    Args:
        results: Folder of the results, one folder per experiment.
        docs: Folder of the pages.
        on_step: Progress callback, called after every run.

    Raises:
        DataError: There are no results.
    """
    folders = sorted(path.parent for path in results.glob(f"*/{SUMMARY_FILE}"))
    if not folders:
        raise DataError(f"{results}: no results; expected <experiment>/{SUMMARY_FILE}")
    report = Verification()
    # The leaderboard has a folder of runs for each data set.
    found = sorted(path.parent for path in results.rglob(RUNS_FILE))
    stores = {str(path.relative_to(results)): RunStore(path) for path in found}
    step = StepCounter(on_step, sum(len(store.names()) for store in stores.values()))
    for store in stores.values():
        other: Counter[str] = Counter()
        for run in store:
            _verify_run(f"{store.path}: {run.name}", run, report)
            if made_by_other_code(run):
                other[run.settings["method"]] += 1
            step()
        report.other_code += other.total()
        report.notes += [
            f"{store.path}: {n} runs of {method} were made by other code than today's"
            for method, n in other.items()
        ]
    summaries = {path.name: read_summary(path / SUMMARY_FILE) for path in folders}
    for name, summary in summaries.items():
        _verify_summary(results / name, stores.get(name), summary, report)
    for page in sorted(docs.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        report.tables += len(re.findall(re.escape(_MARK), text))
        if fill(text, summaries) != text:
            report.problems.append(f"{page}: a table is not that of the results")
    return report


def made_by_other_code(run: StoredRun) -> bool:
    """Whether the code of the run's method differs from that in its fingerprint.

    This needs no data. It is False for runs that do not hash, whose fingerprint has no such code,
    and does not see changes of supervision or cross-validation.
    """
    method = run.settings.get("method")
    if "code" not in run.fingerprint or method not in HASHERS:
        return False
    return code_version(HASHERS[method].__module__) != run.fingerprint["code"]


def _verify_run(name: str, run: StoredRun, report: Verification) -> None:
    report.runs += 1
    report.without_codes += not run.codes and not run.values
    for direction, scores in run.recomputed().items():
        for field_, value in scores.items():
            report.scores += 1
            stored = run.scores[direction][field_]
            if not math.isclose(value, stored, abs_tol=_TOLERANCE):
                report.problems.append(
                    f"{name}: {direction} {field_} is {stored:.6f}, its codes give {value:.6f}"
                )


def _verify_summary(
    folder: Path, store: RunStore | None, summary: dict[str, Any], report: Verification
) -> None:
    experiment = EXPERIMENTS.get(folder.name)
    if experiment is None:
        report.problems.append(f"{folder}: no such experiment; known: {sorted(EXPERIMENTS)}")
        return
    if experiment.collect is None:
        return
    if store is None and not list(folder.glob(f"*/{RUNS_FILE}")):
        report.problems.append(f"{folder}: a summary without {RUNS_FILE}")
        return
    recomputed = rounded(experiment.collect(store or RunStore(folder)))
    shown = {key: value for key, value in summary.items() if key not in _HEADER}
    for path in _differences(shown, recomputed, ""):
        report.problems.append(f"{folder / SUMMARY_FILE}: {path}")


def _differences(stored: Any, computed: Any, path: str) -> list[str]:  # noqa: ANN401 - plain JSON
    """Places at which two plain values differ by more than rounding."""
    if isinstance(stored, dict) and isinstance(computed, dict):
        keys = sorted(stored.keys() | computed.keys(), key=str)
        return [
            line
            for key in keys
            for line in _differences(stored.get(key), computed.get(key), f"{path}/{key}")
        ]
    if isinstance(stored, list | tuple) and isinstance(computed, list | tuple):
        if len(stored) != len(computed):
            return [f"{path} has {len(stored)} entries, the runs give {len(computed)}"]
        return [
            line
            for number, (a, b) in enumerate(zip(stored, computed, strict=True))
            for line in _differences(a, b, f"{path}/{number}")
        ]
    if isinstance(stored, int | float) and isinstance(computed, int | float):
        return (
            []
            if math.isclose(stored, computed, abs_tol=2e-4)
            else [f"{path} is {stored}, the runs give {computed}"]
        )
    return [] if stored == computed else [f"{path} is {stored!r}, the runs give {computed!r}"]
