"""The summary of an experiment: one small file from which tables and figures are made."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crossbit._io.files import check_version, read_json, write_json
from crossbit.evaluation.results import environment
from crossbit.tune import Trial

SUMMARY_FILE = "summary.json"
_FORMAT = "crossbit.summary/1"


def write_summary(folder: Path, experiment: str, **parts: Any) -> Path:  # noqa: ANN401 - plain JSON
    """Write the summary of an experiment."""
    path = folder / SUMMARY_FILE
    folder.mkdir(parents=True, exist_ok=True)
    header = {"format": _FORMAT, "experiment": experiment, "environment": environment()}
    write_json(path, rounded(parts) | header)
    return path


def read_summary(path: Path) -> dict[str, Any]:
    """Read a summary; a file of another kind or version raises `FormatError`."""
    content = read_json(path)
    check_version(path, content.get("format") if isinstance(content, dict) else None, _FORMAT)
    return dict(content)


def search_rows(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Plain values of a cross-validation, the best candidate first."""
    return [
        {"fields": dict(trial.fields), "mean": trial.mean, "error": trial.error} for trial in trials
    ]


def rounded(value: Any) -> Any:  # noqa: ANN401 - plain JSON
    """Round to four places: enough for any table, and small differences of machines do not show."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list | tuple) else value
