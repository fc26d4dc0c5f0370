"""Text features with NumPy alone: bags of tags, and TF-IDF of free text."""

import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_integer
from crossbit.errors import DataError
from crossbit.features.extractor import Extractor, RawInput, Rows

_TAG_SEPARATOR = re.compile(r"[+,;|\n]")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def normalize_tag(tag: str) -> str:
    """Normalize a tag: lower case, single spaces, no ``#``."""
    return " ".join(unicodedata.normalize("NFKC", tag).casefold().replace("#", " ").split())


def words(text: str) -> list[str]:
    """Split a text into normalized words.

    Example:
        >>> words("A dog's life: RUN, run!")
        ['a', "dog's", 'life', 'run', 'run']
    """
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold().replace("’", "'"))


STOP_WORDS = frozenset(
    words(
        "a an and are as at be been being by do does for from has have having he her hers him his i"
        " in into is it its just near no not of off on onto or other out over she some something"
        " that the their them there they this those through to together toward two three one up"
        " upon us was we were what while which who whose with you"
    )
)
"""Words that say nothing about the content of an image."""


@dataclass(frozen=True, eq=False)
class _VocabularyExtractor(Extractor):
    """Base class of extractors with one column per word of a vocabulary."""

    accepts = "text"

    vocabulary: tuple[str, ...]

    def __post_init__(self) -> None:
        """Reject an empty vocabulary and duplicate words."""
        if not self.vocabulary or len(set(self.vocabulary)) < len(self.vocabulary):
            raise DataError(
                "expected a vocabulary of at least one word and no duplicates,"
                f" got {len(self.vocabulary)} words, {len(set(self.vocabulary))} of them distinct"
            )

    @property
    def width(self) -> int:
        """One column per word."""
        return len(self.vocabulary)

    @cached_property
    def _columns(self) -> dict[str, int]:
        return {word: column for column, word in enumerate(self.vocabulary)}

    def _no_known_word(self, unknown: Sequence[str]) -> DataError:
        """Return the error for an input without known words; it suggests similar ones."""
        if not unknown:
            return DataError("contains no words")
        similar = dict.fromkeys(
            chain.from_iterable(
                difflib.get_close_matches(word, self.vocabulary, n=3) for word in unknown[:5]
            )
        )
        hint = f"similar: {', '.join(similar)}" if similar else self._examples()
        return DataError(f"none of its words is in the vocabulary of {self.width} words; {hint}")

    def _examples(self) -> str:
        return f"it has: {', '.join(self.vocabulary[:5])}, ..."


@dataclass(frozen=True, eq=False)
class BagOfTags(_VocabularyExtractor, kind="tags"):
    """Binary bag of tags: 1 in the columns of the tags that an input has.

    An input is a list of tags, or a string such as ``"red + food"`` with tags separated by
    ``+ , ; |``. A tag that is not in the vocabulary as a whole is split into words. Unknown tags
    are ignored as long as at least one is known.

    Args:
        vocabulary: The tags, one per column.

    Example:
        >>> bag = BagOfTags.fit([["sky", "cloud"], ["sky", "red food"]])
        >>> bag.vocabulary
        ('sky', 'cloud', 'red food')
        >>> bag.extract(["cloud", "Red food + sky", ["sky", "unheard-of"]])
        array([[0., 1., 0.],
               [1., 0., 1.],
               [1., 0., 0.]], dtype=float32)
    """

    exact_terms = True

    @classmethod
    def fit(cls, inputs: Iterable[RawInput], *, size: int = 1000, least: int = 1) -> Self:
        """Learn a vocabulary.

        Args:
            inputs: Lists of tags, or strings of separated tags.
            size: Largest number of tags; the most frequent ones are kept, ties in alphabetical
                order.
            least: Smallest number of inputs that must have a tag.
        """
        tag_lists = (_split_tags(raw) for raw in cls.check_inputs(inputs))
        return cls(_most_frequent(tag_lists, size, least)[0])

    def extract_one(self, raw: RawInput) -> Rows:
        """Set the columns of the input's tags to 1."""
        tags = _split_tags(raw)
        columns = self._known_columns(tags)
        if not columns:
            raise self._no_known_word(tags)
        row = np.zeros(self.width, np.float32)
        row[columns] = 1
        return row

    def terms(self, raw: RawInput) -> list[str]:
        """Return the known tags of an input, in vocabulary order."""
        return [self.vocabulary[c] for c in sorted(self._known_columns(_split_tags(raw)))]

    def _known_columns(self, tags: Iterable[str]) -> list[int]:
        columns = self._columns
        parts = chain.from_iterable([tag] if tag in columns else tag.split() for tag in tags)
        return list({columns[part] for part in parts if part in columns})


