"""Tables of raw items: the input of `learn`, such as a folder of images and a file of captions."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Self

from numpy.typing import NDArray

from crossbit.collection.types import IMAGE_FIELD, Id
from crossbit.data.tables import Captioned, read_captions
from crossbit.errors import DataError
from crossbit.features.extractor import RawInput
from crossbit.features.text import STOP_WORDS, words

SUFFIXES = {
    "image": (".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".pgm"),
    "audio": (".wav", ".flac", ".ogg", ".oga", ".opus"),
    "mesh": (".off", ".obj", ".ply", ".stl", ".off.gz", ".obj.gz", ".ply.gz", ".stl.gz"),
    "signal": (".npy", ".csv"),
    "vector": (".npy", ".csv"),
}
"""Kind of input → endings of its files, in lower case; the first kind that fits is guessed."""

_MAX_TAGS = 12


@dataclass(frozen=True, eq=False)
class ItemTable:
    """Items with raw inputs of each modality and a payload.

    Args:
        ids: Id of each item.
        inputs: Modality → for each item its inputs, possibly several or none.
        accepts: Modality → kind of its inputs, as `Extractor.accepts` names it.
        payloads: Payload of each item.
        folder: Folder with the images of the items.
        missing: One line per file that is named but does not exist.
        primary: The first modality, if every item has exactly one input of it.
        vectors: Modality → feature rows that the table holds itself; NaN for an item without one.
        labels: Label of each item, None if it is unknown; None without labels.
    """

    ids: Sequence[Id]
    inputs: Mapping[str, Sequence[Sequence[RawInput]]]
    accepts: Mapping[str, str]
    payloads: Sequence[dict[str, Any]]
    folder: Path
    missing: Sequence[str]
    primary: str | None = None
    vectors: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    labels: Sequence[Any] | None = None

    @classmethod
    def from_captioned_images(
        cls, images: str | PathLike[str], captions: str | PathLike[str]
    ) -> Self:
        """Match captions with the images of a folder and its subfolders.

        A caption names its image by the path in the folder or, if it is unique, by the file name.
        Images without captions come last.

        Args:
            images: The folder.
            captions: The file; see `crossbit.data.tables.read_captions`.

        Raises:
            DataError: The folder does not exist, or no caption belongs to an image in it.
        """
        folder = Path(images)
        if not folder.is_dir():
            raise DataError(f"{images}: there is no such folder of images")
        files = [path.relative_to(folder).as_posix() for path in files_in(folder, "image")]
        captioned, missing = _match(read_captions(captions), files)
        if not captioned and not missing:
            raise DataError(
                f"{captions}: no line describes an image; expected a header such as 'image,caption'"
                " and lines such as 'dog.jpg,A dog'"
            )
        if not captioned:
            raise DataError(
                f"{captions}: none of its {len(missing)} images, such as {missing[:1]}, is in"
                f" {images}"
            )
        names = [*captioned, *(file for file in files if file not in captioned)]
        entries = [captioned.get(name, Captioned(name, ())) for name in names]
        return cls(
            ids=names,
            inputs={
                "image": [[folder / name] for name in names],
                "text": [list(entry.captions) for entry in entries],
            },
            accepts={"image": "image", "text": "text"},
            payloads=[_payload(name, e) for name, e in zip(names, entries, strict=True)],
            folder=folder,
            missing=[f"{name}: is not in {images}" for name in missing],
            primary="image",
        )

    def summary(self) -> str:
        """Count the inputs, such as ``8 items: 8 image inputs, 40 text inputs``."""
        counts = ", ".join(
            f"{sum(map(len, inputs)):,} {modality} inputs"
            for modality, inputs in self.inputs.items()
        )
        missing = f"; {len(self.missing):,} named files do not exist" if self.missing else ""
        if self.primary and self.missing:
            missing = f"; {len(self.missing):,} captions without an image"
        return f"{len(self.ids):,} items: {counts}{missing}"


def _match(
    entries: Sequence[Captioned], files: Sequence[str]
) -> tuple[dict[str, Captioned], list[str]]:
    """Return the captions of each file, and the names that match no file or several."""
    by_name: dict[str, list[str]] = {}
    for file in files:
        by_name.setdefault(file.rpartition("/")[2], []).append(file)
    known = set(files)
    captioned: dict[str, Captioned] = {}
    missing = []
    for entry in entries:
        name = entry.name.replace("\\", "/").rpartition("/")[2]
        matches = [entry.name] if entry.name in known else by_name.get(name, [])
        if len(matches) == 1:
            captioned[matches[0]] = _join(captioned.get(matches[0]), entry)
        else:
            missing.append(entry.name)
    return captioned, missing


def _join(first: Captioned | None, second: Captioned) -> Captioned:
    """Join the captions of an image that has two names, such as ``dog.jpg``, ``photos/dog.jpg``."""
    if first is None:
        return second
    captions = (*first.captions, *second.captions)
    return Captioned(first.name, captions, {**first.fields, **second.fields})


def _payload(name: str, entry: Captioned) -> dict[str, Any]:
    words: dict[str, Any] = {}
    if entry.captions:
        words = {"captions": list(entry.captions), "tags": tags_of(entry.captions)}
    return {**entry.fields, IMAGE_FIELD: name, **words}


def tags_of(captions: Sequence[str]) -> list[str]:
    """Return the most frequent words of captions, without stop words.

    With three captions or more a tag must occur in two of them.

    Example:
        >>> tags_of(["A dog runs on the beach", "the wet dog at a beach", "a dog"])
        ['dog', 'beach']
    """
    counts: Counter[str] = Counter()
    for caption in captions:
        content = (word for word in words(caption) if len(word) > 1 and word not in STOP_WORDS)
        counts.update(list(dict.fromkeys(content)))
    least = 2 if len(captions) > 2 else 1
    return [word for word, count in counts.most_common(_MAX_TAGS) if count >= least]


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
