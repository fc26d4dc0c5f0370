"""Tables: the one reader of .csv, .tsv, .jsonl, .parquet, .npy, frames and standard input.

A `Table` gives records, field → cell, each with its place: the line of a text file, from 1, or the
row of anything else, from 0.
"""

import csv
import fnmatch
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import TextIOWrapper
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn, TextIO

import numpy as np
from numpy.typing import NDArray

from crossbit._frames import columns_of, is_missing, records
from crossbit._io.arrays import check_decoded
from crossbit._progress import batches
from crossbit.errors import DataError, FormatError, MissingExtraError

Record = dict[str, Any]
"""Field → cell."""

Records = Iterator[tuple[int, Record]]
"""Records with their places."""

STDIN = "-"
TEXT_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".txt")
SUFFIXES = (*TEXT_SUFFIXES, ".parquet")
IMAGE_COLUMNS = ("image", "picture", "file", "filename", "file_name", "path", "name", "photo")
"""Columns of a file of captions that may hold the image; the first one is used."""

CAPTION_COLUMNS = (
    *("caption", "captions", "text", "words", "tags"),
    *("title", "description", "sentence", "comment"),
)
"""Columns that may hold the captions; the first one is used."""

_DELIMITERS = ",\t;|"
_MAX_CELL = 1 << 26  # characters: a row of a million numbers in one cell
_PARQUET_ROWS = 1024  # that are decoded between two looks at their size
_INT64 = range(-(2**63), 2**63)
_TOKEN = re.compile(r"(\S.*?)#\d+\t(.*)")
_NUMBERED = re.compile(r"(.*?)(\d+)")


@dataclass(frozen=True)
class Table:
    """Records of a file, frame or array, read when they are asked for.

    Attributes:
        name: Name of the table, for messages.
        read: Starts to read these fields, where the format allows to leave out others; None: all.
        columns: Names of the columns; None for JSON lines, where every record has its own.
        folder: Folder that paths in the table are relative to.
        unit: What a place counts: ``"line"`` from 1, or ``"row"`` from 0.
        is_text: Whether all cells are text, as in CSV; `value` gives them types.
        delimiter: Character between two cells of CSV; empty for other formats.
        count: Counts the records; None if that is not possible.
    """

    name: str
    read: Callable[[Sequence[str] | None], Records]
    columns: Sequence[str] | None = None
    folder: Path = field(default_factory=Path)
    unit: str = "row"
    is_text: bool = False
    delimiter: str = ""
    count: Callable[[], int] | None = None

    def records(self, only: Sequence[str] | None = None) -> Records:
        """Yield the place and the fields of every record; empty cells of CSV are left out.

        Args:
            only: Fields that are needed; others are left out where that saves time.
        """
        return self.read(only)

    def batches(self, size: int) -> Iterator[list[tuple[int, Record]]]:
        """Yield records with their places, ``size`` at a time."""
        return batches(self.records(), size)

    def place(self, number: int) -> str:
        """Name a place, such as ``things.csv, line 5``."""
        counted = "" if self.unit == "line" else " (counted from 0)"
        return f"{self.name}, {self.unit} {number}{counted}"

    def value(self, cell: Any) -> Any:  # noqa: ANN401 - any cell
        """Return a cell as a payload holds it: text of CSV is parsed by `parse_cell`."""
        return parse_cell(cell) if self.is_text else cell


