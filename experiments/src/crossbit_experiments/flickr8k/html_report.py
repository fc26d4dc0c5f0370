"""The figures as one page that holds everything, pictures included."""

import base64
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit_experiments.flickr8k.qualitative import METHODS, Found, Gallery, tags_of
from crossbit_experiments.summary import write_summary

Draw: TypeAlias = Callable[[Found], str]

TITLES = {**METHODS, "always": "always the same ten"}
JUDGED = {"precision": "precision", "recall": "recall", "hit": "at least one right"}
_COLUMNS = 16  # of the drawing of a code
_WORDS = 10  # of a photograph that are shown


class Sheet:
    """Draws a gallery as HTML.

    Args:
        gallery: What was found.
        folder: Where the photographs are.
        n_bits: Length of the codes.
    """

    def __init__(self, gallery: Gallery, folder: Path, n_bits: int) -> None:
        self.gallery, self.folder, self.n_bits = gallery, folder, n_bits
        self.data = gallery.photographs.data

    def html(self) -> str:
        """The page."""
        some = self.gallery
        parts = [
            _section(
                "Words find pictures", _MADE_UP, self._blocks(some.made_up, _asked, self._pictures)
            ),
            _section(
                "Words of a photograph find pictures",
                _WORDS_TO,
                self._blocks(some.words, _asked, self._pictures),
            ),
            _section(
                "A picture finds words",
                _PICTURES_TO,
                self._blocks(some.pictures, self._asking, self._bags),
            ),
            _section(
                "Ten tags for a picture",
                _TAGS_OF,
                self._blocks(some.annotated, self._asking, _given),
            ),
            _quality(some.quality),
        ]
        style = (
            files("crossbit_experiments.flickr8k").joinpath("sheet.css").read_text(encoding="utf-8")
        )
        title = f"Photographs and words in {self.n_bits} bits"
        return _PAGE.format(title=title, style=style, intro=_INTRO, body="".join(parts))

    def _blocks(self, found: Mapping[str, Sequence[Found]], query: Draw, answer: Draw) -> str:
        """A block a query: what asks, then a line of answers for each method."""
        blocks = []
        for both in zip(*(found[method] for method in METHODS), strict=True):
            lines = [
                f'<div class="line"><h4>{METHODS[method]}{_bits(one.bits)}</h4>{answer(one)}</div>'
                for method, one in zip(METHODS, both, strict=True)
            ]
            blocks.append(
                f'<article><div class="query">{query(both[0])}</div><div>{"".join(lines)}</div></article>'
            )
        return "".join(blocks)

    def _asking(self, one: Found) -> str:
        """A picture that asks; its words, which are not looked at, are pale."""
        return ("" if one.row is None else self._image(one.row)) + _pale(one.words)

    def _pictures(self, one: Found) -> str:
        """Pictures that were found; their words, which were not looked at, are pale."""
        inside = [self._image(match.row) + _pale(self._said(match.row)) for match in one.matches]
        return _cards(one, inside)

    def _bags(self, one: Found) -> str:
        """Words that were found, those of the query first; the pictures, which were not looked at, are pale."""
        shared, inside = set(one.words), []
        for match in one.matches:
            said = sorted(self._said(match.row), key=lambda word: word not in shared)
            inside.append(
                f"<p>{_chips(said[:_WORDS], shared)}</p>{self._image(match.row, 'faint')}"
            )
        return _cards(one, inside)

    def _said(self, row: int) -> list[str]:
        return tags_of(self.data, np.array([row]))[0]

    def _image(self, row: int, look: str = "") -> str:
        payload: Any = self.data.payload
        content = base64.b64encode((self.folder / payload[row]["name"]).read_bytes()).decode(
            "ascii"
        )
        told = escape(payload[row]["captions"][0], quote=True)
        return f'<img class="{look}" src="data:image/jpeg;base64,{content}" alt="{told}">'


