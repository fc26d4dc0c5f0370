"""Annotation: ten tags for an image, voted by the five bags of words that are nearest to its code.

The codes are those of the stored runs, so that nothing is trained again. Values per query are
stored as runs without codes. Bags at equal distance are taken in the order of their rows, as
`HammingIndex` returns them; the table says for how many queries that decides.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.annotate import tag_quality, vote
from crossbit.data import Dataset
from crossbit.evaluation.results import environment
from crossbit.index import HammingIndex
from crossbit_experiments.bootstrap import query_interval, standard_deviation
from crossbit_experiments.fingerprint import checksum, code_version
from crossbit_experiments.methods import Method, query_values, run_name, stored_runs
from crossbit_experiments.runs import Floats, RunStore, StoredRun
from crossbit_experiments.tables import MISSING, Table, interval_cell, mean_sd

NEIGHBORS = 5  # as in the paper's annotation
MAX_TAGS = 10  # as in the paper's annotation
METHODS = ("cmssh", "mmnn", "auto")
"""Keys of the annotated methods; the last line of the table is `ALWAYS`."""
ALWAYS = Method(key="always", title="always the same ten")
"""The most frequent training tags for every image."""
PREFIX = "annotation/"
"""Begins the names of the stored runs."""

_DIRECTION = "image-tags"
_MEASURES = ("precision", "recall", "hit", "tied")
_Rows = NDArray[np.int64]
_TagLists = Sequence[Sequence[str]]


def tags_of(data: Dataset, rows: _Rows) -> list[list[str]]:
    """Return the tags of photographs, those in most captions first."""
    payload: Any = data.payload
    return [payload[row]["tags"] for row in rows.tolist()]


def most_voted(tag_lists: _TagLists) -> list[str]:
    """Return the ten tags that most of the lists contain."""
    return [tag.name for tag in vote(tag_lists, max_tags=MAX_TAGS)]


def annotate_runs(
    store: RunStore, data: Dataset, methods: Sequence[Method], *, n_bits: int
) -> None:
    """Annotate the queries of every stored run and store the values; equal ones are reused.

    Args:
        store: The runs, with codes; the annotations are added.
        data: Data set of the runs, with the tags of each row in its payload.
        methods: Methods of the table; those in `METHODS` are annotated.
        n_bits: Code length of the runs.
    """
    code = checksum([code_version(name) for name in (__name__, "crossbit.annotate")])
    for method in methods:
        if method.key not in METHODS:
            continue
        for seed, run in enumerate(stored_runs(store, method, n_bits)):
            _add_always(store, data, run, run_name(ALWAYS, n_bits, 0, PREFIX), code)
            name = run_name(method, n_bits, seed, PREFIX)
            current = _fingerprint(run, data) | {"annotation": code}
            if store.fingerprint(name) != current:
                store.add(_stored(name, current, run, annotate(run, data)))


def _add_always(store: RunStore, data: Dataset, run: StoredRun, name: str, code: str) -> None:
    """Store the values of the same ten tags for the queries of a run; they are equal for all."""
    train = tags_of(data, np.asarray(data.splits["train"]))
    current = _fingerprint(run, data) | {"run": checksum(train), "annotation": code}
    if store.fingerprint(name) == current:
        return
    correct = tags_of(data, run.truth.rows["query.image"])
    values = annotation_values([most_voted(train)] * len(correct), correct)
    store.add(_stored(name, current, run, values))


def _fingerprint(run: StoredRun, data: Dataset) -> dict[str, str]:
    """What the annotation by a run depends on: the run, and the tags of queries and base."""
    tags = [tags_of(data, run.truth.rows[side]) for side in ("query.image", "base.tags")]
    return {"run": checksum(dict(run.fingerprint)), "tags": checksum(tags)}


def annotate(run: StoredRun, data: Dataset) -> dict[str, Floats]:
    """Annotate the query images of a run: measure → value per query."""
    base = run.codes["base.tags"]
    index = HammingIndex(base.n_bits)
    index.add(np.arange(len(base)), base)
    k = min(NEIGHBORS, len(base))
    nearest = index.search(run.codes["query.image"], k, threads=1).ids
    base_tags = tags_of(data, run.truth.rows["base.tags"])
    assigned = [most_voted([base_tags[item] for item in items]) for items in nearest.tolist()]
    values = annotation_values(assigned, tags_of(data, run.truth.rows["query.image"]))
    return values | {"tied": run.tied(_DIRECTION, NEIGHBORS).astype(np.float64)}


def annotation_values(assigned: _TagLists, correct: _TagLists) -> dict[str, Floats]:
    """Return precision, recall and hit of each image; NaN if its captions have no tag.

    Example:
        >>> values = annotation_values([["dog", "red"]], [["dog", "runs", "fast", "far"]])
        >>> [float(values[name][0]) for name in ("precision", "recall", "hit")]
        [0.5, 0.25, 1.0]
    """
    measures = ("precision", "recall", "hit")
    values = np.full((len(measures), len(assigned)), np.nan)
    for number, (tags, words) in enumerate(zip(assigned, correct, strict=True)):
        if words:
            quality = tag_quality([tags], [words])
            values[:, number] = [getattr(quality, name) for name in measures]
    return dict(zip(measures, values, strict=True))


def _stored(
    name: str, fingerprint: Mapping[str, str], run: StoredRun, values: Mapping[str, Floats]
) -> StoredRun:
    return StoredRun(
        name=name,
        fingerprint=fingerprint,
        truth=run.truth,
        truth_name=run.truth_name,
        at=None,
        settings={"method": "annotation", "neighbors": NEIGHBORS, "tags": MAX_TAGS},
        scores={measure: {"value": float(np.nanmean(own))} for measure, own in values.items()},
        values=values,
        facts={"environment": environment()},
    )


def annotation_rows(
    store: RunStore, methods: Sequence[Method], *, n_bits: int
) -> list[dict[str, Any]]:
    """Rows of the table for the methods whose annotations are stored, in percent."""
    by_key = {method.key: method for method in (*methods, ALWAYS)}
    chosen = [by_key[key] for key in (*METHODS, ALWAYS.key) if key in by_key]
    return [
        _row(method.title, runs)
        for method in chosen
        if (runs := stored_runs(store, method, n_bits, PREFIX))
    ]


def _row(title: str, runs: Sequence[StoredRun]) -> dict[str, Any]:
    measured = [measure for measure in _MEASURES if measure in runs[0].values]
    values = {measure: query_values(runs, [measure]) for measure in measured}
    return {
        "title": title,
        "seeds": len(runs),
        "mean": {name: float(np.nanmean(own)) for name, own in values.items()},
        "deviation": {
            name: standard_deviation(np.nanmean(own, axis=1)) for name, own in values.items()
        },
        "interval": {name: query_interval(own) for name, own in values.items()},
    }


def annotation_table(summary: Mapping[str, Any]) -> Table:
    """Quality of ten tags per image against the words of its own captions."""
    lines = []
    for row in summary.get("annotation", []):
        cells = {name: mean_sd(row["mean"][name], row["deviation"][name]) for name in row["mean"]}
        intervals = {name: interval_cell(own) for name, own in row["interval"].items()}
        lines.append(
            [
                row["title"],
                cells["precision"],
                intervals["precision"],
                cells["recall"],
                intervals["recall"],
                cells["hit"],
                cells.get("tied", MISSING),
                str(row["seeds"]),
            ]
        )
    header = ["ten tags", "precision", "95 %", "recall", "95 %", "at least one right"]
    return Table([*header, "fifth place tied", "seeds"], lines)
