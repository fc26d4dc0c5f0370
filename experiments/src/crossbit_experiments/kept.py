"""Codes that a result file keeps beside it: any metric can be computed again from them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from crossbit._io.files import read_arrays
from crossbit.codes import Codes
from crossbit.data import Dataset
from crossbit.evaluation.evaluate import own_places
from crossbit.evaluation.results import CODES, SUFFIX
from crossbit.metrics import Exclude, Ranking, from_labels, rank_codes


@dataclass(frozen=True)
class Kept:
    """The codes of a run.

    Attributes:
        n_bits: Their length.
        arrays: Words of codes (``query.image``) and the rows they belong to (``query_rows.image``).
    """

    n_bits: int
    arrays: dict[str, NDArray[Any]]

    @classmethod
    def of(cls, result: Path) -> "Kept":
        """The codes beside a result file."""
        file = read_arrays(result.with_name(result.name + SUFFIX), CODES)
        return cls(int(file.meta["n_bits"]), file.arrays)

    def ranking(
        self, way: str, data: Dataset, *, n_bits: int | None = None, own_row: bool = True
    ) -> Ranking:
        """Base codes ranked by their distance to the queries.

        Args:
            way: Such as ``"image-text"``.
            data: Says of what class rows are.
            n_bits: Only the first so many bits.
            own_row: Whether the query's own row counts across modalities; within one it never does.
        """
        left, right = way.split("-")
        asked, base = self._codes("query", left, n_bits), self._codes("base", right, n_bits)
        rows = self.arrays[f"query_rows.{left}"], self.arrays[f"base_rows.{right}"]
        labels = data.labels_by_modality()
        exclude: Exclude = None if own_row and left != right else own_places(*rows)
        return rank_codes(
            asked, base, from_labels(labels[left][rows[0]], labels[right][rows[1]]), exclude=exclude
        )

    def _codes(self, side: str, name: str, n_bits: int | None) -> Codes:
        codes = Codes(self.arrays[f"{side}.{name}"], self.n_bits)
        return codes if n_bits is None else codes.first(n_bits)
