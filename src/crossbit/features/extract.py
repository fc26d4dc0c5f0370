"""Describing many things: in parallel, resumable, and naming what cannot be described."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from os import PathLike
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from crossbit._io.files import read_arrays, sha256, write_arrays
from crossbit._progress import OnStep, Step
from crossbit._validation import check_integer
from crossbit.errors import BackendError, CrossbitError, DataError
from crossbit.features.extractor import Extractor, RawInput, Rows, short_name
from crossbit.features.extractor import load_extractor as open_recipe
from crossbit.model import Recipe

_BLOCK = 64  # things that a worker describes between two reports

Row = Rows | str
"""The row of a thing, or why there is none."""


@dataclass(frozen=True, eq=False)
class Extraction:
    """The rows of the things that could be described.

    Args:
        rows: Shape (len(kept), width).
        kept: Numbers of the things that the rows belong to, ascending.
        skipped: A line for each other thing: which it is, and why.
    """

    rows: Rows
    kept: NDArray[np.int64]
    skipped: list[str]


def extract(
    describer: Extractor,
    things: Sequence[RawInput],
    *,
    workers: int = 1,
    cache: str | PathLike[str] | None = None,
    on_step: OnStep | None = None,
) -> Extraction:
    """Describe many things; what cannot be described is skipped and named.

    Args:
        describer: How to describe them.
        things: What it takes: texts, lists of tags, paths or bytes of pictures.
        workers: Processes; with more than one, a script needs ``if __name__ == "__main__":``.
        cache: A folder that remembers rows by the content of their things: after an interruption, or with some
            things added, only what is new is described.
        on_step: Is told how many things are done.

    Raises:
        BackendError: A worker process died.

    Example:
        >>> from crossbit.features import BagOfTags
        >>> found = extract(BagOfTags(("dog", "cat")), ["a dog", "a cow", "cat + dog"])
        >>> found.kept
        array([0, 2])
        >>> found.skipped
        ['a cow: none of its words is among the 2 known ones; perhaps: dog, cat, ...']
    """
    check_integer(workers, "the number of workers", least=1)
    memory = None if cache is None else Remembered(cache, describer)
    keys = [None if memory is None else key_of(thing) for thing in things]
    rows: list[Row | None] = [None if memory is None else memory.get(key) for key in keys]
    todo = [number for number, row in enumerate(rows) if row is None]
    blocks = [todo[start : start + _BLOCK] for start in range(0, len(todo), _BLOCK)]
    done = len(things) - len(todo)
    with _describing(
        describer, [[things[n] for n in block] for block in blocks], workers
    ) as results:
        for block, found in zip(blocks, results, strict=True):
            for number, row in zip(block, found, strict=True):
                rows[number] = row
            if memory is not None:
                memory.add(
                    {
                        keys[n]: row
                        for n, row in zip(block, found, strict=True)
                        if isinstance(row, np.ndarray)
                    }
                )
            done += len(block)
            if on_step is not None:
                on_step(Step(done, len(things)))
    return _gather(describer, things, rows)


def _gather(
    describer: Extractor, things: Sequence[RawInput], rows: Sequence[Row | None]
) -> Extraction:
    kept = [(number, row) for number, row in enumerate(rows) if isinstance(row, np.ndarray)]
    skipped = [
        f"{short_name(thing)}: {row}"
        for thing, row in zip(things, rows, strict=True)
        if isinstance(row, str)
    ]
    matrix = (
        np.stack([row for _, row in kept]) if kept else np.empty((0, describer.width), np.float32)
    )
    return Extraction(matrix, np.array([number for number, _ in kept], np.int64), skipped)


def _rows(describer: Extractor, things: Iterable[RawInput]) -> list[Row]:
    """Describe things one by one, keeping the reason where one cannot be described."""
    rows: list[Row] = []
    for thing in things:
        try:
            rows.append(describer.extract_one(thing))
        except DataError as error:
            rows.append(str(error))
    return rows


@contextmanager
def _describing(
    describer: Extractor, blocks: Sequence[Sequence[RawInput]], workers: int
) -> Iterator[Iterator[list[Row]]]:
    """Rows of blocks of things in their order, made here or by processes."""
    if min(workers, len(blocks)) <= 1:
        yield (_rows(describer, block) for block in blocks)
        return
    # Fresh processes: a forked one would inherit the locks, but not the threads, of the libraries loaded here.
    context = get_context("spawn")
    with ProcessPoolExecutor(
        min(workers, len(blocks)), context, initializer=_start, initargs=(describer.recipe(),)
    ) as pool:
        try:
            yield pool.map(_work, blocks)
        except BrokenProcessPool as error:
            raise BackendError(
                "a process that described things died; try again with workers=1"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


_mine: Extractor  # of a worker process, which is ours alone


def _start(recipe: Recipe) -> None:
    global _mine
    _mine = open_recipe(recipe)


def _work(things: Sequence[RawInput]) -> list[Row]:
    return _rows(_mine, things)


FORMAT = "crossbit.rows/1"


class Remembered:
    """Rows by the SHA-256 of their things, for one recipe; each addition is a file of its own, whole or absent.

    Everything here can be made again: a damaged file is removed and its things are described anew.

    Args:
        folder: Where rows of all recipes are kept.
        describer: Whose rows they are.
    """

    def __init__(self, folder: str | PathLike[str], describer: Extractor) -> None:
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


def key_of(thing: RawInput) -> bytes | None:
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
