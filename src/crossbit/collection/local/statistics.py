"""Statistics of a folder: sizes, health of the codes, and drift of the recent ones."""

import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from crossbit.codes import Codes
from crossbit.collection.local.index_cache import IndexView
from crossbit.collection.local.schema import MODEL, DbState
from crossbit.collection.values import Stats
from crossbit.index.hamming import HammingIndex
from crossbit.metrics.drift import Drift, code_drift
from crossbit.metrics.health import CodeHealth, code_health

_HEALTH_SAMPLE = 1 << 16  # codes
_DRIFT_RECENT = 1000  # codes of which none is left out


def compute_stats(folder: Path, state: DbState, view: IndexView) -> Stats:
    """Return the statistics of a store."""
    indexes = {modality: view.index(modality) for modality in state.codes}
    return Stats(
        items=state.items,
        modalities={modality: len(index) for modality, index in indexes.items()},
        n_bits=state.n_bits,
        nbytes=_size(folder),
        model_nbytes=_size(folder / MODEL),
        fields=tuple(state.fields),
        features=state.feature_type,
        generation=state.generation,
        model=state.fingerprint,
        health={modality: _health(index) for modality, index in indexes.items() if len(index)},
        keep=state.keep,
        drift=_drift(indexes),
    )


def _size(folder: Path) -> int:
    """Return the size of all files in bytes; files that others delete meanwhile do not count."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            status = path.stat()
            total += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return total


def _latest(index: HammingIndex) -> Codes:
    """Return codes in order of arrival: an evenly spaced sample, and the latest of them all."""
    ids = index.ids()
    earlier = ids[: -_DRIFT_RECENT or None]
    sample = earlier[:: -(-len(earlier) // _HEALTH_SAMPLE) or 1]
    return index.get(np.concatenate([sample, ids[len(earlier) :]]))


def _health(index: HammingIndex) -> CodeHealth:
    """Return the health of all codes, or of an evenly spaced sample."""
    ids = index.ids()
    return code_health(index.get(ids[:: -(-len(ids) // _HEALTH_SAMPLE)]))


def _drift(indexes: Mapping[str, HammingIndex]) -> dict[str, Drift]:
    """Compare recent codes with earlier ones; row numbers are in order of arrival."""
    drifts = {
        name: code_drift(_latest(index), tests=len(indexes)) for name, index in indexes.items()
    }
    return {name: drift for name, drift in drifts.items() if drift is not None}
