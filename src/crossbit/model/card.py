"""The model card: what a person wants to know about a model folder, in Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from crossbit.model.layers import Layer


def model_card(
    encoders: Mapping[str, Sequence[Layer]], n_bits: int, card: Mapping[str, Any]
) -> str:
    """Spell the card: how to use the model, its layers, then whatever learning noted down."""
    first = next(iter(encoders))
    lines = [
        f"# A Crossbit model: {', '.join(encoders)} → {n_bits} bits",
        "",
        "```python",
        "from crossbit import HashModel",
        'model = HashModel.load("this folder")',
        f'codes = model.encode("{first}", X)',
        "```",
        "",
        "| modality | layers |",
        "| --- | --- |",
        *(f"| {name} | {' → '.join(map(_layer, layers))} |" for name, layers in encoders.items()),
        "",
    ]
    for title, content in card.items():
        lines += [f"## {title.replace('_', ' ').capitalize()}", "", *_section(content), ""]
    return "\n".join(lines)


def _layer(layer: Layer) -> str:
    """A layer in a few words, such as ``affine 128 → 32``."""
    wide_in, wide_out = layer.widths()
    if wide_in is not None and wide_in != wide_out:
        return f"{layer.kind} {wide_in} → {wide_out}"
    settings = ", ".join(f"{key} {value}" for key, value in layer.settings().items())
    return f"{layer.kind} ({settings})" if settings else layer.kind


def _section(content: object) -> Iterator[str]:
    """A mapping as a table, a sequence as a list, anything else as it is."""
    if isinstance(content, Mapping):
        yield from ("| | |", "| --- | --- |")
        yield from (f"| {key} | {_plain(value)} |" for key, value in content.items())
    elif isinstance(content, list | tuple):
        yield from (f"- {_plain(value)}" for value in content)
    else:
        yield _plain(content)


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).replace("|", "\\|").replace("\n", " ")
