"""Extract features of many inputs: parallel, cached and resumable."""

import hashlib
import json
import logging
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

from crossbit._io.files import ArrayFile, sha256
from crossbit._progress import OnStep, Step, batches, log_progress
from crossbit._validation import check_integer
from crossbit.errors import BackendError, CrossbitError, DataError
from crossbit.features.extractor import Extractor, RawInput, Rows, load_extractor
from crossbit.model.recipe import Recipe

_FORMAT = "crossbit.rows/1"  # of cache files
_LOG = logging.getLogger(__name__)

_Outcome = Rows | str
"""The row of an input, or the reason why there is none."""


@dataclass(frozen=True, eq=False)
class Extraction:
    """The feature rows of the usable inputs.

    Args:
        rows: Shape (len(positions), width).
        positions: Positions of the inputs that the rows belong to, ascending.
        skipped: One line per unusable input: its name and the reason.
    """

    rows: Rows
    positions: NDArray[np.int64]
    skipped: list[str]


def extract(
    extractor: Extractor,
    inputs: Sequence[RawInput],
    *,
    workers: int = 1,
    cache: str | PathLike[str] | None = None,
    on_step: OnStep | None = None,
    verbose: bool = False,
) -> Extraction:
    """Extract the features of many inputs, skipping and reporting unusable ones.

    Args:
        extractor: The extractor.
        inputs: What it accepts: texts, lists of tags, paths or contents of files.
        workers: Number of processes; with more than one, a script needs
            ``if __name__ == "__main__":``.
        cache: Folder for finished rows, keyed by the content of their inputs. A later call with the
            same folder extracts only what is new, also after an interruption.
        on_step: Called with the number of finished inputs.
        verbose: Show progress on stderr every few seconds, as `Hasher.fit` does.

    Raises:
        BackendError: A worker process died.

    Example:
        >>> from crossbit.features import BagOfTags
        >>> extraction = extract(BagOfTags(("dog", "cat")), ["a dog", "a cow", "cat + dog"])
        >>> extraction.positions
        array([0, 2])
        >>> extraction.skipped
        ['a cow: none of its words is in the vocabulary of 2 words; it has: dog, cat, ...']
    """
    check_integer(workers, "the number of workers", least=1)
    row_cache = None if cache is None else _RowCache(cache, extractor)
    # Inputs by their content: equal ones, such as a clip that several items share, are extracted
    # once. Without a cache nothing is read in advance, and every input counts as another.
    keys = [i if row_cache is None else _content_key(raw) or i for i, raw in enumerate(inputs)]
    outcomes: dict[bytes | int, _Outcome] = {} if row_cache is None else row_cache.find(keys)
    missing: dict[bytes | int, RawInput] = {}
    for key, raw in zip(keys, inputs, strict=True):
        if key not in outcomes:
            missing.setdefault(key, raw)
    done = len(inputs) - len(missing)  # in the cache, or equal to another input
    blocks = list(batches(missing.items(), extractor.batch_size))
    raw_blocks = [[raw for _, raw in block] for block in blocks]
    title = f"extracting {len(inputs):,} inputs ({done:,} in the cache)"
    with (
        log_progress(title, _LOG, on_step, verbose=verbose) as report,
        _outcomes(extractor, raw_blocks, workers) as block_outcomes,
    ):
        if report is not None:
            report(Step(done, len(inputs)))
        for block, results in zip(blocks, block_outcomes, strict=True):
            found = {key: outcome for (key, _), outcome in zip(block, results, strict=True)}
            outcomes |= found
            if row_cache is not None:
                row_cache.add(found)
            done += len(block)
            if report is not None:
                report(Step(done, len(inputs)))
    return _gather(extractor, inputs, [outcomes[key] for key in keys])


def _gather(
    extractor: Extractor, inputs: Sequence[RawInput], outcomes: Sequence[_Outcome]
) -> Extraction:
    positions = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, np.ndarray)]
    rows = [outcome for outcome in outcomes if isinstance(outcome, np.ndarray)]
    skipped = [
        f"{extractor.input_name(raw)}: {outcome}"
        for raw, outcome in zip(inputs, outcomes, strict=True)
        if isinstance(outcome, str)
    ]
    matrix = np.stack(rows) if rows else np.empty((0, extractor.width), np.float32)
    return Extraction(matrix, np.array(positions, np.int64), skipped)


