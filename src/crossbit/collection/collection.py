"""Collection: a model and the items it encodes, stored durably and searched while they change."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np

from crossbit._validation import check_integer, check_known
from crossbit.annotate import Tag, vote
from crossbit.collection.encoder import Encoder, Inputs
from crossbit.collection.filters import parse_filter
from crossbit.collection.payloads import check_id, check_ids, check_text, payloads_to_json
from crossbit.collection.store import (
    Capabilities,
    Query,
    StaleModelError,
    Store,
    WriteBatch,
    display_path,
    store_class,
)
from crossbit.collection.types import Finding, Id, Item, Results, Stats
from crossbit.errors import DataError
from crossbit.model.hashmodel import HashModel

T = TypeVar("T")
_FEATURE_TYPES = {False: None, True: "float32", "float32": "float32", "float16": "float16"}


class Collection:
    """Items of several modalities under one model: stored, searched, filtered and annotated.

    An item has an id, a payload (JSON fields) and a code for each modality that it has. A write is
    on disk when its call returns; any number of threads and processes can search meanwhile and see
    the write in their next call. Create a collection with `create`, and open an existing one with
    `open`. It is a folder or, when one machine no longer holds it, a collection on a Milvus server;
    the methods are the same.

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
        self._encoder = Encoder(store.model())

    @classmethod
    def create(
        cls,
        path: str | PathLike[str],
        model: HashModel,
        *,
        keep_features: bool | str = False,
        timeout: float = 30.0,
    ) -> Self:
        """Create an empty collection.

        Args:
            path: A folder that does not exist or is empty, or a URI such as
                ``"milvus://host:port/name"``.
            model: Makes the codes; a folder keeps a copy of it, a server only its fingerprint.
            keep_features: Store the rows that are encoded, as ``"float32"`` (or True) or
                ``"float16"``, so that `upgrade` can encode them with another model.
            timeout: Seconds to wait for another writer, or for the server.
        """
        _check_model(model)
        if keep_features not in _FEATURE_TYPES:
            raise DataError(
                f"keep_features must be True, False, 'float32' or 'float16', got {keep_features!r}"
            )
        store = store_class(path)
        if keep_features and not store.capabilities.keeps_features:
            raise DataError(
                f"{display_path(path)}: this store cannot keep features; leave keep_features out"
            )
        features = _FEATURE_TYPES[keep_features]
        return cls(store.create(path, model, features=features, timeout=timeout))

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
    def capabilities(self) -> Capabilities:
        """What the collection's store can do."""
        return self._store.capabilities

    def accepts(self, modality: str, *, trusted: bool = True) -> str | None:
        """Return the kind of raw input that a modality accepts, such as ``"text"`` or ``"image"``.

        None if the model has no recipe for the modality, which then takes rows of numbers and codes
        only; with ``trusted=False`` also if its extractor is not safe for inputs of unknown origin.
        """
        return self._encoder.accepts(modality, trusted=trusted)

    # --- writing ---

    def upsert(
        self,
        ids: Iterable[Id],
        views: Mapping[str, Inputs] | None = None,
        payload: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        trusted: bool = True,
    ) -> None:
        """Add items, or update existing ones; durable on return, everything or nothing.

        A server has no transactions: a call that fails there may have written some of the items.
        Repeat the call to write the rest; no item is written twice.

        Args:
            ids: Strings or integers; ``1`` and ``"1"`` are different.
            views: Modality → one row (or raw input, or code) per id. An item whose row is all NaN,
                or whose raw input is None, does not have the modality. Modalities that are not
                given stay as they are.
            payload: One mapping of fields per id, which replaces the previous one; None keeps it.
            trusted: False for raw inputs of unknown origin, as for `search`.
        """
        checked = check_ids(ids)
        texts = None if payload is None else payloads_to_json(payload, checked)

        def write(encoder: Encoder) -> None:
            encoded = encoder.encode_views(views or {}, len(checked), trusted=trusted)
            self._store.write(WriteBatch(checked, encoded, payload, texts), encoder.fingerprint)

        self._with_encoder(write)

    def delete(self, ids: Iterable[Id], *, modality: str | None = None) -> int:
        """Delete items, or only their codes of one modality; return how many existed."""
        if modality is not None:
            check_known(modality, self.model.modalities)
        return self._store.delete(check_ids(ids), modality)

    def index_field(self, field: str) -> None:
        """Index a payload field now, instead of during the first large search filtered by it."""
        if not isinstance(field, str):
            raise DataError(f"the name of a field must be a string, got {field!r}")
        self._store.index_field(check_text(field, "the name of a field"))

    def unindexed_fields(self, filter: Mapping[str, Any]) -> list[str]:
        """Return the fields that a search with this filter would have to index first.

        Empty for a small collection, and for a store that filters without indexes.
        """
        return self._store.unindexed_fields(
            dict.fromkeys(condition.field for condition in parse_filter(filter))
        )

    # --- reading ---

    def get(self, ids: Iterable[Id]) -> list[Item | None]:
        """Return items in the order of their ids, None for unknown ids."""
        return self._store.read(check_ids(ids, allow_repeats=True))

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
        return self._store.scan()

    def search(
        self,
        modality: str,
        X: Inputs,
        k: int = 10,
        *,
        target: str | Iterable[str] | None = None,
        filter: Mapping[str, Any] | None = None,
        min_similarity: float = 0.0,
        rerank: int | None = None,
        threads: int | None = None,
        with_codes: bool = False,
        trusted: bool = True,
    ) -> list[Results]:
        r"""Return the nearest items of each query.

        Args:
            modality: Modality of the queries.
            X: Queries: rows of numbers, `Codes`, or raw inputs such as ``["red + food"]`` if the
                model has a recipe for the modality.
            k: Number of items to return per query.
            target: Modalities to search, such as ``"image"``; all of them if None. Each item is
                returned once, by its nearest modality.
            filter: Only items whose payload meets all conditions, such as ``{"year": {">=": 2010},
                "tags": {"has": "dog"}}``; the operators are ``== != > >= < <= in has``.
            min_similarity: Leave out hits that are less similar.
            rerank: Take this many nearest items, at least k, and order them by the weighted Hamming
                distance $\sum_i |s_i| \, [\operatorname{sign} s_i \ne b_i]$ of the query's scores
                $s$, so that bits of which the query is certain count more.
            threads: Number of threads, all cores if None.
            with_codes: Fill in `Hit.code`.
            trusted: False for raw inputs of unknown origin, such as those of a network client. Text
                then only reaches extractors of text, and other extractors are only given the
                contents of files; nothing is opened as a path.

        Returns:
            One `Results` per query: its hits, nearest first, ties in order of arrival (on a server,
            in any order), with the query's code and terms.
        """
        check_integer(k, "k", least=1)
        conditions = () if filter is None else parse_filter(filter)
        _check_similarity(min_similarity)
        if rerank is not None and check_integer(rerank, "rerank", least=1) < k:
            raise DataError(f"rerank must be at least k = {k}, got {rerank}")

        def find(encoder: Encoder) -> list[Results]:
            targets = encoder.targets(target)
            queries = encoder.encode_queries(
                modality, X, with_scores=rerank is not None, trusted=trusted
            )
            query = Query(
                queries.codes,
                rerank or k,
                targets,
                conditions,
                threads,
                with_codes=with_codes or rerank is not None,
            )
            answers = self._store.search(query, encoder.fingerprint)
            return queries.results(answers, k, min_similarity)

        return self._with_encoder(find)

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
            target: Modalities by which neighbors are found, as for `search`.
            neighbors: Number of neighbors that vote.
            max_tags: Largest number of tags per input.
            field: Payload field that holds an item's tags, a list of strings.
            filter: Restricts the neighbors, as for `search`.
            trusted: False for raw inputs of unknown origin, as for `search`.

        Returns:
            Tags of each input, the best first, with the share of the neighbors that have them.
        """
        results = self.search(modality, X, neighbors, target=target, filter=filter, trusted=trusted)
        return [
            vote([_strings(hit.payload.get(field)) for hit in hits], max_tags=max_tags)
            for hits in results
        ]

    # --- maintenance ---

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
        _check_model(model)
        feature_batches = None
        if batches is not None:
            encoder = Encoder(model)
            feature_batches = (
                (
                    check_ids(ids),
                    {name: encoder.features(name, inputs) for name, inputs in views.items()},
                )
                for ids, views in batches
            )
        self._store.upgrade(model, feature_batches)
        self._encoder = Encoder(self._store.model())

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

    def _with_encoder(self, work: Callable[[Encoder], T]) -> T:
        """Run a call that encodes; repeat it if another process upgraded the model meanwhile."""
        while True:
            try:
                return work(self._encoder)
            except StaleModelError:
                self._encoder = Encoder(self._store.model())


def _check_model(model: object) -> None:
    if not isinstance(model, HashModel):
        raise DataError(
            f"expected a HashModel, got {type(model).__name__}; load a folder with HashModel.load"
        )


def _check_similarity(value: object) -> None:
    if not isinstance(value, int | float | np.number) or not 0 <= value <= 1:
        raise DataError(f"min_similarity must be between 0 and 1, got {value!r}")


def _strings(value: object) -> list[str]:
    """Return the strings of a list in a payload; any other value has none."""
    return [tag for tag in value if isinstance(tag, str)] if isinstance(value, list) else []