def open_table(
    source: object, *, folder: str | PathLike[str] | None = None, spool: Path | None = None
) -> Table:
    """Open a table by its name or type.

    | source | records |
    | --- | --- |
    | ``.csv``, ``.tsv``, ``.txt`` | a header, then cells, with any of four delimiters |
    | ``.jsonl``, ``.ndjson``, ``"-"`` | an object per line; ``"-"`` is standard input |
    | ``.txt``, ``.csv`` of Flickr8k | ``dog.jpg#0<TAB>A dog``: the columns image and caption |
    | ``.parquet`` | rows |
    | a frame of pandas or polars | rows |

    Args:
        source: Path of a file, ``"-"`` for standard input, or a frame.
        folder: Folder that paths in the table are relative to; default: that of the file, or the
            current one.
        spool: File that holds standard input, so that it can be read more than once.

    Raises:
        DataError: There is no such file, two columns have the same name, or the format is unknown.
        FormatError: The file is not what its name says; the message names the line.
    """
    base = Path(folder) if folder is not None else None
    names = [str(name) for name in getattr(source, "columns", ())]
    _check_distinct("the frame", names)
    rows = records(source)
    if rows is not None:
        frame = list(enumerate(rows))
        return Table("the frame", lambda _: iter(frame), names, base or Path(), count=frame.__len__)
    if not isinstance(source, str | PathLike):
        raise DataError(
            "expected the path of a table or a frame of pandas or polars, got"
            f" {type(source).__name__}"
        )
    if str(source) == STDIN:
        name = "standard input"
        piped = _json_lines(name, lambda: _lines(spool, name), base or Path())
        return piped if spool else replace(piped, count=None)  # it can be read only once
    path = Path(source)
    base = base or path.parent
    if (suffix := path.suffix.lower()) not in SUFFIXES:
        raise DataError(f"{path}: expected a table .csv, .tsv, .jsonl or .parquet")
    if suffix == ".parquet":
        return _parquet(path, base)
    first = next(filter(str.strip, _lines(path)), "")
    if suffix in (".jsonl", ".ndjson") or first.lstrip().startswith("{"):
        return _json_lines(str(path), lambda: _lines(path), base)
    if _TOKEN.fullmatch(first.rstrip("\r\n")):
        return _tokens(path, base)
    return _csv(path, "\t" if suffix == ".tsv" else max(_DELIMITERS, key=first.count), base)


def rows_table(name: str, rows: NDArray[Any], column: str) -> Table:
    """Return an array, such as a .npy file holds, as a table with one column of rows."""

    def read(only: Sequence[str] | None) -> Records:
        return ((number, {column: row}) for number, row in enumerate(rows))

    return Table(name, read, [column], count=lambda: len(rows))


def _check_distinct(where: str, names: Sequence[str]) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"{where}: two columns have the same name, {twice[0]!r}")


# --- text ---


def _lines(path: Path | None, name: str = "") -> Iterator[str]:
    """Yield the lines of a UTF-8 file, or of standard input, with their ends."""
    name = name or str(path)
    try:
        if path is None:
            yield from _standard_input()
        else:
            with open(path, encoding="utf-8-sig", newline="") as file:
                yield from file
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        where = name if path is None else f"{name}, line {_undecodable_line(path)}"
        raise FormatError(
            f"{where}: not UTF-8 (byte {error.object[error.start]:#04x}); convert it, such as with"
            " iconv -f latin1 -t utf-8"
        ) from error


def _undecodable_line(path: Path) -> int:
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1


def _standard_input() -> TextIO:
    """Return standard input, decoded as UTF-8 whatever the locale says."""
    if sys.stdin is None:
        raise DataError("standard input is closed; pipe JSON lines into it, or name a file")
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")
    return sys.stdin


def spool_standard_input(path: Path) -> None:
    """Copy standard input to a file, so that it can be read more than once."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.writelines(_lines(None, "standard input"))


def read_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 text file, with any line endings."""
    return [line.rstrip("\r\n") for line in _lines(path)]


