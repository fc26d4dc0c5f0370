"""The tags of a MATLAB v5 file, checked before SciPy trusts them: it crashes on a type that does not exist.

After a header of 128 bytes come elements, each with a tag of eight bytes: its type and its length. One of type 14 is
a matrix, made of further elements: flags, dimensions, name, and then the numbers: real parts, and imaginary parts
where a flag says so, behind the row and column indices of a sparse matrix. Compressed elements carry a checksum of
their own.
"""

import struct
from pathlib import Path
from typing import BinaryIO

from crossbit.errors import FormatError

_ORDERS = {b"IM": "<", b"MI": ">"}
_NUMBERS = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 16, 17, 18}  # types of numbers and characters
_MATRIX, _SPARSE, _COMPLEX = 14, 5, 0x800


def check_tags(path: Path) -> None:
    """Refuse a file with a matrix whose numbers are of no known type, or lie outside of it."""
    with path.open("rb") as file:
        order = _ORDERS.get(file.read(128)[126:])  # none in a v4 file, which has no tags
        while order and len(tag := file.read(8)) == 8:
            kind, size = struct.unpack(f"{order}II", tag)
            end = file.tell() + size
            if kind == _MATRIX and size and not _is_sound(file, order, end):
                raise FormatError(
                    f"{path}: cannot be read as .mat (a matrix before byte {end} is damaged)"
                )
            file.seek(end)


def _is_sound(file: BinaryIO, order: str, end: int) -> bool:
    """Whether the numbers of the matrix that begins here are where and what they should be."""
    kinds: list[int] = []
    flags = 0
    while (start := file.tell()) + 8 <= end:
        tag = file.read(12)
        if len(tag) < 8:  # the file ends before the matrix does
            return False
        kind, size = struct.unpack(f"{order}II", tag[:8])
        if not kinds:
            flags = int.from_bytes(tag[8:], "little" if order == "<" else "big")
        kinds.append(kind & 0xFFFF)
        is_small = kind >> 16  # up to four bytes stand in the tag itself
        file.seek(start + 8 + (0 if is_small else -(-size // 8) * 8))
    if not _SPARSE - 1 <= flags & 0xFF <= 15:  # cells and structures hold matrices, not numbers
        return True
    parts = kinds[3:]
    expected = 1 + bool(flags & _COMPLEX) + 2 * (flags & 0xFF == _SPARSE)
    return len(parts) >= expected and _NUMBERS.issuperset(parts)
