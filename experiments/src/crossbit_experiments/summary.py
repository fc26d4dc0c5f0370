"""A summary of an experiment: the one small file that pages and plots are made from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crossbit._io.files import check_version, read_json, write_json
from crossbit.evaluation.results import environment
from crossbit.tune import Trial
from crossbit_experiments.methods import Summary

FORMAT = "crossbit.summary/1"
NAME = "summary.json"


def write_summary(folder: Path, experiment: str, **parts: Any) -> Path:  # noqa: ANN401 - plain JSON
    """Write some parts of a summary; those that are there already and not given stay as they are."""
    path = folder / NAME
    before = read_summary(path) if path.exists() else {}
    folder.mkdir(parents=True, exist_ok=True)
    write_json(
        path,
        before
        | _rounded(parts)
        | {"format": FORMAT, "experiment": experiment, "environment": environment()},
    )
    return path


def read_summary(path: Path) -> dict[str, Any]:
    """Read a summary; a file of another kind or version is a `FormatError`."""
    found = read_json(path)
    check_version(path, found.get("format") if isinstance(found, dict) else None, FORMAT)
    return dict(found)


def as_row(one: Summary) -> dict[str, Any]:
    """A row of a table, as plain values."""
    return {
        "key": one.row.key,
        "title": one.row.title,
        "bits": one.n_bits if one.row.make is not None else None,
        "seeds": one.seeds,
        "mean": one.mean,
        "deviation": one.deviation,
        "paper": one.row.paper,
        "worst": one.worst,
        "best": one.best,
        "chance": one.chance,
        "bytes": one.bytes_an_item,
        "seconds": one.seconds,
    }


def as_search(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """What cross-validation said of the candidates, the best first."""
    return [
        {"fields": dict(trial.fields), "mean": trial.mean, "error": trial.error} for trial in trials
    ]


def _rounded(value: Any) -> Any:  # noqa: ANN401 - plain JSON
    """Numbers to four places: enough for any table, and small differences of machines do not show."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value
