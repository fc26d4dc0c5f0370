"""``crossbit demo``: learn emojis and their words, and search each with the other, here and in a browser."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from crossbit.cli import openmoji, preview, serve, show
from crossbit.cli.measure import print_reports
from crossbit.collection import Collection
from crossbit.errors import DataError
from crossbit.features import BagOfTags, Describer, ImageNetwork, extract
from crossbit.files import replacing
from crossbit.hashers.rankedcca import RankedCCA
from crossbit.metrics import (
    AveragePrecision,
    Relevance,
    Report,
    Success,
    evaluate_ranking,
    from_matrix,
    precision_recall_curve,
    rank_codes,
)
from crossbit.model import HashModel

WORDS = ["fire", "cat + smile", "red + heart", "moon"]
_HELD_OUT = 0.2
_SHORTER = (16, 32, 64)  # lengths for the plot of bits and mAP
_MEASURES = (AveragePrecision(), Success(at=1), Success(at=10))


@dataclass(frozen=True, eq=False)
class Emojis:
    """The pictures and words to learn from.

    Args:
        payloads: What the collection keeps about each.
        describers: How pictures and words become rows.
        views: Their rows.
        train: Which are learnt from.
        test: Which are held out.
    """

    payloads: list[dict[str, Any]]
    describers: dict[str, Describer]
    views: dict[str, NDArray[Any]]
    train: NDArray[np.int64]
    test: NDArray[np.int64]


def demo(
    words: Annotated[list[str] | None, typer.Option("--words", "-w", help="Words to search with.")] = None,
    bits: Annotated[int, typer.Option("--bits", "-b", help="Length of a code.")] = 128,
    seed: Annotated[int, typer.Option(help="Of the split and the learning.")] = 0,
    folder: Annotated[Path, typer.Option(help="Where everything is kept.")] = Path("demo"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 takes a free one.")] = 8000,
    no_serve: Annotated[bool, typer.Option("--no-serve", help="Only learn, report and preview.")] = False,
) -> None:
    """Learn codes for 1,849 emojis and their words, and search each with the other.

    A model learns from four fifths of the pictures which words belong to them, is tried on the others, which it has
    never seen, and then all of them can be searched on a page in your browser. Pictures by OpenMoji, CC BY-SA 4.0.

    For example:

      crossbit demo
      crossbit demo --no-serve --words "cat + heart" --words pizza
    """
    data = _prepared(folder, seed)
    collection = folder / f"collection-{bits}-{seed}"
    if not (collection / "report.json").exists():
        _learn(data, collection, bits, seed)
    _report(collection)
    with Collection.open(collection) as opened:
        for query in words or WORDS:
            _preview(opened, folder, query)
    show.out.print(f"\n[dim]{openmoji.ATTRIBUTION['text']}. Licence: {openmoji.ATTRIBUTION['licence']}.[/dim]")
    if not no_serve:
        serve.run(collection, port=port)


def _prepared(folder: Path, seed: int) -> Emojis:
    """Draw the pictures and describe them; what was done before is not done again."""
    emojis = openmoji.all_emojis()
    with show.steps(f"drawing {len(emojis):,} emojis") as on_step:
        paths = openmoji.draw(emojis, folder / "pictures", on_step)
    picture, tags = _picture_describer(folder), BagOfTags.fit((emoji.tags for emoji in emojis), size=len(emojis) * 10)
    with show.steps("looking at them") as on_step:
        cores = os.cpu_count() or 1
        found = extract(picture, paths, workers=min(cores, 4), cache=folder / "rows", on_step=on_step)
    if found.skipped:
        raise DataError(f"{found.skipped[0]}; remove {folder / 'pictures'} and start again")
    order = np.random.default_rng(seed).permutation(len(emojis))
    cut = int(_HELD_OUT * len(emojis))
    test = np.sort(order[:cut])
    parts = np.where(np.isin(np.arange(len(emojis)), test), "test", "train")
    payloads = [
        {
            "picture": path.name,
            "name": emoji.name,
            "character": emoji.character,
            "tags": list(emoji.tags),
            "label": emoji.category,
            "part": str(part),
        }
        for emoji, path, part in zip(emojis, paths, parts, strict=True)
    ]
    views = {"image": found.rows, "text": tags.describe([emoji.tags for emoji in emojis])}
    return Emojis(payloads, {"image": picture, "text": tags}, views, np.sort(order[cut:]), test)


def _picture_describer(folder: Path) -> ImageNetwork:
    """EfficientNet-Lite0, converted once: from then on nothing needs torch."""
    path = folder / "efficientnet-lite0.onnx"
    if not path.exists():
        from crossbit.neural.pretrained import picture_network

        with show.err.status("converting a pretrained network"):
            network = picture_network()
        with replacing(path) as file:
            file.write(next(iter(network.blobs().values())))
    return ImageNetwork.from_file(path)


def _learn(data: Emojis, out: Path, bits: int, seed: int) -> None:
    """Learn from the training part, judge on the held-out one, and put everything into a collection."""
    with show.steps("learning which words belong to which pictures") as on_step:
        model = RankedCCA(n_bits=bits, seed=seed).fit(_part(data, data.train), on_step=on_step)
    recipes = {name: describer.recipe() for name, describer in data.describers.items()}
    media = (out.parent / "pictures").resolve()
    model = HashModel(model.encoders, bits, recipes, {**model.card, "media": str(media)})
    with show.err.status("judging it on held-out pictures"):
        directions = _judged(model, data)
    shorter = [n for n in _SHORTER if n < bits]
    lengths = _rows_of_lengths(bits, directions)
    with show.err.status("learning shorter codes, for comparison"):
        for n in shorter:
            short = RankedCCA(n_bits=n, seed=seed, inputs="standardise", regularisation=3.0)
            lengths += _rows_of_lengths(n, _judged(short.fit(_part(data, data.train)), data))
    shutil.rmtree(out, ignore_errors=True)  # what an interruption has left
    with Collection.create(out, model) as collection, show.counting("adding", len(data.payloads)) as done:
        collection.upsert(
            [payload["picture"].removesuffix(".png") for payload in data.payloads], data.views, data.payloads
        )
        done(len(data.payloads))
    report = {"directions": directions, "bits": lengths, "attribution": openmoji.ATTRIBUTION}
    with replacing(out / "report.json") as file:
        file.write(json.dumps(report, ensure_ascii=False, indent=1).encode())


def _part(data: Emojis, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    return {name: view[rows] for name, view in data.views.items()}


def _judged(model: HashModel, data: Emojis) -> dict[str, Any]:
    """How well held-out pictures and words find each other."""
    held_out = _part(data, data.test)
    pictures, texts = model.encode("image", held_out["image"]), model.encode("text", held_out["text"])
    tags = held_out["text"] > 0
    used = np.flatnonzero(tags.any(axis=0))
    one_word = model.encode("text", np.eye(tags.shape[1], dtype=np.float32)[used])
    own = from_matrix(np.eye(len(data.test), dtype=bool))
    asked: dict[str, tuple[Any, Any, Relevance]] = {
        "its words → a picture": (texts, pictures, own),
        "a picture → its words": (pictures, texts, own),
        "one word → pictures": (one_word, pictures, from_matrix(tags[:, used].T)),
    }
    judged = {}
    for name, (queries, base, relevant) in asked.items():
        ranking = rank_codes(queries, base, relevant)
        report = evaluate_ranking(ranking, measures=_MEASURES)
        judged[name] = {**report.to_dict(), "curve": precision_recall_curve(ranking).to_dict()}
    return judged


def _rows_of_lengths(n_bits: int, directions: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"n_bits": n_bits, "direction": name, "name": "mAP", "value": judged["results"][0]["value"]}
        for name, judged in directions.items()
    ]


def _report(collection: Path) -> None:
    """Print how good the model is on pictures it has never seen."""
    directions = json.loads((collection / "report.json").read_text())["directions"]
    reports = {}
    for name, judged in directions.items():
        judged.pop("curve")
        reports[name] = Report.from_dict(judged)
    n_base = next(iter(reports.values())).n_base
    show.out.print(f"\nOn {n_base} held-out pictures, never seen while learning:\n")
    print_reports(reports)


def _preview(collection: Collection, folder: Path, query: str) -> None:
    """Print the pictures nearest to some words."""
    (found,) = collection.search("text", [query], 5, among="image")
    describer = BagOfTags(tuple(collection.model.recipes["text"].files["vocabulary.txt"].decode().split("\n")))
    preview.hits(
        f"words [bold cyan]{query}[/bold cyan] find pictures, nearest first:",
        found,
        folder / "pictures",
        set(describer.known_tags(query)),
    )
