"""``crossbit demo``: learn emojis and their words, and search each with the other, here and in a browser."""

import json
import os
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from crossbit._io.files import replacing, write_json
from crossbit.cli import openmoji, preview, serve, show
from crossbit.cli.measure import print_reports
from crossbit.collection import Collection
from crossbit.features import BagOfTags
from crossbit.features import open as open_recipe
from crossbit.hashers.rankedcca import RankedCCA
from crossbit.metrics import Report
from crossbit.pipeline import learn

WORDS = ["fire", "cat + smile", "red + heart", "moon"]
_HELD_OUT = 0.2
_SHOWN = 5


def demo(
    words: Annotated[
        list[str] | None, typer.Option("--words", "-w", help="Words to search with.")
    ] = None,
    bits: Annotated[int, typer.Option("--bits", "-b", help="Length of a code.")] = 128,
    seed: Annotated[int, typer.Option(help="Of the split and the learning.")] = 0,
    features: Annotated[
        str,
        typer.Option(
            help="What describes pictures: histograms of colors and edges, or efficientnet, which finds more and needs"
            " the extras train and image once."
        ),
    ] = "histograms",
    folder: Annotated[Path, typer.Option(help="Where everything is kept.")] = Path("demo"),
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the page; 0 takes a free one.")
    ] = 8000,
    no_serve: Annotated[
        bool, typer.Option("--no-serve", help="Only learn, report and preview.")
    ] = False,
) -> None:
    """Learn codes for 1,849 emojis and their words, and search each with the other.

    A model learns from four fifths of the pictures which words belong to them, is tried on the others, which it has
    never seen, and then all of them can be searched on a page in your browser. Pictures by OpenMoji, CC BY-SA 4.0.

    For example:

      crossbit demo
      crossbit demo --features efficientnet
      crossbit demo --no-serve --words "cat + heart" --words pizza
    """
    collection = folder / f"{features}-{bits}-{seed}"
    pictures = folder / "pictures"
    if not _is_learned(collection):
        _learn(folder, pictures, collection, features, RankedCCA(n_bits=bits, seed=seed))
    _report(collection)
    with Collection.open(collection) as opened:
        for query in words or WORDS:
            _preview(opened, pictures, query)
    show.out.print(
        f"\n[dim]{openmoji.ATTRIBUTION['text']}. License: {openmoji.ATTRIBUTION['license']}.[/dim]"
    )
    if not no_serve:
        serve.run(str(collection), port=port)


def _is_learned(collection: Path) -> bool:
    """Whether learning came to its end: whose pictures these are is noted last."""
    path = collection / "report.json"
    return path.exists() and "attribution" in json.loads(path.read_text())


def _learn(
    folder: Path, pictures: Path, collection: Path, features: str, hasher: RankedCCA
) -> None:
    """Draw the pictures, write down their words, and do what ``crossbit learn`` does."""
    emojis = openmoji.all_emojis()
    with show.steps(f"drawing {len(emojis):,} emojis") as on_step:
        openmoji.draw(emojis, pictures, on_step)
    captions = folder / "captions.jsonl"
    with replacing(captions) as file:
        for emoji in emojis:
            file.write(json.dumps(_line(emoji), ensure_ascii=False).encode() + b"\n")
    shutil.rmtree(collection, ignore_errors=True)  # what an interruption has left
    learn(
        pictures,
        captions,
        collection,
        image=features,
        text=f"tags:{sum(len(emoji.tags) for emoji in emojis)}",  # every word there is
        hasher=hasher,
        held_out=_HELD_OUT,
        seed=hasher.seed,
        workers=min(os.cpu_count() or 1, 4),
        cache=folder / "cache",
        progress=show.steps,
    )
    report = json.loads((collection / "report.json").read_text())
    write_json(collection / "report.json", {**report, "attribution": openmoji.ATTRIBUTION})


def _line(emoji: openmoji.Emoji) -> dict[str, Any]:
    """What the file of captions says about an emoji."""
    return {
        "image": openmoji.file_of(emoji),
        "caption": ", ".join(emoji.tags),
        "name": emoji.name,
        "character": emoji.character,
        "label": emoji.category,
    }


def _report(collection: Path) -> None:
    """Print how good the model is on pictures it has never seen."""
    directions = json.loads((collection / "report.json").read_text())["directions"]
    reports = {
        name: Report.from_dict({key: value for key, value in told.items() if key != "curve"})
        for name, told in directions.items()
    }
    n_base = next(iter(reports.values())).n_base
    show.out.print(
        f"\nOn {n_base} held-out pictures, never seen while learning; right is their own counterpart:\n"
    )
    print_reports(reports)


def _preview(collection: Collection, pictures: Path, query: str) -> None:
    """Print the pictures nearest to some words."""
    describer = open_recipe(collection.model.recipes["text"])
    (found,) = collection.search("text", [query], _SHOWN, among="image")
    right = set(describer.known_tags(query)) if isinstance(describer, BagOfTags) else set()
    preview.hits(
        f"words [bold cyan]{query}[/bold cyan] find pictures, nearest first:",
        found,
        pictures,
        right,
    )
