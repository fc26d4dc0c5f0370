"""The service without HTTP: requests on one collection, answered as plain JSON values."""

import json
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from crossbit._validation import check_known
from crossbit.codes import Codes
from crossbit.collection.collection import Collection
from crossbit.collection.encoder import Inputs
from crossbit.collection.filters import nested_fields, unknown_field
from crossbit.collection.types import REPORT_FILE, Hit, Id, Item, Results
from crossbit.errors import CrossbitError, DataError
from crossbit.features.text import normalize_tag
from crossbit.server.bodies import FormPart
from crossbit.server.config import ServerConfig
from crossbit.server.errors import NotFoundError
from crossbit.server.images import ImageFolder
from crossbit.server.items import upload_items, upsert_items
from crossbit.server.overview import describe_model, read_report
from crossbit.server.schemas import AnnotateRequest, DeleteRequest, SearchRequest, UpsertRequest

Answer = dict[str, Any]

API = "/api"
"""Path of the routes of the default collection."""

_MAX_ERROR = 1000  # characters
_TEXT = "text"  # the kind of input of the request fields text, tags and texts
_STATS_SECONDS = 10.0  # that statistics are cached, because they are slow for a large collection
_FIELDS_SAMPLE = 200  # items of which an error lists the fields
_to_json = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True)
class _EncodableQuery:
    """One query: its modality, a batch of one input, and the item it came from, if any."""

    modality: str
    inputs: Inputs
    item: Item | None = None


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
        prefix: Path of its routes.
    """

    def __init__(self, collection: Collection, config: ServerConfig, prefix: str = API) -> None:
        self.collection = collection
        self.config = config
        images = config.images(collection) if callable(config.images) else config.images
        self.images = ImageFolder(images, prefix)
        self._stats_lock = threading.Lock()
        self._stats: tuple[float, Answer] = (-_STATS_SECONDS, {})

    # --- queries ---

    def search(self, request: SearchRequest, upload: bytes | None = None) -> Answer:
        """Return the items nearest to features, a text, tags, an item or an uploaded file."""
        query = self._query(request, upload)
        exclude = None if query.item is None else query.item.id
        (results,) = self._find(request, query.modality, query.inputs, exclude)
        if query.item is None:
            return self._found(request, query.modality, results)
        relevance = _labeled(query.item.payload.get("label"))
        terms = _tags(query.item.payload)
        return self._answer(request, query.modality, results, terms, relevance)

    def search_batch(self, requests: list[SearchRequest]) -> list[Answer | Exception]:
        """Answer many searches; those that differ only in their inputs share one call."""
        groups: dict[Hashable, list[int]] = {}
        for i, request in enumerate(requests):
            key = _batch_key(request)
            groups.setdefault(i if key is None else key, []).append(i)
        answers: list[Answer | Exception] = [{}] * len(requests)
        for positions in groups.values():
            group_answers = self._search_group([requests[i] for i in positions])
            for i, answer in zip(positions, group_answers, strict=True):
                answers[i] = answer
        return answers

    def search_all(self, requests: list[SearchRequest]) -> Answer:
        """Answer many searches of one client; a query that is wrong has an error instead."""
        answers = self.search_batch(requests)
        for answer in answers:
            if isinstance(answer, Exception) and not isinstance(answer, DataError):
                raise answer
        return {
            "results": [
                {"error": str(answer)[:_MAX_ERROR]} if isinstance(answer, Exception) else answer
                for answer in answers
            ]
        }

    def annotate(self, request: AnnotateRequest, upload: bytes | None = None) -> Answer:
        """Suggest tags for features, a text, tags, an item or an uploaded file."""
        query = self._query(request, upload)
        (tags,) = self.collection.annotate(
            query.modality,
            query.inputs,
            target=request.target or self._text_modalities() or None,
            neighbors=request.neighbors,
            max_tags=request.max_tags,
            field=request.field,
            trusted=False,
        )
        return {"tags": [vars(tag) for tag in tags]}

    def _query(
        self, request: SearchRequest | AnnotateRequest, upload: bytes | None
    ) -> _EncodableQuery:
        modality = request.modality
        if upload is not None:
            accepting = [
                name for name, kind in self._accepts().items() if kind not in (None, _TEXT)
            ]
            return _EncodableQuery(_choose(modality, accepting, "uploaded files"), [upload])
        if request.id is not None:
            item = self._item(request.id)
            if not item.codes:
                raise DataError(f"item {item.id!r} has no code; add one with its features")
            modality = item.modalities[0] if modality is None else modality
            check_known(modality, item.codes, "modality of the item")
            return _EncodableQuery(modality, item.codes[modality], item)
        if request.features is not None:
            if modality is None:
                modalities = self.collection.model.modalities
                raise DataError(f"features need a modality, one of {modalities}; got none")
            return _EncodableQuery(modality, np.array([request.features], np.float64))
        text = request.tags if request.text is None else request.text
        return _EncodableQuery(_choose(modality, self._text_modalities(), "text"), [text])

    def _accepts(self) -> dict[str, str | None]:
        """Modality → kind of raw input that it accepts from clients."""
        names = self.collection.model.modalities
        return {name: self.collection.accepts(name, trusted=False) for name in names}

    def _text_modalities(self) -> list[str]:
        return [name for name, kind in self._accepts().items() if kind == _TEXT]

    def _search_group(self, requests: list[SearchRequest]) -> Iterator[Answer | Exception]:
        """Answer one group in one call; if that fails, one by one, to report the faulty ones."""
        if len(requests) > 1:
            try:
                yield from self._search_together(requests)
                return
            except CrossbitError:
                pass
        for request in requests:
            try:
                yield self.search(request)
            except Exception as error:  # reported to the client of this request
                yield error

    def _search_together(self, requests: list[SearchRequest]) -> list[Answer]:
        modality = self._query(requests[0], None).modality
        inputs: Inputs
        if requests[0].features is not None:
            inputs = np.array([request.features for request in requests], np.float64)
        else:
            inputs = [each.tags if each.text is None else each.text for each in requests]
        results = self._find(requests[0], modality, inputs)
        return [
            self._found(request, modality, hits)
            for request, hits in zip(requests, results, strict=True)
        ]

    def _find(
        self, request: SearchRequest, modality: str, inputs: Inputs, exclude: Id | None = None
    ) -> list[Results]:
        """Search with the options of a request."""
        if request.filter:
            self.check_filter(request.filter)
        return self.collection.search(
            modality,
            inputs,
            request.k,
            target=request.target,
            filter=request.filter,
            min_similarity=request.min_similarity,
            group_by=request.group_by,
            offset=request.offset,
            exclude=exclude,
            rerank=request.rerank,
            rerank_by=request.rerank_by,
            threads=1,
            with_codes=request.codes,
            trusted=False,
        )

    def _found(self, request: SearchRequest, modality: str, results: Results) -> Answer:
        """Answer to a query that is no item."""
        relevance = _tagged(results.terms) if results.exact_terms else None
        return self._answer(request, modality, results, results.terms, relevance)

    def _answer(
        self,
        request: SearchRequest,
        modality: str,
        results: Results,
        terms: list[str],
        relevance: _Criterion | None,
    ) -> Answer:
        criterion = None if relevance is None else relevance.description
        query: Answer = {"modality": modality, "terms": terms, "relevance": criterion}
        hits = [self._hit(hit) for hit in results]
        if relevance is not None:
            for hit, result in zip(hits, results, strict=True):
                hit["relevant"] = relevance.holds(result.payload)
        if request.codes:
            query["code"] = _bits(results.code)
            for hit, result in zip(hits, results, strict=True):
                hit["code"] = None if result.code is None else _bits(result.code)
        return {"query": query, "hits": hits, "n_bits": self.collection.model.n_bits}

    def _hit(self, hit: Hit) -> Answer:
        id_ = hit.id
        key = str(id_) if type(id_) is int else _to_json(id_)
        picture, media = self.images.urls(key, hit.payload)
        return {
            "id": id_,
            "key": key,
            "distance": hit.distance,
            "similarity": hit.similarity,
            "modality": hit.modality,
            "weak": hit.weak,
            "payload": hit.payload,
            "picture": picture,
            "media": media,
            "relevant": None,
        }

    def check_filter(self, conditions: dict[str, Any]) -> None:
        """Reject a filter that would build an index: clients must not trigger that."""
        missing = self.collection.unindexed_fields(conditions)
        if not missing:
            return
        field = missing[0]
        sample = islice(self.collection, _FIELDS_SAMPLE)
        known = {name for item in sample for name in nested_fields(item.payload)}
        if field not in known:
            raise unknown_field(field, known.union(self.stats()["collection"]["fields"]))
        raise DataError(
            f"filter: field {field!r} has no index; index it with 'crossbit index COLLECTION"
            f" {field}' where the collection is"
        )

    # --- items ---

    def items(self, ids: list[Id] | None, skip: int, limit: int) -> Answer:
        """Return items by id, or a range of all items in order of arrival."""
        stored = islice(self.collection, skip, skip + limit)
        items = stored if ids is None else map(self._item, ids)
        return {"items": [*map(self._described, items)], "total": len(self.collection)}

    def _described(self, item: Item) -> Answer:
        key = _to_json(item.id)
        picture, media = self.images.urls(key, item.payload)
        return {
            "id": item.id,
            "key": key,
            "payload": item.payload,
            "modalities": item.modalities,
            "picture": picture,
            "media": media,
        }

    def thumbnail(self, id_: Id, side: int) -> bytes:
        """Return an item's image, its longer side at most ``side`` pixels."""
        return self.images.thumbnail(self._item(id_).payload, side)

    def media(self, id_: Id, field: str) -> tuple[Path, str]:
        """Return the file of an item's audio, mesh or signal, and its media type."""
        return self.images.media(self._item(id_).payload, field)

    def upsert(self, request: UpsertRequest) -> Answer:
        """Add or update items, all of them or none."""
        return {"changed": upsert_items(self.collection, request.items)}

    def upload(self, parts: list[FormPart]) -> Answer:
        """Add or update items given as files, all of them or none."""
        return {"changed": upload_items(self.collection, parts)}

    def delete(self, request: DeleteRequest) -> Answer:
        """Delete items."""
        return {"changed": self.collection.delete(request.ids)}

    def _item(self, id_: Id) -> Item:
        (item,) = self.collection.get([id_])
        if item is None:
            raise NotFoundError(f"there is no item {id_!r}")
        return item

    # --- statistics ---

    def stats(self) -> Answer:
        """Return statistics of the collection and a description of its model, cached briefly."""
        with self._stats_lock:
            updated, stats = self._stats
            if time.monotonic() - updated >= _STATS_SECONDS:
                stats = {
                    "collection": self.collection.stats().to_dict(),
                    "model": describe_model(self.collection.model, self._accepts()),
                    "report": read_report(Path(self.collection.path) / REPORT_FILE),
                    "writable": self.config.writable,
                }
                self._stats = (time.monotonic(), stats)
        return stats


def _choose(requested: str | None, accepting: list[str], inputs: str) -> str:
    """The modality of a raw input: the requested one, or the first that accepts it."""
    if requested is not None:
        return requested  # the collection checks that it accepts the input
    if not accepting:
        raise DataError(
            f"no modality of this collection accepts {inputs}; pass features or an item's id"
        )
    return accepting[0]


def _batch_key(request: SearchRequest) -> Hashable | None:
    """What searches in one call have in common; None for a search that needs its own call."""
    if request.id is not None:
        return None  # which the answer leaves out
    inputs = "text" if request.features is None else len(request.features)
    target = None if request.target is None else tuple(request.target)
    conditions = json.dumps(request.filter) if request.filter else None
    page = (request.k, request.offset, request.group_by, request.min_similarity)
    order = (request.rerank, request.rerank_by, request.codes)
    return request.modality, inputs, target, conditions, page, order


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


def _bits(code: Codes) -> str:
    """Bits of one code, such as ``"0110"``."""
    return "".join("1" if bit else "0" for bit in code.unpack()[0].tolist())