def _json_lines(name: str, lines: Callable[[], Iterator[str]], folder: Path) -> Table:
    def read(only: Sequence[str] | None) -> Records:
        for number, line in enumerate(lines(), 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise FormatError(f"{name}, line {number}: not valid JSON ({error})") from error
            if not isinstance(record, dict):
                raise FormatError(
                    f"{name}, line {number}: expected a JSON object, got {line.strip()[:60]!r}"
                )
            yield number, record

    def count() -> int:
        return sum(1 for line in lines() if line.strip())

    return Table(
        name, read, None, folder, "line", count=None if name == "standard input" else count
    )


def _tokens(path: Path, folder: Path) -> Table:
    """The format of Flickr8k: ``dog.jpg#0<TAB>A dog runs .``."""

    def read(only: Sequence[str] | None) -> Records:
        for number, line in enumerate(_lines(path), 1):
            if not line.strip():
                continue
            match = _TOKEN.fullmatch(line.rstrip("\r\n"))
            if match is None:
                raise FormatError(
                    f"{path}, line {number}: expected 'image#0<TAB>caption', got"
                    f" {line.strip()[:60]!r}"
                )
            yield number, {"image": match[1], "caption": match[2].strip()}

    return Table(str(path), read, ["image", "caption"], folder, "line", is_text=True)


def _csv(path: Path, delimiter: str, folder: Path) -> Table:
    header_line, header = next(csv_rows(_lines(path), path, delimiter), (1, []))
    _check_distinct(f"{path}, line {header_line}", header)

    def read(only: Sequence[str] | None) -> Records:
        rows = csv_rows(_lines(path), path, delimiter)
        next(rows, None)
        for line, cells in rows:
            if len(cells) > len(header):
                raise FormatError(
                    f"{path}, line {line}: {len(cells)} cells, but the header in line"
                    f" {header_line} names {len(header)} columns; quote cells that contain the"
                    " delimiter"
                )
            filled = zip(header, cells, strict=False)
            yield line, {name: cell for name, cell in filled if cell.strip()}

    def count() -> int:
        return sum(1 for _ in csv_rows(_lines(path), path, delimiter)) - 1

    return Table(str(path), read, header, folder, "line", True, delimiter, count)


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
            if len(cells) > 1 or any(cell.strip() for cell in cells):
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise FormatError(f"{name}, line {line}: invalid CSV ({error})") from error


# --- parquet, and columns of pyarrow ---


def open_parquet(path: Path) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Open a parquet file, whose row groups can be read one by one."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow") from error
    try:
        return pyarrow.parquet.ParquetFile(path)
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except (pyarrow.ArrowException, OSError) as error:
        raise FormatError(f"{path}: cannot be read as parquet ({error})") from error


def _parquet(path: Path, folder: Path) -> Table:
    with open_parquet(path) as file:
        names = file.schema_arrow.names
        rows = int(file.metadata.num_rows)
    _check_distinct(str(path), names)

    def read(only: Sequence[str] | None) -> Records:
        number = 0
        wanted = names if only is None else [name for name in names if name in only] or names[:1]
        for block in _blocks(path, wanted):
            for record in block.to_pylist():
                yield number, record
                number += 1

    return Table(str(path), read, names, folder, count=lambda: rows)


