"""Runs of an experiment, in one file: settings, fingerprint, scores, environment and codes.

``runs.jsonl`` has one JSON object per line. Codes are packed, compressed and written as text, so
that every score can be recomputed from the file alone: a *truth* line has the rows and labels of
queries and base. Methods that do not hash have their value per query instead of codes.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from crossbit._io.files import atomic_write, check_version, make_folders
from crossbit.codes import Codes
from crossbit.errors import FormatError
from crossbit.evaluation.evaluate import Evaluation, self_matches
from crossbit.evaluation.topk import TopKRanking
from crossbit.metrics import (
    AveragePrecision,
    Exclude,
    Ranking,
    evaluate_ranking,
    from_labels,
    rank_codes,
)
from crossbit.metrics.relevance import Relevance
from crossbit.metrics.tie_counts import TieCounts

RUNS_FILE = "runs.jsonl"
_FORMAT = "crossbit.runs/1"

Side = Literal["query", "base"]
Floats = NDArray[np.float64]


def pack_array(array: NDArray[Any]) -> dict[str, Any]:
    """Return an array as plain JSON: its shape, its type, and its compressed bytes as text."""
    if array.dtype.kind == "i":
        array = array.astype(np.int32)
    packed = np.packbits(array, axis=None) if array.dtype == np.bool_ else array
    text = base64.b85encode(zlib.compress(np.ascontiguousarray(packed).tobytes(), 9)).decode()
    return {"shape": list(array.shape), "dtype": array.dtype.str, "data": text}


def unpack_array(packed: Mapping[str, Any]) -> NDArray[Any]:
    """Return the array that `pack_array` packed; integers have 64 bits.

    Example:
        >>> unpack_array(pack_array(np.array([[True, False]])))
        array([[ True, False]])
    """
    raw = zlib.decompress(base64.b85decode(packed["data"]))
    shape = tuple(packed["shape"])
    dtype = np.dtype(packed["dtype"])
    if dtype == np.bool_:
        bits = np.unpackbits(np.frombuffer(raw, np.uint8), count=int(np.prod(shape)))
        return bits.astype(np.bool_).reshape(shape)
    array = np.frombuffer(raw, dtype).reshape(shape)
    return array.astype(np.int64) if dtype.kind == "i" else array


@dataclass(frozen=True)
class Truth:
    """Which rows are queries and base, and their labels.

    Attributes:
        rows: Side and modality, such as ``"query.image"``, → row numbers of the data set.
        labels: The same names → labels of those rows.
        include_self: Whether a query's own row counts across modalities.
    """

    rows: Mapping[str, NDArray[np.int64]]
    labels: Mapping[str, NDArray[Any]]
    include_self: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        rows, labels = (
            {name: pack_array(array) for name, array in arrays.items()}
            for arrays in (self.rows, self.labels)
        )
        return {"rows": rows, "labels": labels, "include_self": self.include_self}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Truth":
        """Return the truth that `to_dict` described."""
        rows, labels = (
            {name: unpack_array(packed) for name, packed in values[part].items()}
            for part in ("rows", "labels")
        )
        return cls(rows, labels, values["include_self"])

    def relevance(self, direction: str) -> Relevance:
        """Which base items share a label with each query."""
        left, right = direction.split("-")
        return from_labels(self.labels[f"query.{left}"], self.labels[f"base.{right}"])

    def excluded(self, direction: str, *, include_self: bool | None = None) -> Exclude:
        """The own row of each query if it does not count; within a modality it never does."""
        left, right = direction.split("-")
        include_self = self.include_self if include_self is None else include_self
        if include_self and left != right:
            return None
        return self_matches(self.rows[f"query.{left}"], self.rows[f"base.{right}"])


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """One method, one code length, one seed.

    Attributes:
        name: Unique name, such as ``"mmnn-32-0"``.
        fingerprint: What the run depends on → a short checksum of it.
        truth: Its queries, base and labels.
        truth_name: Name of the truth in the file.
        at: Cut-off of the average precision; None for the whole ranking.
        settings: Method and fields.
        scores: Direction → ``value``, ``worst``, ``best``, ``chance``, ``low`` and ``high``, as
            fractions; the last two are the 95 % interval over queries.
        codes: Side and modality → codes; empty if the method does not hash.
        values: Direction, or name of a measure, → value per query, if the run has no codes.
        facts: Environment, seconds, CPU seconds and peak memory.
    """

    name: str
    fingerprint: Mapping[str, str]
    truth: Truth
    truth_name: str
    at: int | None
    settings: Mapping[str, Any]
    scores: Mapping[str, Mapping[str, float]]
    codes: Mapping[str, Codes] = field(default_factory=dict)
    values: Mapping[str, Floats] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_bits(self) -> int | None:
        """Length of the codes."""
        return next((codes.n_bits for codes in self.codes.values()), None)

    def score(self, direction: str, field: str = "value") -> float:
        """A score in percent."""
        return 100 * self.scores[direction][field]

    def mean_score(self, directions: Sequence[str], field: str = "value") -> float:
        """Mean of `score` over directions."""
        return float(np.mean([self.score(direction, field) for direction in directions]))

    def ranking(
        self, direction: str, *, n_bits: int | None = None, include_self: bool | None = None
    ) -> Ranking:
        """Rank the base by Hamming distance to the queries.

        Args:
            direction: Such as ``"image-text"``.
            n_bits: Truncate the codes to this many bits.
            include_self: Whether a query's own row counts across modalities; None: as in the
                protocol.
        """
        left, right = direction.split("-")
        queries = self.codes[f"query.{left}"]
        base = self.codes[f"base.{right}"]
        if n_bits is not None:
            queries, base = queries.truncate(n_bits), base.truncate(n_bits)
        exclude = self.truth.excluded(direction, include_self=include_self)
        relevant = self.truth.relevance(direction)
        if self.at is None:
            return rank_codes(queries, base, relevant, exclude=exclude)
        return TopKRanking.of_codes(queries, base, relevant, self.at, exclude=exclude)

    def per_query(self, direction: str, n_bits: int | None = None) -> Floats:
        """Average precision of each query in percent, NaN without relevant items."""
        if not self.codes:
            return 100 * self.values[direction]
        ranking = self.ranking(direction, n_bits=n_bits)
        return 100 * ranking.measure(AveragePrecision(at=self.at))

    def tied(self, direction: str, place: int) -> NDArray[np.bool_]:
        """Whether other items are as near to a query as the last of its first places."""

        def reaches_beyond(counts: TieCounts) -> NDArray[np.bool_]:
            groups = counts.groups("expected")
            end = groups.before + groups.size
            beyond: NDArray[np.bool_] = np.any((groups.before < place) & (end > place), axis=1)
            return beyond

        return np.concatenate(self.ranking(direction).map(reaches_beyond))

    def recomputed(self) -> dict[str, dict[str, float]]:
        """The scores, computed from the codes; only the mean if the method does not hash."""
        if not self.codes:
            return {
                direction: {"value": float(np.nanmean(values))}
                for direction, values in self.values.items()
            }
        measure = AveragePrecision(at=self.at)
        return {
            direction: primary_scores(
                evaluate_ranking(self.ranking(direction), measures=(measure,)).results[0]
            )
            for direction in self.scores
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "kind": "run",
            "name": self.name,
            "fingerprint": dict(self.fingerprint),
            "truth": self.truth_name,
            "at": self.at,
            "settings": dict(self.settings),
            "scores": {direction: dict(scores) for direction, scores in self.scores.items()},
            "facts": dict(self.facts),
            "n_bits": self.n_bits,
            # Bit by bit: constant bits take no space.
            "codes": {name: pack_array(codes.unpack().T) for name, codes in self.codes.items()},
            "values": {
                name: pack_array(values.astype(np.float32)) for name, values in self.values.items()
            },
        }


def run_from_dict(values: Mapping[str, Any], truths: Mapping[str, Truth]) -> StoredRun:
    """Return the run that `StoredRun.to_dict` described."""
    return StoredRun(
        name=values["name"],
        fingerprint=values["fingerprint"],
        truth=truths[values["truth"]],
        truth_name=values["truth"],
        at=values["at"],
        settings=values["settings"],
        scores=values["scores"],
        codes={
            name: Codes.pack(unpack_array(packed).T) for name, packed in values["codes"].items()
        },
        values={
            name: unpack_array(packed).astype(np.float64)
            for name, packed in values["values"].items()
        },
        facts=values["facts"],
    )


def primary_scores(result: Any) -> dict[str, float]:  # noqa: ANN401 - a MeasureResult
    """Scores of a measure that a run stores."""
    names = ("value", "worst", "best", "chance", "low", "high")
    return {name: float(getattr(result, name)) for name in names}


def run_scores(evaluation: Evaluation) -> dict[str, dict[str, float]]:
    """Direction → scores by the first measure of the protocol."""
    return {
        f"{left}-{right}": primary_scores(report.results[0])
        for (left, right), report in evaluation.reports.items()
    }


class RunStore:
    """The runs, cross-validations and facts of an experiment: ``<folder>/runs.jsonl``.

    A line is read when it is needed. Adding a name that exists replaces its line.

    Args:
        folder: Folder of the experiment; it may not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        """Read the names of all lines."""
        self.folder = folder
        self.path = folder / RUNS_FILE
        self._lines: dict[tuple[str, str], str] = {}
        if self.path.exists():
            self._load()

    def _load(self) -> None:
        lines = self.path.read_text(encoding="utf-8").splitlines()
        try:
            contents = [json.loads(line) for line in lines]
        except json.JSONDecodeError as error:
            raise FormatError(
                f"{self.path}: a line is not JSON ({error}); delete it to run it again"
            ) from error
        check_version(self.path, contents[0].get("format") if contents else None, _FORMAT)
        for line, content in zip(lines[1:], contents[1:], strict=True):
            self._lines[content["kind"], content["name"]] = line

    def __contains__(self, name: str) -> bool:
        """Whether there is a run of this name."""
        return ("run", name) in self._lines

    def __getitem__(self, name: str) -> StoredRun:
        """The run of this name."""
        return run_from_dict(json.loads(self._lines["run", name]), self._truths)

    def names(self) -> list[str]:
        """Names of all runs."""
        return [name for kind, name in self._lines if kind == "run"]

    def __iter__(self) -> Iterator[StoredRun]:
        """All runs."""
        return (self[name] for name in self.names())

    @cached_property
    def _truths(self) -> dict[str, Truth]:
        return {
            name: Truth.from_dict(json.loads(line))
            for (kind, name), line in self._lines.items()
            if kind == "truth"
        }

    def fingerprint(self, name: str, kind: str = "run") -> dict[str, str] | None:
        """Fingerprint of a run or a search; None if there is none."""
        line = self._lines.get((kind, name))
        return None if line is None else dict(json.loads(line)["fingerprint"])

    def add(self, run: StoredRun) -> None:
        """Write a run, and its truth if it is new."""
        if run.truth_name not in self._truths:
            self._write({"kind": "truth", "name": run.truth_name, **run.truth.to_dict()})
            self._truths[run.truth_name] = run.truth
        self._write(run.to_dict())

    def add_search(
        self, name: str, fingerprint: Mapping[str, str], trials: Sequence[Mapping[str, Any]]
    ) -> None:
        """Write the trials of a cross-validation."""
        self._write(
            {
                "kind": "search",
                "name": name,
                "fingerprint": dict(fingerprint),
                "trials": list(trials),
            }
        )

    def search(self, name: str) -> list[dict[str, Any]] | None:
        """Trials of a cross-validation, best first."""
        line = self._lines.get(("search", name))
        return None if line is None else list(json.loads(line)["trials"])

    def add_facts(self, name: str, facts: Mapping[str, Any]) -> None:
        """Write facts about the data, such as sizes; they replace those of the same name."""
        self._write({"kind": "facts", "name": name, "facts": dict(facts)})

    def facts(self, name: str) -> dict[str, Any]:
        """Facts of a name; empty if there are none."""
        line = self._lines.get(("facts", name))
        return {} if line is None else dict(json.loads(line)["facts"])

    def drop_codes(self, names: Iterable[str]) -> None:
        """Keep only the scores of some runs, which takes a hundredth of the space."""
        changed = False
        for name in names:
            content = json.loads(self._lines["run", name])
            if content["codes"]:
                content["codes"] = {}
                self._lines["run", name] = _as_line(content)
                changed = True
        if changed:
            self._write_all()

    def _write(self, content: Mapping[str, Any]) -> None:
        line = _as_line(content)
        key = (content["kind"], content["name"])
        is_new = key not in self._lines and self.path.exists()
        self._lines[key] = line
        make_folders(self.folder)
        if is_new:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
            return
        self._write_all()

    def _write_all(self) -> None:
        header = json.dumps({"format": _FORMAT})
        with atomic_write(self.path) as output:
            output.write("\n".join([header, *self._lines.values(), ""]).encode())


def _as_line(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False)
