"""Requests on one collection, answered as plain JSON values."""

import io
import json
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from fastapi.responses import Response

from crossbit._validation import check_known
from crossbit.codes import Codes
from crossbit.collection.collection import Collection
from crossbit.collection.encoder import Inputs
from crossbit.collection.filters import nested_fields, unknown_field
from crossbit.collection.search import SearchOptions
from crossbit.collection.values import REPORT_FILE, Hit, Id, Item, Results, from_hex, to_hex
from crossbit.errors import CrossbitError, DataError, NotFoundError
from crossbit.features.text import normalize_tag
from crossbit.model.hashmodel import HashModel
from crossbit.server import models
from crossbit.server.batching import MicroBatcher, WorkerPool
from crossbit.server.bodies import FormPart, json_response
from crossbit.server.config import ServerConfig
from crossbit.server.media import MediaFolder
from crossbit.server.overview import Overview, describe_model, read_report

Answer = dict[str, Any]

API = "/api"
"""Path of the routes of the default collection."""

COLLECTIONS = f"{API}/collections"
"""Path of the list of collections, and of each of them by name."""

_TEXT = "text"  # the kind of input of text, tags and texts
_INPUTS = ("features", "texts", "files", "codes")  # of an item
_STATS_SECONDS = 10.0  # that statistics are cached, because they are slow for a large collection
_FIELDS_SAMPLE = 200  # items of which an error lists the fields
_to_json = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True)
class _Query:
    """One query: its modality, its input, and the item it came from, if any."""

    modality: str
    value: Any  # a row of numbers, a code, or a raw input
    item: Item | None = None

    @property
    def group(self) -> Hashable:
        """What it has in common with queries that are searched in the same call; None: nothing."""
        if self.item is not None:
            return None  # which the answer leaves out
        kind = type(self.value)
        width = len(self.value) if kind is np.ndarray else None
        return self.modality, kind if kind in (np.ndarray, Codes) else None, width


@dataclass(frozen=True)
class _Criterion:
    """A criterion that decides which hits are relevant, and its description."""

    description: str
    holds: Callable[[dict[str, Any]], bool]


