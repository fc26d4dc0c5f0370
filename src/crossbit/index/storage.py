"""The file of an index: ids and words behind a versioned header; search structures are rebuilt, not stored."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from crossbit._io.files import read_arrays, write_arrays
from crossbit._validation import bit_count
from crossbit.codes import Codes
from crossbit.errors import DataError, FormatError
from crossbit.index.segment import Segment

FORMAT = "crossbit.index/1"


def write(path: Path, segment: Segment, meta: Mapping[str, Any]) -> None:
    """Write a segment without removed rows."""
    header = {"n_bits": segment.rows.n_bits, "meta": dict(meta)}
    write_arrays(path, FORMAT, header, {"ids": segment.rows.ids, "words": segment.rows.words})


def read(path: Path) -> tuple[Segment, dict[str, Any]]:
    """Open what `write` wrote, memory-mapped, and make sure that it is what it must be."""
    file = read_arrays(path, FORMAT)
    try:
        n_bits, meta = bit_count(file.meta["n_bits"]), dict(file.meta["meta"])
        ids, words = file.arrays["ids"], Codes(file.arrays["words"], n_bits).words
    except (KeyError, TypeError, ValueError, DataError) as error:
        raise FormatError(f"{path}: the header does not describe an index ({error})") from error
    if ids.dtype != np.int64 or ids.shape != (len(words),):
        raise FormatError(
            f"{path}: expected {len(words)} int64 ids, got {ids.dtype} of shape {ids.shape}"
        )
    if len(ids) and (ids[0] < 0 or not (ids[1:] > ids[:-1]).all()):
        raise FormatError(f"{path}: the ids are not ascending from 0 on")
    return Segment(ids, words, n_bits), meta
