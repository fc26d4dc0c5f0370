"""Concepts and tags from captions, without concept words among the tags.

A concept is a short list of words (``concepts.json``). A photograph shows a concept if at least two
of its captions use one of the words in any inflection. Tags are the most frequent other words of
the captions. Words that reveal a concept by their spelling are removed from the tags and counted;
words that imply one by their meaning stay and are counted as well.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crossbit.features.text import STOP_WORDS, words

_MIN_CAPTIONS = 2  # captions that must mention a concept
_MIN_LETTERS = 4  # of a concept word that a longer word must not contain
_MIN_PURITY = 0.9  # share of the photographs of a tag that show one concept, for it to imply it
_MIN_COUNT = 20  # photographs of a tag, for it to imply a concept

_Bools = NDArray[np.bool_]


def load_concepts() -> dict[str, list[str]]:
    """Load the concepts: name → words."""
    path = files("crossbit_experiments.flickr8k").joinpath("concepts.json")
    return dict(json.loads(path.read_text(encoding="utf-8")))


def inflections(word: str) -> set[str]:
    """Return the inflected forms of an English word, rather too many than too few.

    Example:
        >>> {"rides", "riding", "rider"} <= inflections("ride")
        True
    """
    stems = {
        word,
        word + word[-1],
        word.removesuffix("e"),
        word[:-1] + "i" if word.endswith("y") else word,
    }
    return {word, f"{word}'s", f"{word}s"} | {
        stem + end for stem in stems for end in ("es", "ed", "er", "ers", "ing")
    }


@dataclass(frozen=True)
class Leaks:
    """Words that could reveal a concept among the tags.

    Attributes:
        words: Number of removed words that are a concept word in some inflection.
        compounds: Number of removed words that contain one (``snowmobile``).
        occurrences: Uses of the removed words in training captions.
        implying: Remaining tags whose photographs nearly all show one concept (``leash``).
    """

    words: int
    compounds: int
    occurrences: int
    implying: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self) | {"implying": list(self.implying)}


@dataclass(frozen=True)
class Vocabulary:
    """Concepts, and the choice of tags that reveal none of them.

    Attributes:
        concepts: Name → all forms of its words.
    """

    concepts: Mapping[str, frozenset[str]]

    @classmethod
    def from_words(cls, concepts: Mapping[str, Iterable[str]]) -> Self:
        """Inflect the words of each concept."""
        return cls(
            {
                name: frozenset().union(*map(inflections, base_words))
                for name, base_words in concepts.items()
            }
        )

    def shown(self, captions: Sequence[str]) -> _Bools:
        """Which concepts a photograph shows according to its captions."""
        mentioned = [set(words(caption)) for caption in captions]
        least = min(_MIN_CAPTIONS, len(mentioned))
        return np.array(
            [
                sum(bool(caption & forms) for caption in mentioned) >= least > 0
                for forms in self.concepts.values()
            ]
        )

    def choose_tags(
        self, captions: Iterable[Sequence[str]], size: int
    ) -> tuple[tuple[str, ...], Leaks]:
        """Return the most frequent words without stop words and concepts, and what was removed."""
        counts = Counter(word for texts in captions for text in texts for word in words(text))
        concepts = {word for word in counts if self._is_concept(word)}
        compounds = {word for word in counts if word not in concepts and self._is_compound(word)}
        removed = concepts | compounds | STOP_WORDS
        candidates = [word for word in counts if len(word) > 1 and word not in removed]
        chosen = sorted(candidates, key=lambda word: (-counts[word], word))[:size]
        occurrences = sum(counts[word] for word in concepts | compounds)
        return tuple(chosen), Leaks(len(concepts), len(compounds), occurrences, ())

    def _is_concept(self, word: str) -> bool:
        return any(word in forms for forms in self.concepts.values())

    def _is_compound(self, word: str) -> bool:
        return any(
            form in word
            for forms in self.concepts.values()
            for form in forms
            if len(form) >= _MIN_LETTERS
        )


def implying_tags(tags: NDArray[Any], labels: _Bools, names: Sequence[str]) -> tuple[str, ...]:
    """Return the tags that imply a concept: nearly all photographs that have them show it.

    Args:
        tags: Binary matrix, photographs × tags.
        labels: Photographs × concepts.
        names: Names of the tags.
    """
    counts = tags.sum(axis=0)
    purity = (tags.T.astype(np.float64) @ labels).max(axis=1) / np.maximum(counts, 1)
    implying = np.flatnonzero((counts >= _MIN_COUNT) & (purity >= _MIN_PURITY))
    return tuple(names[n] for n in implying.tolist())
