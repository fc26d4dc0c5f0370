"""The NUS-WIDE distribution: text files of 269,648 lines, read a block at a time and checked against each other.

```
BoW_int.dat               500 counts of visual words a line
AllTags1k.txt             1000 zeros and ones a line, a column a tag of TagList1k.txt
AllLabels/Labels_sky.txt  a zero or one a line; one file a concept, or all of them in Groundtruth.zip
Imagelist.txt             the picture of each line; TrainImagelist.txt and TestImagelist.txt name the official parts
Concepts81.txt            names of the concepts
```

They may lie in any folders of the distribution. Pictures without visual words or without tags stay in their rows, all
zeros; the part ``complete`` leaves them out.
"""

import io
import zipfile
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from crossbit.data.catalog import NUSWIDE
from crossbit.data.dataset import Dataset
from crossbit.errors import DataError

WORDS, TAGS = 500, 1000
FEATURES, TAG_ROWS, GROUND_TRUTH = "BoW_int.dat", "AllTags1k.txt", "Groundtruth.zip"
_LABELS = "Labels_"
_BLOCK = 4096  # lines parsed at a time
_LARGEST = np.iinfo(np.uint16).max
_SPACES = np.isin(np.arange(256), list(b" \t\r\n"))

OnNote = Callable[[str], None]
"""Told facts about what was read, one line each."""


def is_nus(folder: Path) -> bool:
    """Whether a folder holds a part of the distribution that no other data set has."""
    marks = (FEATURES, TAG_ROWS, GROUND_TRUTH, "AllLabels")
    return folder.is_dir() and any(_find(folder, name) is not None for name in marks)


def read_nus(folder: Path, *, on_note: OnNote, scratch: Path | None = None) -> Dataset:
    """Read the distribution: counts of visual words, tags, concepts, official parts; pictures and tags as payload.

    Args:
        folder: Holds the files named above, itself or in folders of its own.
        on_note: Told how many rows lack what.
        scratch: A folder for the two matrices, 540 MB together, which are then memory-mapped; else they are in memory.

    Raises:
        DataError: A file is missing, a line is not of its form, or files have different numbers of lines.
    """
    features, tag_rows = _needed(folder, FEATURES), _needed(folder, TAG_ROWS)
    labels, concepts = read_concepts(folder)
    n = len(labels)
    image = _matrix(n, WORDS, np.uint16, scratch and scratch / "image.npy")
    tags = _matrix(n, TAGS, np.uint8, scratch and scratch / "tags.npy")
    _fill(image, features, _counts)
    _fill(tags, tag_rows, zeros_and_ones)
    pictures = _lines(_find(folder, "Imagelist.txt"))
    _check_length(pictures, n, "Imagelist.txt")
    complete = np.flatnonzero(image.any(axis=1) & tags.any(axis=1))
    parts = {
        part: _places(folder, f"{part.title()}Imagelist.txt", pictures)
        for part in ("train", "test")
    }
    for fact in _facts(image, tags, labels, complete):
        on_note(fact)
    return Dataset(
        views={"image": image, "tags": tags},
        labels=labels,
        splits={part: rows for part, rows in parts.items() if rows is not None}
        | {"complete": complete},
        payload=_payload(pictures, tags, _lines(_find(folder, "TagList1k.txt"))),
        name="nus",
        source=NUSWIDE.source,
        license=NUSWIDE.license,
        classes=concepts,
    )


def read_concepts(folder: Path) -> tuple[NDArray[np.bool_], list[str]]:
    """Which concepts each picture has, (pictures, concepts), and their names; from folders or from the archive."""
    files = dict(_label_files(folder))
    if not files:
        raise DataError(
            f"{folder}: no AllLabels/{_LABELS}<concept>.txt, nor {GROUND_TRUTH} with them; {NUSWIDE.obtain}"
        )
    listed = _lines(_find(folder, "Concepts81.txt")) or _zipped_lines(
        folder, "ConceptsList.zip", "Concepts81.txt"
    )
    if listed and (odd := sorted(set(listed) ^ set(files))):
        raise DataError(
            f"{folder}: Concepts81.txt and the files {_LABELS}*.txt do not name the same: {odd}"
        )
    names = listed or sorted(files)
    columns = [_one_column(f"{_LABELS}{name}.txt", files[name]()) for name in names]
    for name, column in zip(names, columns, strict=True):
        if len(column) != len(columns[0]):
            raise DataError(
                f"{_LABELS}{name}.txt: {len(column)} lines, {_LABELS}{names[0]}.txt has {len(columns[0])}"
            )
    return np.stack(columns, axis=1), names


