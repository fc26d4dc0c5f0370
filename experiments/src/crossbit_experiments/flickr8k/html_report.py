"""Qualitative results as one self-contained HTML page."""

import base64
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit._io.files import make_folders
from crossbit_experiments.flickr8k.annotation import tags_of
from crossbit_experiments.flickr8k.qualitative import METHODS, QualitativeResults, QueryResult

_Render: TypeAlias = Callable[[QueryResult], str]

_TITLES = {**METHODS, "always": "always the same ten"}
_MEASURES = {"precision": "precision", "recall": "recall", "hit": "at least one right"}
_COLUMNS = 16  # squares per line in the drawing of a code
_MAX_WORDS = 10  # words shown per photograph


def write_report(
    out: Path,
    results: QualitativeResults,
    images: Path,
    *,
    n_bits: int,
) -> Path:
    """Write the page and return its path.

    Args:
        out: Folder of the results.
        results: The results to show.
        images: Folder of the photographs.
        n_bits: Code length.
    """
    make_folders(out)
    page = out / "qualitative.html"
    page.write_text(HtmlReport(results, images, n_bits).render(), encoding="utf-8")
    return page


class HtmlReport:
    """Renders qualitative results as HTML.

    Args:
        results: The results to show.
        images: Folder of the photographs.
        n_bits: Code length.
    """

    def __init__(self, results: QualitativeResults, images: Path, n_bits: int) -> None:
        self.results = results
        self.images = images
        self.n_bits = n_bits
        self.data = results.photographs.data

    def render(self) -> str:
        """Return the page."""
        results = self.results
        free_text = self._blocks(results.free_text, _query_words, self._image_cards)
        text_to_image = self._blocks(results.text_to_image, _query_words, self._image_cards)
        image_to_text = self._blocks(results.image_to_text, self._query_image, self._tag_cards)
        annotated = self._blocks(results.annotated, self._query_image, _tag_list)
        sections = [
            _section("Words find images", _FREE_TEXT, free_text),
            _section("Words of a photograph find images", _TEXT_TO_IMAGE, text_to_image),
            _section("An image finds words", _IMAGE_TO_TEXT, image_to_text),
            _section("Ten tags for an image", _ANNOTATION, annotated),
            _quality_table(results.quality),
        ]
        style = files("crossbit_experiments.flickr8k").joinpath("report.css")
        return _PAGE.format(
            title=f"Photographs and words in {self.n_bits} bits",
            style=style.read_text(encoding="utf-8"),
            intro=_INTRO,
            body="".join(sections),
        )

    def _blocks(
        self, results: Mapping[str, Sequence[QueryResult]], query: _Render, answer: _Render
    ) -> str:
        """One block per query: the query, then the matches of each method on a line."""
        blocks = []
        for by_method in zip(*(results[method] for method in METHODS), strict=True):
            lines = [
                f'<div class="line"><h4>{METHODS[method]}{_draw_code(result.bits)}</h4>'
                f"{answer(result)}</div>"
                for method, result in zip(METHODS, by_method, strict=True)
            ]
            blocks.append(
                f'<article><div class="query">{query(by_method[0])}</div>'
                f"<div>{''.join(lines)}</div></article>"
            )
        return "".join(blocks)

    def _query_image(self, result: QueryResult) -> str:
        """A query image; its words, which the search did not use, are pale."""
        return ("" if result.row is None else self._image(result.row)) + _pale(result.words)

    def _image_cards(self, result: QueryResult) -> str:
        """Matching images; their words, which the search did not use, are pale."""
        contents = [self._image(m.row) + _pale(self._tags(m.row)) for m in result.matches]
        return _cards(result, contents)

    def _tag_cards(self, result: QueryResult) -> str:
        """Matching tags, those of the query first; images, which were not used, are pale."""
        shared = set(result.words)
        contents = []
        for match in result.matches:
            tags = sorted(self._tags(match.row), key=lambda word: word not in shared)
            chips = _chips(tags[:_MAX_WORDS], shared)
            contents.append(f"<p>{chips}</p>{self._image(match.row, 'faint')}")
        return _cards(result, contents)

    def _tags(self, row: int) -> list[str]:
        return tags_of(self.data, np.array([row]))[0]

    def _image(self, row: int, css_class: str = "") -> str:
        payload: Any = self.data.payload
        # Images are embedded, so that the page can be moved without its folder.
        content = (self.images / payload[row]["name"]).read_bytes()
        encoded = base64.b64encode(content).decode("ascii")
        caption = escape(payload[row]["captions"][0], quote=True)
        return f'<img class="{css_class}" src="data:image/jpeg;base64,{encoded}" alt="{caption}">'


