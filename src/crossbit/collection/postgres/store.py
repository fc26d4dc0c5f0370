"""PostgresStore: a collection in a PostgreSQL database, whose codes pgvector compares."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, Self

import numpy as np

from crossbit._validation import check_known
from crossbit.collection.filters import Conditions
from crossbit.collection.postgres import schema as tables
from crossbit.collection.postgres.connection import (
    DatabaseConnections,
    MissingTableError,
    PostgresAddress,
)
from crossbit.collection.postgres.query import check_fields, matching_rows, search_items
from crossbit.collection.postgres.schema import TABLES, PostgresState, code_of
from crossbit.collection.stores import (
    Capabilities,
    EncodedView,
    FeatureBatches,
    Query,
    Store,
    StorePath,
    WriteBatch,
    check_current,
    check_extension,
    check_given_model,
    check_modalities,
    item_id,
    item_key,
    require_features,
    require_model,
)
from crossbit.collection.values import Finding, Hit, Id, Item, Stats
from crossbit.errors import DataError
from crossbit.metrics.health import code_health
from crossbit.model.hashmodel import HashModel

_SCAN_BLOCK = 1000  # items that a scan holds in memory
_HEALTH_SAMPLE = 10_000  # codes


class PostgresStore(Store):
    """The store of a collection in a database with the extension pgvector.

    A call is one transaction. Writers of a collection take turns; readers wait only while an
    upgrade replaces the tables of codes.

    Args:
        address: The collection.
        model: The model that made its codes; the database keeps only its fingerprint.
        timeout: Seconds to wait for the database, or for another writer.
    """

    capabilities = Capabilities(exact_ties=True, transactional=True, remote=True)
    keep: tuple[str, ...] = ()

    def __init__(self, address: PostgresAddress, model: HashModel, *, timeout: float) -> None:
        self._address = address
        self._connections = DatabaseConnections(address, timeout)
        self._model = model
        try:
            self.model()
        except BaseException as error:
            self._connections.close()
            if isinstance(error, MissingTableError):
                raise DataError(str(error)) from error
            raise

    @classmethod
    def exists(cls, path: StorePath, *, timeout: float = 30.0) -> bool:
        """Return whether there is a collection at an address."""
        address = PostgresAddress.parse(str(path))
        connections = DatabaseConnections(address, timeout)
        try:
            with connections.transaction() as connection:
                return tables.exists(connection, address)
        finally:
            connections.close()

    @classmethod
    def create(
        cls, path: StorePath, model: HashModel, *, keep: Sequence[str], timeout: float = 30.0
    ) -> Self:
        """Create an empty collection: a schema with its tables."""
        address = PostgresAddress.parse(str(path))
        connections = DatabaseConnections(address, timeout)
        try:
            with connections.transaction(write=True) as connection:
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
                if tables.exists(connection, address):
                    raise DataError(
                        f"{address}: exists already; open it with Collection.open, or choose"
                        " another name"
                    )
                connection.execute(f"CREATE SCHEMA {address.schema}")
                tables.set_path(connection, address)
                connection.execute(TABLES)
                state = PostgresState.of(model)
                state.create_tables(connection)
                state.write(connection)
        finally:
            connections.close()
        return cls(address, model, timeout=timeout)

    @classmethod
    def open(cls, path: StorePath, model: HashModel | None, *, timeout: float = 30.0) -> Self:
        """Open a collection with the model that made its codes."""
        address = PostgresAddress.parse(str(path))
        return cls(address, require_model(address, model), timeout=timeout)

    @property
    def path(self) -> str:
        """Address of the collection, without credentials."""
        return str(self._address)

    def model(self) -> HashModel:
        """Return the model, if the codes in the database are its own."""
        with self._transaction() as (_, state):
            return check_given_model(self.path, state.fingerprint, self._model)

    @contextmanager
    def _transaction(
        self, model: str | None = None, *, write: bool = False
    ) -> Iterator[tuple[Any, PostgresState]]:
        """Open a transaction on the tables of the collection, and read its state."""
        with self._connections.transaction(write=write) as connection:
            tables.use(connection, self._address)
            state = PostgresState.read(connection, self._address)
            if model is not None:
                check_current(state.fingerprint, model)
            yield connection, state

    # --- writing ---

    def write(self, batch: WriteBatch, model: str) -> None:
        """Add items, or update the given parts of existing ones; everything or nothing."""
        with self._transaction(model, write=True) as (connection, state):
            rows = tables.write_items(connection, batch)
            for name, view in batch.views.items():
                tables.write_codes(connection, state.table(name), rows, view)

    def delete(
        self, ids: Sequence[Id] | None, modality: str | None, filter: Conditions = ()
    ) -> int:
        """Delete items, or their codes of one modality; return how many existed."""
        with self._transaction(write=True) as (connection, state):
            if ids is None:
                check_fields(connection, filter)
                rows = matching_rows(connection, filter)
            else:
                rows = tables.rows_of(connection, list(map(item_key, ids))).tolist()
            table = "items"
            if modality is not None:
                table = state.table(check_known(modality, state.modalities))
            sql = f"DELETE FROM {table} WHERE row = ANY (%s)"
            return int(connection.execute(sql, [rows]).rowcount)

    # --- reading ---

    def read(self, ids: Sequence[Id], *, kept: bool = False) -> list[Item | None]:
        """Return items in the order of the ids, None for unknown ids; nothing is kept of them."""
        keys = list(map(item_key, ids))
        with self._transaction() as (connection, state):
            sql = "SELECT row, key, payload FROM items WHERE key = ANY (%s)"
            items = tables.items(connection, state, connection.execute(sql, [keys]).fetchall())
        stored = {item.id: item for item in items}
        return [stored.get(id_) for id_ in ids]

    def scan(self, model: str, *, kept: bool = False) -> Iterator[Item]:
        """Iterate over all items in order of arrival, as of one moment: in one transaction."""
        with self._transaction(model) as (connection, state):
            last = 0
            while True:
                rows = connection.execute(
                    "SELECT row, key, payload FROM items WHERE row > %s ORDER BY row LIMIT %s",
                    [last, _SCAN_BLOCK],
                ).fetchall()
                if not rows:
                    return
                yield from tables.items(connection, state, rows)
                last = rows[-1][0]

    def count(self) -> int:
        """Return the number of items."""
        with self._transaction() as (connection, _):
            return tables.count(connection, "items")

    def nearest(self, query: Query, model: str) -> list[list[Hit]]:
        """Return the nearest items of each query, each item once, by its nearest modality."""
        with self._transaction(model) as (connection, state):
            return search_items(connection, state, query)

    def stats(self) -> Stats:
        """Return statistics of the stored data."""
        with self._transaction() as (connection, state):
            counts = {
                name: tables.count(connection, state.table(name)) for name in state.modalities
            }
            samples = {}
            for name, number in counts.items():
                sql = f"SELECT code::text FROM {state.table(name)} LIMIT {_HEALTH_SAMPLE}"
                if number:
                    texts = [text for (text,) in connection.execute(sql)]
                    samples[name] = code_of(texts, state.fingerprint)
            sql = (
                "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
                " WHERE relkind = 'r' AND relnamespace = %s::regnamespace"
            )
            (nbytes,) = connection.execute(sql, [self._address.schema]).fetchone()
            return Stats(
                items=tables.count(connection, "items"),
                modalities=counts,
                n_bits=state.n_bits,
                nbytes=int(nbytes),
                fields=(),
                features=None,
                generation=0,
                model=state.fingerprint,
                health={name: code_health(codes) for name, codes in samples.items()},
            )

    # --- maintenance ---

    def check(self) -> list[Finding]:
        """Verify that every payload is JSON and agrees with what filters see."""
        problems = []
        with self._transaction() as (connection, _):
            sql = "SELECT key, payload, fields::text FROM items ORDER BY row"
            for key, text, fields in connection.execute(sql):
                try:
                    payload = _exact(text)
                except ValueError:
                    problems.append(f"item {item_id(key)!r}: the payload is not JSON")
                    continue
                if (fields is not None) and _exact(fields) != payload:
                    problems.append(f"item {item_id(key)!r}: filters see another payload")
        return [Finding(self.path, f"{problem}; write it again") for problem in problems]

    def compact(self) -> None:
        """Free unused space, and update what the database knows about the tables."""
        with self._transaction() as (_, state):
            names = ["items", *map(state.table, state.modalities)]
        with self._connections.autocommit() as connection:
            for table in names:
                connection.execute(f"VACUUM (ANALYZE) {self._address.schema}.{table}")

    def upgrade(self, model: HashModel, batches: FeatureBatches | None) -> None:
        """Switch to another model in one transaction; others can search until its last step."""
        batches = require_features(batches, model)
        with self._transaction(write=True) as (connection, state):
            after = state.successor(model)
            check_modalities(tables.used_modalities(connection, state), model)
            after.create_tables(connection)
            for ids, views in batches:
                rows = tables.rows_of(connection, list(map(item_key, ids)))
                for name, X in views.items():
                    known = np.flatnonzero(rows)
                    codes = model.encode(name, X)[known]
                    view = EncodedView(known, codes)
                    has_old = f"WHERE row IN (SELECT row FROM {state.table(name)})"
                    if name in state.modalities:
                        tables.write_codes(connection, after.table(name), rows, view, has_old)
            tables.check_complete(connection, state, after)
            tables.lock_out_readers(connection)
            after.write(connection)
            for name in state.modalities:
                connection.execute(f"DROP TABLE {state.table(name)}")
        self._model = model

    def extend(self, model: HashModel) -> None:
        """Switch to a model with further modalities; no stored code is touched."""
        with self._transaction(write=True) as (connection, state):
            added = check_extension(
                check_given_model(self.path, state.fingerprint, self._model), model
            )
            after = state.extended(model, added)
            after.create_tables(connection)
            after.write(connection)
        self._model = model

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()


def _exact(text: str) -> object:
    """Parse JSON with the numbers as written: the database writes ``1e23`` as an integer."""
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)
