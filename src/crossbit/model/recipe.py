"""Recipe: how the rows of a modality were made from raw things."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Recipe:
    """Plain data that a describer of raw things (pictures, words, meshes) needs to describe a new one alike.

    Args:
        kind: Which describer, such as ``"tags"``.
        settings: Its settings, as JSON has them.
        arrays: Its vocabulary, centers and the like.
        files: Anything larger, such as an ONNX network, as bytes by file name.
    """

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        """Whether both would describe things alike."""
        if not isinstance(other, Recipe):
            return NotImplemented
        return (
            (self.kind, dict(self.settings), dict(self.files))
            == (other.kind, dict(other.settings), dict(other.files))
            and self.arrays.keys() == other.arrays.keys()
            and all(
                np.array_equal(array, other.arrays[name]) for name, array in self.arrays.items()
            )
        )
