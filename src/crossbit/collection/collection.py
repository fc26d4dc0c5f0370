"""Collection: a model, and items with their codes and payloads, on disk, searched while they change."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from crossbit._validation import known, whole_number
from crossbit.annotate import Tag, vote
from crossbit.collection import hits, payloads
from crossbit.collection import where as language
from crossbit.collection.places import create_store, is_there, open_store
from crossbit.collection.records import Finding, Hit, Id, Item, Stats
from crossbit.collection.rows import Encoder, Things
from crossbit.collection.store import Batch, Query, StaleModelError, Store
from crossbit.errors import DataError
from crossbit.model import HashModel

T = TypeVar("T")
_KEPT = {False: None, True: "float32", "float32": "float32", "float16": "float16"}


class Collection:
    """Items of many kinds under one model: added, found, filtered and annotated, and never lost.

    An item has an id, a payload (anything JSON, by field) and a code for each modality it has. A write is on disk when
    its call returns; any number of threads and processes may search meanwhile and see it at their next call. Make one
    with `create`, come back to it with `open`. It is a folder, or, when one machine no longer holds it, on a Milvus
    server: the verbs are the same.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from crossbit.model import Affine
        >>> signs = HashModel({"image": [Affine(np.eye(2), np.zeros(2))]}, n_bits=2)
        >>> folder = tempfile.mkdtemp()
        >>> with Collection.create(folder, signs) as collection:
        ...     collection.upsert(["a", "b"], {"image": [[1.0, 1.0], [-1.0, -1.0]]}, [{"year": 2010}, {"year": 2020}])
        ...     collection.search("image", [[2.0, 3.0]], k=1)
        [[Hit(id='a', distance=0, similarity=1.0, modality='image', payload={'year': 2010})]]
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._encoder = Encoder(store.model())

    @classmethod
    def create(
        cls,
        where: str | PathLike[str],
        model: HashModel,
        *,
        keep_features: bool | str = False,
        timeout: float = 30.0,
    ) -> Self:
        """Make an empty collection.

        Args:
            where: A folder that does not exist yet, or is empty; or ``"milvus://host:port/name"``.
            model: Makes the codes; it is copied into the folder. A server keeps its fingerprint alone.
            keep_features: Keep the rows that codes are made from, as ``"float32"`` (or True) or ``"float16"``, so that
                `upgrade` can go over to another model by itself.
            timeout: Seconds to wait for another writer, or for the server.
        """
        _check_model(model)
        if keep_features not in _KEPT:
            raise DataError(
                f"keep_features is True, False, 'float32' or 'float16', got {keep_features!r}"
            )
        return cls(create_store(where, model, keep=_KEPT[keep_features], timeout=timeout))

    @classmethod
    def open(
        cls, where: str | PathLike[str], model: HashModel | None = None, *, timeout: float = 30.0
    ) -> Self:
        """Open a collection; one in a folder that cannot be written can still be read.

        Args:
            where: Its folder, or its address such as ``"milvus://host:port/name"``.
            model: The model that its codes were made by. A folder has its own; on a server it must be given, and
                another one is refused.
            timeout: Seconds to wait for another writer, or for the server.
        """
        return cls(open_store(where, model, timeout=timeout))

    @staticmethod
    def exists(where: str | PathLike[str], *, timeout: float = 30.0) -> bool:
        """Whether there is a collection in a folder or at an address."""
        return is_there(where, timeout=timeout)

    @property
    def model(self) -> HashModel:
        """The model that makes the codes."""
        return self._encoder.model

    @property
    def place(self) -> Path | str:
        """Where the collection is."""
        return self._store.place

    # --- writing ---

    def upsert(
        self,
        ids: Iterable[Id],
        views: Mapping[str, Things] | None = None,
        payload: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> None:
        """Add items, or change those that are there; on disk when the call returns, all of it or nothing.

        A server has no transactions: a call that fails there may have written some of the items. Given again, it
        writes the rest, and none twice.

        Args:
            ids: Strings or whole numbers; ``1`` and ``"1"`` are different.
            views: Modality → one row an id (or raw things, or `Codes`). An item whose row is all NaN, or whose thing is
                None, is without this modality. Modalities that are not given stay as they are.
            payload: One mapping of fields an id; it replaces the one before, None leaves it.
        """
        checked = payloads.check_ids(ids)
        spelled = None if payload is None else payloads.spell_payloads(payload, checked)

        def write(encoder: Encoder) -> None:
            parts = encoder.parts(views or {}, len(checked))
            self._store.write(Batch(checked, parts, payload, spelled), encoder.fingerprint)

        self._with_encoder(write)

    def delete(self, ids: Iterable[Id], *, modality: str | None = None) -> int:
        """Remove items, or only their codes of one modality; how many there were."""
        if modality is not None:
            known(modality, self.model.modalities)
        return self._store.delete(payloads.check_ids(ids), modality)

    def index_field(self, field: str) -> None:
        """Make filters on a payload field fast now, and not at the first search that uses it."""
        if not isinstance(field, str):
            raise DataError(f"a field is named by a string, got {field!r}")
        self._store.index_field(payloads.clean_text(field, "the name of a field"))

    # --- reading ---

    def get(self, ids: Iterable[Id]) -> list[Item | None]:
        """Items in the order of their ids, None where there is none."""
        return self._store.read(payloads.check_ids(ids, repeated=True))

    def __contains__(self, id_: object) -> bool:
        """Whether there is an item under an id."""
        try:
            return self._store.read([payloads.check_id(id_)]) != [None]
        except DataError:
            return False

    def __len__(self) -> int:
        """How many items there are."""
        return self._store.count()

    def __iter__(self) -> Iterator[Item]:
        """All items, in order of arrival; from a server, in the order of its keys."""
        return self._store.scan()

    def search(
        self,
        modality: str,
        X: Things,
        k: int = 10,
        *,
        among: str | Iterable[str] | None = None,
        where: Mapping[str, Any] | None = None,
        min_similarity: float = 0.0,
        rescore: int | None = None,
        threads: int | None = None,
    ) -> list[list[Hit]]:
        r"""Find the nearest items of each query.

        Args:
            modality: Which modality the queries belong to.
            X: Queries: rows of numbers, `Codes`, or raw things such as ``["red + food"]`` where the model has a recipe.
            k: How many items to find for each.
            among: Which modalities to find things by, such as ``"image"``; all of them if None. An item is found once,
                by its nearest modality.
            where: Only items whose payload meets all conditions, such as ``{"year": {">=": 2010}, "tags": {"has":
                "dog"}}``; the comparisons are ``== != > >= < <= in has``.
            min_similarity: Leave out hits that are less similar.
            rescore: Take so many of the nearest and put first those that agree with the bits of which the query is
                surest, $\sum_i |s_i| \, [\operatorname{sign} s_i \ne b_i]$; they must be at least k.
            threads: How many threads may be used; all cores if None.

        Returns:
            For each query its hits: nearest first, equal distances in order of arrival (on a server, in any order).
        """
        whole_number(k, "k", least=1)
        conditions = () if where is None else language.parse(where)
        least = hits.similarity(min_similarity)
        if rescore is not None and whole_number(rescore, "rescore", least=1) < k:
            raise DataError(f"rescore takes at least the k = {k} nearest, got {rescore}")

        def find(encoder: Encoder) -> list[list[Hit]]:
            scores, searched = None, encoder.among(among)
            if rescore is None:
                codes, _ = encoder.encode(modality, X)
            else:
                codes, scores = encoder.encode_with_scores(modality, X)
            query = Query(
                codes, rescore or k, searched, conditions, threads, with_codes=scores is not None
            )
            found = self._store.search(query, encoder.fingerprint)
            if scores is not None:
                found = [
                    hits.rescored(each, row, k) for each, row in zip(found, scores, strict=True)
                ]
            return [hits.hits_of(each, encoder.model.n_bits, least) for each in found]

        return self._with_encoder(find)

    def annotate(
        self,
        modality: str,
        X: Things,
        *,
        from_: str | Iterable[str] | None = "text",
        neighbors: int = 5,
        tags: int = 10,
        field: str = "tags",
        where: Mapping[str, Any] | None = None,
    ) -> list[list[Tag]]:
        """Suggest tags for things: those of their nearest neighbors, by vote.

        Args:
            modality: Which modality the things belong to.
            X: The things, as for `search`.
            from_: By which modality neighbors are found, as ``among`` of `search`.
            neighbors: How many neighbors vote.
            tags: How many tags to give at most.
            field: The payload field with an item's tags, a list of strings.
            where: Only these neighbors, as for `search`.

        Returns:
            For each thing its tags, the best first, with the share of the neighbors that have it.
        """
        found = self.search(modality, X, neighbors, among=from_, where=where)
        return [
            vote([hits.tags_of(hit.payload.get(field)) for hit in own], tags=tags) for own in found
        ]

    # --- care ---

    def stats(self) -> Stats:
        """How many items, of which modalities, how many bytes, and how healthy their codes are."""
        return self._store.stats()

    def check(self) -> list[Finding]:
        """Look at every file: what is damaged is named, what is derived is made anew; empty when all is well."""
        return self._store.check()

    def compact(self) -> None:
        """Give back the space of what was deleted, and save the indexes."""
        self._store.compact()

    def upgrade(
        self,
        model: HashModel,
        batches: Iterable[tuple[Sequence[Id], Mapping[str, Things]]] | None = None,
    ) -> None:
        """Go over to another model, with new codes for all items, at once: no search sees a mixture.

        Args:
            model: The new model; it must know every modality that items have.
            batches: Ids and rows of all items, where features were not kept or should be others.
        """
        _check_model(model)
        encoder, given = Encoder(model), None
        if batches is not None:
            given = (
                (
                    payloads.check_ids(ids),
                    {name: encoder.rows(name, X) for name, X in views.items()},
                )
                for ids, views in batches
            )
        self._store.upgrade(model, given)
        self._encoder = Encoder(self._store.model())

    def close(self) -> None:
        """Let go of the files; the collection can be opened again."""
        self._store.close()

    def __enter__(self) -> Self:
        """The collection itself, closed when the block ends."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Such as ``Collection('photos': image, text → 64 bits)``."""
        return f"Collection({str(self.place)!r}: {', '.join(self.model.modalities)} → {self.model.n_bits} bits)"

    def _with_encoder(self, work: Callable[[Encoder], T]) -> T:
        """Do something with the model, and again when somebody has upgraded the collection meanwhile."""
        while True:
            try:
                return work(self._encoder)
            except StaleModelError:
                self._encoder = Encoder(self._store.model())


def _check_model(model: object) -> None:
    if not isinstance(model, HashModel):
        raise DataError(
            f"expected a HashModel, got {type(model).__name__}; read a folder with HashModel.load"
        )
