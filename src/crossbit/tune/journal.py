"""The journal of a search: one JSON line per fold, so that an interruption costs one fold."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crossbit._io.files import check_version
from crossbit.errors import DataError, FormatError
from crossbit.tune.validation import Trial

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
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")
            self._append(header)

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
            file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a journal; an incomplete last line is cut off the file."""
    raw = path.read_bytes()
    complete = raw[: raw.rfind(b"\n") + 1]
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
