"""The service without the network: requests to plain answers, over one collection."""

import json
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import quote

import numpy as np

from crossbit.codes import Codes
from crossbit.collection import Collection, Hit, Item
from crossbit.collection import Id as ItemId
from crossbit.collection.encoder import Things
from crossbit.errors import CrossbitError, DataError
from crossbit.server import reports
from crossbit.server.describers import Describers
from crossbit.server.pictures import Pictures
from crossbit.server.problems import NotFoundError
from crossbit.server.questions import Question, from_picture, from_thing
from crossbit.server.schemas import Annotate, NewItem, Search, Thing
from crossbit.server.settings import Settings

T = TypeVar("T")
_spell = json.JSONEncoder(ensure_ascii=False).encode
Answer = dict[str, Any]
_STATS_SECONDS = 10.0  # facts about a large collection take a while to gather
_FILTERED_FREELY = (
    10_000  # items; beyond, a filter on a new field would make an index, which strangers must not
)


class Service:
    """Answers about one collection; every call is safe from any thread.

    Args:
        collection: What is asked.
        settings: What is allowed.
    """

    def __init__(self, collection: Collection, settings: Settings) -> None:
        self.collection = collection
        self.settings = settings
        self.pictures = Pictures(settings.media)
        self._described = Describers(collection.model)
        self._stats: tuple[float, Answer] = (-_STATS_SECONDS, {})
        self._stats_lock = threading.Lock()

    # --- asking ---

    def search(self, asked: Search) -> Answer:
        """Find the items nearest to what a request tells of."""
        self._allow(asked.where)
        item = self._item(asked)
        return self._with_model(
            lambda known: self._find(known, from_thing(known, asked, item), asked)
        )

    def search_all(self, asked: list[Search]) -> list[Answer | Exception]:
        """Answer many searches, those that are alike but for their features in one go."""
        alike: dict[Hashable, list[int]] = {}
        for i, each in enumerate(asked):
            sort = _sort(each)
            alike.setdefault(i if sort is None else sort, []).append(i)
        answers: list[Answer | Exception] = [{}] * len(asked)
        for places in alike.values():
            for i, answer in zip(
                places, self._search_alike([asked[i] for i in places]), strict=True
            ):
                answers[i] = answer
        return answers

    def _search_alike(self, asked: list[Search]) -> Iterator[Answer | Exception]:
        """Answer searches in one go if that works, and else one by one, so that one's mistake is not another's."""
        if len(asked) > 1:
            try:
                yield from self._with_model(lambda known: self._find_all(known, asked))
                return
            except CrossbitError:
                pass
        for each in asked:
            try:
                yield self.search(each)
            except Exception as error:  # told to the one who asked
                yield error

    def search_picture(self, picture: bytes, modality: str | None, asked: Search) -> Answer:
        """Find the items nearest to an uploaded picture."""
        return self._with_model(
            lambda known: self._find(known, from_picture(known, picture, modality), asked)
        )

    def annotate(self, asked: Annotate) -> Answer:
        """Suggest tags for what a request tells of."""
        item = self._item(asked)
        return self._with_model(
            lambda known: self._tag(known, from_thing(known, asked, item), asked)
        )

    def annotate_picture(self, picture: bytes, modality: str | None, asked: Annotate) -> Answer:
        """Suggest tags for an uploaded picture."""
        return self._with_model(
            lambda known: self._tag(known, from_picture(known, picture, modality), asked)
        )

    def items(self, ids: list[ItemId] | None, skip: int, limit: int) -> Answer:
        """Items by their ids, or some of all in order of arrival."""
        if ids is None:
            found = list(islice(self.collection, skip, skip + limit))
        else:
            found = [self._present(id_) for id_ in ids]
        return {"items": [self._as_item(item) for item in found], "total": len(self.collection)}

    def thumbnail(self, id_: ItemId, side: int) -> bytes:
        """A small picture of an item."""
        return self.pictures.thumbnail(self._present(id_).payload, side)

    def facts(self) -> Answer:
        """What the collection holds and what its model can do; counted anew every few seconds at most."""
        with self._stats_lock:
            when, facts = self._stats
            if time.monotonic() - when >= _STATS_SECONDS:
                facts = self._gather()
                self._stats = (time.monotonic(), facts)
        return facts

    # --- writing ---

    def upsert(self, items: list[NewItem]) -> Answer:
        """Add items or change them, all or none."""
        names = {name for item in items for name in (*item.features, *item.words)}
        views = {name: self._view(name, items) for name in sorted(names)}
        self.collection.upsert([item.id for item in items], views, [item.payload for item in items])
        return {"changed": len(items)}

    def delete(self, ids: list[ItemId]) -> Answer:
        """Delete items."""
        return {"changed": self.collection.delete(ids)}

    def _view(self, name: str, items: list[NewItem]) -> Things:
        """The rows of one modality, NaN where an item has none."""
        words = [item.words.get(name) for item in items]
        if any(given is not None for given in words):
            if any(name in item.features for item in items):
                raise DataError(
                    f"{name!r}: some items give features, others words; send them one after the other"
                )
            self._known().modality(name, "words")
            return words
        rows = [item.features.get(name) for item in items]
        width = max(len(row) for row in rows if row is not None)
        return np.array(
            [[np.nan] * width if row is None else _finite(name, row, width) for row in rows]
        )

    # --- inside ---

    def _known(self) -> Describers:
        """The describers of the model that the collection has now."""
        if self._described.model is not (model := self.collection.model):
            self._described = Describers(model)
        return self._described

    def _with_model(self, work: Callable[[Describers], T]) -> T:
        """Do something with the model, and again when the collection has been upgraded meanwhile."""
        while True:
            known = self._known()
            done = work(known)
            if self.collection.model is known.model:
                return done

    def _item(self, thing: Thing) -> Item | None:
        return None if thing.id is None else self._present(thing.id)

    def _present(self, id_: ItemId) -> Item:
        (item,) = self.collection.get([id_])
        if item is None:
            raise NotFoundError(f"there is no item {id_!r}")
        return item

    def _allow(self, where: dict[str, Any] | None) -> None:
        """Refuse filters on large collections that have no index for them."""
        if where and len(self.collection) > _FILTERED_FREELY:
            indexed = self.facts()["collection"]["fields"]
            if missing := sorted(where.keys() - set(indexed)):
                raise DataError(
                    f"where: the field {missing[0]!r} has no index; fields with one: {sorted(indexed)}; make one with"
                    " Collection.index_field"
                )

    def _find(self, known: Describers, question: Question, asked: Search) -> Answer:
        codes = _code(known, question)
        found = self.collection.search(
            question.modality,
            question.given if asked.rescore else codes,
            asked.k + (question.item is not None),
            among=asked.among,
            where=asked.where,
            min_similarity=asked.min_similarity,
            rescore=asked.rescore and asked.rescore + (question.item is not None),
            threads=1,
        )[0]
        hits = [hit for hit in found if question.item is None or hit.id != question.item.id][
            : asked.k
        ]
        answer = self._told(known, question, [self._as_hit(hit, question) for hit in hits])
        if asked.codes:
            answer["query"]["code"] = bits(codes)
            self._add_codes(answer["hits"])
        return answer

    def _find_all(self, known: Describers, asked: list[Search]) -> list[Answer]:
        """The answers to searches by features that are alike but for these."""
        first = asked[0]
        questions = [from_thing(known, each, None) for each in asked]
        rows = np.concatenate([question.given for question in questions])
        codes = known.model.encode(questions[0].modality, rows)
        found = self.collection.search(
            questions[0].modality,
            codes,
            first.k,
            among=first.among,
            min_similarity=first.min_similarity,
            threads=1,
        )
        return [
            self._told(known, question, [self._as_hit(hit, question) for hit in hits])
            for question, hits in zip(questions, found, strict=True)
        ]

    def _told(self, known: Describers, question: Question, hits: list[Answer]) -> Answer:
        truth = None if question.truth is None else question.truth.told
        query = {"modality": question.modality, "tags": question.tags, "truth": truth}
        return {"query": query, "hits": hits, "n_bits": known.model.n_bits}

    def _tag(self, known: Describers, question: Question, asked: Annotate) -> Answer:
        codes, where = _code(known, question), None
        among = (
            asked.from_
            or [name for name in known.model.modalities if known.takes(name) == "words"]
            or None
        )
        (found,) = self.collection.annotate(
            question.modality,
            codes,
            from_=among,
            neighbors=asked.neighbors,
            tags=asked.most,
            field=asked.field,
            where=where,
        )
        return {"tags": [vars(tag) for tag in found]}

    def _as_hit(self, hit: Hit, question: Question) -> Answer:
        truth = question.truth
        return {
            "id": hit.id,
            "key": key_of(hit.id),
            "distance": hit.distance,
            "similarity": hit.similarity,
            "modality": hit.modality,
            "payload": hit.payload,
            "picture": self._address(hit.id, hit.payload),
            "relevant": None if truth is None else truth.holds(hit.payload),
        }

    def _add_codes(self, hits: list[Answer]) -> None:
        """Tell the bits that were compared; an item deleted a moment ago has none."""
        items = self.collection.get([hit["id"] for hit in hits])
        for hit, item in zip(hits, items, strict=True):
            hit["code"] = (
                None
                if item is None or hit["modality"] not in item.codes
                else bits(item.codes[hit["modality"]])
            )

    def _as_item(self, item: Item) -> Answer:
        return {
            "id": item.id,
            "key": key_of(item.id),
            "payload": item.payload,
            "modalities": item.modalities,
            "picture": self._address(item.id, item.payload),
        }

    def _address(self, id_: ItemId, payload: dict[str, Any]) -> str | None:
        return (
            f"/api/pictures?id={quote(key_of(id_), safe='')}"
            if self.pictures.has(payload)
            else None
        )

    def _gather(self) -> Answer:
        known = self._known()
        return {
            "collection": self.collection.stats().to_dict(),
            "model": reports.model_facts(
                known.model, {name: known.takes(name) for name in known.model.modalities}
            ),
            "report": reports.read(self.collection.place),
            "writable": self.settings.writable,
        }


