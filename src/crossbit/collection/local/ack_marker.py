"""The last acknowledged write, recorded beside the database."""

import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path

from crossbit.collection.local.database import Database
from crossbit.collection.local.schema import DbState
from crossbit.errors import BackendError, FormatError


class AckMarker:
    """A file with the last acknowledged generation.

    SQLite silently ignores a corrupted end of its write-ahead log, as if the last writes had never
    happened. The marker is written after a commit, so a marker ahead of the database reveals that
    acknowledged writes are lost.

    Args:
        database: Database whose writes are recorded.
    """

    _FORMAT = struct.Struct("<16sqI")  # UUID of the collection, generation, CRC-32

    def __init__(self, database: Database) -> None:
        self.path = database.path.with_name("acknowledged")
        self._database = database

    def write(self, state: DbState) -> None:
        """Record a generation, unless a later one is recorded.

        A failure is ignored, since the marker is only a second witness.
        """
        with suppress(OSError, BackendError):
            recorded = self.read_valid()
            is_ours = recorded is not None and recorded[0] == state.uuid
            if recorded is not None and is_ours and recorded[1] >= state.generation:
                return
            with self._database.folder() as folder:
                self._overwrite(self.path if folder is None else self.path.name, folder, state)

    @staticmethod
    def _overwrite(path: Path | str, folder: int | None, state: DbState) -> None:
        content = bytes.fromhex(state.uuid) + struct.pack("<q", state.generation)
        # Overwritten in place: even a full disk has room for it.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666, dir_fd=folder)
        try:
            os.write(descriptor, content + struct.pack("<I", zlib.crc32(content)))
        finally:
            os.close(descriptor)

    def read(self) -> tuple[str, int] | None:
        """Return the recorded UUID and generation; None if there is no marker.

        Raises:
            FormatError: The marker is corrupted.
        """
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return None
        if len(raw) == self._FORMAT.size and zlib.crc32(raw[:-4]) == self._FORMAT.unpack(raw)[2]:
            uuid, generation, _ = self._FORMAT.unpack(raw)
            return uuid.hex(), generation
        raise FormatError(f"{self.path}: does not match its checksum")

    def read_valid(self) -> tuple[str, int] | None:
        """Return the same, and None also for a corrupted marker: `find_problems` reports it."""
        try:
            return self.read()
        except FormatError:
            return None

    def check(self, recorded: tuple[str, int] | None, state: DbState) -> None:
        """Raise an error if a database lacks acknowledged writes.

        Args:
            recorded: The marker, read before the database.
            state: State of the database.
        """
        if recorded is None or recorded[0] != state.uuid:
            return
        acknowledged = recorded[1]
        if acknowledged > state.generation:
            database = self._database.path
            raise FormatError(
                f"{database}-wal: corrupted or deleted: {acknowledged - state.generation}"
                f" acknowledged writes (up to number {acknowledged}) are missing from"
                f" {database.name}; restore both files from a backup, or delete {self.path} to"
                " continue without those writes"
            )