@dataclass(frozen=True, eq=False)
class Tfidf(_VocabularyExtractor, kind="tfidf"):
    r"""TF-IDF weights of the words of a text, scaled to unit length.

    $$ x_w = n_w \Big( 1 + \ln \frac{1 + n}{1 + d_w} \Big), \qquad \|x\| = 1, $$

    where $n_w$ counts word $w$ in the text, and $d_w$ of the $n$ training texts contain it.

    Args:
        vocabulary: The words, one per column.
        rarity: The inverse document frequency of each word, shape (width,).

    Example:
        >>> Tfidf.fit(["a dog", "a cat", "a dog runs"]).extract(["dog dog cat"]).round(2)
        array([[0.  , 0.84, 0.55, 0.  ]], dtype=float32)
    """

    rarity: NDArray[Any]

    def __post_init__(self) -> None:
        """Check that there is one weight per word."""
        super().__post_init__()
        if self.rarity.shape != (self.width,):
            raise DataError(
                f"expected one weight for each of {self.width} words, got shape {self.rarity.shape}"
            )

    @classmethod
    def fit(cls, texts: Iterable[str], *, size: int = 2000, least: int = 1) -> Self:
        """Learn the vocabulary and its inverse document frequencies.

        Args:
            texts: Training texts.
            size: Largest number of words; the most frequent ones are kept, ties in alphabetical
                order.
            least: Smallest number of texts that must contain a word.
        """
        word_lists = (_split_words(text) for text in cls.check_inputs(texts))
        vocabulary, counts, n = _most_frequent(word_lists, size, least)
        return cls(vocabulary, (1 + np.log((1 + n) / (1 + counts))).astype(np.float32))

    def extract_one(self, raw: RawInput) -> Rows:
        """Weight the word counts and scale them to unit length."""
        text_words = _split_words(raw)
        columns = self._columns
        known = [columns[word] for word in text_words if word in columns]
        if not known:
            raise self._no_known_word(text_words)
        row = np.bincount(known, minlength=self.width) * self.rarity.astype(np.float64)
        return (row / np.linalg.norm(row)).astype(np.float32)

    def terms(self, raw: RawInput) -> list[str]:
        """Return the words of a text."""
        return _split_words(raw)


def _split_tags(raw: RawInput) -> list[str]:
    """Normalized tags of a list, or of a string of separated tags."""
    tags = _TAG_SEPARATOR.split(raw) if isinstance(raw, str) else raw
    if not isinstance(tags, Iterable) or not all(isinstance(tag, str) for tag in tags):
        raise DataError(
            f"expected a list of tags or a string such as 'red + food', got {type(raw).__name__}"
        )
    return [normal for tag in tags if (normal := normalize_tag(str(tag)))]


def _split_words(raw: RawInput) -> list[str]:
    if not isinstance(raw, str):
        raise DataError(f"expected a text, got {type(raw).__name__}")
    return words(raw)


def _most_frequent(
    inputs: Iterable[Sequence[str]], size: int, least: int
) -> tuple[tuple[str, ...], NDArray[np.int64], int]:
    """Return the most frequent terms, the number of inputs with each, and the number of inputs."""
    check_integer(size, "the size of a vocabulary", least=1)
    counts: Counter[str] = Counter()
    n = 0
    for terms in inputs:
        counts.update(set(terms))
        n += 1
    ranked = sorted((-count, term) for term, count in counts.items() if count >= least)[:size]
    if not ranked:
        raise DataError(
            f"no word occurs in at least {least} of {n} inputs; pass more inputs or a smaller"
            " 'least'"
        )
    return tuple(term for _, term in ranked), np.array([-count for count, _ in ranked]), n
