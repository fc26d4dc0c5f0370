"""Whose codes a collection holds: one row that every write looks at, and that an upgrade replaces."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from crossbit.collection.milvus.schema import OF_STATE, STATE
from crossbit.errors import FormatError
from crossbit.model import HashModel

FORMAT = "crossbit.milvus/1"


@dataclass(frozen=True)
class State:
    """The state of a collection.

    Args:
        fingerprint: Fingerprint of the model that made the codes.
        n_bits: Length of a code.
        modalities: The number of each modality, by which its rows are told from others.
        index: How codes are searched: ``"flat"`` or ``"ivf"``.
        nlist: Into how many clusters ``"ivf"`` parts them.
    """

    fingerprint: str
    n_bits: int
    modalities: Mapping[str, int]
    index: str = "flat"
    nlist: int = 0

    @classmethod
    def of(cls, model: HashModel, first: int, *, index: str, nlist: int) -> Self:
        """The state of a collection under a model, its modalities numbered from ``first``."""
        numbers = {name: first + i for i, name in enumerate(model.modalities)}
        return cls(model.fingerprint(), model.n_bits, numbers, index, nlist)

    @property
    def names(self) -> dict[int, str]:
        """The modality of each number."""
        return {number: name for name, number in self.modalities.items()}

    @property
    def width(self) -> int:
        """Bytes of a code."""
        return -(-self.n_bits // 8)

    @property
    def filter(self) -> str:
        """Rows that belong to this state: of its modalities, or of items without any."""
        return f"modality in {[-1, *self.modalities.values()]}"

    def row(self) -> dict[str, Any]:
        """The row that keeps it."""
        told = {"format": FORMAT, **asdict(self)}
        return {
            "key": STATE,
            "modality": OF_STATE,
            "first": False,
            "payload": told,
            "code": bytes(self.width),
        }

    @classmethod
    def from_row(cls, place: object, row: Mapping[str, Any]) -> Self:
        """Read the row."""
        told = dict(row["payload"])
        if (found := told.pop("format", None)) != FORMAT:
            raise FormatError(
                f"{place}: format {found!r}, expected {FORMAT!r}; upgrade crossbit, or copy the collection"
            )
        return cls(**told)
