"""Collection: a model and the items it encodes, stored durably and searched while they change."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import numpy as np

from crossbit._validation import check_integer, check_known
from crossbit.annotate import Tag, tag_list, vote
from crossbit.codes import Codes
from crossbit.collection.encoder import Encoder, Inputs, check_keep, check_model
from crossbit.collection.filters import check_selection, filter_fields, parse_filter
from crossbit.collection.payloads import (
    check_fields,
    check_id,
    check_ids,
    check_payloads,
    check_text,
)
from crossbit.collection.search import Search, SearchKeywords, SearchOptions, show_options
from crossbit.collection.stores import (
    Capabilities,
    SamplesItems,
    StaleModelError,
    Store,
    WriteBatch,
    display_path,
    store_class,
)
from crossbit.collection.values import Finding, Id, Item, KeptRows, Results, Stats
from crossbit.errors import DataError, RowError
from crossbit.model.hashmodel import HashModel

T = TypeVar("T")

_MAX_ATTEMPTS = 10  # of a call while other processes upgrade the model again and again


class Collection:
    """Items of several modalities under one model: stored, searched, filtered and annotated.

    An item has an id, a payload (JSON fields) and a code for each modality that it has. A write is
    on disk when its call returns; any number of threads and processes can search meanwhile and see
    the write in their next call. `create` makes a collection and `open` opens one: a folder, or if
    one machine no longer holds it, a Milvus server or PostgreSQL; the methods are the same.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from crossbit.model import Affine
        >>> signs = HashModel({"image": [Affine(np.eye(2), np.zeros(2))]}, n_bits=2)
        >>> years = [{"year": 2010}, {"year": 2020}]
        >>> with Collection.create(tempfile.mkdtemp(), signs) as collection:
        ...     collection.upsert(["a", "b"], {"image": [[1.0, 1.0], [-1.0, -1.0]]}, years)
        ...     collection.search("image", [[2.0, 3.0]], k=1)
        [[Hit(id='a', distance=0, similarity=1.0, modality='image', payload={'year': 2010})]]
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._encoder = Encoder(store.model(), store.keep)

    @classmethod
    def create(
        cls,
        path: str | PathLike[str],
        model: HashModel,
        *,
        keep: str | Iterable[str] | None = None,
        timeout: float = 30.0,
    ) -> Self:
        """Create an empty collection.

        Args:
            path: A folder that does not exist or is empty, or a URI such as
                ``"milvus://host:port/name"``.
            model: Makes the codes; a folder keeps a copy of it, a server only its fingerprint.
            keep: Also store ``"scores"`` (the real-valued outputs, one byte per bit), by which
                `search` can rerank, or ``"features"`` (the rows that are encoded, as float16),
                which `upgrade` encodes with another model, or both.
            timeout: Seconds to wait for another writer, or for the server.
        """
        check_model(model)
        kept = check_keep(keep)
        store = store_class(path)
        if kept and not store.capabilities.keeps_rows:
            raise DataError(
                f"{display_path(path)}: this store cannot keep {' or '.join(kept)}; leave keep out"
            )
        return cls(store.create(path, model, keep=kept, timeout=timeout))

    @classmethod
    def open(
        cls, path: str | PathLike[str], model: HashModel | None = None, *, timeout: float = 30.0
    ) -> Self:
        """Open a collection; a folder without write permission can still be read.

        Args:
            path: Its folder, or its URI such as ``"milvus://host:port/name"``.
            model: The model that made its codes. A folder holds its own; for a server it is
                required. Any other model is refused.
            timeout: Seconds to wait for another writer, or for the server.
        """
        return cls(store_class(path).open(path, model, timeout=timeout))

    @staticmethod
    def exists(path: str | PathLike[str], *, timeout: float = 30.0) -> bool:
        """Return whether there is a collection at a folder or URI."""
        return store_class(path).exists(path, timeout=timeout)

    @property
    def model(self) -> HashModel:
        """The model that makes the codes."""
        return self._encoder.model

    @property
    def path(self) -> Path | str:
        """Folder of the collection, or its URI without credentials."""
        return self._store.path

    @property
    def keep(self) -> tuple[str, ...]:
        """What is kept beside the codes: ``"scores"``, ``"features"``, both or nothing."""
        return self._store.keep

    @property
    def capabilities(self) -> Capabilities:
        """What the collection's store can do."""
        return self._store.capabilities

    def accepts(self, modality: str, *, trusted: bool = True) -> str | None:
        """Return the kind of raw input that a modality accepts, such as ``"text"`` or ``"image"``.

        None if the model has no recipe for the modality, which then takes rows of numbers and codes
        only; with ``trusted=False`` also if its extractor is not safe for inputs of unknown origin.
        """
        return self._encoder.accepts(modality, trusted=trusted)

    def upsert(
        self,
        ids: Iterable[Id],
        views: Mapping[str, Inputs] | None = None,
        payload: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        replace_payload: bool = False,
        trusted: bool = True,
    ) -> None:
        """Add items, or update existing ones; durable on return, everything or nothing.

        A server has no transactions: a call that fails there may have written some of the items;
        repeat it to write the rest.

        Args:
            ids: Strings or integers; ``1`` and ``"1"`` are different.
            views: Modality → one row (or raw input, or code) per id. A row of NaN, or None, means
                that the item does not have the modality; modalities not given stay as they are.
            payload: One mapping of fields per id, or a frame. The fields of an existing item that
                are not given stay; one that is given replaces the field as a whole, also by None.
            replace_payload: Whether a given payload takes the place of the item's payload.
            trusted: False for raw inputs of unknown origin, as for `search`.
        """
        checked = check_ids(ids)
        payload, texts = check_payloads(payload, checked)

        def write(encoder: Encoder) -> None:
            try:
                encoded = encoder.encode_views(views or {}, len(checked), trusted=trusted)
            except RowError as error:
                raise error.renumbered(error.row, f"item {checked[error.row]!r}") from error
            batch = WriteBatch(checked, encoded, payload, texts, replace_payload)
            self._store.write(batch, encoder.fingerprint)

        self._with_encoder(write, *(views.values() if isinstance(views, Mapping) else ()))

    def update(
        self,
        ids: Iterable[Id],
        payload: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        remove: Iterable[str] = (),
    ) -> None:
        """Change the payloads of existing items; durable on return, everything or nothing.

        Args:
            ids: The items; an unknown id is an error.
            payload: One mapping of fields per id, merged as by `upsert`.
            remove: Fields that all of these items lose; those that they do not have are ignored.
        """
        checked = check_ids(ids)
        payload, texts = check_payloads(payload, checked)
        fields = check_fields(remove)
        batch = WriteBatch(checked, {}, payload, texts, remove=fields, must_exist=True)
        self._with_encoder(lambda encoder: self._store.write(batch, encoder.fingerprint))

    def delete(
        self,
        ids: Iterable[Id] | None = None,
        *,
        filter: Mapping[str, Any] | None = None,
        modality: str | None = None,
    ) -> int:
        """Delete items, or only their codes of one modality; return how many existed.

        Args:
            ids: The items; unknown ids are ignored.
            filter: Instead of ids, a condition on the payload, as for `search`.
            modality: Delete only codes of this modality.
        """
        if modality is not None:
            check_known(modality, self.model.modalities)
        checked, conditions = check_selection(ids, filter)
        return self._store.delete(checked, modality, conditions)

    def index_field(self, field: str) -> None:
        """Index a payload field now, instead of during the first large search filtered by it."""
        if not isinstance(field, str):
            raise DataError(f"the name of a field must be a string, got {field!r}")
        self._store.index_field(check_text(field, "the name of a field"))

    def unindexed_fields(self, filter: Mapping[str, Any]) -> list[str]:
        """Return the fields that a search with this filter would have to index first.

        Empty for a small collection, and for a store that filters without indexes.
        """
        return self._store.unindexed_fields(filter_fields(parse_filter(filter)))

    def get(self, ids: Iterable[Id], *, kept: bool = False) -> list[Item | None]:
        """Return items in the order of their ids, None for unknown ids.

        With ``kept=True``, they also have the scores and features that the collection keeps.
        """
        return self._store.read(check_ids(ids, allow_repeats=True), kept=kept)

    def __contains__(self, id_: object) -> bool:
        """Return whether there is an item with this id."""
        try:
            return self._store.read([check_id(id_)]) != [None]
        except DataError:
            return False

    def __len__(self) -> int:
        """Return the number of items."""
        return self._store.count()

    def __iter__(self) -> Iterator[Item]:
        """Iterate over all items, in order of arrival; on a server, in the order of its keys."""
        return self.scan()[1]

    def sample(self, size: int, *, seed: int = 0) -> list[Item]:
        """Return random items, all of them if there are not more.

        A folder is read at random places; any other store is read from beginning to end.

        Args:
            size: Number of items.
            seed: The same seed gives the same items as long as nothing is written.
        """
        random = np.random.default_rng(seed)
        if isinstance(self._store, SamplesItems):
            return self._store.sample(check_integer(size, "size", least=1), random)
        chosen: list[Item] = []
        for i, item in enumerate(self):
            if i < size:
                chosen.append(item)
            elif (place := int(random.integers(i + 1))) < size:
                chosen[place] = item
        return chosen

    def scan(self, *, kept: bool = False) -> tuple[HashModel, Iterator[Item]]:
        """Return the model, and an iterator over all items, whose codes this model made.

        The items of a folder are those of one moment; its database grows with other writes until
        the iterator is closed. A server reads page by page; an upgrade meanwhile raises
        `StaleModelError`. ``kept`` is that of `get`.
        """

        def start(encoder: Encoder) -> tuple[HashModel, Iterator[Item]]:
            items = self._store.scan(encoder.fingerprint, kept=kept)
            first = list(islice(items, 1))
            return encoder.model, chain(first, items)

        return self._with_encoder(start)

    @show_options
    def search(
        self,
        modality: str,
        X: Inputs,
        k: int = 10,
        *,
        threads: int | None = None,
        trusted: bool = True,
        **options: Unpack[SearchKeywords],
    ) -> list[Results]:
        """Return the nearest items of each query.

        Args:
            modality: Modality of the queries.
            X: Queries: rows of numbers, `Codes`, or raw inputs such as ``["red + food"]`` if the
                model has a recipe for the modality.
            k: Number of items to return per query.
            **options: The fields of `SearchOptions`.
            threads: Number of threads, all cores if None.
            trusted: False for raw inputs of unknown origin, such as those of a network client: text
                only reaches extractors of text, others are only given the contents of files.

        Returns:
            One `Results` per query: its hits, nearest first, ties in order of arrival (on a server,
            in any order), with the query's code and terms.
        """
        wanted = SearchOptions(k=k, **options)
        wanted.check(self.capabilities, self.keep)

        def find(encoder: Encoder) -> list[Results]:
            return Search(self._store, encoder, modality, wanted, threads).run(X, trusted=trusted)

        return self._with_encoder(find, X)

    def annotate(
        self,
        modality: str,
        X: Inputs,
        *,
        target: str | Iterable[str] | None = "text",
        neighbors: int = 5,
        max_tags: int = 10,
        field: str = "tags",
        filter: Mapping[str, Any] | None = None,
        trusted: bool = True,
    ) -> list[list[Tag]]:
        """Suggest tags: those of the nearest items, ranked by vote.

        Args:
            modality: Modality of the inputs.
            X: The inputs, as for `search`.
            target: Modalities by which neighbors are found.
            neighbors: Number of neighbors that vote.
            max_tags: Largest number of tags per input.
            field: Payload field that holds an item's tags, a list of strings.
            filter: Restricts the neighbors, as for `search`.
            trusted: False for raw inputs of unknown origin, as for `search`.
        """
        results = self.search(modality, X, neighbors, target=target, filter=filter, trusted=trusted)
        return [
            vote([tag_list(hit.payload.get(field)) for hit in hits], max_tags=max_tags)
            for hits in results
        ]

    # --- all items at once ---

    def stats(self) -> Stats:
        """Return statistics: items, modalities, bytes, and the health of the codes."""
        return self._store.stats()

    def check(self) -> list[Finding]:
        """Verify all files and rebuild corrupted indexes.

        Returns:
            One finding per problem; empty if everything is intact.
        """
        return self._store.check()

    def compact(self) -> None:
        """Free the space of deleted items, and save the indexes."""
        self._store.compact()

    def upgrade(
        self,
        model: HashModel,
        batches: Iterable[tuple[Sequence[Id], Mapping[str, Inputs]]] | None = None,
    ) -> None:
        """Switch to another model, with new codes for all items; no search sees a mixture.

        Args:
            model: The new model; it must have every modality that items have.
            batches: Ids and rows (or raw inputs) of all items, if features were not kept or should
                be replaced.
        """
        check_model(model)
        rows = None if batches is None else Encoder(model).feature_batches(batches)
        self._store.upgrade(model, rows)
        self._encoder = Encoder(self._store.model(), self._store.keep)

    def extend(self, model: HashModel) -> None:
        """Switch to a model that has further modalities, such as a new version of an encoder.

        No stored code is touched. Old and new modalities serve side by side: queries of a new one
        find items by their old codes, and items can be written with both. Others can search and
        write meanwhile.

        Args:
            model: The new model; it encodes the modalities that the collection's model has with
                the same layers (`HashModel.modality_fingerprint`).
        """
        check_model(model)
        self._store.extend(model)
        self._encoder = Encoder(self._store.model(), self._store.keep)

    def close(self) -> None:
        """Release the files; the collection can be opened again."""
        self._store.close()

    def __enter__(self) -> Self:
        """Return the collection, which closes when the block ends."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the collection."""
        self.close()

    def __repr__(self) -> str:
        """Such as ``Collection('photos': image, text → 64 bits)``."""
        modalities = ", ".join(self.model.modalities)
        return f"Collection({str(self.path)!r}: {modalities} → {self.model.n_bits} bits)"

    def _with_encoder(self, work: Callable[[Encoder], T], *inputs: Inputs) -> T:
        """Run a call that encodes; repeat it if another process upgraded the model meanwhile.

        Codes among the inputs were made for the model of the first attempt, unless they say that
        the new model made them: then the call fails, and the next one uses the new model.
        """
        attempts = 0
        while True:
            encoder = self._encoder
            try:
                return work(encoder)
            except StaleModelError:
                attempts += 1  # an equal model is tried again: two upgrades may lead back to it
                current = Encoder(self._store.model(), self.keep)
                self._encoder = current
                codes = [x.codes if isinstance(x, KeptRows) else x for x in inputs]
                made_by = {x.model or encoder.fingerprint for x in codes if isinstance(x, Codes)}
                if attempts == _MAX_ATTEMPTS or made_by - {current.fingerprint}:
                    raise
