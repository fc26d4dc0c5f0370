"""Tables of a collection in a database: its state, items, and one table of codes per modality."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from crossbit.codes import Codes
from crossbit.collection.postgres.connection import PostgresAddress
from crossbit.collection.stores import (
    EncodedView,
    WriteBatch,
    incomplete_upgrade,
    item_id,
    item_key,
)
from crossbit.collection.values import Item
from crossbit.errors import FormatError
from crossbit.model.hashmodel import HashModel

_FORMAT = "crossbit.postgres/1"
TABLES = """
CREATE TABLE state (one boolean PRIMARY KEY DEFAULT TRUE CHECK (one), value text NOT NULL);
CREATE TABLE items (
    row bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key text COLLATE "C" NOT NULL,
    payload text NOT NULL,
    fields jsonb,
    EXCLUDE USING hash (key WITH =) -- unique; other indexes limit the length of a key
);
"""
_CODES = (
    "CREATE TABLE IF NOT EXISTS {} (row bigint PRIMARY KEY REFERENCES items ON DELETE CASCADE,"
    " code bit({}) NOT NULL)"
)
_DIGITS = np.frombuffer(b"01", np.uint8)


@dataclass(frozen=True)
class PostgresState:
    """State of a collection, which an upgrade replaces.

    Args:
        fingerprint: Fingerprint of the model that made the codes.
        n_bits: Length of a code.
        modalities: Modality → number of its table of codes.
    """

    fingerprint: str
    n_bits: int
    modalities: Mapping[str, int]

    @classmethod
    def of(cls, model: HashModel, first: int = 0) -> Self:
        """Return the state of a collection of a model, its tables numbered from ``first``."""
        numbers = {name: first + i for i, name in enumerate(model.modalities)}
        return cls(model.fingerprint(), model.n_bits, numbers)

    def successor(self, model: HashModel) -> "PostgresState":
        """Return the state after an upgrade, with other tables."""
        return PostgresState.of(model, max(self.modalities.values()) + 1)

    def extended(self, model: HashModel, added: Sequence[str]) -> "PostgresState":
        """Return the state with further modalities."""
        first = max(self.modalities.values()) + 1
        numbers = {name: first + i for i, name in enumerate(added)}
        return PostgresState(model.fingerprint(), self.n_bits, {**self.modalities, **numbers})

    def table(self, modality: str) -> str:
        """Return the table of codes of a modality."""
        return f"codes_{self.modalities[modality]}"

    def create_tables(self, connection: Any) -> None:  # noqa: ANN401 - a connection of psycopg
        """Create the tables of codes that do not exist yet."""
        for name in self.modalities:
            connection.execute(_CODES.format(self.table(name), self.n_bits))

    def write(self, connection: Any) -> None:  # noqa: ANN401
        """Store the state."""
        text = json.dumps({"format": _FORMAT, **asdict(self)})
        connection.execute(
            "INSERT INTO state (value) VALUES (%s) ON CONFLICT (one)"
            " DO UPDATE SET value = excluded.value",
            [text],
        )

    @classmethod
    def read(cls, connection: Any, path: object) -> Self:  # noqa: ANN401
        """Read the state that a transaction sees."""
        row = connection.execute("SELECT value FROM state").fetchone()
        values = {} if row is None else json.loads(row[0])
        if (stored_format := values.pop("format", None)) != _FORMAT:
            raise FormatError(
                f"{path}: format {stored_format!r}, expected {_FORMAT!r}; upgrade crossbit, or copy"
                " the collection"
            )
        return cls(**values)


def to_bits(codes: Codes) -> list[str]:
    """Return codes as the texts of bit strings."""
    digits = _DIGITS[codes.unpack().astype(np.uint8)]
    return [row.tobytes().decode() for row in digits]


def code_of(texts: Sequence[str], model: str) -> Codes:
    """Return codes from the texts of bit strings."""
    digits = np.frombuffer("".join(texts).encode(), np.uint8).reshape(len(texts), -1)
    packed = Codes.pack(digits == _DIGITS[1])
    return Codes(packed.words, packed.n_bits, model=model)


def jsonb_text(texts: Iterable[str]) -> list[str | None]:
    """Return the payloads that ``jsonb`` can hold, None for those with NUL characters."""
    return [None if "\\u0000" in text else text for text in texts]


# --- what a transaction does to the tables ---


def exists(connection: Any, address: PostgresAddress) -> bool:  # noqa: ANN401
    """Return whether the tables of a collection exist."""
    sql = "SELECT to_regclass(%s) IS NOT NULL"
    return bool(connection.execute(sql, [f"{address.schema}.state"]).fetchone()[0])


def use(connection: Any, address: PostgresAddress) -> None:  # noqa: ANN401
    """Let statements of this transaction name tables without their schema."""
    # Before the first query, whose moment the transaction sees: see `lock_out_readers`.
    connection.execute(f"LOCK TABLE {address.schema}.state IN ACCESS SHARE MODE")
    set_path(connection, address)


def lock_out_readers(connection: Any) -> None:  # noqa: ANN401
    """Wait for all readers, and let new ones wait until this transaction has ended.

    Tables may only be dropped then: a reader would look for them after it has read the state.
    """
    connection.execute("LOCK TABLE state IN ACCESS EXCLUSIVE MODE")


def set_path(connection: Any, address: PostgresAddress) -> None:  # noqa: ANN401
    """Put the schema of the collection in front of the others for this transaction."""
    connection.execute(
        "SELECT set_config('search_path', %s || ', ' || current_setting('search_path'), TRUE)",
        [address.schema],
    )


def count(connection: Any, table: str) -> int:  # noqa: ANN401
    """Return the number of rows of a table."""
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def write_items(connection: Any, batch: WriteBatch) -> np.ndarray[Any, Any]:  # noqa: ANN401
    """Write new items and new payloads; return the row of each item."""
    keys = list(map(item_key, batch.ids))
    if batch.needs_stored:
        sql = "SELECT key, payload FROM items WHERE key = ANY (%s)"
        stored = connection.execute(sql, [keys])
        batch = batch.merged({item_id(key): json.loads(text) for key, text in stored})
    texts = list(batch.texts or [None] * len(keys))
    new = [text or "{}" for text in texts]
    connection.execute(
        "INSERT INTO items (key, payload, fields)"
        " SELECT key, payload, fields::jsonb"
        " FROM unnest(%s::text[], %s::text[], %s::text[]) WITH ORDINALITY"
        " AS new (key, payload, fields, number)"
        " WHERE NOT EXISTS (SELECT FROM items old WHERE old.key = new.key) ORDER BY number",
        [keys, new, jsonb_text(new)],
    )
    changed = [(key, text) for key, text in zip(keys, texts, strict=True) if text is not None]
    if changed:
        own = [text for _, text in changed]
        connection.execute(
            "UPDATE items SET payload = new.payload, fields = new.fields::jsonb"
            " FROM unnest(%s::text[], %s::text[], %s::text[]) AS new (key, payload, fields)"
            " WHERE items.key = new.key AND items.payload <> new.payload",
            [[key for key, _ in changed], own, jsonb_text(own)],
        )
    return rows_of(connection, keys)


def rows_of(connection: Any, keys: list[str]) -> np.ndarray[Any, Any]:  # noqa: ANN401
    """Return the row of each key, 0 if there is none."""
    rows = dict(connection.execute("SELECT key, row FROM items WHERE key = ANY (%s)", [keys]))
    return np.array([rows.get(key, 0) for key in keys], np.int64)


def write_codes(
    connection: Any,  # noqa: ANN401
    table: str,
    rows: np.ndarray[Any, Any],
    view: EncodedView,
    where: str = "",
) -> None:
    """Write the codes of a batch; a condition on ``row`` may leave some out."""
    connection.execute(
        f"INSERT INTO {table} SELECT row, code::bit({view.codes.n_bits})"
        f" FROM unnest(%s::bigint[], %s::text[]) AS new (row, code) {where}"
        " ON CONFLICT (row) DO UPDATE SET code = excluded.code",
        [rows[view.positions].tolist(), to_bits(view.codes)],
    )


def items(
    connection: Any,  # noqa: ANN401
    state: PostgresState,
    rows: Sequence[tuple[int, str, str]],
) -> list[Item]:
    """Return items with their codes."""
    numbers = [row for row, _, _ in rows]
    codes: dict[int, dict[str, Codes]] = {row: {} for row in numbers}
    for name in state.modalities:
        sql = f"SELECT row, code::text FROM {state.table(name)} WHERE row = ANY (%s)"
        for row, text in connection.execute(sql, [numbers]):
            codes[row][name] = code_of([text], state.fingerprint)
    return [Item(item_id(key), json.loads(text), codes[row]) for row, key, text in rows]


def used_modalities(connection: Any, state: PostgresState) -> list[str]:  # noqa: ANN401
    """Return the modalities that items have."""
    return [name for name in state.modalities if count(connection, state.table(name))]


def check_complete(connection: Any, state: PostgresState, after: PostgresState) -> None:  # noqa: ANN401
    """Check that every item has a new code for each of its old ones."""
    for name in state.modalities:
        if name not in after.modalities:
            continue
        sql = (
            f"SELECT i.key FROM items i JOIN {state.table(name)} USING (row) WHERE NOT EXISTS"
            f" (SELECT FROM {after.table(name)} new WHERE new.row = i.row) ORDER BY i.row"
        )
        missing = [key for (key,) in connection.execute(sql)]
        if missing:
            raise incomplete_upgrade(name, missing)
