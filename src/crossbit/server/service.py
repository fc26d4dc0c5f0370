"""The service without HTTP: requests on one collection, answered as plain JSON values."""

import json
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from crossbit._validation import check_known
from crossbit.codes import Codes
from crossbit.collection.collection import Collection
from crossbit.collection.encoder import Inputs
from crossbit.collection.types import REPORT_FILE, Hit, Id, Item, Results
from crossbit.errors import CrossbitError, DataError
from crossbit.features.text import normalize_tag
from crossbit.server.errors import UnknownItemError
from crossbit.server.images import ImageFolder
from crossbit.server.run import ServerConfig
from crossbit.server.schemas import AnnotateRequest, DeleteRequest, SearchRequest, UpsertRequest

Answer = dict[str, Any]

_TEXT = "text"  # the kind of input of the request fields text, tags and texts
_STATS_SECONDS = 10.0  # that statistics are cached, because they are slow for a large collection
_MAX_REPORT_BYTES = 4 << 20
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
    """

    def __init__(self, collection: Collection, config: ServerConfig) -> None:
        self.collection = collection
        self.config = config
        self.images = ImageFolder(config.images)
        self._stats_lock = threading.Lock()
        self._stats: tuple[float, Answer] = (-_STATS_SECONDS, {})

    # --- queries ---

    def search(self, request: SearchRequest, upload: bytes | None = None) -> Answer:
        """Return the items nearest to features, a text, tags, an item or an uploaded file."""
        if request.filter:
            self._check_filter(request.filter)
        query = self._query(request, upload)
        extra = int(query.item is not None)  # the query's own item is removed from the results
        (results,) = self.collection.search(
            query.modality,
            query.inputs,
            request.k + extra,
            target=request.target,
            filter=request.filter,
            min_similarity=request.min_similarity,
            rerank=None if request.rerank is None else request.rerank + extra,
            threads=1,
            with_codes=request.codes,
            trusted=False,
        )
        if query.item is None:
            terms = results.terms
            relevance = _tagged(terms) if results.exact_terms else None
        else:
            terms = _tags(query.item.payload)
            relevance = _labeled(query.item.payload.get("label"))
            results[:] = [hit for hit in results if hit.id != query.item.id][: request.k]
        answer = self._answer(query.modality, results, terms, relevance)
        if request.codes:
            answer["query"]["code"] = _bits(results.code)
            for hit, result in zip(answer["hits"], results, strict=True):
                hit["code"] = None if result.code is None else _bits(result.code)
        return answer

    def search_batch(self, requests: list[SearchRequest]) -> list[Answer | Exception]:
        """Answer many searches; those that differ only in their features share one call."""
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
            if modality is None:
                modality = item.modalities[0]
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
        first = requests[0]
        modality = self._query(first, None).modality
        results = self.collection.search(
            modality,
            np.array([request.features for request in requests], np.float64),
            first.k,
            target=first.target,
            min_similarity=first.min_similarity,
            threads=1,
            trusted=False,
        )
        return [self._answer(modality, hits, [], None) for hits in results]

    def _answer(
        self, modality: str, results: Results, terms: list[str], relevance: _Criterion | None
    ) -> Answer:
        criterion = None if relevance is None else relevance.description
        return {
            "query": {"modality": modality, "terms": terms, "relevance": criterion},
            "hits": [self._hit(hit, relevance) for hit in results],
            "n_bits": self.collection.model.n_bits,
        }

    def _hit(self, hit: Hit, relevance: _Criterion | None) -> Answer:
        key = _to_json(hit.id)
        return {
            "id": hit.id,
            "key": key,
            "distance": hit.distance,
            "similarity": hit.similarity,
            "modality": hit.modality,
            "payload": hit.payload,
            "picture": self._image_url(key, hit.payload),
            "relevant": None if relevance is None else relevance.holds(hit.payload),
        }

    def _check_filter(self, conditions: dict[str, Any]) -> None:
        """Reject a filter that would build an index: clients must not trigger that."""
        if missing := self.collection.unindexed_fields(conditions):
            indexed = sorted(self.stats()["collection"]["fields"])
            raise DataError(
                f"filter: field {missing[0]!r} has no index; indexed fields: {indexed}; add one"
                " with Collection.index_field"
            )

    # --- items ---

    def items(self, ids: list[Id] | None, skip: int, limit: int) -> Answer:
        """Return items by id, or a range of all items in order of arrival."""
        stored = islice(self.collection, skip, skip + limit)
        items = stored if ids is None else map(self._item, ids)
        answers = [
            {
                "id": item.id,
                "key": (key := _to_json(item.id)),
                "payload": item.payload,
                "modalities": item.modalities,
                "picture": self._image_url(key, item.payload),
            }
            for item in items
        ]
        return {"items": answers, "total": len(self.collection)}

    def thumbnail(self, id_: Id, side: int) -> bytes:
        """Return an item's image, its longer side at most ``side`` pixels."""
        return self.images.thumbnail(self._item(id_).payload, side)

    def upsert(self, request: UpsertRequest) -> Answer:
        """Add or update items, all of them or none."""
        items = request.items
        names = {name for item in items for name in (*item.features, *item.texts)}
        views = {name: _view(name, items) for name in sorted(names)}
        payloads = [item.payload for item in items]
        self.collection.upsert([item.id for item in items], views, payloads, trusted=False)
        return {"changed": len(items)}

    def delete(self, request: DeleteRequest) -> Answer:
        """Delete items."""
        return {"changed": self.collection.delete(request.ids)}

    def _item(self, id_: Id) -> Item:
        (item,) = self.collection.get([id_])
        if item is None:
            raise UnknownItemError(f"there is no item {id_!r}")
        return item

    def _image_url(self, key: str, payload: dict[str, Any]) -> str | None:
        if not self.images.has_image(payload):
            return None
        return f"/api/pictures?id={quote(key, safe='')}"

    # --- statistics ---

    def stats(self) -> Answer:
        """Return statistics of the collection and a description of its model, cached briefly."""
        with self._stats_lock:
            updated, stats = self._stats
            if time.monotonic() - updated >= _STATS_SECONDS:
                stats = {
                    "collection": self.collection.stats().to_dict(),
                    "model": self._describe_model(),
                    "report": _read_report(Path(self.collection.path)),
                    "writable": self.config.writable,
                }
                self._stats = (time.monotonic(), stats)
        return stats

    def _describe_model(self) -> Answer:
        model = self.collection.model
        modalities = [
            {
                "name": name,
                "accepts": kind,
                "width": model.width(name),
                "recipe": model.recipes[name].kind if name in model.recipes else None,
                "layers": [layer.kind for layer in model.encoders[name]],
            }
            for name, kind in self._accepts().items()
        ]
        return {"modalities": modalities, "n_bits": model.n_bits, "card": _plain(model.card)}


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
    if request.features is None or request.filter or request.rerank or request.codes:
        return None
    target = None if request.target is None else tuple(request.target)
    return request.modality, len(request.features), request.k, target, request.min_similarity


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