def _blocks(path: Path, columns: Sequence[str]) -> Iterator[Any]:
    """Yield a few rows at a time: a small file can hold one text a million times."""
    import pyarrow

    with open_parquet(path) as file:
        types = [file.schema_arrow.field(name).type for name in columns]
        widths = [kind.bit_width // 8 for kind in types if is_number(kind)]
        check_decoded(path, file.metadata.num_rows * sum(widths))
        total = 0
        try:
            for block in file.iter_batches(_PARQUET_ROWS, columns=columns):
                total += block.nbytes
                check_decoded(path, total)
                yield block
        except (pyarrow.ArrowException, OSError) as error:
            raise FormatError(f"{path}: cannot be read as parquet ({error})") from error


def read_columns(table: Table) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Return a file as a table of pyarrow, whose columns have types.

    Raises:
        FormatError: A line of CSV has too few or too many cells.
        MissingExtraError: pyarrow is not installed.
    """
    try:
        import pyarrow.csv
    except ImportError as error:
        raise MissingExtraError("pyarrow") from error
    if table.delimiter:
        options = pyarrow.csv.ParseOptions(delimiter=table.delimiter, newlines_in_values=True)
        try:
            return pyarrow.csv.read_csv(table.name, parse_options=options)
        except pyarrow.ArrowInvalid:
            _check_cells(table)
            raise
    if table.unit == "row":
        with open_parquet(Path(table.name)) as file:
            schema = file.schema_arrow
        return pyarrow.Table.from_batches(_blocks(Path(table.name), schema.names), schema)
    return pyarrow.table(columns_of([record for _, record in table.records()]))


def _check_cells(table: Table) -> None:
    """Raise an error that names the first line with too few or too many cells."""
    rows = csv_rows(_lines(Path(table.name)), table.name, table.delimiter)
    header_line, header = next(rows, (1, []))
    for line, cells in rows:
        if len(cells) != len(header):
            raise FormatError(
                f"{table.name}, line {line}: expected {len(header)} columns as in line"
                f" {header_line}, got {len(cells)}"
            )


def is_number(kind: Any) -> bool:  # noqa: ANN401 - pyarrow has no types
    """Whether a type of pyarrow is numeric."""
    import pyarrow.types as kinds

    return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind))


def rows_from_lists(what: str, column: Any) -> NDArray[Any]:  # noqa: ANN401 - pyarrow has no types
    """Return a column of equally long lists as rows; a null becomes an absent row (all NaN)."""
    import pyarrow.compute

    column = column.combine_chunks()
    present = np.asarray(column.is_valid())
    length = np.asarray(pyarrow.compute.list_value_length(column).drop_null())
    lengths = np.unique(length)
    if len(lengths) != 1:
        other = np.flatnonzero(present)[np.flatnonzero(length != length[:1])[:1]].tolist()
        place = f"; row {other[0]} (counted from 0) is the first that differs" if other else ""
        raise DataError(
            f"{what}: expected lists of one length, got lengths {lengths.tolist()[:5]}{place}"
        )
    values = np.asarray(column.drop_null().flatten()).reshape(-1, lengths[0])
    if present.all():
        return values
    rows = np.full((len(present), lengths[0]), np.nan, np.result_type(values.dtype, np.float32))
    rows[present] = values
    return rows


# --- cells and columns ---


def parse_cell(cell: str) -> Any:  # noqa: ANN401 - number, list, object or text
    """Convert a cell of text to a number, list or object if it is one in JSON, else keep the text.

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


def elements(cell: Any) -> list[Any]:  # noqa: ANN401 - any cell
    """Return the elements of a cell that is a list (also in JSON), or the cell alone.

    Example:
        >>> elements('["a", "b"]'), elements("[sic]"), elements([1, 2])
        (['a', 'b'], ['[sic]'], [1, 2])
    """
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        cell = parse_cell(cell)
    return list(cell) if isinstance(cell, list | tuple) else [cell]


def stack_rows(
    rows: Sequence[Sequence[Any] | None], name: str, place: Callable[[int], str]
) -> NDArray[np.float32]:
    """Return lists of numbers, also in the form of text, as an array; None is a row of NaN.

    Args:
        rows: The lists, as long as the first.
        name: What the numbers are, for errors.
        place: Names the place of a row.

    Raises:
        DataError: A list has another length, or something else than numbers.
    """
    lists = (row for row in rows if isinstance(row, list | tuple | np.ndarray))
    width = len(next(lists, ()))
    matrix = np.full((len(rows), width), np.nan, np.float32)
    for number, row in enumerate(rows):
        if row is None:
            continue
        try:
            if isinstance(row, str) or len(row) != width:
                raise ValueError
            with np.errstate(over="ignore"):  # infinite then, which encoding refuses
                matrix[number] = row
        except (ValueError, TypeError) as error:
            raise DataError(
                f"{place(number)}: expected a list of {width} numbers for {name!r}, got"
                f" {str(row)[:60]}; leave all of them empty if there are none"
            ) from error
    return matrix


def is_empty(cell: object) -> bool:
    """Whether a cell is missing: null, NaN, blank text, or a list without elements."""
    return is_missing(cell) or cell == [] or (isinstance(cell, str) and not cell.strip())


def select_columns(entry: str, names: Sequence[str]) -> list[str]:
    """Return the columns that an entry names: one, a range, or a pattern.

    A range of numbered columns such as ``p0:p31`` goes by the numbers, any other range by the order
    in the file. A pattern has ``*``, ``?`` or ``[…]`` and keeps the order in the file.

    Args:
        entry: A name, range or pattern.
        names: The columns, in the order of the file.

    Example:
        >>> names = ["p0", "p10", "p2", "age"]
        >>> select_columns("p0:p2", names), select_columns("p*", names)
        (['p0', 'p2'], ['p0', 'p10', 'p2'])
    """
    if entry in names:
        return [entry]
    first, colon, last = entry.partition(":")
    if colon and first in names and last in names:
        ends = [_NUMBERED.fullmatch(name) for name in (first, last)]
        if ends[0] and ends[1] and ends[0][1] == ends[1][1]:
            numbers = range(int(ends[0][2]), int(ends[1][2]) + 1)
            numbered = [(_NUMBERED.fullmatch(name), name) for name in names]
            chosen = [
                (int(match[2]), name)
                for match, name in numbered
                if match and match[1] == ends[0][1] and int(match[2]) in numbers
            ]
            return [name for _, name in sorted(chosen, key=lambda pair: pair[0])]
        return list(names[names.index(first) : names.index(last) + 1])
    return fnmatch.filter(names, entry) if any(sign in entry for sign in "*?[") else []


# --- captions ---


@dataclass(frozen=True)
class Captioned:
    """An image and its captions.

    Args:
        name: File name of the image, as the caption file has it.
        captions: One or more texts.
        fields: Other columns; cells of text are converted by `parse_cell`.
    """

    name: str
    captions: tuple[str, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)


def read_captions(path: str | PathLike[str]) -> list[Captioned]:
    r"""Read a table of captions; several records about one image are several captions.

    | format | example line |
    | --- | --- |
    | Flickr8k token | ``dog.jpg#0<TAB>A dog runs .`` |
    | CSV with a header | ``image,caption,year`` (or tabs, semicolons, bars) |
    | JSON lines | ``{"image": "dog.jpg", "captions": ["A dog", "A wet dog"], "year": 2012}`` |

    Accepted column names are `IMAGE_COLUMNS` and `CAPTION_COLUMNS`.

    Args:
        path: The file, .csv, .tsv, .txt, .jsonl or .parquet.

    Returns:
        The images with at least one caption, in the order of their first records.

    Raises:
        DataError: The file is empty, or a record, which is named, has another form.
        FormatError: The file is not a table; the message names the line.
    """
    table = open_table(path)
    images: dict[str, tuple[list[str], Record]] = {}
    place = None
    for place, record in table.records():
        name, captions, others = _caption(table, place, record)
        image = images.setdefault(name, ([], {}))
        image[0].extend(caption for caption in captions if caption.strip())
        image[1].update(others)
    if place is None and not table.columns:
        raise DataError(f"{path}: is empty; expected images and captions")
    return [Captioned(name, tuple(texts), rest) for name, (texts, rest) in images.items() if texts]


def _caption(table: Table, place: int, record: Record) -> tuple[str, list[str], Record]:
    """Image, captions and other fields of a record."""
    names = {str(key).strip().casefold(): key for key in table.columns or record}
    image = next((names[name] for name in IMAGE_COLUMNS if name in names), None)
    caption = next((names[name] for name in CAPTION_COLUMNS if name in names), None)
    if image is None or caption is None or image == caption:
        expected = IMAGE_COLUMNS if image is None else CAPTION_COLUMNS
        raise DataError(
            f"{table.place(place)}: none of its columns {list(names)} is one of {list(expected)}"
        )
    file = record.get(image)
    texts = [record[caption]] if isinstance(record.get(caption), str) else record.get(caption, [])
    if not isinstance(file, str) or not isinstance(texts, list) or not _are_texts(texts):
        raise DataError(
            f"{table.place(place)}: expected the name of an image and its captions, got"
            f" {str(record)[:80]}"
        )
    others = {key: table.value(cell) for key, cell in record.items() if key not in (image, caption)}
    return file.strip(), texts, others


def _are_texts(values: Sequence[object]) -> bool:
    return all(isinstance(value, str) for value in values)
