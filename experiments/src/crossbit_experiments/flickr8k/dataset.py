"""Flickr8k as a data set of images and tags, with concepts as labels."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import numpy as np

from crossbit._progress import OnStep
from crossbit.data import Dataset
from crossbit.data.tables import read_captions
from crossbit.features import BagOfTags, Extractor, extract
from crossbit.features.text import words
from crossbit.learn import make_extractor
from crossbit_experiments.flickr8k.vocabulary import (
    Leaks,
    Vocabulary,
    implying_tags,
    load_concepts,
)

_TAGS = 1000


@dataclass(frozen=True, eq=False)
class Photographs:
    """Photographs with features, tags and concepts.

    Attributes:
        data: Views ``image`` and ``tags``, concepts as labels, splits ``train``, ``query`` and
            ``database``; the payload has the name, captions and tags of each photograph.
        extractors: Modality → the extractor of its rows.
        leaks: Words that could reveal a concept among the tags.
        excluded: Reason why photographs are excluded → their number.
    """

    data: Dataset
    extractors: dict[str, Extractor]
    leaks: Leaks
    excluded: dict[str, int]


def load(
    folder: str | PathLike[str],
    *,
    cache: Path,
    encoder: str = "sift:500",
    hide_concepts: bool = True,
    workers: int = 1,
    on_step: OnStep | None = None,
) -> Photographs:
    """Load the photographs and extract their features.

    Half of the official training part is the training split; the other half and the development
    part are the base; the official test part are the queries. Training sees neither queries nor
    base.

    Args:
        folder: Folder with ``images``, ``Flickr8k.token.txt`` and the lists of the official parts.
        cache: Folder that caches image features.
        encoder: Image encoder, as in ``crossbit learn``.
        hide_concepts: Remove concept words from the tags, so that the tags do not contain the
            labels.
        workers: Number of processes that extract features.
        on_step: Progress callback, called after every image.
    """
    folder = Path(folder)
    captions = {item.name: item.captions for item in read_captions(folder / "Flickr8k.token.txt")}
    split = {name: part for part, names in _read_splits(folder).items() for name in names}
    names = [name for name in split if name in captions and (folder / "images" / name).is_file()]
    vocabulary = Vocabulary.from_words(load_concepts())
    hidden = vocabulary if hide_concepts else Vocabulary({})
    training_captions = [captions[name] for name in names if split[name] == "train"]
    tags, leaks = hidden.choose_tags(training_captions, _TAGS)

    excluded = {"without an image or captions": len(split) - len(names)}

    def keep(condition: Callable[[str], bool], reason: str) -> list[str]:
        passing = [name for name in names if condition(name)]
        excluded[reason] = len(names) - len(passing)
        return passing

    names = keep(lambda name: bool(vocabulary.shown(captions[name]).any()), "without a concept")
    known = frozenset(tags)
    own_tags = {
        name: [word for word in words_by_frequency(captions[name]) if word in known]
        for name in names
    }
    names = keep(lambda name: bool(own_tags[name]), "without a tag")

    paths = [folder / "images" / name for name in names]
    training_paths = [path for path in paths if split[path.name] == "train"]
    images = make_extractor("image", encoder, training_paths, cache=cache)
    extraction = extract(images, paths, workers=workers, cache=cache / "rows", on_step=on_step)
    excluded["without features"] = len(extraction.skipped)
    names = [names[number] for number in extraction.positions]

    bag = BagOfTags(tags)
    labels = np.stack([vocabulary.shown(captions[name]) for name in names])
    views = {"image": extraction.rows, "tags": bag.extract([own_tags[name] for name in names])}
    parts = np.array([split[name] for name in names])
    data = Dataset(
        views=views,
        labels=labels,
        splits={part: np.flatnonzero(parts == part) for part in ("train", "query", "database")},
        payload=[
            {"name": name, "captions": list(captions[name]), "tags": own_tags[name]}
            for name in names
        ],
        name="flickr8k",
        classes=list(vocabulary.concepts),
    )
    train = parts == "train"
    implying = implying_tags(views["tags"][train], labels[train], tags)
    leaks = replace(leaks, implying=implying)
    return Photographs(data, {"image": images, "tags": bag}, leaks, excluded)


def words_by_frequency(captions: Sequence[str]) -> list[str]:
    """Return all words of the captions, those in most captions first.

    Example:
        >>> words_by_frequency(["A wet dog", "the dog runs"])[0]
        'dog'
    """
    counts = Counter(word for caption in captions for word in dict.fromkeys(words(caption)))
    return [word for word, _ in counts.most_common()]


def _read_splits(folder: Path) -> dict[str, list[str]]:
    """Every second photograph of the official training part is in the training split."""
    official = {
        part: (folder / f"Flickr_8k.{part}Images.txt").read_text(encoding="utf-8").split()
        for part in ("train", "dev", "test")
    }
    return {
        "train": official["train"][::2],
        "database": official["train"][1::2] + official["dev"],
        "query": official["test"],
    }
