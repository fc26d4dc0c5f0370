"""Learning in one call: features, a held-out part, training, evaluation, encoding, a collection."""

import os
from collections.abc import Collection as Names
from contextlib import nullcontext
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crossbit._io.files import write_json
from crossbit._io.folders import replacing_folder
from crossbit._progress import OnStep
from crossbit._validation import whole_number
from crossbit.codes import Codes
from crossbit.collection import Collection
from crossbit.collection.payloads import check_ids, spell_payloads
from crossbit.data import Pairs
from crossbit.errors import DataError
from crossbit.hashers import HASHERS, Hasher
from crossbit.hashers.rankedcca import RankedCCA
from crossbit.metrics import Report
from crossbit.model import HashModel
from crossbit.pipeline.described import Described, Describing, Progress
from crossbit.pipeline.doors import cache_folder
from crossbit.pipeline.gallery import Gallery, open_gallery
from crossbit.pipeline.quality import measure

Ints = NDArray[np.int64]
_BATCH = 1000  # items a write
_REPORT = "report.json"
_FEWEST = 10  # pictures with captions


@dataclass(frozen=True, eq=False)
class Learned:
    """What was learned, and where it is.

    Args:
        collection: The folder of the collection; the model is in ``model/1`` below it.
        model: The model.
        reports: Direction, such as ``"text → image"``, → quality on held-out pictures.
        pictures: How many pictures the collection holds.
        captions: How many captions were used.
        held_out: How many pictures were held out.
        skipped: A line for each picture or caption that could not be used.
        seconds: What took how long.
    """

    collection: Path
    model: HashModel
    reports: dict[str, Report]
    pictures: int
    captions: int
    held_out: int
    skipped: list[str]
    seconds: dict[str, float]


def learn(
    images: str | PathLike[str],
    captions: str | PathLike[str],
    out: str | PathLike[str],
    *,
    image: str = "efficientnet",
    text: str = "minilm",
    hasher: Hasher | None = None,
    held_out: float | Names[str] = 0.1,
    seed: int = 0,
    workers: int = 1,
    cache: str | PathLike[str] | None = None,
    progress: Progress = lambda title: nullcontext(),
) -> Learned:
    """Make a collection in which words find pictures and pictures find words.

    Args:
        images: A folder of pictures, and folders below it.
        captions: What is said about them; see `crossbit.data.captions.read_captions`.
        out: Folder for the collection, which must not exist yet; it is there when everything is in it, not before.
        image: What describes pictures, one of `IMAGE`.
        text: What describes words, one of `TEXT`.
        hasher: The method; `RankedCCA` of 128 bits unless you say.
        held_out: Share of the captioned pictures, or names of pictures, that are not learned from but tried on.
        seed: Of the share that is held out, and of vocabularies.
        workers: Processes that describe things.
        cache: Folder for rows and converted networks, so that a second time is quick; see `cache_folder`.
        progress: Opens progress bars.

    Raises:
        DataError: Something given cannot be used, or too little of it.
    """
    target = Path(out)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DataError(f"{target} exists; choose another place for the collection or remove it")
    hasher = hasher or RankedCCA(n_bits=128, seed=seed)
    _check(target, hasher, held_out, seed)
    gallery = open_gallery(Path(images), Path(captions))
    spell_payloads(
        [gallery.payload(number) for number in range(len(gallery.names))], check_ids(gallery.names)
    )
    work = Describing(gallery, workers, Path(cache) if cache else cache_folder(), progress)
    rows = work.describe(image, text, seed)
    train, test = _split(gallery, rows, held_out, seed)
    with work.timed("learning") as on_step:
        model = _fit(hasher, rows, train, on_step)
    model = replace(
        model, recipes=rows.recipes(), card={**model.card, "media": str(gallery.folder.resolve())}
    )
    with work.timed("evaluating"):
        about = rows.captions_of(test)
        reports, told = measure(
            {
                "image": (model.encode("image", rows.image.rows[test]), test),
                "text": (model.encode("text", rows.text.rows[about]), rows.owner[about]),
            }
        )
    with (
        work.timed("writing the collection"),
        replacing_folder(target, _REPORT, "crossbit.report/1") as fresh,
    ):
        _write(fresh, model, gallery, rows, test)
        write_json(fresh / _REPORT, {**told, "learned from": len(train), "held out": len(test)})
    return Learned(
        collection=target,
        model=model,
        reports=reports,
        pictures=len(rows.image.kept),
        captions=len(rows.text.kept),
        held_out=len(test),
        skipped=[
            *(f"{name}: is not in {images}" for name in gallery.missing),
            *rows.image.skipped,
            *rows.text.skipped,
        ],
        seconds=work.seconds,
    )


