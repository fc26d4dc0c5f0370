"""Caption files, which describe images in words: CSV, JSON lines, and the Flickr8k token format."""

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

from crossbit.errors import DataError, FormatError

IMAGE_COLUMNS = ("image", "picture", "file", "filename", "file_name", "path", "name", "photo")
"""Columns of a CSV file, or keys of JSON lines, that may hold the image; the first one is used."""

CAPTION_COLUMNS = (
    "caption",
    "captions",
    "text",
    "words",
    "tags",
    "title",
    "description",
    "sentence",
    "comment",
)
"""Columns or keys that may hold the captions; the first one is used."""

_TOKEN = re.compile(r"(\S.*?)#\d+\t(.*)")
_DELIMITERS = ",\t;|"
_MAX_CELL = 1 << 26  # characters: a row of a million numbers in one cell
_INT64 = range(-(2**63), 2**63)
_Row = tuple[str, list[str], dict[str, Any]]  # image, captions, other fields


@dataclass(frozen=True)
class Captioned:
    """An image and its captions.

    Args:
        name: File name of the image, as the caption file has it.
        captions: One or more texts.
        fields: Other columns; cells of a table are converted by `parse_cell`.
    """

    name: str
    captions: tuple[str, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)


def read_captions(path: str | PathLike[str]) -> list[Captioned]:
    r"""Read a caption file; several lines about one image are several captions.

    | format | example line |
    | --- | --- |
    | Flickr8k token | ``dog.jpg#0<TAB>A dog runs .`` |
    | CSV with a header | ``image,caption,year`` (or tabs, semicolons, bars) |
    | JSON lines | ``{"image": "dog.jpg", "captions": ["A dog", "A wet dog"], "year": 2012}`` |

    Accepted column names are `IMAGE_COLUMNS` and `CAPTION_COLUMNS`.

    Args:
        path: The file; its format is detected from its content.

    Returns:
        The images with at least one caption, in the order of their first lines.

    Raises:
        DataError: The file is empty or unreadable, or a line, which is named, has another form.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise DataError(f"{path}: cannot be read ({reason})") from error
    first = next((line for line in text.splitlines() if line.strip()), "")
    if not first:
        raise DataError(f"{path}: is empty; expected images and captions")
    if _TOKEN.fullmatch(first):
        rows = _token_rows(path, text)
    elif first.lstrip().startswith("{"):
        rows = _json_rows(path, text)
    else:
        rows = _csv_rows(path, text)
    images: dict[str, tuple[list[str], dict[str, Any]]] = {}
    for name, captions, fields in rows:
        image = images.setdefault(name, ([], {}))
        image[0].extend(caption for caption in captions if caption.strip())
        image[1].update(fields)
    return [
        Captioned(name, tuple(captions), fields)
        for name, (captions, fields) in images.items()
        if captions
    ]


def _token_rows(path: Path, text: str) -> Iterator[_Row]:
    for number, line in _lines(text):
        match = _TOKEN.fullmatch(line)
        if match is None:
            raise DataError(
                f"{path}, line {number}: expected 'image#0<TAB>caption', got {line[:60]!r}"
            )
        yield match[1], [match[2].strip()], {}


def _json_rows(path: Path, text: str) -> Iterator[_Row]:
    for number, line in _lines(text):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}, line {number}: not valid JSON ({error})") from error
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {number}: expected a JSON object, got {line[:60]!r}")
        yield _parse_row(path, number, row)


def _csv_rows(path: Path, text: str) -> Iterator[_Row]:
    first = next(line for _, line in _lines(text))
    rows = csv_rows(StringIO(text, newline=""), path, max(_DELIMITERS, key=first.count))
    header_line, header = next(rows)
    for number, cells in rows:
        if len(cells) != len(header):
            raise DataError(
                f"{path}, line {number}: expected {len(header)} columns as in line {header_line},"
                f" got {len(cells)}"
            )
        row = dict(zip(header, cells, strict=True))
        name, captions, fields = _parse_row(path, number, row)
        yield name, captions, {key: parse_cell(cell) for key, cell in fields.items() if cell}


def csv_rows(
    lines: Iterable[str], name: str | PathLike[str], delimiter: str = ","
) -> Iterator[tuple[int, list[str]]]:
    r"""Read CSV and yield the cells of each record with the number of its first line, from 1.

    Blank lines are skipped but counted; a quoted cell may contain line breaks.

    Args:
        lines: A text file opened with ``newline=""``, or its lines.
        name: The file, for error messages.
        delimiter: The character between two cells.

    Example:
        >>> list(csv_rows(["a,b\n", "\n", '"two\n', 'lines",1\n', "x,2\n"], "toy.csv"))
        [(1, ['a', 'b']), (3, ['two\nlines', '1']), (5, ['x', '2'])]
    """
    csv.field_size_limit(_MAX_CELL)
    reader = csv.reader(lines, delimiter=delimiter)
    line = 1
    try:
        for cells in reader:
            if cells:
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise FormatError(f"{name}, line {line}: invalid CSV ({error})") from error


def _parse_row(path: Path, number: int, row: Mapping[str, Any]) -> _Row:
    """Image, captions and other fields of one row."""
    by_lower_name = {key.strip().casefold(): key for key in row}
    image = _first(IMAGE_COLUMNS, by_lower_name)
    caption = _first(CAPTION_COLUMNS, by_lower_name)
    if image is None or caption is None or image == caption:
        missing = IMAGE_COLUMNS if image is None else CAPTION_COLUMNS
        raise DataError(
            f"{path}, line {number}: none of its columns {list(row)} is one of {list(missing)}"
        )
    value = row[caption]
    captions = [value] if isinstance(value, str) else value
    if not isinstance(row[image], str) or not _are_strings(captions):
        raise DataError(
            f"{path}, line {number}: expected the name of an image and its captions,"
            f" got {str(dict(row))[:80]}"
        )
    others = {key: row[key] for key in row if key not in (image, caption)}
    return row[image].strip(), captions, others


def _first(options: Sequence[str], names: Mapping[str, str]) -> str | None:
    return next((names[option] for option in options if option in names), None)


def _are_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(element, str) for element in value)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Non-empty lines with their numbers."""
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def parse_cell(cell: str) -> Any:  # noqa: ANN401 - number, list, object or text
    """Convert a table cell to a number, list or object if it is one in JSON, else keep the text.

    Values that a payload cannot hold stay text: ``nan``, ``inf``, and integers beyond 64 bits. So
    do ``007``, which is not a number in JSON, and ``true``.

    Example:
        >>> [parse_cell(cell) for cell in ("2012", "12.50", "007", "nan", '["a", 1]', "[sic]")]
        [2012, 12.5, '007', 'nan', ['a', 1], '[sic]']
    """
    try:
        value = json.loads(cell, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return cell
    match value:
        case bool() | None | str():
            return cell
        case int():
            return value if value in _INT64 else cell
        case float():
            return value if math.isfinite(value) else cell
        case _:
            return value


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
