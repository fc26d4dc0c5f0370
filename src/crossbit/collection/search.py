"""Search: its options, listed once, and the way from queries to results.

`Collection.search`, the HTTP API, the command line and the clients are made from the fields of
`SearchOptions`: a new option is one field, with its meaning, and one entry of `SearchKeywords`.

A search encodes the queries, asks the store for the nearest items of the targets, reranks them,
marks weak matches, groups, and cuts out the page. A store only compares codes and filters.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from inspect import Parameter, getdoc, signature
from itertools import chain
from typing import Any, Literal, Self, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_fraction, check_integer, check_known
from crossbit.codes import Codes
from crossbit.collection.encoder import EncodedQueries, Encoder, Inputs
from crossbit.collection.filters import MISSING, Conditions, field_value, parse_filter
from crossbit.collection.payloads import check_id, check_text
from crossbit.collection.stores import Capabilities, Neighbors, Query, ReadRows, Store
from crossbit.collection.values import FEATURES, KEPT, Hit, Id, Results
from crossbit.errors import DataError
from crossbit.index.hamming import weighted_hamming

Method = TypeVar("Method", bound=Callable[..., Any])

CODES = "codes"
_RERANK_BY = (CODES, *KEPT)
_AUTO = "auto"
_ALL = "*"
_MAX_GROUPED = 10_000  # nearest items in which groups, and items that are not weak, are looked for
_WIDEN = 4  # factor of the number of items after a search that found too few of them


@dataclass(frozen=True)
class Option:
    """One search option, for whatever offers it to users.

    Args:
        name: Its name.
        type: Annotation of its value in Python.
        json: Annotation of its value in JSON.
        default: Its default.
        doc: What it means.
    """

    name: str
    type: Any
    json: Any
    default: Any
    doc: str


def _json(annotation: object) -> dict[str, object]:
    """Return the metadata of a field whose value in JSON has another type."""
    return {"json": annotation}


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """What a search returns; every value is checked here, once.

    Args:
        k: Number of items to return per query.
        target: Modalities to search, such as ``"image"``; ``"*"`` searches all. Without it, all but
            the query's own are searched, or the query's own if no item has another. Each item is
            returned once, by its nearest modality.
        filter: Only items whose payload meets all conditions, such as ``{"year": {">=": 2010},
            "tags": {"has": "dog"}}``; the operators are ``== != > >= < <= in has``, and ``or``,
            ``and`` and ``not`` combine filters.
        min_similarity: Leave out less similar hits, 0 to 1; ``"auto"`` leaves out weak ones.
        group_by: Return one item, the nearest, per value of this payload field; looks at the
            nearest 10,000 items. Items without the field are groups of their own.
        offset: Skip this many of the nearest hits, such as those of earlier pages.
        exclude: Leave out this item, such as the one that the query is.
        rerank: Take this many nearest items, at least ``offset + k``, and reorder them.
        rerank_by: What they are reordered by: ``"codes"``, the Hamming distance in which a bit
            counts as much as the query's score of it is far from 0; ``"scores"``, the cosine of the
            query's scores and those that the collection keeps; ``"features"``, the cosine of
            feature rows if the query's modality is the only target, otherwise of scores made from
            them. Items written as codes come last.
        with_codes: Return the code of each hit, too.
    """

    k: int = 10
    target: str | Iterable[str] | None = field(default=None, metadata=_json(list[str] | None))
    filter: Mapping[str, Any] | None = field(default=None, metadata=_json(dict[str, Any] | None))
    min_similarity: float | str = field(default=0.0, metadata=_json(float | Literal["auto"]))
    group_by: str | None = None
    offset: int = 0
    exclude: Id | None = None
    rerank: int | None = None
    rerank_by: str = field(default=CODES, metadata=_json(Literal["codes", "scores", "features"]))
    with_codes: bool = False

    def __post_init__(self) -> None:
        """Check the values, and write those with several forms in one."""
        self._set("k", check_integer(self.k, "k", least=1))
        self._set("offset", check_integer(self.offset, "offset", least=0))
        self._set("target", _names(self.target))
        if self.exclude is not None:
            self._set("exclude", check_id(self.exclude))
        if self.group_by is not None:
            if not isinstance(self.group_by, str):
                raise DataError(f"group_by must be the name of a field, got {self.group_by!r}")
            check_text(self.group_by, "group_by")
        if not isinstance(self.min_similarity, str):
            check_fraction(self.min_similarity, "min_similarity")
        elif self.min_similarity != _AUTO:
            raise DataError(
                "min_similarity must be a number between 0 and 1, or 'auto', got"
                f" {self.min_similarity!r}"
            )
        self._check_rerank()
        _ = self.conditions

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_rerank(self) -> None:
        if self.rerank_by not in _RERANK_BY:
            raise DataError(
                f"rerank_by must be one of {', '.join(_RERANK_BY)}, got {self.rerank_by!r}"
            )
        if self.rerank is None:
            if self.rerank_by != CODES:
                raise DataError(
                    f"rerank_by={self.rerank_by!r} needs rerank, the number of candidates; got None"
                )
            return
        self._set("rerank", check_integer(self.rerank, "rerank", least=1))
        if self.rerank < self.end:
            wanted = f"k = {self.k}" if not self.offset else f"offset + k = {self.end}"
            raise DataError(f"rerank must be at least {wanted}, got {self.rerank}")

    @classmethod
    def all(cls) -> tuple[Option, ...]:
        """Return the options; what each means is read from the docstring of the class."""
        parts = re.split(r"^    (\w+): ", getdoc(cls) or "", flags=re.MULTILINE)
        docs = dict(zip(parts[1::2], (" ".join(part.split()) for part in parts[2::2]), strict=True))
        return tuple(
            Option(
                each.name,
                each.type,
                each.metadata.get("json", each.type),
                each.default,
                docs.get(each.name, ""),
            )
            for each in fields(cls)
        )

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Return the options of a mapping, such as a JSON object; refuse names that are unknown."""
        known = [each.name for each in fields(cls)]
        if unknown := [name for name in values if name not in known]:
            raise DataError(f"unknown search option {unknown[0]!r}; known: {', '.join(known)}")
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, as JSON values."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        if self.target is not None:
            values["target"] = [*self.target]
        return {
            each.name: values[each.name]
            for each in fields(self)
            if values[each.name] != each.default
        }

    def check(self, capabilities: Capabilities, keep: Sequence[str]) -> None:
        """Reject what a store cannot do.

        Args:
            capabilities: What the store can do.
            keep: What it keeps beside the codes.
        """
        if self.offset and not capabilities.exact_ties:
            raise DataError(
                "offset needs a store that returns items at equal distance in a fixed order; this"
                " one does not, so ask for more items with k"
            )
        by = self.rerank_by
        if by != CODES and by not in keep:
            raise DataError(
                f"the collection keeps no {by}; use rerank_by='codes', or copy the items into a"
                f" collection that was created with keep={by!r}"
            )

    def targets(self, modality: str, modalities: Sequence[str]) -> list[str]:
        """Return the modalities to search for queries of a modality.

        The nearest codes of a query's own modality are mostly its own near copies, and would hide
        what the query is about; so it is searched only if it is the only one, or if it is named.
        """
        check_known(modality, modalities)
        if self.target is None:
            return [name for name in modalities if name != modality] or [modality]
        if self.target == (_ALL,):
            return list(modalities)
        return [check_known(name, modalities) for name in self.target]

    @cached_property
    def conditions(self) -> Conditions:
        """The parsed filter."""
        return () if self.filter is None else parse_filter(self.filter)

    @property
    def end(self) -> int:
        """Number of hits up to the end of the page."""
        return self.offset + self.k