class Service:
    """Answers requests on one collection; safe to call from any thread.

    The collection encodes all inputs. They come from clients, so they are marked as untrusted.

    Args:
        collection: The collection.
        config: Access and limits.
        pool: Where searches that arrive at the same time run as one.
        name: Name of the collection.

    Attributes:
        batcher: Answers searches with one query of features, as responses in JSON.
    """

    def __init__(
        self,
        collection: Collection,
        config: ServerConfig,
        pool: WorkerPool,
        name: str = "default",
    ) -> None:
        self.collection = collection
        self.config = config
        self.name = name
        self.batcher = MicroBatcher(pool, self._respond)
        folder = config.images(collection) if callable(config.images) else config.images
        self.files = MediaFolder(folder, f"{COLLECTIONS}/{name}")
        self._overview = Overview(collection)
        self._stats_lock = threading.Lock()
        self._stats: tuple[float, int, Answer] | None = None  # when, after how many writes, what
        self._writes = 0

    # --- queries ---

    def search(self, request: models.SearchRequest) -> Answer:
        """Return the items nearest to one query, or to each of several."""
        answers = self._search(request.each(), request.options, request)
        return answers[0] if request.queries is None else {"results": answers}

    def search_batch(self, requests: Sequence[models.SearchRequest]) -> list[Answer | Exception]:
        """Answer requests with one query each; those that share all options share a call."""
        groups: dict[str, list[int]] = {}
        for i, request in enumerate(requests):
            groups.setdefault(repr(request.options), []).append(i)
        answers: list[Answer | Exception] = [{}] * len(requests)
        for positions in groups.values():
            found = self._search_group([requests[i] for i in positions])
            for i, answer in zip(positions, found, strict=True):
                answers[i] = answer
        return answers

    def _respond(self, requests: list[models.SearchRequest]) -> list[Response | Exception]:
        return [
            answer if isinstance(answer, Exception) else json_response(answer)
            for answer in self.search_batch(requests)
        ]

    def _search_group(self, requests: list[models.SearchRequest]) -> Sequence[Answer | Exception]:
        """Answer one group in one call; if that fails, one by one, to report the faulty ones."""
        try:
            return self._search(requests, requests[0].options, requests[0])
        except Exception as error:  # reported to the client of the request
            if len(requests) == 1 or not isinstance(error, CrossbitError):
                return [error] * len(requests)
        return [self._search_group([request])[0] for request in requests]

    def annotate(self, request: models.AnnotateRequest) -> Answer:
        """Suggest tags for one query, or for each of several."""
        if request.filter:
            self._check_filter(request.filter)
        answers = []
        for query in (self._query(each, request) for each in request.each()):
            (tags,) = self.collection.annotate(
                query.modality,
                _inputs([query]),
                target=request.target or self._accepting(_TEXT) or None,
                neighbors=request.neighbors,
                max_tags=request.max_tags,
                field=request.field,
                filter=request.filter,
                trusted=False,
            )
            answers.append({"tags": [vars(tag) for tag in tags]})
        return answers[0] if request.queries is None else {"results": answers}

    def _search(
        self,
        queries: Sequence[models.QueryFields],
        options: SearchOptions,
        codes: models.CodesOfModel,
    ) -> list[Answer]:
        """Search with the same options for all queries; those of one kind share a call."""
        if options.filter:
            self._check_filter(options.filter)
        checked = [self._query(query, codes) for query in queries]
        groups: dict[Hashable, list[int]] = {}
        for i, query in enumerate(checked):
            groups.setdefault(i if query.group is None else query.group, []).append(i)
        answers: list[Answer] = [{}] * len(checked)
        for positions in groups.values():
            group = [checked[i] for i in positions]
            results = self._find(group, options)
            for i, query, hits in zip(positions, group, results, strict=True):
                answers[i] = self._answer(query, hits)
        return answers

    def _find(self, group: list[_Query], options: SearchOptions) -> list[Results]:
        item = group[0].item
        if item is not None:
            if options.exclude is not None:
                raise DataError("exclude: a search by id excludes that item; leave exclude out")
            options = replace(options, exclude=item.id)
        values = options.to_json()
        return self.collection.search(
            group[0].modality, _inputs(group), threads=1, trusted=False, **values
        )

    def _query(self, query: models.QueryFields, codes: models.CodesOfModel) -> _Query:
        modality = query.modality
        if query.id is not None:
            item = self._stored(query.id, kept=True)
            if not item.codes:
                raise DataError(f"item {item.id!r} has no code; add one with its features")
            modality = item.modalities[0] if modality is None else modality
            return _Query(modality, item.view(modality), item)
        if query.file is not None:
            return _Query(modality or self._accepting(None, "uploaded files")[0], query.file)
        if query.features is not None or query.code is not None:
            if modality is None:
                known = self.collection.model.modalities
                raise DataError(f"features and codes need a modality, one of {known}; got none")
            if query.features is not None:
                return _Query(modality, models.row_of(query.features))
            return _Query(modality, self._codes(codes, [str(query.code)]))
        text = query.tags if query.text is None else query.text
        return _Query(modality or self._accepting(_TEXT, _TEXT)[0], text)

    def _accepts(self) -> dict[str, str | None]:
        """Modality → kind of raw input that it accepts from clients."""
        names = self.collection.model.modalities
        return {name: self.collection.accepts(name, trusted=False) for name in names}

    def _accepting(self, kind: str | None, required: str | None = None) -> list[str]:
        """Modalities that accept text, or files for kind None; required: there must be one."""
        names = [
            name
            for name, accepted in self._accepts().items()
            if (accepted == kind if kind else accepted not in (None, _TEXT))
        ]
        if required is not None and not names:
            raise DataError(
                f"no modality of this collection accepts {required}; pass features or an item's id"
            )
        return names

    def _codes(self, request: models.CodesOfModel, texts: Sequence[str]) -> Codes:
        """Codes in hexadecimal, which the collection compares with its model."""
        n_bits = request.n_bits or self.collection.model.n_bits
        return from_hex(texts, n_bits, request.model)

    def _answer(self, query: _Query, results: Results) -> Answer:
        if query.item is None:
            terms = results.terms
            relevance = _tagged(terms) if results.exact_terms else None
        else:
            terms = _tags(query.item.payload)
            relevance = _labeled(query.item.payload.get("label"))
        hits = [self._hit(hit) for hit in results]
        if relevance is not None:
            for hit, result in zip(hits, results, strict=True):
                hit["relevant"] = relevance.holds(result.payload)
        return {
            "query": {
                "modality": query.modality,
                "terms": terms,
                "exact_terms": results.exact_terms,
                "relevance": None if relevance is None else relevance.description,
                "code": to_hex(results.code)[0],
            },
            "hits": hits,
            "n_bits": results.code.n_bits,
            "model": results.code.model,
        }

    def _hit(self, hit: Hit) -> Answer:
        return {**hit.to_json(), **self._addresses(hit.id, hit.payload), "relevant": None}

    def _addresses(self, id_: Id, payload: dict[str, Any]) -> Answer:
        """The id in JSON, as URLs contain it, and the URLs of an item's files."""
        key = str(id_) if type(id_) is int else _to_json(id_)
        picture, media = self.files.urls(key, payload)
        return {"key": key, "picture": picture, "media": media}

    def _check_filter(self, conditions: Mapping[str, Any]) -> None:
        """Reject a filter that would build an index: clients must not trigger that."""
        missing = self.collection.unindexed_fields(conditions)
        if not missing:
            return
        field = missing[0]
        sample = self.collection.sample(_FIELDS_SAMPLE)
        known = {name for item in sample for name in nested_fields(item.payload)}
        if field not in known:
            raise unknown_field(field, known.union(self.stats()["collection"]["fields"]))
        raise DataError(
            f"filter: field {field!r} has no index; run 'crossbit collection index"
            f" COLLECTION {field}' where the collection is"
        )

    # --- items ---

    def items(self, skip: int, limit: int) -> Answer:
        """Return a range of all items in order of arrival."""
        return self._described(list(islice(self.collection, skip, skip + limit)))

    def get_items(self, request: models.IdsRequest) -> Answer:
        """Return items in the order of their ids; null for an unknown one."""
        return self._described(self.collection.get(request.ids))

    def item(self, id_: Id) -> Answer:
        """Return one item."""
        return self._item(self._stored(id_))

    def _described(self, items: Sequence[Item | None]) -> Answer:
        codes = (code for item in items if item is not None for code in item.codes.values())
        model = self.collection.model
        code = next(codes, None)
        return {
            "items": [None if item is None else self._item(item) for item in items],
            "total": len(self.collection),
            "n_bits": model.n_bits if code is None else code.n_bits,
            "model": model.fingerprint() if code is None else code.model,
        }

    def _item(self, item: Item) -> Answer:
        return item.to_json() | self._addresses(item.id, item.payload)

    def _stored(self, id_: Id, *, kept: bool = False) -> Item:
        (item,) = self.collection.get([id_], kept=kept)
        if item is None:
            raise NotFoundError(f"there is no item {id_!r}")
        return item

    def thumbnail(self, id_: Id, side: int) -> bytes:
        """Return an item's image, its longer side at most ``side`` pixels."""
        return self.files.thumbnail(self._stored(id_).payload, side)

    def media(self, id_: Id, field: str) -> tuple[Path, str]:
        """Return the file of an item's audio, mesh or signal, and its media type."""
        return self.files.media(self._stored(id_).payload, field)

    # --- changes ---

    def upsert(self, request: models.UpsertRequest) -> Answer:
        """Add or update items, all of them or none."""
        items = request.items
        names = {name: None for item in items for kind in _INPUTS for name in getattr(item, kind)}
        views = {name: self._view(name, request) for name in names}
        self.collection.upsert(
            [item.id for item in items],
            views,
            [item.payload for item in items],
            replace_payload=request.replace_payload,
            trusted=False,
        )
        return self._changed(len(items))

    def _view(self, name: str, request: models.UpsertRequest) -> Inputs:
        """Inputs of one modality, NaN or None where an item has none."""
        kinds = [
            kind for kind in _INPUTS if any(name in getattr(item, kind) for item in request.items)
        ]
        if len(kinds) > 1:
            raise DataError(
                f"{name!r}: some items have {kinds[0]}, others {kinds[1]}; send them in two"
                " requests"
            )
        values = [getattr(item, kinds[0]).get(name) for item in request.items]
        if kinds == ["features"]:
            return _rows(name, [None if each is None else models.row_of(each) for each in values])
        if kinds != ["codes"]:
            return values
        if None in values:
            raise DataError(f"{name!r}: some items have a code, others none; send two requests")
        return self._codes(request, values)

    def upload(self, request: models.UpsertRequest, parts: Sequence[FormPart]) -> Answer:
        """Add or update items given as files.

        The name of a part is the modality of its file, and its filename the id of the item.

        Args:
            request: Payloads and other inputs of the items.
            parts: The files.
        """
        items = {item.id: item for item in request.items}
        for part in parts:
            modality = check_known(part.name, self.collection.model.modalities)
            if part.filename is None:
                raise DataError(
                    f"part {part.name!r}: expected a filename, which is the id of the item; such as"
                    " curl -F image=@cat.jpg"
                )
            id_ = key_to_id(part.filename)
            item = items.setdefault(id_, models.NewItem(id=id_, files={}, texts={}))
            is_text = self.collection.accepts(modality, trusted=False) == _TEXT
            inputs: dict[str, Any] = item.texts if is_text else item.files
            if modality in inputs:
                raise DataError(f"item {id_!r} has two files for {modality!r}; send one")
            inputs[modality] = part.text() if is_text else part.content
        if not items:
            raise DataError("expected at least one item, got none")
        return self.upsert(request.model_copy(update={"items": list(items.values())}))

    def update(self, request: models.UpdateRequest) -> Answer:
        """Change the payloads of existing items: merge fields into them, and remove fields."""
        ids = [item.id for item in request.items]
        payloads = [item.payload for item in request.items]
        self.collection.update(ids, payloads, remove=request.remove)
        return self._changed(len(ids))

    def delete(self, request: models.DeleteRequest) -> Answer:
        """Delete items by ids or by a filter, or only their codes of one modality."""
        if request.filter:
            self._check_filter(request.filter)
        count = self.collection.delete(
            request.ids, filter=request.filter, modality=request.modality
        )
        return self._changed(count)

    def index_field(self, request: models.IndexRequest) -> Answer:
        """Index a payload field, which makes filters on it fast."""
        self.collection.index_field(request.field)
        return self._changed(0)

    def check(self) -> Answer:
        """Verify all files and rebuild corrupted indexes."""
        findings = self.collection.check()
        return {"findings": [each.to_json() for each in findings]}

    def compact(self) -> Answer:
        """Free the space of deleted items, and save the indexes."""
        self.collection.compact()
        return self._changed(0)

    def _changed(self, count: int) -> Answer:
        self._writes += 1
        return {"changed": count}

    # --- the collection ---

    def describe(self) -> Answer:
        """Return the number of items, the modalities and what each accepts."""
        model = self._current_model()
        return {
            "name": self.name,
            "items": len(self.collection),
            "modalities": {
                name: self.collection.accepts(name, trusted=False) for name in model.modalities
            },
            "n_bits": model.n_bits,
            "model": model.fingerprint(),
            "capabilities": vars(self.collection.capabilities) | {"remote": True},
            "keep": list(self.collection.keep),
            "writable": self.config.writable,
        }

    def stats(self) -> Answer:
        """Return statistics, health of the codes, and the model.

        They are up to 10 seconds old if another process has written meanwhile.
        """
        with self._stats_lock:
            if self._stats is not None:
                updated, writes, stats = self._stats
                if writes == self._writes and time.monotonic() - updated < _STATS_SECONDS:
                    return stats
            writes = self._writes
            stats = {
                "collection": self.collection.stats().to_dict(),
                "model": describe_model(self.collection.model, self._accepts()),
                "report": self._report(),
                "writable": self.config.writable,
            }
            self._stats = (time.monotonic(), writes, stats)
            return stats

    def overview(self) -> Answer:
        """Return facets, example words and names of bits, from a random sample of the items."""
        return self._overview.read()

    def model_archive(self) -> bytes:
        """Return the model as a ZIP archive of its folder."""
        out = io.BytesIO()
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(out, "w") as archive:
            self._current_model().save(Path(folder) / "model")
            for path in sorted((Path(folder) / "model").iterdir()):
                archive.write(path, path.name)
        return out.getvalue()

    def _report(self) -> Answer:
        path = self.collection.path  # a URI if the collection is on a server
        return read_report(path / REPORT_FILE) if isinstance(path, Path) else {}

    def _current_model(self) -> HashModel:
        """Return the current model, also after an upgrade by another process."""
        return self.collection.scan()[0]


