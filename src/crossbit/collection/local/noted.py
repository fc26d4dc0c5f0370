"""The note of the last acknowledged write, kept beside the truth.

SQLite passes over a damaged end of its write-ahead log as if the last writes had never been. The note lets us find that
out: a write is noted after it is on disk, so a note that is ahead of the truth says that acknowledged writes are gone.
"""

import os
import struct
import zlib
from pathlib import Path

from crossbit.errors import FormatError

FILE = "acknowledged"
_FORM = struct.Struct("<qI")


def write(folder: Path, generation: int) -> None:
    """Note a generation, as well as the disk lets us: the note is a second witness, not the truth."""
    number = struct.pack("<q", generation)
    try:
        descriptor = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            os.write(
                descriptor, _FORM.pack(generation, zlib.crc32(number))
            )  # in place: a full disk has room for it
        finally:
            os.close(descriptor)
    except OSError:
        pass


def read(folder: Path) -> int | None:
    """The generation that was noted; None where there is no note.

    Raises:
        FormatError: The note is damaged.
    """
    try:
        raw = (folder / FILE).read_bytes()
    except FileNotFoundError:
        return None
    if len(raw) != _FORM.size or zlib.crc32(raw[:8]) != _FORM.unpack(raw)[1]:
        raise FormatError(f"{folder / FILE}: does not match its checksum")
    generation: int = _FORM.unpack(raw)[0]
    return generation


def at_least(folder: Path) -> int:
    """The generation that the truth must have reached, to be asked before the truth itself; 0 when nobody knows."""
    try:
        return read(folder) or 0
    except FormatError:
        return 0  # the next write makes it anew, and `check` tells


def missing(folder: Path, noted: int, generation: int, truth: Path) -> FormatError:
    """What to say of a truth that lacks writes which were acknowledged."""
    return FormatError(
        f"{truth}-wal: damaged or removed: {noted - generation} acknowledged writes (up to number {noted}) are"
        f" missing from {truth.name}; bring back both files from a copy, or delete {folder / FILE} to go on"
        " without those writes"
    )
