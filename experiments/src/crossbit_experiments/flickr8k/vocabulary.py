"""From captions to concepts and tags, with no concept among the tags.

A concept is a few words (``concepts.json``); a photograph shows it when at least two of its captions use one of them,
in any inflection. Tags are the most frequent other words of the captions. Whatever could give a concept away by its
spelling is kept out of the tags and counted; what gives one away by its meaning stays, and is counted, too.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.features.text import STOP_WORDS, words

LEAST_CAPTIONS = 2  # that must speak of a concept
_SHORTEST_PART = 4  # letters of a concept's word that a longer word may not contain
_SURE, _OFTEN = (
    0.9,
    20,
)  # a tag on so many photographs, of which such a share shows one concept, gives it away

Bools = NDArray[np.bool_]


def load_concepts() -> dict[str, list[str]]:
    """The concepts: name → words."""
    text = (
        files("crossbit_experiments.flickr8k").joinpath("concepts.json").read_text(encoding="utf-8")
    )
    return dict(json.loads(text))


def inflections(word: str) -> set[str]:
    """A word in the forms that English gives it, and in many that it does not: too many rather than too few.

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
    """What could give a concept away among the tags.

    Attributes:
        words: Words left out because they are a concept's, in some inflection.
        compounds: Words left out because they contain one (``snowmobile``).
        occurrences: How often these were used in captions of training photographs.
        telling: Tags that stay although nearly all photographs that have them show one concept (``leash``).
    """

    words: int
    compounds: int
    occurrences: int
    telling: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self) | {"telling": list(self.telling)}


@dataclass(frozen=True)
class Vocabulary:
    """Concepts, and the words that may be tags.

    Attributes:
        concepts: Name → all forms of its words.
    """

    concepts: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, concepts: Mapping[str, Iterable[str]]) -> "Vocabulary":
        """From the words of each concept, inflected here."""
        return cls(
            {name: frozenset().union(*map(inflections, some)) for name, some in concepts.items()}
        )

    def shown(self, captions: Sequence[str]) -> Bools:
        """Which concepts a photograph shows, by what its captions say."""
        said = [set(words(caption)) for caption in captions]
        least = min(LEAST_CAPTIONS, len(said))
        return np.array(
            [
                sum(bool(one & forms) for one in said) >= least > 0
                for forms in self.concepts.values()
            ]
        )

    def is_concept(self, word: str) -> bool:
        """Whether a word is a concept's."""
        return any(word in forms for forms in self.concepts.values())

    def is_compound(self, word: str) -> bool:
        """Whether a word contains a concept's."""
        return any(
            form in word
            for forms in self.concepts.values()
            for form in forms
            if len(form) >= _SHORTEST_PART
        )

    def tags(self, captions: Iterable[Sequence[str]], size: int) -> tuple[tuple[str, ...], Leaks]:
        """The most frequent words that say something and belong to no concept, and what was left out."""
        counts = Counter(word for said in captions for caption in said for word in words(caption))
        own = {word for word in counts if self.is_concept(word)}
        compounds = {word for word in counts if word not in own and self.is_compound(word)}
        free = [
            word for word in counts if len(word) > 1 and word not in own | compounds | STOP_WORDS
        ]
        chosen = sorted(free, key=lambda word: (-counts[word], word))[:size]
        lost = sum(counts[word] for word in own | compounds)
        return tuple(chosen), Leaks(len(own), len(compounds), lost, ())


def telling(tags: NDArray[Any], labels: Bools, names: Sequence[str]) -> tuple[str, ...]:
    """Tags that give a concept away, for nearly all photographs that have them show it.

    Args:
        tags: Zeros and ones, photographs by tags.
        labels: Photographs by concepts.
        names: Of the tags.
    """
    often = tags.sum(axis=0)
    share = (tags.T.astype(np.float64) @ labels).max(axis=1) / np.maximum(often, 1)
    return tuple(names[n] for n in np.flatnonzero((often >= _OFTEN) & (share >= _SURE)).tolist())
