"""What is found, to be looked at: top matches from words to pictures and back, queries made up on the spot, annotation.

These are the paper's figures of its second experiment. CM-SSH and MM-NN learn from the same photographs and concepts;
both then search photographs that neither has seen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import OnStep, Step
from crossbit.annotate import tag_quality, vote
from crossbit.codes import Codes
from crossbit.data import Dataset
from crossbit.hashers import HASHERS, Hasher
from crossbit.index import HammingIndex
from crossbit.model import HashModel
from crossbit_experiments.flickr8k.dataset import Photographs

METHODS = {"cmssh": "CM-SSH", "mmnn": "MM-NN"}
MADE_UP = (
    "dog + beach",
    "snow + mountain",
    "bicycle + air",
    "girl + pink",
    "football + player",
    "car + street",
)
NEIGHBORS, TAGS = 5, 10  # as in the paper's annotation
SHOWN = 6  # matches of a query


@dataclass(frozen=True)
class Match:
    """Something found.

    Attributes:
        row: Which photograph of the data set.
        distance: How many bits differ.
        bits: Its code.
        right: Whether it is what was asked for.
    """

    row: int
    distance: int
    bits: NDArray[np.bool_]
    right: bool


@dataclass(frozen=True)
class Found:
    """A query and what a method found for it.

    Attributes:
        words: The query's words.
        row: The photograph that asked, where it is one.
        bits: The query's code.
        matches: The nearest first.
        tags: Tags that its neighbors voted for; for annotation alone.
    """

    words: Sequence[str]
    row: int | None
    bits: NDArray[np.bool_]
    matches: Sequence[Match]
    tags: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Searcher:
    """One method, taught, and the base that it searches.

    Attributes:
        model: The model.
        data: The photographs.
        rows: Those of the base.
        indexes: Modality → the base's codes.
    """

    model: HashModel
    data: Dataset
    rows: NDArray[np.int64]
    indexes: Mapping[str, HammingIndex]

    @classmethod
    def taught(cls, hasher: Hasher, data: Dataset) -> "Searcher":
        """Teach a method the concepts of the training photographs, and encode the base."""
        model = hasher.fit(**data.fit_arguments("train"))
        rows = np.asarray(data.splits["database"])
        indexes = {}
        for name in data.modalities:
            indexes[name] = HammingIndex(model.n_bits)
            indexes[name].add(np.arange(len(rows)), model.encode(name, data.views[name][rows]))
        return cls(model, data, rows, indexes)

    def matches(
        self, codes: Codes, among: str, wanted: NDArray[np.bool_], k: int = SHOWN
    ) -> list[list[Match]]:
        """The nearest of the base to each query.

        Args:
            codes: The queries.
            among: The modality that is searched.
            wanted: Queries × base: what is right.
            k: How many.
        """
        found = self.indexes[among].search(codes, k)
        bits = self.model.encode(
            among, self.data.views[among][self.rows[found.ids.ravel()]]
        ).unpack()
        bits = bits.reshape(*found.ids.shape, -1)
        return [
            [
                Match(int(self.rows[one]), int(far), bits[q, place], bool(wanted[q, one]))
                for place, (one, far) in enumerate(zip(ids, distances, strict=True))
            ]
            for q, (ids, distances) in enumerate(zip(found.ids, found.distances, strict=True))
        ]

    def from_words(self, asked: Sequence[Sequence[str]], rows: NDArray[Any]) -> list[Found]:
        """Pictures for words, described by rows; right is a photograph whose captions use all of them."""
        said = tags_of(self.data, self.rows)
        wanted = np.array([[set(some) <= set(one) for one in said] for some in asked])
        codes = self.model.encode("tags", rows)
        found = self.matches(codes, "image", wanted)
        return [
            Found(some, None, bits, m)
            for some, bits, m in zip(asked, codes.unpack(), found, strict=True)
        ]

    def between(self, asking: str, among: str, rows: NDArray[np.int64]) -> list[Found]:
        """Matches of photographs by one modality in another; right is what shares a concept."""
        labels = np.asarray(self.data.labels)
        wanted = (labels[rows].astype(np.float32) @ labels[self.rows].T) > 0
        codes = self.model.encode(asking, self.data.views[asking][rows])
        found = self.matches(codes, among, wanted)
        words = [sorted(some) for some in tags_of(self.data, rows)]
        return [
            Found(some, int(row), bits, m)
            for some, row, bits, m in zip(words, rows, codes.unpack(), found, strict=True)
        ]

    def annotated(self, rows: NDArray[np.int64]) -> list[Found]:
        """Tags for pictures: the ten that the five nearest bags of tags name most often."""
        codes = self.model.encode("image", self.data.views["image"][rows])
        nearest = self.matches(
            codes, "tags", np.zeros((len(rows), len(self.rows)), np.bool_), NEIGHBORS
        )
        truth = tags_of(self.data, rows)
        found = []
        for row, bits, true, some in zip(rows, codes.unpack(), truth, nearest, strict=True):
            given = vote(tags_of(self.data, np.array([match.row for match in some])), tags=TAGS)
            found.append(Found(true, int(row), bits, some, [tag.name for tag in given]))
        return found


def tags_of(data: Dataset, rows: NDArray[np.int64]) -> list[list[str]]:
    """The tags of photographs, those that most captions use first."""
    payload: Any = data.payload
    return [payload[row]["tags"] for row in rows.tolist()]


def quality(found: Sequence[Found]) -> dict[str, float]:
    """Precision and recall of annotation against the words of the captions, in percent."""
    judged = tag_quality([one.tags for one in found], [one.words for one in found])
    return {
        name: 100 * value
        for name, value in asdict(judged).items()
        if name in ("precision", "recall", "hit")
    }


def always_the_same(data: Dataset, rows: NDArray[np.int64]) -> dict[str, float]:
    """What the ten most frequent tags of the training photographs would reach, given to every picture."""
    train = np.asarray(data.splits["train"])
    usual = [tag.name for tag in vote(tags_of(data, train), tags=TAGS)]
    return quality(
        [Found(true, None, np.empty(0, np.bool_), (), usual) for true in tags_of(data, rows)]
    )


@dataclass(frozen=True, eq=False)
class Gallery:
    """Everything that the figures show.

    Attributes:
        photographs: The data set.
        made_up: Method → pictures for words made up on the spot.
        words: Method → pictures for the tags of photographs.
        pictures: Method → tags for photographs.
        annotated: Method → ten tags for photographs.
        quality: Method → precision and recall of its annotation over all queries.
    """

    photographs: Photographs
    made_up: Mapping[str, Sequence[Found]]
    words: Mapping[str, Sequence[Found]]
    pictures: Mapping[str, Sequence[Found]]
    annotated: Mapping[str, Sequence[Found]]
    quality: Mapping[str, Mapping[str, float]]


def look(
    photographs: Photographs,
    *,
    n_bits: int = 64,
    shown: int = 5,
    queries: Sequence[str] = MADE_UP,
    methods: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    on_step: OnStep | None = None,
) -> Gallery:
    """Teach both methods and search with both.

    Args:
        photographs: With concepts among the tags.
        n_bits: Length of the codes.
        shown: Photographs that ask, drawn at random; annotation is judged on all that may ask.
        queries: Words made up on the spot.
        methods: Method → its settings; the usual ones unless you say.
        seed: Of the draw and of the methods.
        on_step: Told when a method has learned.
    """
    data = photographs.data
    asked = [query.split(" + ") for query in queries]
    described = photographs.describers["tags"].extract(
        asked
    )  # unknown words are told before anything is learned
    asking = np.asarray(data.splits["query"])
    drawn = np.sort(
        np.random.default_rng(seed).choice(asking, size=min(shown, len(asking)), replace=False)
    )
    searchers = {}
    for number, method in enumerate(METHODS, start=1):
        fields = (methods or {}).get(method, {})
        searchers[method] = Searcher.taught(
            HASHERS[method](n_bits=n_bits, seed=seed, **fields), data
        )
        if on_step is not None:
            on_step(Step(number, len(METHODS)))
    annotated = {method: one.annotated(asking) for method, one in searchers.items()}
    return Gallery(
        photographs,
        {method: one.from_words(asked, described) for method, one in searchers.items()},
        {method: one.between("tags", "image", drawn) for method, one in searchers.items()},
        {method: one.between("image", "tags", drawn) for method, one in searchers.items()},
        {method: [one for one in some if one.row in drawn] for method, some in annotated.items()},
        {method: quality(some) for method, some in annotated.items()}
        | {"always": always_the_same(data, asking)},
    )
