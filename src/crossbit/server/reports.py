"""What the page tells about a model: how it is made, and how good it was when it was learned."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crossbit.model import HashModel

REPORT = "report.json"
"""The file beside a collection's items in which learning notes how good the model is."""

_MOST_BYTES = 4 << 20


def model_facts(model: HashModel, takes: Mapping[str, str | None]) -> dict[str, Any]:
    """Modalities, what each takes, its layers, and the card."""
    modalities = [
        {
            "name": name,
            "takes": takes[name],
            "width": model.width(name),
            "recipe": model.recipes[name].kind if name in model.recipes else None,
            "layers": [layer.kind for layer in model.encoders[name]],
        }
        for name in model.modalities
    ]
    return {"modalities": modalities, "n_bits": model.n_bits, "card": _plain(model.card)}


def read(place: Path | str) -> dict[str, Any]:
    """The report stored with a collection; empty where there is none that can be read."""
    path = Path(place) / REPORT
    try:
        if path.stat().st_size > _MOST_BYTES:
            return {}
        report = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return _plain(report) if isinstance(report, dict) else {}


def _plain(value: Any) -> Any:  # noqa: ANN401 - anything that a card holds
    """The same in JSON's types; what has none is spelled, and what is no number is nothing."""
    match value:
        case Mapping():
            return {str(key): _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case bool() | int() | str() | None:
            return value
        case float():
            return value if abs(value) < float("inf") else None
        case _:
            return str(value)
