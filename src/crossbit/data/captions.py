"""Files that tell what is in pictures: CSV, JSON lines, and the token format of Flickr8k."""

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from crossbit.data.cells import value_of
from crossbit.errors import DataError

PICTURE = ("image", "picture", "file", "filename", "file_name", "path", "name", "photo")
WORDS = (
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
"""Columns of a CSV file, or keys of JSON lines, that hold the picture and its words; the first that is there counts."""

_TOKEN = re.compile(r"(\S.*?)#\d+\t(.*)")
_SEPARATORS = ",\t;|"

Said = tuple[str, list[str], dict[str, Any]]


@dataclass(frozen=True)
class Captioned:
    """A picture and what is said about it.

    Args:
        name: The picture, as the file names it.
        captions: One or more texts.
        fields: Whatever else the file tells about it; of a table, what its cells spell (`crossbit.data.cells`).
    """

    name: str
    captions: tuple[str, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)


def read_captions(path: str | PathLike[str]) -> list[Captioned]:
    r"""Read what is said about pictures; several lines about one picture are several captions.

    ======================  ==========================================================================
    Flickr8k token          ``dog.jpg#0<TAB>A dog runs .``
    CSV, with a header      ``image,caption,year`` (or tabs, semicolons, bars); see `PICTURE` and `WORDS`
    JSON lines              ``{"image": "dog.jpg", "captions": ["A dog runs", "A wet dog"], "year": 2012}``
    ======================  ==========================================================================

    Args:
        path: The file; its format is told by its content.

    Returns:
        The pictures, in the order of their first lines.

    Raises:
        DataError: There is nothing to read in it; or a line, which is named, is of another form.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise DataError(f"{path}: cannot be read ({reason})") from error
    first = next((line for line in text.splitlines() if line.strip()), "")
    if not first:
        raise DataError(f"{path}: is empty; expected pictures and captions")
    read = (
        _tokens
        if _TOKEN.fullmatch(first)
        else _json_lines
        if first.lstrip().startswith("{")
        else _table
    )
    pictures: dict[str, tuple[list[str], dict[str, Any]]] = {}
    for name, captions, fields in read(path, text):
        said = pictures.setdefault(name, ([], {}))
        said[0].extend(caption for caption in captions if caption.strip())
        said[1].update(fields)
    return [
        Captioned(name, tuple(captions), fields)
        for name, (captions, fields) in pictures.items()
        if captions
    ]


def _tokens(path: Path, text: str) -> Iterator[Said]:
    for number, line in _lines(text):
        match = _TOKEN.fullmatch(line)
        if match is None:
            raise DataError(
                f"{path}, line {number}: expected 'picture#0<TAB>caption', got {line[:60]!r}"
            )
        yield match[1], [match[2].strip()], {}


def _json_lines(path: Path, text: str) -> Iterator[Said]:
    for number, line in _lines(text):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}, line {number}: not valid JSON ({error})") from error
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {number}: expected a JSON object, got {line[:60]!r}")
        yield _said(path, number, row)


def _table(path: Path, text: str) -> Iterator[Said]:
    header = text.lstrip("\n").splitlines()[0]
    separator = max(_SEPARATORS, key=header.count)
    rows = csv.DictReader(text.splitlines(keepends=True), delimiter=separator, restkey="")
    for row in rows:
        if "" in row or None in row.values():
            raise DataError(
                f"{path}, line {rows.line_num}: expected {len(rows.fieldnames or ())} columns as in line 1"
            )
        name, captions, fields = _said(path, rows.line_num, row)
        yield name, captions, {key: value_of(cell) for key, cell in fields.items() if cell}


def _said(path: Path, number: int, row: Mapping[str, Any]) -> Said:
    """The picture, its words and the rest of one row."""
    by_small_name = {key.strip().casefold(): key for key in row}
    picture, words = (_first(options, by_small_name) for options in (PICTURE, WORDS))
    if picture is None or words is None or picture == words:
        missing = PICTURE if picture is None else WORDS
        raise DataError(
            f"{path}, line {number}: none of its names {list(row)} is one of {list(missing)}"
        )
    value = row[words]
    captions = [value] if isinstance(value, str) else value
    if (
        not isinstance(row[picture], str)
        or not isinstance(captions, list)
        or not _all_text(captions)
    ):
        raise DataError(
            f"{path}, line {number}: expected a picture's name and its captions, got {str(dict(row))[:80]}"
        )
    return (
        row[picture].strip(),
        captions,
        {key: row[key] for key in row if key not in (picture, words)},
    )


def _first(options: Sequence[str], names: Mapping[str, str]) -> str | None:
    return next((names[option] for option in options if option in names), None)


def _all_text(values: Sequence[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that hold something, with their numbers."""
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())
