"""A search: the server finds the nearest codes, and what it cannot decide is decided here."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crossbit._progress import batches
from crossbit.codes import Codes, hamming
from crossbit.collection.filters import matches_all
from crossbit.collection.milvus import filters, io
from crossbit.collection.milvus.client import Link, TooLargeError
from crossbit.collection.milvus.schema import code_of, item_id, packed, row_key, unpacked
from crossbit.collection.milvus.state import State
from crossbit.collection.store import Query
from crossbit.collection.types import Hit, Payload

MOST = 16_384  # neighbors that a server gives at most
_TOGETHER = 1000  # queries in one request
_ANSWER = 50_000  # neighbors in one answer
_WIDER = 8  # times as many are asked for when too few met the filter


@dataclass(frozen=True)
class Near:
    """A row that was found: its distance, its item, the place of its modality among those asked for, its payload."""

    distance: int
    item: str
    rank: int
    payload: Payload

    @property
    def order(self) -> tuple[int, str, int]:
        """Nearest first; what is equally near in the order of keys, by the modality that was named first."""
        return self.distance, self.item, self.rank


def neighbors(link: Link, state: State, query: Query) -> list[list[Hit]]:
    """The nearest items of each query."""
    found: list[list[Near]] = []
    limit = min(query.k * len(query.targets), MOST)  # an item may be found by each modality
    for part in batches(range(len(query.codes)), max(1, min(_TOGETHER, _ANSWER // limit))):
        if filters.never(query.filter):
            found += [[] for _ in part]
        else:
            found += _search(link, state, query, query.codes[part], limit)
    return [
        _hits(state, query, own, _codes(link, state, query, own) if query.with_codes else None)
        for own in found
    ]


def _condition(state: State, query: Query) -> str:
    numbers = [state.modalities[name] for name in query.targets]
    extra = filters.expression(query.filter)
    return f"modality in {numbers}{f' and {extra}' if extra else ''}"


def _search(link: Link, state: State, query: Query, codes: Codes, limit: int) -> list[list[Near]]:
    """The k nearest items of some queries; more rows are asked for while too few of them meet the filter."""
    try:
        answers = _ask(link, state, query, codes, limit)
    except TooLargeError:
        half = len(codes) // 2
        if not half:
            return [_scan(link, state, query, codes)]
        return [
            near
            for part in (codes[:half], codes[half:])
            for near in _search(link, state, query, part, limit)
        ]
    found = []
    for i, answer in enumerate(answers):
        own = _items(query, (_near(state, query, hit) for hit in answer))
        if len(own) < query.k and len(answer) == limit:  # there may be more
            own = _search_on(link, state, query, codes[[i]], limit)
        found.append(own)
    return found


def _ask(link: Link, state: State, query: Query, codes: Codes, limit: int) -> Any:  # noqa: ANN401 - pymilvus has no types
    """What the server finds."""
    return link.call(
        "search",
        data=packed(codes),
        anns_field="code",
        filter=_condition(state, query),
        limit=limit,
        output_fields=["modality", "payload"],
        search_params=parameters(state, link.address.nprobe),
        consistency_level=link.level,
    )


def _search_on(link: Link, state: State, query: Query, code: Codes, limit: int) -> list[Near]:
    """Ask once more for more, or look at everything."""
    if limit < MOST:
        return _search(link, state, query, code, min(_WIDER * limit, MOST))[0]
    return _scan(link, state, query, code)


def parameters(state: State, nprobe: int) -> dict[str, Any]:
    """How thoroughly an index is searched: how many clusters it looks at."""
    params = {"nprobe": min(nprobe, state.nlist)} if state.index == "ivf" else {}
    return {"metric_type": "HAMMING", "params": params}


def _near(state: State, query: Query, hit: Mapping[str, Any]) -> Near:
    """A hit of the server."""
    entity = hit["entity"]
    rank = query.targets.index(state.names[entity["modality"]])
    return Near(round(hit["distance"]), str(hit["id"]).partition("/")[0], rank, entity["payload"])


def _items(query: Query, rows: Iterable[Near]) -> list[Near]:
    """Of the rows that meet the filter, the nearest of each item; the k nearest of them."""
    first: dict[str, Near] = {}
    for row in sorted(
        (row for row in rows if matches_all(query.filter, row.payload)), key=lambda row: row.order
    ):
        first.setdefault(row.item, row)
    return list(first.values())[: query.k]


def _scan(link: Link, state: State, query: Query, code: Codes) -> list[Near]:
    """The same by looking at every row: for more than a server gives at once, or a filter that it cannot apply."""
    best: list[Near] = []
    for page in batches(io.scan_rows(link, _condition(state, query)), io.PAGE):
        distances = hamming(code, unpacked([code_of(row) for row in page], state.n_bits))[
            0
        ].tolist()
        rows = (
            _near(state, query, {"id": row["key"], "distance": distance, "entity": row})
            for row, distance in zip(page, distances, strict=True)
        )
        best = _items(query, [*best, *rows])
    return best


def _codes(link: Link, state: State, query: Query, found: Sequence[Near]) -> Codes:
    """The codes that were compared; the server does not give them with the answer to a search."""
    keys = [row_key(near.item, state.modalities[query.targets[near.rank]]) for near in found]
    there = {row["key"]: code_of(row) for row in io.rows_of(link, keys, ["code"])}
    return unpacked(
        [there.get(key, bytes(state.width)) for key in keys], state.n_bits
    )  # zeros: it went meanwhile


def _hits(state: State, query: Query, found: Sequence[Near], codes: Codes | None) -> list[Hit]:
    n_bits = state.n_bits
    return [
        Hit(
            item_id(near.item),
            near.distance,
            (n_bits - near.distance) / n_bits,
            query.targets[near.rank],
            near.payload,
            None if codes is None else codes[i],
        )
        for i, near in enumerate(found)
    ]
