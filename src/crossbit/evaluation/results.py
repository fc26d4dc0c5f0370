"""Result files: settings, numbers with their definitions, environment and timings; the codes beside them."""

import os
import platform
import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._io.files import check_version, read_json, write_arrays, write_json
from crossbit.errors import DataError
from crossbit.evaluation.evaluate import Evaluation

FORMAT = "crossbit.result/1"
CODES = "crossbit.result-codes/1"
SUFFIX = ".codes"


def result_path(
    folder: Path, experiment: str, *, dataset: str, card: Mapping[str, Any], n_bits: int
) -> Path:
    """Where a result lives: ``<folder>/<experiment>/<dataset>-<method>-<bits>-<seed>.json``."""
    seed = card.get("fields", {}).get("seed", 0)
    name = "-".join([dataset or "data", str(card.get("method", "model")), str(n_bits), str(seed)])
    return folder / experiment / (re.sub(r"[^\w.-]+", "_", name) + ".json")


def write_result(
    path: Path,
    evaluation: Evaluation,
    *,
    card: Mapping[str, Any],
    dataset: Mapping[str, Any],
    seconds: float,
    cpu_seconds: float | None = None,
) -> None:
    """Write a result, and beside it the codes and the rows they belong to, so that any metric can be recomputed."""
    if path.suffix == SUFFIX:
        raise DataError(
            f"{path}: the codes go beside the result under this ending; call the result .json"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    codes = path.with_name(path.name + SUFFIX)
    result = {
        "format": FORMAT,
        "model": dict(card),
        "dataset": {
            key: dataset[key] for key in ("name", "rows", "splits", "source") if key in dataset
        },
        "protocol": evaluation.protocol.to_dict(),
        "directions": {
            f"{left}-{right}": report.to_dict()
            for (left, right), report in evaluation.reports.items()
        },
        "health": {name: health.to_dict() for name, health in evaluation.health.items()},
        "environment": environment(),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_gib": peak_memory(),
    }
    if evaluation.queries:
        result["codes"] = codes.name
        _write_codes(codes, evaluation)
    write_json(path, result)


def _write_codes(path: Path, evaluation: Evaluation) -> None:
    arrays: dict[str, NDArray[Any]] = {
        f"query.{name}": codes.words for name, codes in evaluation.queries.items()
    }
    arrays |= {f"base.{name}": codes.words for name, codes in evaluation.base.items()}
    arrays |= {f"query_rows.{name}": rows for name, rows in evaluation.query_rows.items()}
    arrays |= {f"base_rows.{name}": rows for name, rows in evaluation.base_rows.items()}
    n_bits = next(iter(evaluation.queries.values())).n_bits
    write_arrays(path, CODES, {"n_bits": n_bits}, arrays)


def read_result(path: Path) -> dict[str, Any]:
    """Read a result file; a truncated one or one of another version is a `FormatError`."""
    result = read_json(path)
    check_version(path, result.get("format") if isinstance(result, dict) else None, FORMAT)
    return dict(result)


def environment() -> dict[str, str]:
    """What a number may depend on: versions, machine, cores."""
    return {
        "crossbit": version("crossbit"),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
    }


def peak_memory() -> float | None:
    """The most memory this process has had so far, in GiB; nothing where the system does not tell."""
    try:
        import resource
    except ImportError:  # pragma: no cover - not on Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
