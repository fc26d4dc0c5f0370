"""Pictures in a terminal: two pixels a character where there are colors, words elsewhere."""

from pathlib import Path

import numpy as np
from rich.columns import Columns
from rich.console import Group
from rich.panel import Panel
from rich.text import Text

from crossbit.cli import show
from crossbit.collection import Hit
from crossbit.features.pictures import decode

_WIDE = 18  # characters


def hits(title: str, found: list[Hit], pictures: Path, right: set[str]) -> None:
    """Print what was found, nearest first; whatever has all the right tags is green."""
    show.out.print(f"\n{title}")
    panels = []
    for hit in found:
        good = right <= set(hit.payload["tags"])
        name = Text(
            hit.payload["name"], style="green" if good else "", overflow="ellipsis", no_wrap=True
        )
        parts = (
            [drawing(pictures / hit.payload["picture"]), name] if show.out.is_terminal else [name]
        )
        panels.append(
            Panel(
                Group(*parts),
                width=_WIDE + 4,
                border_style="green" if good else "dim",
                subtitle=f"{'✓ ' if good else ''}{show.bits(hit.distance)}",
            )
        )
    show.out.print(Columns(panels))


def drawing(path: Path) -> Text:
    """A picture in half blocks: the upper pixel is the foreground, the lower the background."""
    pixels = np.asarray(decode(path).resize((_WIDE, _WIDE)))
    text = Text()
    for upper, lower in zip(pixels[::2], pixels[1::2], strict=True):
        for above, below in zip(upper, lower, strict=True):
            text.append(
                "▀",
                f"rgb({above[0]},{above[1]},{above[2]}) on rgb({below[0]},{below[1]},{below[2]})",
            )
        text.append("\n")
    text.right_crop()
    return text
