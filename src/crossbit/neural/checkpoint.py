"""Checkpoints: one file with all that training needs to go on where it was; whole or absent, never pickle."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._io.files import read_arrays, write_arrays
from crossbit.data import TrainingSet
from crossbit.errors import DataError

FORMAT = "crossbit.checkpoint/1"
Arrays = dict[str, NDArray[Any]]


class Checkpoint:
    """Progress of a training that consists of one run after the other, each known by its name.

    Args:
        path: The file; nothing: progress is not kept.
        fingerprint: Of settings and data. A file of another training is refused.
        seconds: Least time between two saves.
        writes: Whether this process is the one that writes the file; others of a shared training only read it, unless
            something goes wrong.
    """

    def __init__(
        self, path: Path | None, fingerprint: str, *, seconds: float = 10.0, writes: bool = True
    ) -> None:
        self.path, self.fingerprint, self.seconds = path, fingerprint, seconds
        self.writes = writes
        self._runs: dict[str, tuple[dict[str, Any], Arrays]] = {}
        self._saved = monotonic()
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        file = read_arrays(path, FORMAT)
        if file.meta["fingerprint"] != self.fingerprint:
            raise DataError(
                f"{path}: a checkpoint of another training (other settings or data); choose another path"
            )
        for number, (name, meta) in enumerate(file.meta["runs"].items()):
            prefix = f"{number}."
            mine = {
                key.removeprefix(prefix): a
                for key, a in file.arrays.items()
                if key.startswith(prefix)
            }
            self._runs[name] = (meta, {key: np.array(array) for key, array in mine.items()})

    def load(self, run: str) -> tuple[dict[str, Any], Arrays] | None:
        """What was kept of a run."""
        return self._runs.get(run)

    @property
    def due(self) -> bool:
        """Whether enough time has passed for another save."""
        return self.path is not None and self.writes and monotonic() - self._saved >= self.seconds

    def save(
        self, run: str, meta: Mapping[str, Any], arrays: Arrays, *, anyway: bool = False
    ) -> None:
        """Keep the progress of a run, beside that of the runs before it.

        Args:
            run: Its name.
            meta: Small facts.
            arrays: Everything else.
            anyway: Write the file even where that is another process's business, because it may be no more.
        """
        self._runs[run] = (dict(meta), arrays)
        if self.path is None or not (self.writes or anyway):
            return
        named = {
            f"{i}.{key}": a
            for i, (_, some) in enumerate(self._runs.values())
            for key, a in some.items()
        }
        runs = {name: meta for name, (meta, _) in self._runs.items()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_arrays(self.path, FORMAT, {"fingerprint": self.fingerprint, "runs": runs}, named)
        self._saved = monotonic()


def fingerprint(data: TrainingSet, configuration: Mapping[str, Any]) -> str:
    """Of settings and data, so that a checkpoint is not resumed with others; of every array some rows are looked at."""
    digest = hashlib.sha256(json.dumps(configuration, sort_keys=True, default=str).encode())
    arrays = [*data.views.items(), *data.labels.items()]
    arrays += [
        (key, a)
        for some in data.pairs
        for key, a in ((some.key, some.index), (some.key, some.similar))
    ]
    for name, array in arrays:
        digest.update(repr((name, array.shape, array.dtype.str)).encode())
        some = np.unique(np.linspace(0, max(0, len(array) - 1), 1000).astype(np.int64))
        digest.update(np.ascontiguousarray(array[some]).tobytes() if len(array) else b"")
    digest.update(repr((data.aligned, data.rows)).encode())
    return digest.hexdigest()
