"""Pictures in a folder, and what a file says about them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossbit.data.captions import Captioned, read_captions
from crossbit.errors import DataError
from crossbit.features.text import EMPTY_WORDS, words

SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".pgm"}
)
_MOST_TAGS = 12


@dataclass(frozen=True, eq=False)
class Gallery:
    """Pictures and their captions; those without captions come last.

    Args:
        folder: Where the pictures are.
        names: Their paths within the folder, with ``/``.
        captions: What is said about each, perhaps nothing.
        fields: Whatever else is told about each.
        missing: Names that captions speak of and that are not there.
    """

    folder: Path
    names: Sequence[str]
    captions: Sequence[tuple[str, ...]]
    fields: Sequence[Mapping[str, Any]]
    missing: Sequence[str]

    def paths(self) -> list[Path]:
        """The files."""
        return [self.folder / name for name in self.names]

    def payload(self, number: int) -> dict[str, Any]:
        """What a collection keeps of a picture."""
        said = self.captions[number]
        told: dict[str, Any] = {"captions": list(said), "tags": tags_of(said)} if said else {}
        return {**self.fields[number], "picture": self.names[number], **told}


def open_gallery(images: Path, captions: Path) -> Gallery:
    """Match captions with the pictures of a folder and of those below it, by path or, where that is clear, by name.

    Raises:
        DataError: There is no such folder, or no caption is about a picture in it.
    """
    if not images.is_dir():
        raise DataError(f"{images}: there is no such folder of pictures")
    files = sorted(
        path.relative_to(images).as_posix()
        for path in images.rglob("*")
        if path.suffix.lower() in SUFFIXES
    )
    by_name: dict[str, list[str]] = {}
    for file in files:
        by_name.setdefault(file.rpartition("/")[2], []).append(file)
    whole = dict.fromkeys(files)
    told: dict[str, Captioned] = {}
    missing = []
    for one in read_captions(captions):
        alike = (
            [one.name]
            if one.name in whole
            else by_name.get(one.name.replace("\\", "/").rpartition("/")[2], [])
        )
        if len(alike) == 1:
            told[alike[0]] = _both(told.get(alike[0]), one)
        else:
            missing.append(one.name)
    if not told and not missing:
        raise DataError(
            f"{captions}: no line of it tells of a picture; expected such as 'image,caption' and 'dog.jpg,A dog'"
        )
    if not told:
        raise DataError(
            f"{captions}: none of its {len(missing)} pictures, such as {missing[:1]}, is in {images}"
        )
    names = [*told, *(file for file in files if file not in told)]
    each = [told.get(name, Captioned(name, ())) for name in names]
    return Gallery(
        images, names, [one.captions for one in each], [one.fields for one in each], missing
    )


def _both(before: Captioned | None, one: Captioned) -> Captioned:
    """What was said about a picture under two names of it: ``dog.jpg`` and ``photos/dog.jpg``."""
    if before is None:
        return one
    return Captioned(
        before.name, (*before.captions, *one.captions), {**before.fields, **one.fields}
    )


def tags_of(captions: Sequence[str]) -> list[str]:
    """The words that say something, those of most captions first; of three captions or more, what two of them say.

    Example:
        >>> tags_of(["A dog runs on the beach", "the wet dog at a beach", "a dog"])
        ['dog', 'beach']
    """
    counts: Counter[str] = Counter()
    for caption in captions:
        counts.update(
            list(dict.fromkeys(w for w in words(caption) if len(w) > 1 and w not in EMPTY_WORDS))
        )
    least = 2 if len(captions) > 2 else 1
    return [word for word, count in counts.most_common(_MOST_TAGS) if count >= least]
