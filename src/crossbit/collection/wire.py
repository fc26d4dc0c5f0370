"""Statistics of a collection, read from JSON."""

from dataclasses import fields
from typing import Any, TypeAlias

import numpy as np

from crossbit.collection.types import Stats
from crossbit.metrics.health import CodeHealth

Json: TypeAlias = dict[str, Any]
"""A JSON object."""

_STATS_FIELDS = tuple(field.name for field in fields(Stats) if field.name != "health")


def stats_from_json(content: Json) -> Stats:
    """Return the statistics that `Stats.to_dict` has described."""
    health = {name: _health_from_json(value) for name, value in content["health"].items()}
    known = {name: content[name] for name in _STATS_FIELDS if name in content}
    return Stats(**(known | {"fields": tuple(content["fields"])}), health=health)


def _health_from_json(content: Json) -> CodeHealth:
    arrays = {
        "bit_entropy": np.array(content["bit_entropy"]),
        "dead_bits": tuple(content["dead_bits"]),
        "duplicate_bits": tuple((i, j) for i, j in content["duplicate_bits"]),
    }
    return CodeHealth(**(content | arrays))
