"""The interface between a collection and its storage, and the registry of stores by URI scheme."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable
from urllib.parse import quote, unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from crossbit.codes import Codes
from crossbit.collection.filters import Conditions, matches_all
from crossbit.collection.payloads import payloads_to_json
from crossbit.collection.values import Finding, Hit, Id, Item, Payload, Stats
from crossbit.errors import CrossbitError, DataError, NotFoundError
from crossbit.model.hashmodel import HashModel
from crossbit.plugins import STORES, find_plugins, load_plugin

Rows: TypeAlias = NDArray[Any]
StorePath: TypeAlias = str | PathLike[str]
FeatureBatches: TypeAlias = Iterable[tuple[Sequence[Id], Mapping[str, Rows]]]
"""Ids and their feature rows per modality, batch by batch."""


Neighbors: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.intp]]
"""Row numbers of the nearest items of a query, distances, and positions of their modalities."""

ReadRows: TypeAlias = Callable[[str, str, NDArray[np.int64]], tuple[NDArray[np.int64], Rows]]
"""Called with ``"codes"``, ``"scores"`` or ``"features"``, a modality and row numbers; returns the
row numbers that have such a row, in any order, and these rows: words of codes, or kept rows."""

Reorder: TypeAlias = Callable[
    [Sequence[str], Sequence[Neighbors], ReadRows], Sequence[NDArray[np.intp]]
]
"""Called with the modalities and the neighbors of each query; returns positions in these."""


class StaleModelError(CrossbitError):
    """The codes belong to another model than the store's: encode again with the current model."""


@dataclass(frozen=True)
class Capabilities:
    """What a store can do beyond the verbs that every store has.

    Args:
        keeps_rows: Can keep scores and features beside the codes, for `upgrade` and for reranking,
            which asks for them by number (`Query.reorder`).
        exact_ties: Returns items at equal distance in order of arrival, which pages need.
        transactional: A write succeeds as a whole or changes nothing.
        remote: Other machines can open the same path and write to it at the same time.
    """

    keeps_rows: bool = False
    exact_ties: bool = False
    transactional: bool = False
    remote: bool = False


@dataclass(frozen=True)
class EncodedView:
    """One modality of a batch of items.

    Args:
        positions: Positions in the batch of the items that have the modality, ascending.
        codes: Codes of those items.
        features: The rows that were encoded, for stores that keep them; None if the caller passed
            codes.
        scores: The quantized outputs of those rows, for stores that keep them; None likewise.
    """

    positions: NDArray[np.intp]
    codes: Codes
    features: Rows | None = None
    scores: NDArray[np.int8] | None = None


@dataclass(frozen=True)
class WriteBatch:
    """Validated items for one write.

    Args:
        ids: Distinct ids.
        views: Codes of each modality.
        payloads: Fields per item, None to keep its payload; None for the whole batch keeps all.
        texts: The same fields as JSON text.
        replace_payload: Whether they take the place of stored payloads, instead of being merged
            into them.
        remove: Fields that stored payloads lose.
        must_exist: Whether an id that is not stored is an error.
    """

    ids: Sequence[Id]
    views: Mapping[str, EncodedView]
    payloads: Sequence[Mapping[str, Any] | None] | None = None
    texts: Sequence[str | None] | None = None
    replace_payload: bool = False
    remove: Sequence[str] = ()
    must_exist: bool = False

    @property
    def needs_stored(self) -> bool:
        """Whether the payloads after the write depend on those before."""
        merges = self.payloads is not None and not self.replace_payload
        return merges or bool(self.remove) or self.must_exist

    def merged(self, stored: Mapping[Id, Payload]) -> "WriteBatch":
        """Return a batch that replaces payloads, from the payloads of all items that are stored."""
        if not self.needs_stored:
            return self
        payloads: list[Mapping[str, Any] | None] = list(self.payloads or [None] * len(self.ids))
        texts = list(self.texts or [None] * len(self.ids))
        for i, id_ in enumerate(self.ids):
            if id_ not in stored:
                if self.must_exist:
                    raise NotFoundError(f"there is no item {id_!r}; nothing was changed")
                continue
            given = payloads[i]
            if given is None and not self.remove:
                continue
            kept = {} if self.replace_payload else stored[id_]
            left = {name: value for name, value in kept.items() if name not in self.remove}
            payloads[i] = {**left, **(given or {})}
            (texts[i],) = payloads_to_json([payloads[i]], [id_])
        return replace(self, payloads=payloads, texts=texts, replace_payload=True, remove=())


