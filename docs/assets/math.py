"""Turns the formulas of the pages into MathML, which browsers draw without a script."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:  # noqa: ANN401 - the signature of MkDocs
    """Convert every formula of a rendered page."""
    return _FORMULA.sub(_to_mathml, content)


def _to_mathml(match: re.Match[str]) -> str:
    tag, formula = match.groups()
    text = html.unescape(formula).strip().removeprefix(r"\(").removesuffix(r"\)")
    text = text.removeprefix(r"\[").removesuffix(r"\]").strip()
    return str(convert(text, display="block" if tag == "div" else "inline"))
