"""The Wiki and NUS-WIDE archives as their authors distribute them.

Wiki: features in ``raw_features.mat``; text id, image id and class of each row in two ``.list``
files.

NUS-WIDE: text files of 269,648 lines, parsed block by block and checked against each other.

```
BoW_int.dat               500 counts of visual words per line
AllTags1k.txt             1000 zeros and ones per line, one column per tag of TagList1k.txt
AllLabels/Labels_sky.txt  one zero or one per line; one file per concept, or all in Groundtruth.zip
Imagelist.txt             the image of each line; TrainImagelist.txt and TestImagelist.txt: splits
Concepts81.txt            names of the concepts
```

The files may lie in any subfolder. Images without visual words or without tags keep their rows, all
zeros; the split ``complete`` leaves them out.
"""

import io
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import batches
from crossbit.data.catalog import NUSWIDE, WIKI
from crossbit.data.conversion.assemble import assemble
from crossbit.data.conversion.readers import open_source
from crossbit.data.dataset import Dataset
from crossbit.errors import DataError

NUS_WORDS = 500
NUS_TAGS = 1000
_FEATURES = "BoW_int.dat"
_TAG_ROWS = "AllTags1k.txt"
_GROUND_TRUTH = "Groundtruth.zip"
_LABELS = "Labels_"
_BLOCK = 4096  # lines parsed at a time
_LARGEST = np.iinfo(np.uint16).max
_SPACES = np.isin(np.arange(256), list(b" \t\r\n"))

_WIKI_SPLITS = {
    "train": ("tr", "trainset_txt_img_cat.list"),
    "test": ("te", "testset_txt_img_cat.list"),
}

OnNote = Callable[[str], None]
"""Callback that receives facts about the files, one line each."""


def wiki_fields(path: Path, stack: ExitStack) -> dict[str, Any] | None:
    """Return the arguments of `Dataset` for the Wiki distribution, None if it is another file.

    Args:
        path: Possibly the features of the distribution, with its lists beside it.
        stack: Closes the file of the features.
    """
    folder = path.parent
    lists = [folder / name for _, name in _WIKI_SPLITS.values()]
    if path.name != "raw_features.mat" or not all(each.is_file() for each in (path, *lists)):
        return None
    features = open_source(path, stack)
    names = {
        f"{modality}:{split}": f"{modality[0].upper()}_{suffix}"
        for split, (suffix, _) in _WIKI_SPLITS.items()
        for modality in ("image", "text")
    }
    fields, _ = assemble([features], names)
    rows: list[tuple[str, str, int]] = []
    for split, (_, name) in _WIKI_SPLITS.items():
        lines = _wiki_rows(folder / name)
        expected = len(fields["splits"][split])
        if len(lines) != expected:
            raise DataError(
                f"{folder}: {name} has {len(lines)} lines, raw_features.mat has {expected} rows"
            )
        rows += lines
    classes = _wiki_classes(folder / "categories.list", max(number for _, _, number in rows))
    return fields | {
        "labels": np.array([number - 1 for _, _, number in rows]),  # they count from 1
        "payload": [
            {"text": text, "image": image, "class": classes[number - 1]}
            for text, image, number in rows
        ],
        "name": WIKI.name,
        "source": WIKI.source,
        "license": WIKI.license,
        "classes": classes,
    }


def _wiki_classes(path: Path, largest: int) -> list[str]:
    """Class names; without the list of names, the class numbers."""
    classes = path.read_text().split() if path.is_file() else [str(k + 1) for k in range(largest)]
    if largest > len(classes):
        raise DataError(f"{path}: {len(classes)} class names, but some rows have class {largest}")
    return classes


def _wiki_rows(path: Path) -> list[tuple[str, str, int]]:
    """Text id, image id and class of each row."""
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    for number, row in enumerate(rows, start=1):
        if len(row) != 3 or not row[2].isdecimal() or int(row[2]) < 1:
            raise DataError(
                f"{path}: line {number} must hold text id, image id and class (from 1),"
                " separated by tabs"
            )
    return [(text, image, int(number)) for text, image, number in rows]


def is_nus(folder: Path) -> bool:
    """Whether a folder holds a file that only the NUS-WIDE distribution has."""
    names = (_FEATURES, _TAG_ROWS, _GROUND_TRUTH, "AllLabels")
    return folder.is_dir() and any(_find(folder, name) is not None for name in names)


