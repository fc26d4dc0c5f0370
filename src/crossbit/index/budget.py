"""Budgets: searches that stop early and say what they have proven and what they probably found."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from crossbit.codes import Certificate, Matches
from crossbit.errors import DataError
from crossbit.kernels.search import FINISHED

_GAPS = 48  # gaps at which calibration stops its queries
_COMPLETE = 3  # gaps in a row at which every query finds everything: larger ones do, too


class _Limits(TypedDict, total=False):
    """Where a query stops: see `Search.certified`."""

    share: float
    nanoseconds: int
    gap: int


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much a search may spend per query; exactly one of the three.

    Args:
        seconds: Time, checked between two lists.
        share: Share of the codes to compare, in (0, 1].
        recall: Expected share of the exact results to find, in (0, 1]; needs
            `HammingIndex.calibrate`.
    """

    seconds: float | None = None
    share: float | None = None
    recall: float | None = None

    def __post_init__(self) -> None:
        """Reject anything but one positive number."""
        given = [value for value in (self.seconds, self.share, self.recall) if value is not None]
        if len(given) != 1:
            raise DataError(
                f"a budget is one of seconds, share and recall; {len(given)} of them are given"
            )
        if not given[0] > 0 or (self.seconds is None and given[0] > 1):
            allowed = "positive" if self.seconds is not None else "above 0 and at most 1"
            raise DataError(f"the budget must be {allowed}, got {given[0]}")

    def to_dict(self) -> dict[str, float]:
        """Return the given number under its name, ready for JSON."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def limits(self, calibration: "RecallCalibration | None") -> _Limits:
        """Return the limits of one query."""
        if self.seconds is not None:
            return {"nanoseconds": int(min(1e9 * self.seconds, 1e18))}
        if self.share is not None:
            return {"share": self.share}
        if calibration is None:
            raise DataError(
                "a budget by recall needs calibration: call index.calibrate with held-out queries"
                " of the modality that asks"
            )
        return {"gap": calibration.gap(float(self.recall or 1))}

    def certify(
        self,
        matches: Matches,
        radii: NDArray[np.int32],
        gaps: NDArray[np.int32],
        calibration: "RecallCalibration | None",
    ) -> Matches:
        """Return matches with their certificate, from the radius and the gap of each query."""
        last = matches.distances[:, -1]
        full = last >= 0
        exact = (gaps == FINISHED) | (full & (last <= radii))
        proven = np.where(full, np.minimum(radii, last), radii)
        proven = np.where(exact & full, last, proven).astype(np.int32)
        recall = np.full(len(gaps), np.nan)
        if calibration is not None:
            recall = calibration.recall(gaps, self.limits(calibration).get("gap"))
        recall[exact] = 1.0
        return Matches(matches.ids, matches.distances, Certificate(proven, exact, recall))


@dataclass(frozen=True)
class RecallCalibration:
    """What held-out queries found when they were stopped at gaps.

    The gap is the distance of the next center minus that of the k-th result: the larger it is, the
    less likely the lists that are left hold a result. It never decreases during a search, but it
    jumps, so that a query which is to stop at a gap stops at that or a larger one.

    Attributes:
        gaps: Gaps at which the queries were to stop, ascending.
        recalls: Mean recall of all queries for each of them, not decreasing.
        stopped: For each of them, mean recall by the gap that was reached.
        anywhere: Mean recall by gap of queries that stop for another reason.
    """

    gaps: tuple[int, ...]
    recalls: NDArray[np.float64]
    stopped: tuple["_RecallCurve", ...]
    anywhere: "_RecallCurve"

    def gap(self, recall: float) -> int:
        """Return the smallest gap with at least this mean recall, `FINISHED` if there is none."""
        enough = np.flatnonzero(self.recalls >= recall)
        return self.gaps[enough[0]] if len(enough) and recall < 1 else FINISHED

    def recall(self, reached: NDArray[np.int32], stop: int | None) -> NDArray[np.float64]:
        """Return the expected recall of searches.

        Args:
            reached: Gaps that they reached.
            stop: Gap at which they were to stop, one of `gaps`; None for another reason.
        """
        curve = self.stopped[self.gaps.index(stop)] if stop in self.gaps else self.anywhere
        return curve(reached)

    @classmethod
    def fit(
        cls, search: Callable[[int], tuple[Matches, NDArray[np.int32]]], exact: Matches, n_bits: int
    ) -> "RecallCalibration":
        """Stop queries at many gaps.

        Args:
            search: Answers all queries with stops at a gap; returns matches and the gaps reached.
            exact: The exact answers.
            n_bits: Length of a code.
        """
        gaps: list[int] = []
        recalls: list[float] = []
        stopped: list[_RecallCurve] = []
        visits = np.full((len(exact), 2 * n_bits + 1), np.nan)  # recall of a query at a gap
        complete = 0
        for gap in np.unique(np.linspace(-n_bits // 8, n_bits // 2, _GAPS).astype(int)).tolist():
            found, reached = search(gap)
            rows = np.flatnonzero(reached != FINISHED)
            if not len(rows):
                break
            shares = found_share(found, exact)
            places = np.clip(reached[rows], -n_bits, n_bits)
            visits[rows, places + n_bits] = shares[rows]
            gaps.append(gap)
            recalls.append(float(shares.mean()))
            stopped.append(_RecallCurve.fit(places, shares[rows]))
            complete = complete + 1 if shares.min() == 1 else 0
            if complete == _COMPLETE:
                break
        queries, columns = np.nonzero(~np.isnan(visits))
        return cls(
            tuple(gaps),
            np.maximum.accumulate(recalls),
            tuple(stopped),
            _RecallCurve.fit(columns - n_bits, visits[queries, columns]),
        )


@dataclass(frozen=True)
class _RecallCurve:
    """Mean recall by gap.

    Attributes:
        gaps: Ascending.
        recalls: Not decreasing.
    """

    gaps: NDArray[np.int64]
    recalls: NDArray[np.float64]

    def __call__(self, gaps: NDArray[np.int32]) -> NDArray[np.float64]:
        expected = np.interp(gaps, self.gaps, self.recalls)
        expected[gaps == FINISHED] = 1.0
        return expected

    @classmethod
    def fit(cls, gaps: NDArray[Any], recalls: NDArray[np.float64]) -> "_RecallCurve":
        """Fit a curve that never decreases; without any gap, everything was found."""
        if not len(gaps):
            return cls(np.zeros(1, np.int64), np.ones(1))
        places, where, counts = np.unique(gaps, return_inverse=True, return_counts=True)
        means = np.bincount(where, recalls) / counts
        return cls(places.astype(np.int64), _not_decreasing(means, counts.astype(np.float64)))


def found_share(found: Matches, exact: Matches) -> NDArray[np.float64]:
    """Return per query the share of exact results that were found, ties at the end included.

    A result at the same distance as the last exact one counts as found.
    """
    last = exact.distances.max(axis=1, initial=-1)
    expected = (exact.ids >= 0).sum(axis=1)
    near = (found.ids >= 0) & (found.distances <= last[:, None])
    share: NDArray[np.float64] = near.sum(axis=1) / np.maximum(expected, 1)
    return np.where(expected > 0, share, 1.0)


def _not_decreasing(
    values: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the nearest sequence that never decreases: neighbors in wrong order are averaged."""
    blocks: list[tuple[float, float, int]] = []  # mean, weight, length
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        block = (value, weight, 1)
        while blocks and blocks[-1][0] >= block[0]:
            mean, other, length = blocks.pop()
            together = other + block[1]
            average = (mean * other + block[0] * block[1]) / together
            block = (average, together, length + block[2])
        blocks.append(block)
    return np.repeat([mean for mean, _, _ in blocks], [length for _, _, length in blocks])
