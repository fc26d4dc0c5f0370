"""The journal of a search: one JSON line a fold, so that an interruption costs at most the fold that was running."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crossbit._io.files import check_version
from crossbit.data import Dataset
from crossbit.errors import DataError, FormatError
from crossbit.tune.validation import Trial

FORMAT = "crossbit.tune/1"
NAME = "trials.jsonl"


class Journal:
    """Trials of one search, in a file or only in memory.

    The first line says of what search they are; each line after it is a trial as it stood after a fold.

    Args:
        path: The file; None keeps nothing.
        subject: What the search is of: method, space, data and so on, as plain JSON.

    Raises:
        DataError: The file is of another search; the message says what differs.
        FormatError: The file is damaged or of a version we do not know.
    """

    def __init__(self, path: Path | None, subject: Mapping[str, Any]) -> None:
        self.path = path
        self.trials: list[Trial] = []
        self.running: Trial | None = None
        if path is None:
            return
        header = {"format": FORMAT, **json.loads(json.dumps(subject))}
        lines = _whole_lines(path) if path.exists() else []
        if lines:
            check_version(path, lines[0].get("format"), FORMAT)
        if len(lines) > 1:
            _check_subject(path, lines[0], header)
            self._replay(lines[1:])
        else:  # one that failed before its first trial holds nothing to keep
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")
            self._append(header)

    def record(self, fields: Mapping[str, Any], scores: Sequence[float], *, ended: bool) -> None:
        """Note a trial after a fold."""
        self._take(Trial(dict(fields), tuple(scores)), ended=ended)
        self._append(
            {
                "trial": len(self.trials) - ended,
                "fields": dict(fields),
                "scores": list(scores),
                "ended": ended,
            }
        )

    def _take(self, trial: Trial, *, ended: bool) -> None:
        if ended:
            self.trials.append(trial)
        self.running = None if ended else trial

    def _replay(self, lines: Sequence[Mapping[str, Any]]) -> None:
        for number, line in enumerate(lines, start=2):
            try:
                self._take(
                    Trial(dict(line["fields"]), tuple(map(float, line["scores"]))),
                    ended=line["ended"],
                )
            except (KeyError, TypeError, ValueError) as error:
                raise FormatError(
                    f"{self.path}: line {number} is no trial; the file was altered"
                ) from error

    def _append(self, line: Mapping[str, Any]) -> None:
        if self.path is None:
            return
        with open(self.path, "ab") as file:
            file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a journal; a last one that was cut off while it was being written is taken away."""
    raw = path.read_bytes()
    whole = raw[: raw.rfind(b"\n") + 1]
    if whole != raw:
        os.truncate(path, len(whole))
    lines = []
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            lines.append(dict(json.loads(line)))
        except (ValueError, TypeError) as error:
            raise FormatError(
                f"{path}: line {number} is not a JSON object; the file was altered or damaged"
            ) from error
    return lines


def _check_subject(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to go on with a search of something else, saying what differs."""
    differing = [key for key in wanted if found.get(key) != wanted[key]]
    if differing:
        told = "; ".join(
            f"{key}: {_short(found.get(key))} there, {_short(wanted[key])} here"
            for key in differing
        )
        raise DataError(
            f"{path} is of another search ({told}); choose another folder, or the same settings as before"
        )


def _short(value: Any, most: int = 160) -> str:  # noqa: ANN401 - plain JSON
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else text[: most - 1] + "…"


def data_facts(data: Dataset) -> dict[str, Any]:
    """What tells one set of training rows from another: its sizes, and a checksum of views and labels."""
    digest = hashlib.sha256()
    for name, view in sorted(data.views.items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(view).data)
    digest.update(np.ascontiguousarray(data.labels).data)
    sizes = {name: list(view.shape) for name, view in sorted(data.views.items())}
    return {"views": sizes, "sha256": digest.hexdigest()[:16]}
