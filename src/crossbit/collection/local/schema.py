"""Tables of the SQLite file, the state row that every transaction reads first, and new folders."""

import json
import secrets
import sqlite3
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from crossbit._io.files import check_version
from crossbit._io.folders import new_folder
from crossbit.collection.values import FEATURE_TYPE, FEATURES, SCORES
from crossbit.errors import DataError, FormatError
from crossbit.model.hashmodel import HashModel

FORMAT = "crossbit.collection/4"
DATABASE = "items.sqlite"
MODEL = "model"
_PAGE_BYTES = 4096

_SCHEMA = """
CREATE TABLE state (
    one INTEGER PRIMARY KEY CHECK (one = 1), value TEXT NOT NULL, checksum INTEGER NOT NULL
);
CREATE TABLE items (
    row INTEGER PRIMARY KEY, id NOT NULL UNIQUE, payload TEXT NOT NULL, checksum INTEGER NOT NULL
);
CREATE TABLE changes (
    generation INTEGER PRIMARY KEY, runs BLOB NOT NULL, checksum INTEGER NOT NULL
);
"""
CODES = (
    "CREATE TABLE codes_{} (row INTEGER PRIMARY KEY, code BLOB NOT NULL, checksum INTEGER NOT NULL)"
)
FEATURE_TABLE = (
    "CREATE TABLE features_{}"
    " (row INTEGER PRIMARY KEY, feature BLOB NOT NULL, checksum INTEGER NOT NULL)"
)
SCORE_TABLE = (
    "CREATE TABLE scores_{}"
    " (row INTEGER PRIMARY KEY, score BLOB NOT NULL, checksum INTEGER NOT NULL)"
)
FIELD = (
    "CREATE TABLE field_{} (kind INTEGER, value, row INTEGER, PRIMARY KEY (kind, value, row))"
    " WITHOUT ROWID"
)


@dataclass(frozen=True)
class DbState:
    """State of a collection at one generation.

    Args:
        uuid: UUID of the collection.
        n_bits: Length of a code.
        fingerprint: Fingerprint of the model that made the codes.
        model_version: Number of the model; its folder is ``model/<model_version>``.
        codes: Modality → number of its table ``codes_<number>``.
        feature_type: Data type of kept features, or None if they are not kept.
        features: Modality → number of its table ``features_<number>``, and the shape of a row.
        fields: Payload field → number of its table ``field_<number>``.
        generation: Number of writes so far.
        nonce: Random number of this generation, which no other history of the collection shares, as
            that of a copy that was written independently.
        log_start: The table ``changes`` is complete for later generations.
        log_nonce: Nonce of the generation ``log_start``.
        upgrade_start: Generation at which a running upgrade began; the log of changes is kept from
            there on.
        items: Number of items.
        next_number: Number of the next table or model.
        scores: Modality → number of its table ``scores_<number>``; None if scores are not kept.
    """

    uuid: str
    n_bits: int
    fingerprint: str
    model_version: int
    codes: Mapping[str, int]
    feature_type: str | None = None
    features: Mapping[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    fields: Mapping[str, int] = field(default_factory=dict)
    generation: int = 0
    nonce: int = 0
    log_start: int = 0
    log_nonce: int = 0
    upgrade_start: int | None = None
    items: int = 0
    next_number: int = 1
    scores: Mapping[str, int] | None = None

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> "DbState":
        """Read the state that the connection's transaction sees."""
        rows = connection.execute("SELECT value, checksum FROM state").fetchall()
        if len(rows) != 1:
            raise corrupted(connection, f"the table 'state' has {len(rows)} rows, expected one")
        ((text, checksum),) = rows
        if not isinstance(text, str) or zlib.crc32(text.encode()) != checksum:
            raise corrupted(connection, "the table 'state' does not match its checksum")
        values: dict[str, Any] = json.loads(text)
        check_version(_path_of(connection), values.pop("format", None), FORMAT)
        values.pop("bookmarks", None)  # of interrupted adds, which are no longer stored
        try:
            values["features"] = {
                name: (number, tuple(shape)) for name, (number, shape) in values["features"].items()
            }
            return cls(**values)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise corrupted(connection, f"the table 'state' is incomplete ({error})") from error

    def write(self, connection: sqlite3.Connection) -> None:
        """Store the state, effective when the transaction commits."""
        text = json.dumps({"format": FORMAT, **asdict(self)})
        connection.execute("REPLACE INTO state VALUES (1, ?, ?)", (text, zlib.crc32(text.encode())))

    def allocate(self, names: Iterable[str]) -> tuple["DbState", dict[str, int]]:
        """Number new tables; return the state that has reserved the numbers, and the numbers."""
        numbers = {name: self.next_number + i for i, name in enumerate(names)}
        return replace(self, next_number=self.next_number + len(numbers)), numbers

    def next_generation(self) -> "DbState":
        """Return the state of the next write."""
        return replace(self, generation=self.generation + 1, nonce=new_nonce())

    @property
    def keep(self) -> tuple[str, ...]:
        """What is kept beside the codes."""
        is_kept = {SCORES: self.scores, FEATURES: self.feature_type}
        return tuple(name for name, value in is_kept.items() if value is not None)

    @property
    def code_bytes(self) -> int:
        """Bytes of a stored code."""
        return -(-self.n_bits // 8)


def new_nonce() -> int:
    """Return a random number from 1 to 2⁶³ - 1."""
    return 1 + secrets.randbelow(2**63 - 1)


def corrupted(connection: sqlite3.Connection, problem: str) -> FormatError:
    """Return an error that names the file of a connection."""
    return FormatError(
        f"{_path_of(connection)}: {problem}; the file is corrupted, restore it from a backup"
    )


def create_tables(
    connection: sqlite3.Connection, codes: Mapping[str, int], scores: Mapping[str, int] | None
) -> None:
    """Create numbered tables of codes, and of scores if they are kept."""
    for number in codes.values():
        connection.execute(CODES.format(number))
    for number in (scores or {}).values():
        connection.execute(SCORE_TABLE.format(number))


def _path_of(connection: sqlite3.Connection) -> Path:
    databases = connection.execute("PRAGMA database_list")
    return Path(next(file for _, name, file in databases if name == "main"))


def create_folder(folder: Path, model: HashModel, keep: Sequence[str]) -> None:
    """Create the folder of an empty collection; it appears complete or not at all."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        is_collection = (folder / DATABASE).exists()
        remedy = "open it with Collection.open, or choose" if is_collection else "choose"
        raise DataError(f"{folder}: exists already; {remedy} another path")
    with new_folder(folder) as draft:
        model.save(draft / MODEL / "1")
        _create_database(draft / DATABASE, model, keep)


def _create_database(path: Path, model: HashModel, keep: Sequence[str]) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(_SCHEMA)
        empty = DbState(
            uuid.uuid4().hex,
            model.n_bits,
            model.fingerprint(),
            model_version=1,
            codes={},
            feature_type=FEATURE_TYPE if FEATURES in keep else None,
            nonce=new_nonce(),
        )
        state, codes = empty.allocate(model.modalities)
        scores: Mapping[str, int] | None = None
        if SCORES in keep:
            state, scores = state.allocate(model.modalities)
        create_tables(connection, codes, scores)
        replace(state, codes=codes, scores=scores).write(connection)
    finally:
        connection.close()