def write_sheet(
    out: Path, gallery: Gallery, folder: Path, *, n_bits: int, settings: Mapping[str, Any]
) -> Path:
    """Write the page, and what was measured beside it.

    Args:
        out: Folder of the results.
        gallery: What was found.
        folder: Where the photographs are.
        n_bits: Length of the codes.
        settings: What else the numbers depend on.
    """
    data = gallery.photographs.data
    sizes = {name: len(np.asarray(rows)) for name, rows in data.splits.items()}
    write_summary(
        out,
        "photographs",
        bits=n_bits,
        settings=dict(settings),
        rows=sizes,
        annotation=gallery.quality,
        titles=TITLES,
    )
    page = out / "photographs.html"
    page.write_text(Sheet(gallery, folder, n_bits).html(), encoding="utf-8")
    return page


def _asked(one: Found) -> str:
    return f'<p class="words">{_chips(one.words[:_WORDS], set())}</p>'


def _given(one: Found) -> str:
    return f"<p>{_chips(one.tags, set(one.words))}</p>"


def _pale(words: Sequence[str]) -> str:
    return f'<p class="faint">{escape(", ".join(words[:_WORDS]))}</p>'


def _section(title: str, told: str, body: str) -> str:
    return f"<section><h2>{title}</h2><p>{told}</p>{body}</section>"


def _cards(one: Found, inside: Sequence[str]) -> str:
    cards = []
    for match, each in zip(one.matches, inside, strict=True):
        look, word = ("right", "right") if match.right else ("other", "not what was asked for")
        cards.append(
            f'<li class="{look}" title="{match.distance} bits differ; {word}">{each}'
            f"<div>{_bits(match.bits, one.bits)}<span>{match.distance}</span></div></li>"
        )
    return f"<ol>{''.join(cards)}</ol>"


def _chips(words: Sequence[str], right: set[str]) -> str:
    return " ".join(
        f'<span class="chip{" right" if word in right else ""}">{escape(word)}</span>'
        for word in words
    )


def _bits(bits: NDArray[np.bool_], asked: NDArray[np.bool_] | None = None) -> str:
    """A code as small squares, dark for 1; those that differ from the query's are marked."""
    differ = np.zeros(len(bits), np.bool_) if asked is None else bits != asked
    squares = [
        f'<rect x="{6 * (n % _COLUMNS)}" y="{6 * (n // _COLUMNS)}" width="5" height="5" '
        f'class="{"one" if bit else "zero"}{" differs" if other else ""}"/>'
        for n, (bit, other) in enumerate(zip(bits, differ, strict=True))
    ]
    height = 6 * -(-len(bits) // _COLUMNS)
    return f'<svg class="bits" viewBox="0 0 {6 * _COLUMNS} {height}" role="img" aria-label="code">{"".join(squares)}</svg>'


def _quality(quality: Mapping[str, Mapping[str, float]]) -> str:
    rows = [
        f"<tr><th>{TITLES[method]}</th>{''.join(f'<td>{one[name]:.1f}</td>' for name in JUDGED)}</tr>"
        for method, one in quality.items()
    ]
    head = "".join(f"<th>{title}</th>" for title in ("", *JUDGED.values()))
    told = "In percent, over all photographs that ask, against the words of their captions."
    return f"<table><tr>{head}</tr>{''.join(rows)}</table><p>{told}</p>"


_INTRO = (
    "CM-SSH above, MM-NN below: both learned the same concepts from the same photographs, and search others that"
    " neither has seen. Each match shows its code, the bits that differ from the query's in orange, and how many they"
    " are. Right answers are outlined in green. What was not looked at is pale."
)
_MADE_UP = "Queries made up on the spot. Right is a photograph whose captions use all the words."
_WORDS_TO = "Right is a photograph that shows a concept of the one whose words ask."
_PICTURES_TO = (
    "Bags of words found by a picture. Right is one whose photograph shows a concept of the picture; words that both"
    " captions use are green."
)
_TAGS_OF = (
    "The words that its five nearest bags of words use most; those of its own captions are green."
)

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{style}</style>
<h1>{title}</h1><p class="intro">{intro}</p>{body}
</html>
"""