def _extract_block(extractor: Extractor, inputs: Sequence[RawInput]) -> list[_Outcome]:
    """Extract several inputs; an unusable one yields its reason instead of a row."""
    return [
        str(outcome) if isinstance(outcome, DataError) else outcome
        for outcome in extractor.extract_batch(inputs)
    ]


@contextmanager
def _outcomes(
    extractor: Extractor, blocks: Sequence[Sequence[RawInput]], workers: int
) -> Iterator[Iterator[list[_Outcome]]]:
    """Outcomes block by block, in order, computed in this process or in worker processes."""
    if min(workers, len(blocks)) <= 1:
        yield (_extract_block(extractor, block) for block in blocks)
        return
    # A forked process would inherit the locks, but not the threads, of libraries loaded here.
    context = get_context("spawn")
    with ProcessPoolExecutor(
        min(workers, len(blocks)), context, initializer=_start, initargs=(extractor.recipe(),)
    ) as pool:
        try:
            yield pool.map(_work, blocks)
        except BrokenProcessPool as error:
            raise BackendError("a worker process died; retry with workers=1") from error
        finally:
            pool.shutdown(cancel_futures=True)


_worker_extractor: Extractor  # set once per worker process


def _start(recipe: Recipe) -> None:
    global _worker_extractor
    _worker_extractor = load_extractor(recipe)


def _work(inputs: Sequence[RawInput]) -> list[_Outcome]:
    return _extract_block(_worker_extractor, inputs)


class _RowCache:
    """Rows of one recipe on disk, keyed by the SHA-256 of their inputs.

    Every `add` writes one file atomically. The cache can always be rebuilt: a corrupted file is
    deleted, and its inputs are extracted again.

    Args:
        path: Folder that holds the rows of all recipes.
        extractor: The extractor whose rows these are.
    """

    def __init__(self, path: str | PathLike[str], extractor: Extractor) -> None:
        self._folder = Path(path) / _fingerprint(extractor.recipe())[:16]
        self._folder.mkdir(parents=True, exist_ok=True)
        self._rows: dict[bytes | int, Rows] = {}
        for file in sorted(self._folder.glob("*.rows")):
            try:
                arrays = ArrayFile.read(file, _FORMAT).arrays
                self._rows |= {
                    key.tobytes(): row
                    for key, row in zip(arrays["keys"], arrays["rows"], strict=True)
                }
            except (CrossbitError, KeyError, ValueError):
                file.unlink(missing_ok=True)

    def find(self, keys: Iterable[bytes | int]) -> dict[bytes | int, _Outcome]:
        """Return the rows of those keys that have one."""
        return {key: self._rows[key] for key in keys if key in self._rows}

    def add(self, outcomes: Mapping[bytes | int, _Outcome]) -> None:
        """Store the rows of contents; inputs without a content have a number instead of a key."""
        rows = {
            key: outcome
            for key, outcome in outcomes.items()
            if isinstance(key, bytes) and isinstance(outcome, np.ndarray)
        }
        if rows:
            keys: NDArray[Any] = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)
            arrays = {"keys": keys, "rows": np.stack(list(rows.values()))}
            ArrayFile.write(self._folder / f"{uuid4().hex}.rows", _FORMAT, {}, arrays)


def _content_key(raw: RawInput) -> bytes | None:
    """SHA-256 of an input's content; None if it is a file that cannot be read."""
    match raw:
        case bytes():
            return hashlib.sha256(raw).digest()
        case PathLike():
            try:
                return bytes.fromhex(sha256(Path(raw)))
            except OSError:
                return None
        case _:
            text = json.dumps(raw if isinstance(raw, str) else list(raw))
            return hashlib.sha256(text.encode()).digest()


def _fingerprint(recipe: Recipe) -> str:
    """Hexadecimal SHA-256 of everything that determines the rows."""
    digest = hashlib.sha256(
        json.dumps([recipe.kind, recipe.settings], sort_keys=True, default=list).encode()
    )
    for name, array in sorted(recipe.arrays.items()):
        digest.update(repr((name, array.shape, array.dtype.str)).encode() + array.tobytes())
    for name, content in sorted(recipe.files.items()):
        digest.update(name.encode() + content)
    return digest.hexdigest()
