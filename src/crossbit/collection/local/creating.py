"""A new store: whole or not there at all."""

import os
import shutil
import sqlite3
import tempfile
import uuid
from dataclasses import replace
from pathlib import Path

from crossbit._io.files import sync_folder
from crossbit.collection.local.database import PAGE
from crossbit.collection.local.state import CODES, MODEL, SCHEMA, TRUTH, State
from crossbit.errors import DataError
from crossbit.model import HashModel


def create(folder: Path, model: HashModel, keep: str | None) -> None:
    """Make an empty store beside its place and move it there."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(
            f"{folder}: exists already; open it with Collection.open, or choose another place"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise DataError(
            f"{folder}: a file stands where a folder is needed; choose another place"
        ) from error
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".part", dir=folder.parent))
    try:
        fresh.chmod(0o755)
        model.save(fresh / MODEL / "1")
        _create_truth(fresh / TRUTH, model, keep)
        sync_folder(fresh)
        os.replace(fresh, folder)
        sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def _create_truth(path: Path, model: HashModel, keep: str | None) -> None:
    """An empty file of tables."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute(f"PRAGMA page_size = {PAGE}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(SCHEMA)
        empty = State(
            uuid.uuid4().hex, model.n_bits, model.fingerprint(), epoch=1, codes={}, keep=keep
        )
        state, numbers = empty.numbered(model.modalities)
        for number in numbers.values():
            connection.execute(CODES.format(number))
        replace(state, codes=numbers).write(connection)
    finally:
        connection.close()
