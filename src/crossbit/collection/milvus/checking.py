"""Facts about a collection on a server, and whether its rows belong together."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from crossbit._progress import batches
from crossbit.codes import Codes
from crossbit.collection.milvus import io, writing
from crossbit.collection.milvus.client import Link
from crossbit.collection.milvus.query import parameters
from crossbit.collection.milvus.schema import Stored, code_of, item_id, packed, unpacked
from crossbit.collection.milvus.state import State
from crossbit.collection.payloads import json_length
from crossbit.collection.types import Finding, Stats
from crossbit.metrics.health import code_health

_SAMPLE = 10_000  # codes whose health is looked at
_QUERIES, _NEAREST = 100, 10  # of the measurement of recall


def count_items(link: Link, state: State) -> int:
    """How many items there are."""
    return io.count(link, f"first == true and {state.filter}")


def facts(link: Link, state: State) -> Stats:
    """What is stored."""
    samples = {name: _sample(link, number) for name, number in state.modalities.items()}
    codes = {
        name: unpacked([code_of(row) for row in rows], state.n_bits)
        for name, rows in samples.items()
        if rows
    }
    counts = {
        name: io.count(link, f"modality == {number}") for name, number in state.modalities.items()
    }
    return Stats(
        items=count_items(link, state),
        modalities=counts,
        n_bits=state.n_bits,
        nbytes=_nbytes(link, samples, counts),
        fields=(),
        features=None,
        generation=0,
        model=state.fingerprint,
        health={name: code_health(own) for name, own in codes.items()},
        recall={name: _recall(link, state, name, own) for name, own in codes.items()}
        if state.index == "ivf"
        else {},
    )


def _sample(link: Link, number: int) -> list[dict[str, Any]]:
    """Some rows of a modality."""
    return list(islice(io.scan_rows(link, f"modality == {number}"), _SAMPLE))


def _nbytes(link: Link, samples: dict[str, list[dict[str, Any]]], counts: dict[str, int]) -> int:
    """Bytes of the file; a server does not tell, so there what is in the rows, by the rows of the sample."""
    if link.address.embedded:
        return Path(link.address.uri).stat().st_size
    total = 0.0
    for name, rows in samples.items():
        sizes = [len(row["key"]) + len(code_of(row)) + json_length(row["payload"]) for row in rows]
        total += counts[name] * float(np.mean(sizes)) if sizes else 0.0
    return round(total)


def _recall(link: Link, state: State, name: str, codes: Codes) -> float:
    r"""The share of the 10 nearest that a search finds, by a hundred codes of the collection itself.

    Found is whatever is as near as the 10th nearest, for equal distances are equally good. Looking at all clusters
    tells which that are.
    """
    asked = codes[np.unique(np.linspace(0, len(codes) - 1, _QUERIES).astype(int))]
    usual, exact = (
        _distances(link, state, name, asked, nprobe)
        for nprobe in (link.address.nprobe, state.nlist)
    )
    shares = [
        sum(d <= all_[-1] for d in own) / len(all_) for own, all_ in zip(usual, exact, strict=True)
    ]
    return float(np.mean(shares))


def _distances(link: Link, state: State, name: str, asked: Codes, nprobe: int) -> list[list[float]]:
    answers = link.call(
        "search",
        data=packed(asked),
        anns_field="code",
        filter=f"modality == {state.modalities[name]}",
        limit=_NEAREST,
        search_params=parameters(state, nprobe),
        consistency_level=link.level,
    )
    return [[hit["distance"] for hit in answer] for answer in answers]


def findings(link: Link, state: State) -> Iterator[Finding]:
    """Items whose rows disagree, as a write that was cut short may leave them; the first row decides."""
    torn = (
        (item, stored)
        for item, stored in io.scan_items(link, state)
        if not _whole(item, stored, state)
    )
    for part in batches(torn, io.PAGE):
        anew = (
            (item, was, Stored(None, keys=was.keys)) for item, was in part
        )  # as if nothing of it were right
        writing.write(link, state, anew, len(part))
        for item, _ in part:
            yield Finding(
                str(link.address), f"the rows of item {item_id(item)!r} disagreed", repaired=True
            )


def _whole(item: str, stored: Stored, state: State) -> bool:
    """Whether the rows of an item are those that it should have."""
    return stored.agrees and stored.keys == {
        row["key"]: row["first"] for row in stored.rows(item, state.width)
    }
