"""The photographs of Flickr8k as a data set of two modalities and many concepts."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import numpy as np

from crossbit._progress import OnStep
from crossbit.data import Dataset
from crossbit.data.captions import read_captions
from crossbit.features import BagOfTags, Extractor, extract
from crossbit.features.text import words
from crossbit.pipeline.extractors import image_extractor
from crossbit_experiments.flickr8k.vocabulary import Leaks, Vocabulary, load_concepts, telling

TAGS = 1000
PICTURES = "sift:500"


@dataclass(frozen=True, eq=False)
class Photographs:
    """Photographs, described.

    Attributes:
        data: Views ``image`` and ``tags``, concepts as labels, splits ``train``, ``query`` and ``database``; the
            payload tells the name of each photograph and its captions.
        describers: Modality → what made its rows.
        leaks: What could give a concept away among the tags.
        left_out: Why photographs are not in the set → how many.
    """

    data: Dataset
    describers: dict[str, Extractor]
    leaks: Leaks
    left_out: dict[str, int]


def read(
    folder: str | PathLike[str],
    *,
    cache: Path,
    pictures: str = PICTURES,
    hide_concepts: bool = True,
    workers: int = 1,
    on_step: OnStep | None = None,
) -> Photographs:
    """Read and describe the photographs.

    One half of the official training part is learned from; the other half and the development part are the base; the
    official test part asks. So neither queries nor base were seen in learning.

    Args:
        folder: Has ``images``, ``Flickr8k.token.txt`` and the lists of the official parts.
        cache: Keeps the rows of pictures.
        pictures: How pictures are described, as in ``crossbit learn``.
        hide_concepts: Keep the words of concepts out of the tags, so that tags do not tell what is asked for.
        workers: Processes that describe.
        on_step: Told how many pictures are done.
    """
    folder = Path(folder)
    captions = {one.name: one.captions for one in read_captions(folder / "Flickr8k.token.txt")}
    split = {name: part for part, names in _parts(folder).items() for name in names}
    names = [name for name in split if name in captions and (folder / "images" / name).is_file()]
    vocabulary = Vocabulary.of(load_concepts())
    learned_from = [captions[name] for name in names if split[name] == "train"]
    tags, leaks = (vocabulary if hide_concepts else Vocabulary({})).tags(learned_from, TAGS)

    left_out = {"without a picture or captions": len(split) - len(names)}
    names = _keep(
        names,
        lambda name: bool(vocabulary.shown(captions[name]).any()),
        left_out,
        "without a concept",
    )
    bag = BagOfTags(tags)
    known = frozenset(tags)
    said = {name: [word for word in by_captions(captions[name]) if word in known] for name in names}
    names = _keep(names, lambda name: bool(said[name]), left_out, "without a tag")

    paths = [folder / "images" / name for name in names]
    describer = image_extractor(
        pictures, [path for path in paths if split[path.name] == "train"], cache=cache
    )
    found = extract(describer, paths, workers=workers, cache=cache / "rows", on_step=on_step)
    left_out["not described"] = len(found.skipped)
    names = [names[number] for number in found.kept]

    labels = np.stack([vocabulary.shown(captions[name]) for name in names])
    views = {"image": found.rows, "tags": bag.extract([said[name] for name in names])}
    parts = np.array([split[name] for name in names])
    data = Dataset(
        views=views,
        labels=labels,
        splits={part: np.flatnonzero(parts == part) for part in ("train", "query", "database")},
        payload=[
            {"name": name, "captions": list(captions[name]), "tags": said[name]} for name in names
        ],
        name="flickr8k",
        classes=list(vocabulary.concepts),
    )
    told = telling(views["tags"][parts == "train"], labels[parts == "train"], tags)
    return Photographs(
        data, {"image": describer, "tags": bag}, replace(leaks, telling=told), left_out
    )


def by_captions(captions: Sequence[str]) -> list[str]:
    """All words of some captions, those that most captions use first.

    Example:
        >>> by_captions(["A wet dog", "the dog runs"])[0]
        'dog'
    """
    counts = Counter(word for caption in captions for word in dict.fromkeys(words(caption)))
    return [word for word, _ in counts.most_common()]


def _parts(folder: Path) -> dict[str, list[str]]:
    """Every second photograph of the official training part is learned from."""
    official = {
        part: _listed(folder / f"Flickr_8k.{part}Images.txt") for part in ("train", "dev", "test")
    }
    return {
        "train": official["train"][::2],
        "database": official["train"][1::2] + official["dev"],
        "query": official["test"],
    }


def _listed(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split()


def _keep(
    names: Sequence[str], good: Callable[[str], bool], left_out: dict[str, int], why: str
) -> list[str]:
    """The names that are good; how many are not is noted."""
    kept = [name for name in names if good(name)]
    left_out[why] = len(names) - len(kept)
    return kept
