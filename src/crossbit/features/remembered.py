"""A folder of rows that were made already, found again by the content of their things."""

import hashlib
import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from crossbit._io.files import read_arrays, sha256, write_arrays
from crossbit.errors import CrossbitError
from crossbit.features.describer import Describer, Rows, Thing
from crossbit.model import Recipe

FORMAT = "crossbit.rows/1"


class Remembered:
    """Rows by the SHA-256 of their things, for one recipe; each addition is a file of its own, whole or absent.

    Everything here can be made again: a damaged file is removed and its things are described anew.

    Args:
        folder: Where rows of all recipes are kept.
        describer: Whose rows they are.
    """

    def __init__(self, folder: str | PathLike[str], describer: Describer) -> None:
        self._folder = Path(folder) / _fingerprint(describer.recipe())[:16]
        self._folder.mkdir(parents=True, exist_ok=True)
        self._rows: dict[bytes, Rows] = {}
        for path in sorted(self._folder.glob("*.rows")):
            try:
                arrays = read_arrays(path, FORMAT).arrays
                self._rows |= {
                    key.tobytes(): row
                    for key, row in zip(arrays["keys"], arrays["rows"], strict=True)
                }
            except (CrossbitError, KeyError, ValueError):
                path.unlink(missing_ok=True)

    def get(self, key: bytes | None) -> Rows | None:
        """The row that was kept under a key."""
        return None if key is None else self._rows.get(key)

    def add(self, rows: Mapping[bytes | None, Rows]) -> None:
        """Keep rows, but for those without a key."""
        known = {key: row for key, row in rows.items() if key is not None}
        if known:
            keys: NDArray[Any] = np.frombuffer(b"".join(known), np.uint8).reshape(len(known), -1)
            stored = {"keys": keys, "rows": np.stack(list(known.values()))}
            write_arrays(self._folder / f"{uuid4().hex}.rows", FORMAT, {}, stored)


def key_of(thing: Thing) -> bytes | None:
    """The SHA-256 of a thing's content; nothing where a file cannot be read."""
    match thing:
        case bytes():
            return hashlib.sha256(thing).digest()
        case PathLike():
            try:
                return bytes.fromhex(sha256(Path(thing)))
            except OSError:
                return None
        case _:
            return hashlib.sha256(
                json.dumps(thing if isinstance(thing, str) else list(thing)).encode()
            ).digest()


def _fingerprint(recipe: Recipe) -> str:
    """A hexadecimal SHA-256 of everything that decides the rows."""
    digest = hashlib.sha256(
        json.dumps([recipe.kind, recipe.settings], sort_keys=True, default=list).encode()
    )
    for name, array in sorted(recipe.arrays.items()):
        digest.update(repr((name, array.shape, array.dtype.str)).encode() + array.tobytes())
    for name, content in sorted(recipe.files.items()):
        digest.update(name.encode() + content)
    return digest.hexdigest()