def _query_words(result: QueryResult) -> str:
    return f'<p class="words">{_chips(result.words[:_MAX_WORDS], set())}</p>'


def _tag_list(result: QueryResult) -> str:
    return f"<p>{_chips(result.tags, set(result.words))}</p>"


def _pale(words: Sequence[str]) -> str:
    return f'<p class="faint">{escape(", ".join(words[:_MAX_WORDS]))}</p>'


def _section(title: str, description: str, body: str) -> str:
    return f"<section><h2>{title}</h2><p>{description}</p>{body}</section>"


def _cards(result: QueryResult, contents: Sequence[str]) -> str:
    cards = []
    for match, content in zip(result.matches, contents, strict=True):
        css_class, verdict = ("right", "relevant") if match.relevant else ("other", "not relevant")
        cards.append(
            f'<li class="{css_class}" title="{match.distance} bits differ; {verdict}">{content}'
            f"<div>{_draw_code(match.bits, result.bits)}<span>{match.distance}</span></div></li>"
        )
    return f"<ol>{''.join(cards)}</ol>"


def _chips(words: Sequence[str], highlighted: set[str]) -> str:
    return " ".join(
        f'<span class="chip{" right" if word in highlighted else ""}">{escape(word)}</span>'
        for word in words
    )


def _draw_code(bits: NDArray[np.bool_], query: NDArray[np.bool_] | None = None) -> str:
    """A code as small squares, dark for 1; bits that differ from the query are marked."""
    differs = np.zeros(len(bits), np.bool_) if query is None else bits != query
    squares = [
        f'<rect x="{6 * (n % _COLUMNS)}" y="{6 * (n // _COLUMNS)}" width="5" height="5" '
        f'class="{"one" if bit else "zero"}{" differs" if marked else ""}"/>'
        for n, (bit, marked) in enumerate(zip(bits, differs, strict=True))
    ]
    height = 6 * -(-len(bits) // _COLUMNS)
    return (
        f'<svg class="bits" viewBox="0 0 {6 * _COLUMNS} {height}" role="img" aria-label="code">'
        f"{''.join(squares)}</svg>"
    )


def _quality_table(quality: Mapping[str, Mapping[str, float]]) -> str:
    head = "".join(f"<th>{title}</th>" for title in ("", *_MEASURES.values()))
    rows = "".join(
        f"<tr><th>{_TITLES[method]}</th>"
        f"{''.join(f'<td>{values[name]:.1f}</td>' for name in _MEASURES)}</tr>"
        for method, values in quality.items()
    )
    note = "In percent, over all query photographs, against the words of their captions."
    return f"<table><tr>{head}</tr>{rows}</table><p>{note}</p>"


_INTRO = (
    "CM-SSH above, AutoHash() below: both were trained on the same concepts and photographs, and"
    " search photographs that neither has seen. Each match shows its code, the bits that differ"
    " from the query in orange, and their number. Relevant matches are outlined in green. Words"
    " and images that the search did not use are pale."
)
_FREE_TEXT = "Free-text queries. A photograph is relevant if its captions use all the words."
_TEXT_TO_IMAGE = "A photograph is relevant if it shows a concept of the query photograph."
_IMAGE_TO_TEXT = (
    "Tags found by an image. Tags are relevant if their photograph shows a concept of the image;"
    " words that both captions use are green."
)
_ANNOTATION = (
    "The words that the five nearest bags of words use most; those of the image's own captions are"
    " green."
)

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{style}</style>
<h1>{title}</h1><p class="intro">{intro}</p>{body}
</html>
"""