@dataclass(frozen=True)
class Query:
    """A validated search.

    Args:
        codes: One code per query.
        k: Number of items to return per query.
        targets: Modalities whose codes are compared.
        filter: Conditions that the payload of an item must meet.
        threads: Number of threads, all cores if None.
        with_codes: Whether hits carry the code that matched.
        reorder: Orders the neighbors of each query before their items are read; only a store that
            keeps rows is given one.
    """

    codes: Codes
    k: int
    targets: Sequence[str]
    filter: Conditions = ()
    threads: int | None = None
    with_codes: bool = False
    reorder: Reorder | None = None


@runtime_checkable
class Store(Protocol):
    """Durable storage of a collection; every method can be called from any thread.

    A write is durable when the call returns. Codes are only comparable under one model, so calls
    that pass codes also pass the model's fingerprint, and a store of another model raises
    `StaleModelError`.
    """

    capabilities: Capabilities

    @classmethod
    def exists(cls, path: StorePath, *, timeout: float) -> bool:
        """Return whether there is a store at a path."""

    @classmethod
    def create(
        cls, path: StorePath, model: HashModel, *, keep: Sequence[str], timeout: float
    ) -> Self:
        """Create an empty store that keeps ``"scores"``, ``"features"``, both or nothing."""

    @classmethod
    def open(cls, path: StorePath, model: HashModel | None, *, timeout: float) -> Self:
        """Open a store, and refuse a model that did not make its codes."""

    @property
    def path(self) -> Path | str:
        """Folder or URI of the store, without credentials."""

    @property
    def keep(self) -> tuple[str, ...]:
        """What is kept beside the codes, as it was created."""

    def model(self) -> HashModel:
        """Return the model that made the codes."""

    def write(self, batch: WriteBatch, model: str) -> None:
        """Add items, or update the given parts of existing ones."""

    def delete(
        self, ids: Sequence[Id] | None, modality: str | None, filter: Conditions = ()
    ) -> int:
        """Delete items, or their codes of one modality; return how many existed.

        The items are those of ids, or if there are none, those that meet the filter.

        Raises:
            DataError: There are items, but none has a field that the filter reads.
        """

    def read(self, ids: Sequence[Id], *, kept: bool = False) -> list[Item | None]:
        """Return items in the order of the ids, None for unknown ids, on request with kept rows."""

    def scan(self, model: str, *, kept: bool = False) -> Iterator[Item]:
        """Iterate over all items, whose codes all belong to one model."""

    def count(self) -> int:
        """Return the number of items."""

    def nearest(self, query: Query, model: str) -> list[list[Hit]]:
        """Return the nearest items of each query, each item once, by its nearest modality.

        Raises:
            DataError: There are items, but none has a field that the filter reads.
        """

    def index_field(self, field: str) -> None:
        """Build an index of a payload field, which makes filters on it fast.

        A store that filters without indexes does nothing.
        """

    def unindexed_fields(self, fields: Iterable[str]) -> list[str]:
        """Return the fields that a search filtered by them would have to index first."""
        return []

    def upgrade(self, model: HashModel, batches: FeatureBatches | None) -> None:
        """Switch to another model in one step, with new codes for all items."""

    def extend(self, model: HashModel) -> None:
        """Switch to a model with further modalities; `check_extension` says which are accepted."""

    def stats(self) -> Stats:
        """Return statistics of the stored data."""

    def check(self) -> list[Finding]:
        """Verify all stored data."""

    def compact(self) -> None:
        """Free unused space and save derived data."""

    def close(self) -> None:
        """Release files and connections."""


