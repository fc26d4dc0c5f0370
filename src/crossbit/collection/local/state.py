"""The one row of facts that every transaction begins with, and the tables it names."""

import json
import sqlite3
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from crossbit._io.files import check_version
from crossbit.errors import FormatError

FORMAT = "crossbit.collection/1"
TRUTH = "items.sqlite"
MODEL = "model"

SCHEMA = """
CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), value TEXT NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE items (row INTEGER PRIMARY KEY, id NOT NULL UNIQUE, payload TEXT NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE changes (generation INTEGER PRIMARY KEY, runs BLOB NOT NULL, checksum INTEGER NOT NULL);
"""
CODES = (
    "CREATE TABLE codes_{} (row INTEGER PRIMARY KEY, code BLOB NOT NULL, checksum INTEGER NOT NULL)"
)
FEATURES = "CREATE TABLE features_{} (row INTEGER PRIMARY KEY, feature BLOB NOT NULL, checksum INTEGER NOT NULL)"
FIELD = "CREATE TABLE field_{} (kind INTEGER, value, row INTEGER, PRIMARY KEY (kind, value, row)) WITHOUT ROWID"


@dataclass(frozen=True)
class State:
    """What is true of a collection at one moment.

    Args:
        birth: A random word that tells this collection from every other.
        n_bits: Length of a code.
        fingerprint: Of the model that made the codes.
        epoch: Number of the model: its folder is ``model/<epoch>``.
        codes: Modality → number of its table ``codes_<number>``.
        keep: The number type in which features are kept, or nothing.
        features: Modality → number of its table ``features_<number>`` and the shape of a row.
        fields: Payload field → number of its table ``field_<number>``.
        generation: How many writes there have been.
        log_start: The table of changes tells all changes of later generations.
        items: How many items there are.
        next_number: For the next table or model.
    """

    birth: str
    n_bits: int
    fingerprint: str
    epoch: int
    codes: Mapping[str, int]
    keep: str | None = None
    features: Mapping[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    fields: Mapping[str, int] = field(default_factory=dict)
    generation: int = 0
    log_start: int = 0
    items: int = 0
    next_number: int = 1

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> "State":
        """The state as the connection's transaction sees it."""
        found = connection.execute("SELECT value, checksum FROM state").fetchall()
        if len(found) != 1:
            raise damaged(connection, f"the table 'state' has {len(found)} rows, expected one")
        ((text, checksum),) = found
        if not isinstance(text, str) or zlib.crc32(text.encode()) != checksum:
            raise damaged(connection, "the table 'state' does not match its checksum")
        values: dict[str, Any] = json.loads(text)
        if (spelled := values.pop("format")) != FORMAT:
            check_version(path_of(connection), spelled, FORMAT)
        values["features"] = {
            name: (number, tuple(shape)) for name, (number, shape) in values["features"].items()
        }
        return cls(**values)

    def write(self, connection: sqlite3.Connection) -> None:
        """Make this the state, when the transaction commits."""
        text = json.dumps({"format": FORMAT, **asdict(self)})
        connection.execute("REPLACE INTO state VALUES (1, ?, ?)", (text, zlib.crc32(text.encode())))

    def numbered(self, names: Iterable[str]) -> tuple["State", dict[str, int]]:
        """Give numbers to new tables."""
        numbers = {name: self.next_number + i for i, name in enumerate(names)}
        return replace(self, next_number=self.next_number + len(numbers)), numbers


def damaged(connection: sqlite3.Connection, problem: str) -> FormatError:
    """An error that names the file behind a connection."""
    return FormatError(
        f"{path_of(connection)}: {problem}; the file was altered or damaged, a copy brings it back"
    )


def path_of(connection: sqlite3.Connection) -> Path:
    """The file behind a connection."""
    return Path(
        next(file for _, name, file in connection.execute("PRAGMA database_list") if name == "main")
    )
