"""Qualitative results: top matches between words and images, free-text queries, annotation.

These are the paper's figures of its second experiment. CM-SSH and `AutoHash` with nothing set train
on the same photographs and concepts, and both search photographs that neither has seen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import OnStep, Step
from crossbit.annotate import tag_quality
from crossbit.codes import Codes
from crossbit.data import Dataset
from crossbit.hashers import HASHERS, Hasher
from crossbit.index import HammingIndex
from crossbit.model import HashModel
from crossbit_experiments.flickr8k.annotation import NEIGHBORS, most_voted, tags_of
from crossbit_experiments.flickr8k.dataset import Photographs

METHODS = {"cmssh": "CM-SSH", "auto": "AutoHash()"}
FREE_TEXT_QUERIES = (
    "dog + beach",
    "snow + mountain",
    "bicycle + air",
    "girl + pink",
    "football + player",
    "car + street",
)
_SHOWN = 6  # matches per query


@dataclass(frozen=True)
class Match:
    """An item that a search returned.

    Attributes:
        row: Row of the photograph in the data set.
        distance: Number of bits that differ.
        bits: Its code.
        relevant: Whether it answers the query.
    """

    row: int
    distance: int
    bits: NDArray[np.bool_]
    relevant: bool


@dataclass(frozen=True)
class QueryResult:
    """A query and the matches of one method.

    Attributes:
        words: Words of the query.
        row: Row of the query photograph; None for a free-text query.
        bits: Code of the query.
        matches: Matches, nearest first.
        tags: Tags voted by the neighbors; for annotation only.
    """

    words: Sequence[str]
    row: int | None
    bits: NDArray[np.bool_]
    matches: Sequence[Match]
    tags: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class _Searcher:
    """A trained method and the base that it searches."""

    model: HashModel
    data: Dataset
    base_rows: NDArray[np.int64]
    indexes: Mapping[str, HammingIndex]

    @classmethod
    def fit(cls, hasher: Hasher, data: Dataset) -> Self:
        """Train on the concepts of the training photographs and encode the base."""
        model = hasher.fit(**data.fit_arguments("train"))
        rows = np.asarray(data.splits["database"])
        indexes = {}
        for name in data.modalities:
            indexes[name] = HammingIndex(model.n_bits)
            indexes[name].add(np.arange(len(rows)), model.encode(name, data.views[name][rows]))
        return cls(model, data, rows, indexes)

    def _search(
        self, codes: Codes, target: str, relevant: NDArray[np.bool_], k: int = _SHOWN
    ) -> list[list[Match]]:
        """Search a modality; ``relevant`` has the shape (queries, base)."""
        nearest = self.indexes[target].search(codes, k)
        rows = self.base_rows[nearest.ids.ravel()]
        bits = self.model.encode(target, self.data.views[target][rows]).unpack()
        bits = bits.reshape(*nearest.ids.shape, -1)
        return [
            [
                Match(int(self.base_rows[i]), int(distance), bits[q, rank], bool(relevant[q, i]))
                for rank, (i, distance) in enumerate(zip(ids, distances, strict=True))
            ]
            for q, (ids, distances) in enumerate(zip(nearest.ids, nearest.distances, strict=True))
        ]

    def search_words(
        self, queries: Sequence[Sequence[str]], rows: NDArray[Any]
    ) -> list[QueryResult]:
        """Images for words; relevant is a photograph whose captions use all of them."""
        base_tags = tags_of(self.data, self.base_rows)
        relevant = np.array([[set(words) <= set(tags) for tags in base_tags] for words in queries])
        codes = self.model.encode("tags", rows)
        matches = self._search(codes, "image", relevant)
        return [
            QueryResult(words, None, bits, query_matches)
            for words, bits, query_matches in zip(queries, codes.unpack(), matches, strict=True)
        ]

    def search_photographs(
        self, modality: str, target: str, rows: NDArray[np.int64]
    ) -> list[QueryResult]:
        """Search with one modality of photographs in another; relevant is a shared concept."""
        labels = np.asarray(self.data.labels)
        relevant = (labels[rows].astype(np.float32) @ labels[self.base_rows].T) > 0
        codes = self.model.encode(modality, self.data.views[modality][rows])
        matches = self._search(codes, target, relevant)
        words = [sorted(tags) for tags in tags_of(self.data, rows)]
        return [
            QueryResult(query_words, int(row), bits, query_matches)
            for query_words, row, bits, query_matches in zip(
                words, rows, codes.unpack(), matches, strict=True
            )
        ]

    def annotate(self, rows: NDArray[np.int64]) -> list[QueryResult]:
        """Tags for images: the ten that the five nearest bags of tags contain most often."""
        codes = self.model.encode("image", self.data.views["image"][rows])
        nothing = np.zeros((len(rows), len(self.base_rows)), np.bool_)
        nearest = self._search(codes, "tags", nothing, NEIGHBORS)
        own_tags = tags_of(self.data, rows)
        results = []
        for row, bits, words, matches in zip(rows, codes.unpack(), own_tags, nearest, strict=True):
            neighbor_tags = tags_of(self.data, np.array([match.row for match in matches]))
            tags = most_voted(neighbor_tags)
            results.append(QueryResult(words, int(row), bits, matches, tags))
        return results


def _annotation_quality(results: Sequence[QueryResult]) -> dict[str, float]:
    """Precision, recall and hit rate of the tags against the words of the captions, in percent."""
    quality = tag_quality([result.tags for result in results], [result.words for result in results])
    values = asdict(quality)
    return {name: 100 * values[name] for name in ("precision", "recall", "hit")}


def majority_baseline(data: Dataset, rows: NDArray[np.int64]) -> dict[str, float]:
    """Annotation quality of the ten most frequent training tags, assigned to every image."""
    train = np.asarray(data.splits["train"])
    frequent = most_voted(tags_of(data, train))
    no_bits = np.empty(0, np.bool_)
    return _annotation_quality(
        [QueryResult(words, None, no_bits, (), frequent) for words in tags_of(data, rows)]
    )


@dataclass(frozen=True, eq=False)
class QualitativeResults:
    """Everything that the figures show.

    Attributes:
        photographs: The data set.
        free_text: Method → images for free-text queries.
        text_to_image: Method → images for the tags of photographs.
        image_to_text: Method → tags for photographs.
        annotated: Method → ten tags for photographs.
        quality: Method → precision and recall of its annotation over all queries.
    """

    photographs: Photographs
    free_text: Mapping[str, Sequence[QueryResult]]
    text_to_image: Mapping[str, Sequence[QueryResult]]
    image_to_text: Mapping[str, Sequence[QueryResult]]
    annotated: Mapping[str, Sequence[QueryResult]]
    quality: Mapping[str, Mapping[str, float]]


def qualitative_results(
    photographs: Photographs,
    *,
    n_bits: int = 64,
    shown: int = 5,
    queries: Sequence[str] = FREE_TEXT_QUERIES,
    methods: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    on_step: OnStep | None = None,
) -> QualitativeResults:
    """Train both methods and search with both.

    Args:
        photographs: Photographs with concept words among the tags.
        n_bits: Code length.
        shown: Number of query photographs, drawn at random; annotation is evaluated on all queries.
        queries: Free-text queries.
        methods: Method → its settings; defaults otherwise.
        seed: Seed of the draw and of the methods.
        on_step: Progress callback, called when a method is trained.
    """
    data = photographs.data
    query_words = [query.split(" + ") for query in queries]
    # Extract before training, so that unknown words are reported at once.
    query_rows = photographs.extractors["tags"].extract(query_words)
    rows = np.asarray(data.splits["query"])
    random = np.random.default_rng(seed)
    drawn = np.sort(random.choice(rows, size=min(shown, len(rows)), replace=False))
    searchers = {}
    for number, method in enumerate(METHODS, start=1):
        fields = (methods or {}).get(method, {})
        hasher = HASHERS[method](n_bits=n_bits, seed=seed, **fields)
        searchers[method] = _Searcher.fit(hasher, data)
        if on_step is not None:
            on_step(Step(number, len(METHODS)))
    annotated = {method: searcher.annotate(rows) for method, searcher in searchers.items()}
    quality = {method: _annotation_quality(results) for method, results in annotated.items()}
    return QualitativeResults(
        photographs,
        {m: searcher.search_words(query_words, query_rows) for m, searcher in searchers.items()},
        {m: s.search_photographs("tags", "image", drawn) for m, s in searchers.items()},
        {m: s.search_photographs("image", "tags", drawn) for m, s in searchers.items()},
        {
            method: [result for result in results if result.row in drawn]
            for method, results in annotated.items()
        },
        quality | {"always": majority_baseline(data, rows)},
    )
