"""Files of things: their kinds by name, and a folder of pictures as a table."""

from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path

from crossbit.collection.values import IMAGE_FIELD
from crossbit.data.tables import Record, Table, read_captions
from crossbit.errors import DataError

SUFFIXES = {
    "image": (".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".pgm"),
    "audio": (".wav", ".flac", ".ogg", ".oga", ".opus"),
    "mesh": (".off", ".obj", ".ply", ".stl", ".off.gz", ".obj.gz", ".ply.gz", ".stl.gz"),
    "signal": (".npy", ".csv"),
    "vector": (".npy", ".csv"),
}
"""Kind of input → endings of its files, in lower case; the first kind that fits is guessed."""

CAPTIONS = "captions"
"""Column of a folder of pictures with the captions of each."""


def kind_of_file(name: str) -> str | None:
    """Return the kind of a file by the ending of its name; None if it is unknown.

    Example:
        >>> kind_of_file("scans/Cat.OFF.gz"), kind_of_file("a title")
        ('mesh', None)
    """
    lower = name.lower()
    return next((kind for kind, ends in SUFFIXES.items() if lower.endswith(ends)), None)


def files_in(folder: Path, kind: str) -> list[Path]:
    """Return the files of a kind in a folder and its subfolders, in the order of their names."""
    endings = SUFFIXES.get(kind, ())
    found = (path for path in folder.rglob("*") if path.name.lower().endswith(endings))
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def expand_paths(paths: Iterable[Path], kind: str) -> Iterator[Path]:
    """Yield files, with folders replaced by the files of a kind in them.

    Raises:
        DataError: A path does not exist, or a folder has no such file.
    """
    for path in paths:
        if not path.is_dir():
            if not path.exists():
                raise DataError(f"{path}: there is no such file or folder")
            yield path
            continue
        files = files_in(path, kind)
        if not files:
            endings = ", ".join(SUFFIXES.get(kind, ())) or f"of the kind {kind}"
            raise DataError(f"{path}: contains no files {endings}; name the files instead")
        yield from files


def open_pictures(
    folder: Path, captions: str | PathLike[str] | None = None
) -> tuple[Table, list[str]]:
    """Return the pictures of a folder and its subfolders as a table, one row per picture.

    Its columns are ``id`` and ``picture``, both the path in the folder, ``captions``, and the other
    columns of the captions. A caption names its picture by the path in the folder or, if it is
    unique, by the file name. Pictures without captions come last.

    Args:
        folder: The folder.
        captions: Table of captions, as `crossbit.data.tables.read_captions` reads it.

    Returns:
        The table, and one line per picture that is described but not in the folder.

    Raises:
        DataError: No caption belongs to a picture in the folder.
    """
    files = [path.relative_to(folder).as_posix() for path in files_in(folder, "image")]
    described: dict[str, tuple[list[str], Record]] = {}
    missing: list[str] = []
    by_name: dict[str, list[str]] = {}
    for file in files:
        by_name.setdefault(file.rpartition("/")[2], []).append(file)
    for entry in [] if captions is None else read_captions(captions):
        name = entry.name.replace("\\", "/").rpartition("/")[2]
        matches = by_name.get(name, [])
        file = entry.name if entry.name in matches else matches[0] if len(matches) == 1 else ""
        if not file:
            missing.append(entry.name)
            continue
        texts, fields = described.setdefault(file, ([], {}))
        texts += entry.captions
        fields |= entry.fields
    if captions is not None and not described:
        raise _no_picture(captions, folder, missing)
    rows: list[Record] = [
        {**fields, "id": file, IMAGE_FIELD: file, CAPTIONS: texts}
        for file, (texts, fields) in described.items()
    ]
    rows += [{"id": file, IMAGE_FIELD: file} for file in files if file not in described]
    columns = list(dict.fromkeys(["id", IMAGE_FIELD, *(key for row in rows for key in row)]))
    table = Table(str(folder), lambda _: enumerate(rows), columns, folder, count=lambda: len(rows))
    return table, [f"{name}: is not in {folder}" for name in missing]


def _no_picture(captions: str | PathLike[str], folder: Path, missing: Sequence[str]) -> DataError:
    if missing:
        return DataError(
            f"{captions}: none of its {len(missing)} images, such as {missing[:1]}, is in {folder}"
        )
    return DataError(
        f"{captions}: no line describes an image; expected a header such as 'image,caption' and"
        " lines such as 'dog.jpg,A dog'"
    )
