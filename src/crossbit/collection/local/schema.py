"""Tables of the SQLite file, the state row that every transaction reads first, and new folders."""

import json
import os
import shutil
import sqlite3
import tempfile
import uuid
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from crossbit._io.files import check_version, sync_folder
from crossbit.errors import DataError, FormatError
from crossbit.model.hashmodel import HashModel

FORMAT = "crossbit.collection/1"
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
FEATURES = (
    "CREATE TABLE features_{}"
    " (row INTEGER PRIMARY KEY, feature BLOB NOT NULL, checksum INTEGER NOT NULL)"
)
FIELD = (
    "CREATE TABLE field_{} (kind INTEGER, value, row INTEGER, PRIMARY KEY (kind, value, row))"
    " WITHOUT ROWID"
)

# Fields of `DbState` that the file format calls by another name.
_STORED_NAMES = {"uuid": "birth", "model_version": "epoch", "feature_type": "keep"}
_FIELD_NAMES = {stored: name for name, stored in _STORED_NAMES.items()}


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
        log_start: The table ``changes`` is complete for later generations.
        items: Number of items.
        next_number: Number of the next table or model.
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
    log_start: int = 0
    items: int = 0
    next_number: int = 1

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
        if (stored_format := values.pop("format")) != FORMAT:
            check_version(_path_of(connection), stored_format, FORMAT)
        values["features"] = {
            name: (number, tuple(shape)) for name, (number, shape) in values["features"].items()
        }
        return cls(**{_FIELD_NAMES.get(name, name): value for name, value in values.items()})

    def write(self, connection: sqlite3.Connection) -> None:
        """Store the state, effective when the transaction commits."""
        values = {_STORED_NAMES.get(name, name): value for name, value in asdict(self).items()}
        text = json.dumps({"format": FORMAT, **values})
        connection.execute("REPLACE INTO state VALUES (1, ?, ?)", (text, zlib.crc32(text.encode())))

    def allocate(self, names: Iterable[str]) -> tuple["DbState", dict[str, int]]:
        """Number new tables; return the state that has reserved the numbers, and the numbers."""
        numbers = {name: self.next_number + i for i, name in enumerate(names)}
        return replace(self, next_number=self.next_number + len(numbers)), numbers

    @property
    def code_bytes(self) -> int:
        """Bytes of a stored code."""
        return -(-self.n_bits // 8)


def corrupted(connection: sqlite3.Connection, problem: str) -> FormatError:
    """Return an error that names the file of a connection."""
    return FormatError(
        f"{_path_of(connection)}: {problem}; the file is corrupted, restore it from a backup"
    )


def _path_of(connection: sqlite3.Connection) -> Path:
    databases = connection.execute("PRAGMA database_list")
    return Path(next(file for _, name, file in databases if name == "main"))


def create_folder(folder: Path, model: HashModel, feature_type: str | None) -> None:
    """Create the folder of an empty collection; it appears complete or not at all."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(
            f"{folder}: exists already; open it with Collection.open, or choose another path"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise DataError(
            f"{folder}: a parent of this path is a file, not a folder; choose another path"
        ) from error
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".part", dir=folder.parent))
    try:
        draft.chmod(0o755)
        model.save(draft / MODEL / "1")
        _create_database(draft / DATABASE, model, feature_type)
        sync_folder(draft)
        os.replace(draft, folder)
        sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _create_database(path: Path, model: HashModel, feature_type: str | None) -> None:
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
            feature_type=feature_type,
        )
        state, numbers = empty.allocate(model.modalities)
        for number in numbers.values():
            connection.execute(CODES.format(number))
        replace(state, codes=numbers).write(connection)
    finally:
        connection.close()