def _check(target: Path, hasher: Hasher, held_out: float | Names[str], seed: int) -> None:
    """Look at what was asked for, before pictures are described for hours."""
    whole_number(seed, "seed")
    above = next(folder for folder in target.absolute().parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise DataError(
            f"{target}: nothing can be written into {above}; choose another place for the collection"
        )
    if isinstance(held_out, int | float) and not 0 < held_out < 1:
        raise DataError(
            f"the share that is held out lies between 0 and 1, and is neither, got {held_out!r}"
        )
    if hasher.learns_from and "pairs" not in hasher.learns_from:
        method, able = (
            type(hasher).__name__.lower(),
            sorted(n for n, h in HASHERS.items() if "pairs" in h.learns_from),
        )
        raise DataError(
            f"{method} learns from {', '.join(sorted(hasher.learns_from))}, captions give pairs; take {able}"
        )


def _split(
    gallery: Gallery, rows: Described, held_out: float | Names[str], seed: int
) -> tuple[Ints, Ints]:
    """Rows of captioned pictures to learn from, and to try on."""
    captioned = np.unique(rows.owner)
    if len(captioned) < _FEWEST:
        raise DataError(
            f"at least {_FEWEST} pictures with captions are needed, got {len(captioned)}"
        )
    if isinstance(held_out, int | float):
        n = min(max(round(held_out * len(captioned)), 1), len(captioned) - 2)
        test = np.sort(np.random.default_rng([seed, 3]).permutation(captioned)[:n])
    else:
        chosen = set(held_out)
        test = np.array(
            [row for row in captioned if gallery.names[rows.pictures[row]] in chosen], np.int64
        )
        if not 0 < len(test) < len(captioned) - 1:
            raise DataError(
                f"{len(test)} of {len(captioned)} captioned pictures are among the {len(chosen)} names to hold out;"
                " name some of them, and leave some to learn from"
            )
    return np.setdiff1d(captioned, test), test


def _fit(hasher: Hasher, rows: Described, train: Ints, on_step: OnStep | None) -> HashModel:
    """Learn from pictures and the captions about them."""
    about = rows.captions_of(train)
    index = np.stack([np.searchsorted(train, rows.owner[about]), np.arange(len(about))], axis=1)
    pairs = Pairs("image", "text", index, np.ones(len(index), np.bool_))
    views = {"image": rows.image.rows[train], "text": rows.text.rows[about]}
    return hasher.fit(views, pairs=pairs, on_step=on_step)


def _write(target: Path, model: HashModel, gallery: Gallery, rows: Described, test: Ints) -> None:
    """Put all pictures into a collection, those without captions too."""
    image, text, n = (
        model.encode("image", rows.image.rows),
        _caption_codes(model, rows),
        len(rows.pictures),
    )
    said = np.isin(np.arange(n), rows.owner)
    held_out = np.isin(np.arange(n), test)
    with Collection.create(target, model) as collection:
        for start in range(0, n, _BATCH):
            block = range(start, min(start + _BATCH, n))
            ids = [gallery.names[rows.pictures[row]] for row in block]
            payload = [
                {**gallery.payload(int(rows.pictures[row])), "held_out": bool(held_out[row])}
                for row in block
            ]
            collection.upsert(ids, {"image": image[start : block.stop]}, payload)
            having = [row for row in block if said[row]]
            if having:
                collection.upsert(
                    [ids[row - start] for row in having], {"text": text[np.array(having)]}
                )


def _caption_codes(model: HashModel, rows: Described) -> Codes:
    """One code a picture for all that is said about it: the sign of the mean output."""
    total = np.zeros((len(rows.pictures), model.n_bits))
    np.add.at(total, rows.owner, model.scores("text", rows.text.rows))
    return Codes.pack(total >= 0)