def read_nus(folder: Path, *, on_note: OnNote, scratch: Path | None = None) -> Dataset:
    """Read the NUS-WIDE distribution: visual words, tags, concepts, splits; images as payload.

    Args:
        folder: Holds the files listed above, at the top or in subfolders.
        on_note: Called with the number of rows that lack visual words, tags or concepts.
        scratch: Folder for the two matrices (540 MB together), which are then memory-mapped; by
            default they are held in memory.

    Raises:
        DataError: A file is missing, a line is malformed, or files have different numbers of lines.
    """
    features = _required(folder, _FEATURES)
    tag_rows = _required(folder, _TAG_ROWS)
    labels, concepts = read_concepts(folder)
    n = len(labels)
    image = _matrix(n, NUS_WORDS, np.uint16, scratch and scratch / "image.npy")
    tags = _matrix(n, NUS_TAGS, np.uint8, scratch and scratch / "tags.npy")
    _fill(image, features, _parse_counts)
    _fill(tags, tag_rows, _parse_bits)
    names = _lines(_find(folder, "Imagelist.txt"))
    if names and len(names) != n:
        raise DataError(f"Imagelist.txt: {len(names)} lines, but there are labels of {n} images")
    complete = np.flatnonzero(image.any(axis=1) & tags.any(axis=1))
    splits = {
        split: _listed_rows(folder, f"{split.title()}Imagelist.txt", names)
        for split in ("train", "test")
    }
    for note in _notes(image, tags, labels, complete):
        on_note(note)
    return Dataset(
        views={"image": image, "tags": tags},
        labels=labels,
        splits={split: rows for split, rows in splits.items() if rows is not None}
        | {"complete": complete},
        payload=_payload(names, tags, _lines(_find(folder, "TagList1k.txt"))),
        name="nus",
        source=NUSWIDE.source,
        license=NUSWIDE.license,
        classes=concepts,
    )


def read_concepts(folder: Path) -> tuple[NDArray[np.bool_], list[str]]:
    """Return the concepts of each image, (images, concepts), and their names.

    The label files are read from folders or from the archive.
    """
    files = _label_files(folder)
    if not files:
        raise DataError(
            f"{folder}: neither AllLabels/{_LABELS}<concept>.txt nor {_GROUND_TRUTH} found;"
            f" {NUSWIDE.how_to_get}"
        )
    listed = _lines(_find(folder, "Concepts81.txt")) or _zipped_lines(
        folder, "ConceptsList.zip", "Concepts81.txt"
    )
    if listed and (differing := sorted(set(listed) ^ set(files))):
        raise DataError(
            f"{folder}: Concepts81.txt and the files {_LABELS}*.txt name different concepts:"
            f" {differing}"
        )
    names = listed or sorted(files)
    columns = [_label_column(f"{_LABELS}{name}.txt", files[name]) for name in names]
    for name, column in zip(names, columns, strict=True):
        if len(column) != len(columns[0]):
            raise DataError(
                f"{_LABELS}{name}.txt: {len(column)} lines,"
                f" but {_LABELS}{names[0]}.txt has {len(columns[0])}"
            )
    return np.stack(columns, axis=1), names


def _label_files(folder: Path) -> dict[str, Path | bytes]:
    """Concept → its file, or the content of its file in the archive."""
    paths = _glob(folder, f"AllLabels/{_LABELS}*.txt")
    archive = _find(folder, _GROUND_TRUTH)
    if paths or archive is None:
        return {path.stem.removeprefix(_LABELS): path for path in paths}
    try:
        with zipfile.ZipFile(archive) as packed:
            return {
                Path(name).stem.removeprefix(_LABELS): packed.read(name)
                for name in packed.namelist()
                if f"AllLabels/{_LABELS}" in name
            }
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(
            f"{archive}: not a valid zip archive ({error}); download it again"
        ) from error


def _label_column(name: str, file: Path | bytes) -> NDArray[np.bool_]:
    raw = file if isinstance(file, bytes) else file.read_bytes()
    try:
        return _parse_bits(raw, 1)[:, 0].astype(np.bool_)
    except ValueError as error:
        raise DataError(f"{name}: {error}") from error


def _required(folder: Path, name: str) -> Path:
    path = _find(folder, name)
    if path is None:
        raise DataError(f"{folder}: {name} not found, also not in subfolders; {NUSWIDE.how_to_get}")
    return path


def _find(folder: Path, name: str) -> Path | None:
    return next(iter(_glob(folder, name)), None)


def _glob(folder: Path, pattern: str) -> list[Path]:
    """Matching files at the smallest depth that has any: the folder, then two levels below."""
    depths = (sorted(folder.glob(prefix + pattern)) for prefix in ("", "*/", "*/*/"))
    return next((paths for paths in depths if paths), [])


def _matrix(n: int, width: int, dtype: type, path: Path | None) -> NDArray[Any]:
    if path is None:
        return np.empty((n, width), dtype)
    mapped: NDArray[Any] = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(n, width))
    return mapped


