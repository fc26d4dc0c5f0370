"""The outcome of a search as a file that ``crossbit fit --config`` takes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crossbit._io.files import replacing
from crossbit.tune.searching import Found

BEST = "best.toml"


def write_best(found: Found, folder: Path) -> Path:
    """Write the best setting as ``best.toml``, with what it scored as a remark.

    Example:
        >>> import tempfile
        >>> from crossbit.data import synthetic
        >>> from crossbit.tune import search
        >>> found = search("ccaitq", synthetic(n=60, classes=3), n_bits=8, trials=2)
        >>> "n_bits = 8" in write_best(found, Path(tempfile.mkdtemp())).read_text()
        True
    """
    best, name = found.best, found.method.name()
    remark = (
        f"# {name}: {best.mean:.2f} ± {best.error:.2f} % mAP in {found.folds} folds, the best of {len(found.trials)};\n"
        f"# as it comes {found.trials[0].mean:.2f}. A best that was chosen is optimistic.\n"
        f"# crossbit fit DATASET --method {name} --config {BEST} --out MODEL\n"
    )
    path = folder / BEST
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write((remark + to_toml(found.fields)).encode())
    return path


def to_toml(fields: Mapping[str, Any]) -> str:
    """Fields of a method as TOML; one that is None is left out, which means the same.

    Example:
        >>> print(to_toml({"n_bits": 32, "hidden": [64], "margin": {"image-text": "75%"}}), end="")
        n_bits = 32
        hidden = [64]
        margin = { "image-text" = "75%" }
    """
    return "".join(
        f"{name} = {_value(value)}\n" for name, value in fields.items() if value is not None
    )


def _value(value: Any) -> str:  # noqa: ANN401 - any plain value
    """Numbers, truths and text are spelled as in JSON."""
    if isinstance(value, Mapping):
        return (
            "{ "
            + ", ".join(f"{json.dumps(str(key))} = {_value(item)}" for key, item in value.items())
            + " }"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
