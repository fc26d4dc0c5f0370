"""Tables of raw items: the input of `learn`, such as a folder of images and a file of captions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Self

from crossbit.collection.types import IMAGE_FIELD
from crossbit.data.captions import Captioned, read_captions
from crossbit.errors import DataError
from crossbit.features.extractor import RawInput
from crossbit.features.text import STOP_WORDS, words

_IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".pgm"}
)
_MAX_TAGS = 12


@dataclass(frozen=True, eq=False)
class ItemTable:
    """Items with raw inputs of each modality and a payload.

    Args:
        ids: Id of each item.
        inputs: Modality → for each item its inputs, possibly several or none. The first modality
            is the primary one: every item has exactly one input of it.
        accepts: Modality → kind of its inputs, as `Extractor.accepts` names it.
        payloads: Payload of each item.
        folder: Folder with the images of the items.
        missing: Names in the captions file that belong to no image.
    """

    ids: Sequence[str]
    inputs: Mapping[str, Sequence[Sequence[RawInput]]]
    accepts: Mapping[str, str]
    payloads: Sequence[dict[str, Any]]
    folder: Path
    missing: Sequence[str]

    @classmethod
    def from_captioned_images(
        cls, images: str | PathLike[str], captions: str | PathLike[str]
    ) -> Self:
        """Match captions with the images of a folder and its subfolders.

        A caption names its image by the path in the folder or, if it is unique, by the file name.
        Images without captions come last.

        Args:
            images: The folder.
            captions: The file; see `crossbit.data.captions.read_captions`.

        Raises:
            DataError: The folder does not exist, or no caption belongs to an image in it.
        """
        folder = Path(images)
        if not folder.is_dir():
            raise DataError(f"{images}: there is no such folder of images")
        paths = (p for p in folder.rglob("*") if p.suffix.lower() in _IMAGE_SUFFIXES)
        files = sorted(path.relative_to(folder).as_posix() for path in paths)
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
            missing=missing,
        )


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