@dataclass(frozen=True)
class Search:
    """One search of a store.

    Args:
        store: The store.
        encoder: Encodes the queries.
        modality: Modality of the queries.
        options: The options, which the store supports.
        threads: Number of threads, all cores if None.
    """

    store: Store
    encoder: Encoder
    modality: str
    options: SearchOptions
    threads: int | None = None

    def run(self, inputs: Inputs, *, trusted: bool = True) -> list[Results]:
        """Return the results of each query.

        Args:
            inputs: The queries.
            trusted: False for raw inputs of unknown origin.
        """
        options = self.options
        targets = options.targets(self.modality, self.encoder.model.modalities)
        queries = self.encoder.encode_queries(
            self.modality, inputs, with_scores=options.rerank is not None, trusted=trusted
        )
        query = Query(
            queries.codes,
            (options.rerank or options.end) + (options.exclude is not None),
            targets,
            options.conditions,
            self.threads,
            with_codes=options.with_codes,
        )
        reranks = options.rerank is not None
        answers = self._reranked(query, queries) if reranks else self._nearest(query)
        return [
            Results(
                self._kept(hits)[options.offset : options.end],
                queries.codes,
                row,
                terms=queries.terms[row] if queries.terms else (),
                exact_terms=queries.exact_terms,
            )
            for row, hits in enumerate(answers)
        ]

    # --- nearest ---

    def _nearest(self, query: Query) -> list[list[Hit]]:
        """Return the nearest items of each query, enough for the page.

        If several items share a group, or weak ones are dropped, more are searched, up to
        `_MAX_GROUPED`. Those that will be reranked are as many as the caller decided.
        """
        answers = self._ask(query)
        if self.options.target is None and not any(answers) and self._has_no_code(query):
            query = replace(query, targets=[self.modality])
            answers = self._ask(query)
        if self.options.group_by is not None:
            self._check_group(query, answers)
        elif self.options.min_similarity != _AUTO:
            return answers
        limit = query.k
        rows = [] if self.options.rerank is not None else list(range(len(answers)))
        while limit < _MAX_GROUPED:
            rows = [row for row in rows if self._is_short(answers[row], limit, query.targets)]
            if not rows:
                break
            limit = min(_WIDEN * limit, _MAX_GROUPED)
            wider = self._ask(replace(query, codes=query.codes[rows], k=limit))
            for row, hits in zip(rows, wider, strict=True):
                answers[row] = hits
        return answers

    def _ask(self, query: Query) -> list[list[Hit]]:
        return self.store.nearest(query, self.encoder.fingerprint)

    def _has_no_code(self, query: Query) -> bool:
        """Whether no item has a code of the targets, after a search that found nothing."""
        if not query.filter:
            return True
        return not any(self._ask(_probe(query, ())))

    def _check_group(self, query: Query, answers: Sequence[Sequence[Hit]]) -> None:
        """Raise the store's error about an unknown field if no item has the field of the groups.

        It is only searched for if that is fast, and if none of the hits has it.
        """
        field = str(self.options.group_by)
        payloads = [hit.payload for hits in answers for hit in hits]
        is_found = any(field_value(payload, field) is not MISSING for payload in payloads)
        if payloads and not is_found and not self.store.unindexed_fields([field]):
            self._ask(_probe(query, parse_filter({field: {"!=": ""}})))

    def _is_short(self, hits: Sequence[Hit], limit: int, targets: Sequence[str]) -> bool:
        """Whether more items may fill a page for which these, the nearest, are too few."""
        if len(hits) < limit or len(self._kept(hits)) >= self.options.end:
            return False
        if self.options.min_similarity != _AUTO:
            return True
        return any(not self._is_weak(target, hits[-1].distance) for target in targets)

    # --- rerank ---

    def _reranked(self, query: Query, queries: EncodedQueries) -> list[list[Hit]]:
        """Return the nearest items of each query in their new order; ties keep the old one."""
        by_features = self.options.rerank_by == FEATURES
        is_same_space = by_features and list(query.targets) == [self.modality]
        vectors = queries.features if is_same_space else queries.scores
        if vectors is None:
            raise DataError(
                "rerank needs real-valued scores or features of the queries, and these are codes"
                " without them; pass rows of numbers, or an item that was read with kept=True"
            )
        reorder = partial(self._orders, vectors, by_features and not is_same_space)
        if self.store.capabilities.keeps_rows:  # which reads only the items that are returned
            return self._nearest(replace(query, reorder=reorder))
        answers = self._nearest(replace(query, with_codes=True))
        names = list(dict.fromkeys(hit.modality for hits in answers for hit in hits))
        every = list(chain.from_iterable(answers))
        ends = np.cumsum([len(hits) for hits in answers])
        ranks = np.array([names.index(hit.modality) for hit in every], np.intp)
        found = [
            (rows, np.array([every[i].distance for i in rows], np.int32), ranks[rows])
            for rows in np.split(np.arange(len(every)), ends[:-1])
        ]

        def read(_: str, modality: str, rows: NDArray[np.int64]) -> tuple[Any, Any]:
            codes = [code for code in (every[i].code for i in rows) if code is not None]
            return rows, np.concatenate([code.words for code in codes])

        orders = reorder(names, found, read)
        if not self.options.with_codes:
            for hit in every:
                hit.code = None
        return [[hits[i] for i in order] for hits, order in zip(answers, orders, strict=True)]

    def _orders(
        self,
        vectors: NDArray[Any],
        needs_scores: bool,
        targets: Sequence[str],
        found: Sequence[Neighbors],
        read: ReadRows,
    ) -> list[NDArray[np.intp]]:
        """Return the positions of the neighbors of each query in their new order.

        Those without a row come last. Positions beyond the page are left out, unless the page drops
        some of the hits.

        Args:
            vectors: Scores or features of the queries.
            needs_scores: Whether rows are features, and vectors are scores.
            targets: Modalities of the neighbors.
            found: The neighbors of each query.
            read: Reads rows by number.
        """
        options = self.options
        drops = options.group_by is not None or options.min_similarity
        limit = None if drops else options.end + (options.exclude is not None)
        stored = {}
        for rank, name in enumerate(targets):
            wanted = np.unique(np.concatenate([rows[ranks == rank] for rows, _, ranks in found]))
            if len(wanted):
                numbers, values = read(options.rerank_by, name, wanted)
                order = np.argsort(numbers)
                stored[rank] = numbers[order], values[order]
        orders = []
        for vector, (rows, _, ranks) in zip(vectors, found, strict=True):
            costs = np.full(len(rows), np.inf)
            for rank, (numbers, values) in stored.items():
                places = np.flatnonzero((ranks == rank) & np.isin(rows, numbers))
                if len(places):
                    own = values[np.searchsorted(numbers, rows[places])]
                    if needs_scores:
                        own = self.encoder.model.scores(targets[rank], own)
                    costs[places] = self._costs(vector, own)
            orders.append(np.argsort(costs, kind="stable")[:limit])
        return orders

    def _costs(self, vector: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
        """Return by how much the items with these rows are unlike a query."""
        if self.options.rerank_by == CODES:
            return weighted_hamming(vector, Codes(rows, self.encoder.model.n_bits))
        return -cosines(vector, rows)

    # --- weak marks, groups, page ---

    def _is_weak(self, target: str, distance: int) -> bool | None:
        """Return whether an item at this distance is weak, None if there is no threshold."""
        largest = self.encoder.thresholds.get((self.modality, target))
        return None if largest is None else distance > largest

    def _kept(self, hits: Sequence[Hit]) -> list[Hit]:
        """Mark weak hits, and return those that pages are made of."""
        options = self.options
        if self.encoder.thresholds:
            for hit in hits:
                hit.weak = self._is_weak(hit.modality, hit.distance)
        if options.exclude is not None:
            hits = [hit for hit in hits if hit.id != options.exclude]
        if options.min_similarity == _AUTO:
            hits = [hit for hit in hits if not hit.weak]
        elif options.min_similarity:
            hits = [hit for hit in hits if hit.similarity >= options.min_similarity]  # type: ignore[operator]
        if options.group_by is None:
            return list(hits)
        first: dict[Any, Hit] = {}
        for position, hit in enumerate(hits):
            value = field_value(hit.payload, options.group_by)
            # JSON tells 1 from true and from "1", as filters do; 1 and 1.0 are one value there.
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            # An item without the field is its own group.
            key = position if value is MISSING else json.dumps(value, sort_keys=True)
            first.setdefault(key, hit)
        return list(first.values())


def _probe(query: Query, conditions: Conditions) -> Query:
    """Return a query for one item that meets conditions."""
    return replace(query, codes=query.codes[:1], k=1, filter=conditions, reorder=None)


def cosines(query: NDArray[Any], rows: NDArray[Any]) -> NDArray[np.float64]:
    """Return the cosine of a vector with each row; 0 where one of them is zero."""
    vectors = rows.reshape(len(rows), -1).astype(np.float64)  # no product overflows
    flat = np.ravel(query).astype(np.float64)
    squares = np.einsum("ij,ij->i", vectors, vectors) * (flat @ flat)
    squares[squares == 0] = 1
    with np.errstate(invalid="ignore"):  # a network may overflow
        values: NDArray[np.float64] = (vectors @ flat) / np.sqrt(squares)
    return values


class SearchKeywords(TypedDict, total=False):
    """The fields of `SearchOptions` but ``k``, as keywords for type checkers."""

    target: str | Iterable[str] | None
    filter: Mapping[str, Any] | None
    min_similarity: float | str
    group_by: str | None
    offset: int
    exclude: Id | None
    rerank: int | None
    rerank_by: str
    with_codes: bool


def show_options(method: Method) -> Method:
    """Write the options into the signature and the docstring of a method, as `help` shows them.

    They take the place of ``**options``; ``k`` is a parameter of its own.
    """
    options = [each for each in SearchOptions.all() if each.name != "k"]
    kind = Parameter.KEYWORD_ONLY
    keywords = [
        Parameter(each.name, kind, default=each.default, annotation=each.type) for each in options
    ]
    given = signature(method)
    own = [each for each in given.parameters.values() if each.kind is not each.VAR_KEYWORD]
    order = [each for each in own if each.kind is not kind] + keywords
    order += [each for each in own if each.kind is kind]
    method.__signature__ = given.replace(parameters=order)  # type: ignore[attr-defined]
    docs = "\n".join(f"            {each.name}: {each.doc}" for each in options)
    method.__doc__ = (method.__doc__ or "").replace(_PLACE, docs)
    return method


_PLACE = "            **options: The fields of `SearchOptions`."


def _names(target: object) -> tuple[str, ...] | None:
    """Return the names of modalities, each once."""
    if target is None:
        return None
    if not isinstance(target, Iterable):
        raise DataError(f"target: expected names of modalities, got {target!r}")
    names = (target,) if isinstance(target, str) else tuple(dict.fromkeys(target))
    if not names:
        raise DataError("target: expected at least one modality, got none")
    return names
