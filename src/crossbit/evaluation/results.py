"""Result files: settings, protocol, measures with definitions, environment, timings and codes."""

import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._io.files import ArrayFile, check_version, make_folders, read_json, write_json
from crossbit.errors import DataError
from crossbit.evaluation.evaluate import Evaluation
from crossbit.evaluation.stages import Stage

FORMAT = "crossbit.result/1"
CODES_FORMAT = "crossbit.result-codes/1"
CODES_SUFFIX = ".codes"


def format_direction(direction: str | tuple[str, str]) -> str:
    """Return a direction for tables and figures.

    Args:
        direction: Two modalities, or their names joined by a hyphen as in result files.

    Example:
        >>> format_direction("image-text"), format_direction(("text", "image"))
        ('image → text', 'text → image')
    """
    # Names of modalities have no hyphen, so the first one separates them.
    left, right = direction.split("-", 1) if isinstance(direction, str) else direction
    return f"{left} → {right}"


def result_path(
    folder: Path, experiment: str, *, dataset: str, card: Mapping[str, Any], n_bits: int
) -> Path:
    """Return ``<folder>/<experiment>/<dataset>-<method>-<bits>-<seed>.json``."""
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
    stages: Sequence[Stage] = (),
) -> None:
    """Write a result file and, next to it, the codes with their rows.

    With the codes any measure can be computed later. Quality after each stage, if it was measured,
    is in the field ``stages``.
    """
    if path.suffix == CODES_SUFFIX:
        raise DataError(
            f"{path}: the suffix {CODES_SUFFIX} is reserved for the codes; name the result .json"
        )
    make_folders(path.parent)
    codes = path.with_name(path.name + CODES_SUFFIX)
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
    if stages:
        result["stages"] = [stage.to_dict() for stage in stages]
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
    ArrayFile.write(path, CODES_FORMAT, {"n_bits": n_bits}, arrays)


def read_result(path: Path) -> dict[str, Any]:
    """Read a result file.

    Raises:
        FormatError: The file is truncated or has another format version.
    """
    result = read_json(path)
    check_version(path, result.get("format") if isinstance(result, dict) else None, FORMAT)
    return dict(result)


def environment() -> dict[str, str]:
    """Return what a number may depend on: versions, processor and number of cores."""
    return {
        "crossbit": version("crossbit"),
        "numpy": np.__version__,
        "torch": _version("torch"),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": str(os.cpu_count()),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _processor() -> str:
    """Name of the processor: matrix libraries pick their code by it, and so their last digits."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def peak_memory() -> float | None:
    """Return the peak memory of this process in GiB; None where the system does not report it."""
    try:
        import resource
    except ImportError:  # pragma: no cover - not on Windows
        return None
    unit = 1 if sys.platform == "darwin" else 2**10  # macOS counts bytes, others KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30