def _code(known: Describers, question: Question) -> Codes:
    if isinstance(question.given, Codes):
        return question.given
    return known.model.encode(question.modality, question.given)


def _sort(asked: Search) -> tuple[Hashable, ...] | None:
    """What must be equal for searches to be answered together; nothing for those that are answered alone."""
    if asked.features is None or asked.where or asked.rescore or asked.codes:
        return None
    among = None if asked.among is None else tuple(asked.among)
    return asked.modality, len(asked.features), asked.k, among, asked.min_similarity


def _finite(name: str, row: list[float], width: int) -> list[float]:
    """A row of one width; an item without the modality leaves it out, and does not send NaN."""
    if len(row) != width or np.isnan(row).all():
        raise DataError(
            f"rows of {name!r}: expected {width} numbers, got {len(row)}, or none of them is a number"
        )
    return row


def bits(code: Codes) -> str:
    """The bits of one code, such as ``"0110"``."""
    return "".join("1" if bit else "0" for bit in code.unpack()[0].tolist())


def key_of(id_: ItemId) -> str:
    """An id as it stands in an address: JSON, which tells numbers from strings."""
    return _spell(id_)


def id_of(key: str) -> ItemId:
    """The id that stands in an address: JSON of a string or a whole number, or else the text itself.

    Example:
        >>> id_of("7"), id_of('"7"'), id_of("cat.png")
        (7, '7', 'cat.png')
    """
    try:
        value = json.loads(key)
    except (ValueError, RecursionError):
        return key
    return value if isinstance(value, str) or type(value) is int else key