@runtime_checkable
class SamplesItems(Protocol):
    """A store that reads random items without reading all of them."""

    def sample(self, size: int, random: np.random.Generator) -> list[Item]:
        """Return random items, all of them if there are not more."""


# --- what stores on servers share ---

_SAFE_CHARACTERS = " !$&()*+,:;=@~"


def item_key(id_: Id) -> str:
    """Return an id as a text: a letter for its type, and characters that need no quoting."""
    return f"n{id_}" if isinstance(id_, int) else f"t{quote(id_, safe=_SAFE_CHARACTERS)}"


def item_id(key: str) -> Id:
    """Return the id in a key; what follows a slash is not part of it."""
    text = key.partition("/")[0]
    return int(text[1:]) if text[0] == "n" else unquote(text[1:])


def check_given_model(path: object, fingerprint: str, model: HashModel) -> HashModel:
    """Return the model of an open collection; refuse one that did not make its codes."""
    if fingerprint != model.fingerprint():
        raise DataError(
            f"{path} holds codes of the model {fingerprint[:16]}, not of the given model"
            f" {model.fingerprint()[:16]}; open it with the model of its codes"
        )
    return model


def require_model(path: object, model: HashModel | None) -> HashModel:
    """Return the model for a collection on a server, which does not keep it."""
    if model is None:
        raise DataError(
            f"{path}: the server keeps the fingerprint of the model, not the model itself; open it"
            " with Collection.open(path, model), or ADDRESS#MODEL on the command line"
        )
    return model


def require_features(batches: FeatureBatches | None, model: HashModel) -> FeatureBatches:
    """Return the features for an upgrade on a server, which does not keep them."""
    if batches is None:
        raise DataError(
            "a server does not keep features; pass them:"
            f" upgrade(model, [(ids, {{{model.modalities[0]!r}: X}}), …])"
        )
    return batches


def incomplete_upgrade(modality: str, keys: Sequence[str]) -> DataError:
    """Return the error about items without new features."""
    return DataError(
        f"{len(keys)} items have no new features of {modality!r}, the first is"
        f" {item_id(keys[0])!r}; nothing was changed. Pass the features of every item"
    )


@dataclass(frozen=True, order=True)
class Candidate:
    """A code near a query, in the order of hits.

    Args:
        distance: Its distance.
        place: What orders items at equal distance.
        rank: Position of its modality among the targets.
        key: Key of the item.
        payload: Payload of the item.
        code: The code as the server returns it.
    """

    distance: int
    place: int | str
    rank: int
    key: str = field(compare=False)
    payload: Payload = field(compare=False)
    code: Any = field(default=None, compare=False)


def merge_candidates(candidates: Iterable[Candidate], query: Query) -> list[Candidate]:
    """Return the k nearest items that meet the filter, each by its nearest modality."""
    nearest: dict[str, Candidate] = {}
    for each in sorted(each for each in candidates if matches_all(query.filter, each.payload)):
        nearest.setdefault(each.key, each)
    return list(nearest.values())[: query.k]


def to_hits(candidates: Sequence[Candidate], query: Query, codes: Codes | None) -> list[Hit]:
    """Return candidates as hits, with their codes if those are wanted."""
    n_bits = query.codes.n_bits
    return [
        Hit(
            item_id(each.key),
            each.distance,
            (n_bits - each.distance) / n_bits,
            query.targets[each.rank],
            each.payload,
            None if codes is None else codes[i],
        )
        for i, each in enumerate(candidates)
    ]