def _fill(rows: NDArray[Any], path: Path, parse: Callable[[bytes, int], NDArray[Any]]) -> None:
    """Parse a file into the rows of a matrix, one block of lines at a time."""
    done = 0
    with open(path, "rb") as file:
        for lines in batches(file, _BLOCK):
            if done + len(lines) <= len(rows):
                try:
                    rows[done : done + len(lines)] = parse(b"".join(lines), rows.shape[1])
                except ValueError as error:
                    raise DataError(
                        f"{path}: in lines {done + 1}–{done + len(lines)}: {error}"
                    ) from error
            done += len(lines)
    if done != len(rows):
        raise DataError(
            f"{path}: {done} lines, but there are labels of {len(rows)} images;"
            " one of the files is truncated"
        )


def _parse_counts(raw: bytes, width: int) -> NDArray[np.uint16]:
    """Parse lines of integers separated by spaces."""
    n = raw.count(b"\n") + (not raw.endswith(b"\n"))
    try:
        counts = np.loadtxt(io.BytesIO(raw), dtype=np.int64, comments=None, ndmin=2)
    except ValueError as error:
        raise ValueError(f"expected {width} integers on each line ({error})") from error
    if counts.shape != (n, width):
        raise ValueError(
            f"expected {width} integers on each line, got {counts.shape[1]} on {len(counts)} lines"
        )
    if counts.min() < 0 or counts.max() > _LARGEST:
        raise ValueError(
            f"expected counts from 0 to {_LARGEST}, got {counts.min()} to {counts.max()}"
        )
    return counts.astype(np.uint16)


def _parse_bits(raw: bytes, width: int) -> NDArray[np.uint8]:
    """Parse lines of ``width`` zeros and ones separated by spaces, vectorized.

    Raises:
        ValueError: A line holds anything else.
    """
    characters = np.frombuffer(raw, np.uint8)
    digit = ~_SPACES[characters]
    end = characters == ord("\n")
    digits = characters[digit] - ord("0")
    if (digits > 1).any() or (digit[1:] & digit[:-1]).any():
        raise ValueError("expected only zeros and ones separated by spaces")
    n = int(end.sum()) + (not raw.endswith(b"\n"))
    counts = np.bincount(np.cumsum(end)[digit], minlength=n)
    if (wrong := counts != width).any():
        raise ValueError(
            f"expected {width} numbers on each line, got {counts[wrong.argmax()]} on one of them"
        )
    return digits.reshape(n, width)


def _lines(path: Path | None) -> list[str]:
    """Non-empty lines of a small file; none if there is no file."""
    text = "" if path is None else path.read_text(encoding="utf-8", errors="replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _zipped_lines(folder: Path, archive: str, name: str) -> list[str]:
    path = _find(folder, archive)
    if path is None:
        return []
    with zipfile.ZipFile(path) as packed:
        return packed.read(name).decode().split()


def _listed_rows(folder: Path, name: str, images: Sequence[str]) -> NDArray[np.int64] | None:
    """Row numbers of the images in a list file; None without such a file."""
    listed = _lines(_find(folder, name))
    if not listed or not images:
        return None
    row = {image: number for number, image in enumerate(images)}
    if unknown := [image for image in listed if image not in row]:
        raise DataError(
            f"{name}: {len(unknown)} images are not in Imagelist.txt, the first is {unknown[0]!r}"
        )
    return np.sort(np.array([row[image] for image in listed], np.int64))


def _payload(
    images: Sequence[str], tags: NDArray[np.uint8], names: Sequence[str]
) -> list[dict[str, Any]] | None:
    """Image and tags of each row, as far as their lists exist."""
    if names and len(names) != tags.shape[1]:
        raise DataError(
            f"TagList1k.txt: {len(names)} tags, but {_TAG_ROWS} has {tags.shape[1]} columns"
        )
    payload: list[dict[str, Any]] = [{"image": image.replace("\\", "/")} for image in images]
    if not names:
        return payload or None
    payload = payload or [{} for _ in tags]
    for row, entry in zip(tags, payload, strict=True):
        entry["tags"] = [names[column] for column in np.flatnonzero(row).tolist()]
    return payload


def _notes(
    image: NDArray[Any], tags: NDArray[Any], labels: NDArray[np.bool_], complete: NDArray[np.int64]
) -> Iterator[str]:
    for what, rows in (("visual words", image), ("tags", tags), ("concepts", labels)):
        yield f"{int((~rows.any(axis=1)).sum()):,} of {len(rows):,} images have no {what}"
    yield f"{len(complete):,} have both visual words and tags: the split 'complete'"