def key_to_id(key: str) -> Id:
    """Return the id that a URL contains: JSON of a string or an integer, or else the text itself.

    Example:
        >>> key_to_id("7"), key_to_id('"7"'), key_to_id("cat.png")
        (7, '7', 'cat.png')
    """
    try:
        value = json.loads(key)
    except (ValueError, RecursionError):
        return key
    return value if isinstance(value, str) or type(value) is int else key


def _inputs(group: list[_Query]) -> Inputs:
    """The inputs of queries of one group."""
    values = [query.value for query in group]
    if group[0].item is not None:
        return group[0].value  # type: ignore[no-any-return]
    if isinstance(values[0], np.ndarray):
        return np.stack(values)
    if isinstance(values[0], Codes):
        words = np.concatenate([code.words for code in values])
        return Codes(words, values[0].n_bits, model=values[0].model)
    return values


def _rows(name: str, rows: list[Any]) -> Inputs:
    """Stack rows; one that is missing becomes NaN."""
    width = max(len(row) for row in rows if row is not None)
    for row in rows:
        # An all-NaN row would mean that the item lacks the modality; a client leaves it out.
        if row is not None and (len(row) != width or np.isnan(row).all()):
            actual = len(row) if len(row) != width else "only NaN"
            raise DataError(f"rows of {name!r}: expected {width} numbers, got {actual}")
    return np.stack([np.full(width, np.nan, np.float16) if row is None else row for row in rows])


def _tagged(tags: list[str]) -> _Criterion:
    description = f"items tagged {' + '.join(tags)}"
    return _Criterion(description, lambda payload: set(tags) <= set(_tags(payload)))


def _labeled(label: object) -> _Criterion | None:
    if not isinstance(label, str | int) or isinstance(label, bool):
        return None
    return _Criterion(f"items labeled {label}", lambda payload: bool(payload.get("label") == label))


def _tags(payload: dict[str, Any]) -> list[str]:
    """Normalized tags of an item."""
    value = payload.get("tags")
    if not isinstance(value, list):
        return []
    return [normalize_tag(tag) for tag in value if isinstance(tag, str)]
