"""Client: a collection that a service holds, with the verbs of `Collection`."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from crossbit.annotate import Tag
from crossbit.client import verbs
from crossbit.client.transport import SCAN, RemoteCall, Settings, error_of, httpx, read_lines
from crossbit.collection import wire
from crossbit.collection.encoder import Inputs
from crossbit.collection.search import SearchKeywords, show_options
from crossbit.collection.store import Capabilities
from crossbit.collection.types import Finding, Id, Item, Results, Stats
from crossbit.model.hashmodel import HashModel

T = TypeVar("T")


def connect(
    url: str,
    *,
    collection: str | None = None,
    token: str | None = None,
    timeout: float = 30.0,
    retries: int = 3,
) -> "Client":
    """Connect to a service: the result has the verbs of `Collection`.

    Args:
        url: Address of the service, such as ``"http://localhost:8000"``, or of one of its
            collections, such as ``"http://localhost:8000/api/collections/photos"``.
        collection: Name of a collection of the service; None for the default one.
        token: Token of a service that needs one.
        timeout: Seconds that one attempt of a request may take.
        retries: Number of further attempts of a request that may be repeated.
    """
    client = Client(url, collection=collection, token=token, timeout=timeout, retries=retries)
    try:
        client.describe()
    except BaseException:
        client.close()
        raise
    return client


class Client:
    """A collection that a service holds, with the verbs of `Collection`.

    Code moves from a folder to a server by one line: ``Collection.open("photos")`` becomes
    ``connect("http://localhost:8000")``. The service encodes: rows, texts and files are sent as
    they are, and the extractors of the model need not be installed here.

    Requests that only read are repeated after a lost answer, a timeout or status 429, 502, 503 or
    504. A write is repeated if the service did not receive it or answered with one of these; a
    `delete` that was repeated counts only what the last attempt found. Safe to use from many
    threads.

    Args:
        url: Address of the service, or of one of its collections.
        collection: Name of a collection of the service; None for the default one.
        token: Token of a service that needs one.
        timeout: Seconds that one attempt of a request may take.
        retries: Number of further attempts of a request that may be repeated.
    """

    def __init__(
        self,
        url: str,
        *,
        collection: str | None = None,
        token: str | None = None,
        timeout: float = 30.0,
        retries: int = 3,
    ) -> None:
        self._settings = Settings(url, token, timeout, retries, collection)
        self._http = httpx.Client(**self._settings.options())
        self._verbs = verbs.RemoteVerbs()

    # --- what is there ---

    def describe(self) -> verbs.Description:
        """Return the number of items, the modalities with what each accepts, and the model."""
        return self._run(self._verbs.describe())

    @property
    def model(self) -> HashModel:
        """The model that makes the codes, downloaded from the service."""
        return self._run(self._verbs.model())

    @property
    def path(self) -> str:
        """Address of the collection."""
        return self._settings.address

    @property
    def capabilities(self) -> Capabilities:
        """What the collection's store can do."""
        return self._run(self._verbs.capabilities())

    @property
    def keep(self) -> tuple[str, ...]:
        """What the collection stores besides codes: ``"scores"``, ``"features"``, or nothing."""
        return self._run(self._verbs.keep())

    def accepts(self, modality: str, *, trusted: bool = True) -> str | None:
        """Return the kind of raw input that a modality accepts from clients, or None."""
        return self._run(self._verbs.accepts(modality))

    # --- writing ---

    def upsert(
        self,
        ids: Iterable[Id],
        views: Mapping[str, Inputs] | None = None,
        payload: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        replace_payload: bool = False,
        trusted: bool = True,
    ) -> None:
        """Add items, or update existing ones; durable on return.

        A call of up to 1,000 items and 6 MB writes everything or nothing. A larger one is sent in
        parts; if it fails, some of the items may have been written: repeat it.

        Args:
            ids: Strings or integers; ``1`` and ``"1"`` are different.
            views: Modality → one row (or raw input, or code) per id, as for `Collection.upsert`.
            payload: One mapping of fields per id, or a frame; merged as by `Collection.upsert`.
            replace_payload: Whether a given payload takes the place of the item's payload.
            trusted: Whether a string for a modality of files is the path of a file to send.
        """
        steps = self._verbs.upsert(
            ids, views, payload, replace_payload=replace_payload, trusted=trusted
        )
        self._run(steps)

    def update(
        self,
        ids: Iterable[Id],
        payload: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        remove: Iterable[str] = (),
    ) -> None:
        """Change the payloads of existing items, as `Collection.update`."""
        self._run(self._verbs.update(ids, payload, remove))

    def delete(
        self,
        ids: Iterable[Id] | None = None,
        *,
        filter: Mapping[str, Any] | None = None,
        modality: str | None = None,
    ) -> int:
        """Delete items, or only their codes of one modality, as `Collection.delete`."""
        return self._run(self._verbs.delete(ids, filter, modality))

    def index_field(self, field: str) -> None:
        """Index a payload field, which makes filters on it fast."""
        self._run(self._verbs.index_field(field))

    def unindexed_fields(self, filter: Mapping[str, Any]) -> list[str]:
        """Refuse: a service does not report which fields have no index; use `index_field`.

        Raises:
            DataError: Always; the message says what to do instead.
        """
        verbs.refuse_unindexed(filter)

    # --- reading ---

    def get(self, ids: Iterable[Id], *, kept: bool = False) -> list[Item | None]:
        """Return items in the order of their ids, None for unknown ids; refuses ``kept=True``."""
        return self._run(self._verbs.get(ids, kept=kept))

    def __contains__(self, id_: object) -> bool:
        """Return whether there is an item with this id."""
        return self._run(self._verbs.contains(id_))

    def __len__(self) -> int:
        """Return the number of items."""
        return self._run(self._verbs.count())

    def __iter__(self) -> Iterator[Item]:
        """Iterate over all items, in order of arrival."""
        return self._scan()

    def scan(self, *, kept: bool = False) -> tuple[HashModel, Iterator[Item]]:
        """Return the model, and an iterator over all items; refuses ``kept=True``."""
        return self._run(self._verbs.scan(kept=kept)), self._scan()

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
        """Return the nearest items of each query, as `Collection.search`.

        Args:
            modality: Modality of the queries.
            X: Queries: rows of numbers, `Codes`, or raw inputs: texts, lists of tags, contents or
                paths of files.
            k: Number of items to return per query.
            **options: The fields of `SearchOptions`.
            threads: Ignored: the service decides.
            trusted: Whether a string for a modality of files is the path of a file to send.

        Returns:
            One `Results` per query.
        """
        return self._run(self._verbs.search(modality, X, k, trusted=trusted, **options))

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
        """Suggest tags: those of the nearest items, ranked by vote; see `Collection.annotate`."""
        steps = self._verbs.annotate(
            modality,
            X,
            target=target,
            neighbors=neighbors,
            max_tags=max_tags,
            field=field,
            filter=filter,
            trusted=trusted,
        )
        return self._run(steps)

    # --- maintenance ---

    def stats(self) -> Stats:
        """Return statistics: items, modalities, bytes, and the health of the codes."""
        return self._run(self._verbs.stats())

    def check(self) -> list[Finding]:
        """Verify all files and rebuild corrupted indexes; one finding per problem."""
        return self._run(self._verbs.check())

    def compact(self) -> None:
        """Free the space of deleted items, and save the indexes."""
        self._run(self._verbs.compact())

    def upgrade(
        self,
        model: HashModel,
        batches: Iterable[tuple[Sequence[Id], Mapping[str, Inputs]]] | None = None,
    ) -> None:
        """Refuse: a model is changed where the collection is.

        Raises:
            DataError: Always; the message says what to do instead.
        """
        verbs.refuse_model(model)

    def extend(self, model: HashModel) -> None:
        """Refuse, as `upgrade`: a model is changed where the collection is.

        Raises:
            DataError: Always; the message says what to do instead.
        """
        verbs.refuse_model(model)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        """Return the client, which closes when the block ends."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        self.close()

    def __repr__(self) -> str:
        """Such as ``Client('http://localhost:8000': image, text → 64 bits)``."""
        return self._verbs.name(self, self._settings.address)

    # --- requests ---

    def _run(self, steps: verbs.Steps[T]) -> T:
        try:
            call = next(steps)
            while True:
                call = steps.send(call.result(self._send(call)))
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _send(self, call: RemoteCall, *, stream: bool = False) -> httpx.Response:
        url = self._settings.root + call.path
        request = self._http.build_request(call.method, url, **call.arguments())
        delays = self._settings.delays()
        while True:
            outcome: httpx.Response | Exception
            try:
                outcome = self._http.send(request, stream=stream)
            except httpx.TransportError as error:
                outcome = error
            delay = self._settings.delay(call, outcome, delays)
            if isinstance(outcome, httpx.Response):
                if delay is None:
                    return outcome
                outcome.close()
            elif delay is None:
                raise self._settings.failure(outcome) from outcome
            time.sleep(delay)

    def _scan(self) -> Iterator[Item]:
        with closing(self._send(SCAN, stream=True)) as response:
            try:
                if response.status_code != 200:
                    raise error_of(response.status_code, response.read())
                lines = read_lines(response.iter_lines())
                first = next(lines)
                for line in lines:
                    yield wire.item_from_json(line, first["n_bits"], first["model"])
            except httpx.TransportError as error:
                raise self._settings.failure(error) from error
