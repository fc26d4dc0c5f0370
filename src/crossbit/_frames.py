"""Tables of pandas and polars: recognized by their methods, imported only to return one."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crossbit.errors import DataError, MissingExtraError

_MISSING = ("NAType", "NaTType")  # pandas.NA, pandas.NaT


def records(frame: object) -> list[dict[str, Any]] | None:
    """Return the rows of a frame as plain fields, without missing values; None for anything else.

    Dates become text as in ISO 8601.
    """
    if hasattr(frame, "to_dicts"):  # polars
        rows = frame.to_dicts()
    elif hasattr(frame, "to_dict") and hasattr(frame, "columns"):  # pandas
        rows = frame.to_dict(orient="records")
    else:
        return None
    return [
        {str(name): _cell(value) for name, value in row.items() if not is_missing(value)}
        for row in rows
    ]


def _cell(value: Any) -> Any:  # noqa: ANN401 - any cell of a frame
    if isinstance(value, np.ndarray):  # a list in a column, as pandas reads it from a file
        return value.tolist()
    return value.isoformat() if hasattr(value, "isoformat") else plain(value)


def is_missing(value: object) -> bool:
    """Whether a cell of a frame is empty: None, NaN, or what pandas has for them."""
    if isinstance(value, float | np.floating):
        return math.isnan(value)
    return value is None or type(value).__name__ in _MISSING


def plain(value: Any) -> Any:  # noqa: ANN401 - any value of a payload
    """Convert scalars of NumPy to plain values, also inside lists and mappings."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {key: plain(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return [plain(element) for element in value]
    return value


def to_frame(columns: Mapping[str, Sequence[Any]], library: str) -> Any:  # noqa: ANN401 - a frame
    """Return columns as a frame of a library.

    Args:
        columns: Name → values, all of one length.
        library: ``"pandas"`` or ``"polars"``.
    """
    try:
        if library == "pandas":
            import pandas

            return pandas.DataFrame(dict(columns))
        if library == "polars":
            import polars

            return polars.DataFrame(dict(columns))
    except ImportError as error:
        raise MissingExtraError(library) from error
    raise DataError(f"library must be 'pandas' or 'polars', got {library!r}")


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the columns of records; a record without a field has None there."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}
