"""Recipe: how the rows of a modality are extracted from raw inputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Recipe:
    """Plain data from which an extractor of raw inputs (images, text, meshes) is restored.

    Args:
        kind: Kind of extractor, such as ``"tags"``.
        settings: Its settings, as JSON values.
        arrays: Its vocabulary, centers and similar arrays.
        files: Larger data such as an ONNX network, file name → bytes.
    """

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        """Whether both restore the same extractor."""
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