def _label_files(folder: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Concept → what reads its file."""
    found = _all(folder, f"AllLabels/{_LABELS}*.txt")
    for path in found:
        yield path.stem.removeprefix(_LABELS), path.read_bytes
    archive = _find(folder, GROUND_TRUTH)
    if found or archive is None:
        return
    try:
        with zipfile.ZipFile(archive) as packed:
            inside = [Path(name) for name in packed.namelist() if f"AllLabels/{_LABELS}" in name]
            content = {
                path.stem.removeprefix(_LABELS): packed.read(path.as_posix()) for path in inside
            }
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(
            f"{archive}: cannot be read as an archive ({error}); get it again"
        ) from error
    for name, raw in content.items():
        yield name, lambda raw=raw: raw  # type: ignore[misc]


def _one_column(name: str, raw: bytes) -> NDArray[np.bool_]:
    try:
        return zeros_and_ones(raw, 1)[:, 0].astype(np.bool_)
    except ValueError as error:
        raise DataError(f"{name}: {error}") from error


def _needed(folder: Path, name: str) -> Path:
    path = _find(folder, name)
    if path is None:
        raise DataError(f"{folder}: {name} is neither there nor in its folders; {NUSWIDE.obtain}")
    return path


def _find(folder: Path, name: str) -> Path | None:
    """A file of the distribution, wherever it was unpacked."""
    return next(iter(_all(folder, name)), None)


def _all(folder: Path, pattern: str) -> list[Path]:
    """Files in the first folder that has any: this one, those in it, those in them."""
    depths = (sorted(folder.glob(prefix + pattern)) for prefix in ("", "*/", "*/*/"))
    return next((found for found in depths if found), [])


def _matrix(n: int, width: int, dtype: type, path: Path | None) -> NDArray[Any]:
    if path is None:
        return np.empty((n, width), dtype)
    made: NDArray[Any] = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(n, width))
    return made


def _fill(rows: NDArray[Any], path: Path, parse: Callable[[bytes, int], NDArray[Any]]) -> None:
    """Parse a file into the rows of a matrix, a block of lines at a time."""
    done = 0
    with open(path, "rb") as file:
        for lines in _blocks(file):
            if done + len(lines) <= len(rows):
                try:
                    rows[done : done + len(lines)] = parse(b"".join(lines), rows.shape[1])
                except ValueError as error:
                    raise DataError(
                        f"{path}: among lines {done + 1}–{done + len(lines)}, {error}"
                    ) from error
            done += len(lines)
    if done != len(rows):
        raise DataError(
            f"{path}: {done} lines, and the labels are of {len(rows)} pictures; one of them is cut off"
        )


def _blocks(file: BinaryIO) -> Iterator[list[bytes]]:
    while lines := list(islice(file, _BLOCK)):
        yield lines


def _counts(raw: bytes, width: int) -> NDArray[np.uint16]:
    """Whole numbers separated by spaces."""
    n = raw.count(b"\n") + (not raw.endswith(b"\n"))
    try:
        found = np.loadtxt(io.BytesIO(raw), dtype=np.int64, comments=None, ndmin=2)
    except ValueError as error:
        raise ValueError(f"a line is not {width} whole numbers ({error})") from error
    if found.shape != (n, width):
        raise ValueError(
            f"expected {width} whole numbers on each line, got {found.shape[1]} on {len(found)} lines"
        )
    if found.min() < 0 or found.max() > _LARGEST:
        raise ValueError(
            f"expected counts from 0 to {_LARGEST}, got {found.min()} to {found.max()}"
        )
    return found.astype(np.uint16)


def zeros_and_ones(raw: bytes, width: int) -> NDArray[np.uint8]:
    """Lines of single digits between spaces as a matrix, without looking at one number after the other.

    Raises:
        ValueError: A line holds something else, or not ``width`` numbers; the message says which.
    """
    signs = np.frombuffer(raw, np.uint8)
    digit, end = ~_SPACES[signs], signs == ord("\n")
    digits = signs[digit] - ord("0")
    if (digits > 1).any() or (digit[1:] & digit[:-1]).any():
        raise ValueError(
            "expected zeros and ones with spaces between them, and there is something else"
        )
    n = int(end.sum()) + (not raw.endswith(b"\n"))
    counts = np.bincount(np.cumsum(end)[digit], minlength=n)
    if (wrong := counts != width).any():
        raise ValueError(
            f"expected {width} numbers on each line, got {counts[wrong.argmax()]} on one of them"
        )
    return digits.reshape(n, width)


def _lines(path: Path | None) -> list[str]:
    """Lines of a small file that hold something; none where there is no file."""
    text = "" if path is None else path.read_text(encoding="utf-8", errors="replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _zipped_lines(folder: Path, archive: str, name: str) -> list[str]:
    path = _find(folder, archive)
    if path is None:
        return []
    with zipfile.ZipFile(path) as packed:
        return packed.read(name).decode().split()


def _check_length(lines: Sequence[str], n: int, name: str) -> None:
    if lines and len(lines) != n:
        raise DataError(f"{name}: {len(lines)} lines, and the labels are of {n} pictures")


def _places(folder: Path, name: str, pictures: Sequence[str]) -> NDArray[np.int64] | None:
    """Rows of the pictures that a list names; nothing where there is no list."""
    wanted = _lines(_find(folder, name))
    if not wanted or not pictures:
        return None
    row = {picture: number for number, picture in enumerate(pictures)}
    if strange := [picture for picture in wanted if picture not in row]:
        raise DataError(
            f"{name}: {len(strange)} pictures are not in Imagelist.txt, the first is {strange[0]!r}"
        )
    return np.sort(np.array([row[picture] for picture in wanted], np.int64))


def _payload(
    pictures: Sequence[str], tags: NDArray[np.uint8], names: Sequence[str]
) -> list[dict[str, Any]] | None:
    """The picture and the tags of each row, as far as their lists are there."""
    if names and len(names) != tags.shape[1]:
        raise DataError(f"TagList1k.txt: {len(names)} tags, {TAG_ROWS} has {tags.shape[1]} columns")
    payload: list[dict[str, Any]] = [{"image": picture.replace("\\", "/")} for picture in pictures]
    if not names:
        return payload or None
    payload = payload or [{} for _ in tags]
    for row, said in zip(tags, payload, strict=True):
        said["tags"] = [names[column] for column in np.flatnonzero(row).tolist()]
    return payload


def _facts(
    image: NDArray[Any], tags: NDArray[Any], labels: NDArray[np.bool_], complete: NDArray[np.int64]
) -> Iterator[str]:
    for what, rows in (("visual words", image), ("tags", tags), ("concepts", labels)):
        yield f"{int((~rows.any(axis=1)).sum()):,} of {len(rows):,} pictures have no {what}"
    yield f"{len(complete):,} have both visual words and tags: the part 'complete'"