def _view(name: str, items: list[UpsertRequest.NewItem]) -> Inputs:
    """Inputs of one modality, NaN or None where an item has none."""
    texts = [item.texts.get(name) for item in items]
    if any(text is not None for text in texts):
        if any(name in item.features for item in items):
            raise DataError(
                f"{name!r}: some items have features, others texts; send them in two requests"
            )
        return texts
    rows = [item.features.get(name) for item in items]
    width = max(len(row) for row in rows if row is not None)
    for row in rows:
        # An all-NaN row would mean that the item lacks the modality; a client leaves it out.
        if row is not None and (len(row) != width or np.isnan(row).all()):
            actual = len(row) if len(row) != width else "only NaN"
            raise DataError(f"rows of {name!r}: expected {width} numbers, got {actual}")
    return np.array([[np.nan] * width if row is None else row for row in rows])


def _bits(code: Codes) -> str:
    """Bits of one code, such as ``"0110"``."""
    return "".join("1" if bit else "0" for bit in code.unpack()[0].tolist())


def _read_report(path: Path) -> dict[str, Any]:
    """Quality report in a collection's folder; empty if there is none."""
    path = path / REPORT_FILE
    try:
        if path.stat().st_size > _MAX_REPORT_BYTES:
            return {}
        report = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return _plain(report) if isinstance(report, dict) else {}


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value of a model card
    """Convert to JSON types; NaN and infinity become None, other types strings."""
    match value:
        case Mapping():
            return {str(key): _plain(element) for key, element in value.items()}
        case list() | tuple():
            return [_plain(element) for element in value]
        case bool() | int() | str() | None:
            return value
        case float():
            return value if abs(value) < float("inf") else None
        case _:
            return str(value)
