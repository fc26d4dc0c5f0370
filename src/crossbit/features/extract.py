"""Describing many things: in parallel, resumable, and naming what cannot be described."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import OnStep, Step
from crossbit._validation import whole_number
from crossbit.errors import BackendError, DataError
from crossbit.features.describer import Describer, Rows, Thing, name_of
from crossbit.features.describer import open as open_recipe
from crossbit.features.remembered import Remembered, key_of
from crossbit.model import Recipe

_BLOCK = 64  # things that a worker describes between two reports

Row = Rows | str
"""The row of a thing, or why there is none."""


@dataclass(frozen=True, eq=False)
class Extracted:
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
    describer: Describer,
    things: Sequence[Thing],
    *,
    workers: int = 1,
    cache: str | PathLike[str] | None = None,
    on_step: OnStep | None = None,
) -> Extracted:
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
    whole_number(workers, "the number of workers", least=1)
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


def _gather(describer: Describer, things: Sequence[Thing], rows: Sequence[Row | None]) -> Extracted:
    kept = [(number, row) for number, row in enumerate(rows) if isinstance(row, np.ndarray)]
    skipped = [
        f"{name_of(thing)}: {row}"
        for thing, row in zip(things, rows, strict=True)
        if isinstance(row, str)
    ]
    matrix = (
        np.stack([row for _, row in kept]) if kept else np.empty((0, describer.width), np.float32)
    )
    return Extracted(matrix, np.array([number for number, _ in kept], np.int64), skipped)


def _rows(describer: Describer, things: Iterable[Thing]) -> list[Row]:
    """Describe things one by one, keeping the reason where one cannot be described."""
    rows: list[Row] = []
    for thing in things:
        try:
            rows.append(describer.row(thing))
        except DataError as error:
            rows.append(str(error))
    return rows


@contextmanager
def _describing(
    describer: Describer, blocks: Sequence[Sequence[Thing]], workers: int
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


_mine: Describer  # of a worker process, which is ours alone


def _start(recipe: Recipe) -> None:
    global _mine
    _mine = open_recipe(recipe)


def _work(things: Sequence[Thing]) -> list[Row]:
    return _rows(_mine, things)
