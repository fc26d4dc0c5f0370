"""Codes written to files, as ``crossbit encode`` does it here and on Ray."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crossbit._io.files import replacing
from crossbit.cli import show
from crossbit.codes import Codes


def write_codes(codes: Codes, out: Path, rows: NDArray[np.int64] | None) -> None:
    """Write codes, packed bytes where the name ends in ``.npy``, and beside them which rows they belong to."""
    if out.suffix != ".npy":
        codes.save(out)
    else:
        with replacing(out) as file:
            np.save(file, codes.to_bytes())
    if rows is not None:
        with replacing(out.with_name(out.name + ".rows.npy")) as file:
            np.save(file, rows)
    show.say(f"{codes} written to {out}")