def check_current(fingerprint: str, model: str) -> None:
    """Refuse codes of another model than the one that a store has now."""
    if fingerprint != model:
        raise StaleModelError("the collection was upgraded to another model; open it again")


def check_modalities(names: Iterable[str], model: HashModel) -> None:
    """Refuse a model for an upgrade that lacks a modality of items."""
    for name in names:
        if name not in model.modalities:
            raise DataError(
                f"the new model has no modality {name!r}, which items have; it has"
                f" {model.modalities}"
            )


def check_extension(old: HashModel, new: HashModel) -> list[str]:
    """Return the modalities that a model adds to another; refuse it if it changes one of them."""
    if new.n_bits != old.n_bits:
        raise DataError(f"the new model makes {new.n_bits} bits, the collection has {old.n_bits}")
    for name in old.modalities:
        if name not in new.modalities:
            raise DataError(f"the new model has no modality {name!r}; it has {new.modalities}")
        if new.modality_fingerprint(name) != old.modality_fingerprint(name):
            raise DataError(
                f"the new model encodes {name!r} with other layers, so stored codes would not be"
                " comparable; use upgrade, which encodes all items again"
            )
    if not (added := [name for name in new.modalities if name not in old.modalities]):
        raise DataError(f"the new model adds no modality to {old.modalities}; nothing to extend")
    return added


_FOLDER = ""

# Stores are named, not imported: a client library is loaded only when its scheme is used.
_STORES: dict[str, type[Store] | str] = {
    _FOLDER: "crossbit.collection.local:LocalStore",
    "milvus": "crossbit.collection.milvus:MilvusStore",
    "milvus+tls": "crossbit.collection.milvus:MilvusStore",
    "postgresql": "crossbit.collection.postgres:PostgresStore",
}


def register_store(scheme: str, store: type[Store] | str) -> None:
    """Open and create collections at ``scheme://…`` with a store.

    Packages can instead declare an entry point named like the scheme in the group
    ``crossbit.stores``.

    Args:
        scheme: Scheme of the URIs, such as ``"memory"``.
        store: A class with the methods of `Store`, or its name as ``"module:Class"``, which is
            imported when the scheme is first used.
    """
    if not scheme or urlsplit(f"{scheme}://x").scheme != scheme:
        raise DataError(
            f"a scheme is made of lower-case letters, digits, '+', '-' and '.', got {scheme!r}"
        )
    _STORES[scheme] = store


def store_class(path: object) -> type[Store]:
    """Return the class of the store that a path or URI belongs to."""
    scheme = _scheme(path)
    entry = _STORES.get(scheme)
    if entry is None and (plugin := find_plugins(STORES).get(scheme)):
        entry = load_plugin(plugin)
    if entry is None:
        known = ", ".join(f"{name}://" for name in sorted(_STORES) if name)
        raise DataError(
            f"{display_path(path)}: unknown scheme {scheme!r}; expected a folder, or a URI that"
            f" starts with one of {known}"
        )
    if isinstance(entry, str):
        module, _, name = entry.partition(":")
        entry = getattr(import_module(module), name)
    _STORES[scheme] = entry
    return entry


def is_folder(path: object) -> bool:
    """Return whether a path names a folder, and not a URI."""
    return _scheme(path) == _FOLDER


def display_path(path: object) -> str:
    """Return a path or URI for messages: without credentials and options."""
    text = str(path)
    scheme, separator, rest = text.partition("://")
    if not separator:
        return text
    return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"


def _scheme(path: object) -> str:
    if not isinstance(path, str | PathLike):
        raise DataError(
            "a collection is at a folder or at a URI such as milvus://host:19530/name,"
            f" got {path!r}"
        )
    # A path object is always a folder: pathlib would have collapsed the slashes of a URI.
    scheme, separator, _ = fspath(path).partition("://") if isinstance(path, str) else ("", "", "")
    return scheme if separator else _FOLDER
