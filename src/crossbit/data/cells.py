"""What the cells of a table of text spell."""

import json
import math
from typing import Any, NoReturn

_WHOLE = range(-(2**63), 2**63)


def value_of(cell: str) -> Any:  # noqa: ANN401 - whatever the cell spells
    """A number, a list or an object as JSON writes them, or else the text.

    What no payload can hold stays a text: ``nan``, ``inf``, and whole numbers of more than 64 bits. So do ``007``,
    which is no number in JSON, and ``true``.

    Example:
        >>> [value_of(cell) for cell in ("2012", "12.50", "007", "nan", '["a", 1]', "[sic]")]
        [2012, 12.5, '007', 'nan', ['a', 1], '[sic]']
    """
    try:
        value = json.loads(cell, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return cell
    match value:
        case bool() | None | str():
            return cell
        case int():
            return value if value in _WHOLE else cell
        case float():
            return value if math.isfinite(value) else cell
        case _:
            return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
