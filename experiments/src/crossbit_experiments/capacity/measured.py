"""What one machine was measured to do, as ``benchmarks/shards.py`` records it: the ground that plans stand on."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crossbit._io.files import check_version, read_json
from crossbit._validation import known
from crossbit.errors import DataError, FormatError

FORMAT = "crossbit.shards/1"
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Measured:
    """Measurements of shards of several sizes.

    Args:
        rows: One mapping a measurement: those of a ``shard`` have the size ``n``, the kind of ``codes``, and the
            ``microseconds`` of each of some queries; one each tells how fast rows are encoded and items stored.
    """

    rows: list[Mapping[str, Any]]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read measurements; a file of another kind or version is a `FormatError`."""
        found = read_json(path)
        check_version(path, found.get("format") if isinstance(found, dict) else None, FORMAT)
        made = cls(found.get("rows", []))
        if not made.sizes:
            raise FormatError(f"{path}: holds no measurement of a shard")
        return made

    @cached_property
    def sizes(self) -> list[int]:
        """The sizes of shards that were measured, ascending."""
        return sorted({row["n"] for row in self.rows if row["what"] == "shard"})

    def fact(self, what: str, name: str) -> float:
        """One figure of the one measurement of its kind, such as ``fact("encode", "rows_a_second")``."""
        for row in self.rows:
            if row["what"] == what and name in row:
                return float(row[name])
        raise DataError(f"nothing was measured of {what!r}, {name!r}")

    def latencies(self, kind: str, n: int) -> Floats:
        """Seconds of a query in a shard, shape (queries, shards): a row is one query, asked of each shard."""
        shards = [
            row
            for row in self.rows
            if row["what"] == "shard" and row["codes"] == kind and row["n"] == n
        ]
        if not shards:
            kinds = sorted({row["codes"] for row in self.rows if row["what"] == "shard"})
            raise DataError(
                f"no shards of {n} {known(kind, kinds, 'kind of codes')} codes were measured"
            )
        return 1e-6 * np.array([row["microseconds"] for row in shards], np.float64).T

    def seconds(self, kind: str, n: float) -> float:
        """Mean CPU time of a query in a shard of ``n`` codes: a straight line between measurements, on log scales."""
        means = [self.latencies(kind, size).mean() for size in self.sizes]
        return _along(self.sizes, means, n)

    def bytes_a_code(self, n: float) -> float:
        """Memory of a code in a shard of ``n``, tables included."""
        of = {row["n"]: float(row["bytes_a_code"]) for row in self.rows if row["what"] == "shard"}
        return _along(self.sizes, [of[size] for size in self.sizes], n)

    def build_seconds(self, n: float) -> float:
        """CPU time of adding ``n`` codes to an empty shard and building its tables."""
        of = {
            row["n"]: row["add_seconds"] + row["optimize_seconds"]
            for row in self.rows
            if row["what"] == "shard" and row["codes"] == "random"
        }
        return _along(self.sizes, [max(of[size], 1e-3) for size in self.sizes], n)


def _along(x: list[int], y: list[float], at: float) -> float:
    """A line through points on log scales, the last piece carried on beyond them."""
    if at in x or len(x) == 1:
        return float(y[x.index(int(at)) if at in x else 0])
    logx, logy = np.log(x), np.log(y)
    piece = int(np.clip(np.searchsorted(logx, np.log(at)) - 1, 0, len(x) - 2))
    slope = (logy[piece + 1] - logy[piece]) / (logx[piece + 1] - logx[piece])
    return float(np.exp(logy[piece] + slope * (np.log(at) - logx[piece])))
