"""Words to rows, with NumPy alone: bags of tags, and TF-IDF of free text."""

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
from crossbit.features.extractor import Extractor, RawInput, Rows, reject_single

_BETWEEN_TAGS = re.compile(r"[+,;|\n]")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def normalize_tag(tag: str) -> str:
    """A tag in one spelling: small letters, single spaces, no ``#``."""
    return " ".join(unicodedata.normalize("NFKC", tag).casefold().replace("#", " ").split())


def words(text: str) -> list[str]:
    """The words of a text, in one spelling.

    Example:
        >>> words("A dog's life: RUN, run!")
        ['a', "dog's", 'life', 'run', 'run']
    """
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold().replace("’", "'"))


STOP_WORDS = frozenset(
    words(
        "a an and are as at be been being by do does for from has have having he her hers him his i in into is it its "
        "just near no not of off on onto or other out over she some something that the their them there they this "
        "those through to together toward two three one up upon us was we were what while which who whose with you"
    )
)
"""Words that say nothing about a picture."""


@dataclass(frozen=True, eq=False)
class _Vocabulary(Extractor):
    """Describers that know some words, each with a column."""

    accepts = "text"

    vocabulary: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuse an empty vocabulary, or a word with two columns."""
        if not self.vocabulary or len(set(self.vocabulary)) < len(self.vocabulary):
            raise DataError(
                f"a vocabulary needs different words, at least one; got {len(self.vocabulary)}"
            )

    @property
    def width(self) -> int:
        """One column a word."""
        return len(self.vocabulary)

    @cached_property
    def _columns(self) -> dict[str, int]:
        return {word: column for column, word in enumerate(self.vocabulary)}

    def _refuse(self, unknown: Sequence[str]) -> DataError:
        """Say that nothing was known, and what was perhaps meant."""
        if not unknown:
            return DataError("there is no word in it")
        near = chain.from_iterable(
            difflib.get_close_matches(word, self.vocabulary, n=3) for word in unknown[:5]
        )
        perhaps = ", ".join(dict.fromkeys(near)) or f"{', '.join(self.vocabulary[:5])}, ..."
        return DataError(
            f"none of its words is among the {self.width} known ones; perhaps: {perhaps}"
        )


@dataclass(frozen=True, eq=False)
class BagOfTags(_Vocabulary, kind="tags"):
    """Which tags of a vocabulary a thing has: 1 where it has one, else 0.

    A thing is a list of tags, or a string such as ``"red + food"``; the parts of a string are separated by ``+ , ; |``.
    A part that is no tag as a whole is taken word by word, and unknown tags are passed over as long as one is known.

    Args:
        vocabulary: The tags, one a column.

    Example:
        >>> bag = BagOfTags.fit([["sky", "cloud"], ["sky", "red food"]])
        >>> bag.vocabulary
        ('sky', 'cloud', 'red food')
        >>> bag.extract(["cloud", "Red food + sky", ["sky", "unheard-of"]])
        array([[0., 1., 0.],
               [1., 0., 1.],
               [1., 0., 0.]], dtype=float32)
    """

    @classmethod
    def fit(cls, things: Iterable[RawInput], *, size: int = 1000, least: int = 1) -> Self:
        """Learn a vocabulary.

        Args:
            things: Lists of tags, or strings of separated tags.
            size: Keep the most frequent tags, at most so many; equals in alphabetical order.
            least: Leave out tags that fewer things have.
        """
        return cls(
            _most_frequent((_tags(thing) for thing in reject_single(things)), size, least)[0]
        )

    def extract_one(self, thing: RawInput) -> Rows:
        """Mark the columns of the thing's tags."""
        given = _tags(thing)
        found = self._known(given)
        if not found:
            raise self._refuse(given)
        row = np.zeros(self.width, np.float32)
        row[found] = 1
        return row

    def known_tags(self, thing: RawInput) -> list[str]:
        """The tags of a thing that have a column, in the order of the columns."""
        return [self.vocabulary[column] for column in sorted(self._known(_tags(thing)))]

    def _known(self, tags: Iterable[str]) -> list[int]:
        columns = self._columns
        parts = chain.from_iterable([tag] if tag in columns else tag.split() for tag in tags)
        return list({columns[part] for part in parts if part in columns})


@dataclass(frozen=True, eq=False)
class Tfidf(_Vocabulary, kind="tfidf"):
    r"""Words of a text, weighted by how rare they are, to unit length.

    $$ x_w = n_w \Big( 1 + \ln \frac{1 + n}{1 + d_w} \Big), \qquad \|x\| = 1, $$

    where $n_w$ counts word $w$ in the text and $d_w$ the training texts, of $n$, that hold it.

    Args:
        vocabulary: The words, one a column.
        rarity: The weight of each word, shape (width,).

    Example:
        >>> Tfidf.fit(["a dog", "a cat", "a dog runs"]).extract(["dog dog cat"]).round(2)
        array([[0.  , 0.84, 0.55, 0.  ]], dtype=float32)
    """

    rarity: NDArray[Any]

    def __post_init__(self) -> None:
        """Refuse weights that do not fit the words."""
        super().__post_init__()
        if self.rarity.shape != (self.width,):
            raise DataError(
                f"expected a weight for each of {self.width} words, got shape {self.rarity.shape}"
            )

    @classmethod
    def fit(cls, texts: Iterable[str], *, size: int = 2000, least: int = 1) -> Self:
        """Learn the words and how rare they are.

        Args:
            texts: Training texts.
            size: Keep the most frequent words, at most so many; equals in alphabetical order.
            least: Leave out words that fewer texts hold.
        """
        vocabulary, held, n = _most_frequent(
            (_words(text) for text in reject_single(texts)), size, least
        )
        return cls(vocabulary, (1 + np.log((1 + n) / (1 + held))).astype(np.float32))

    def extract_one(self, thing: RawInput) -> Rows:
        """Count, weigh, and divide by the length."""
        given, columns = _words(thing), self._columns
        found = [columns[word] for word in given if word in columns]
        if not found:
            raise self._refuse(given)
        row = np.bincount(found, minlength=self.width) * self.rarity.astype(np.float64)
        return (row / np.linalg.norm(row)).astype(np.float32)


def _tags(thing: RawInput) -> list[str]:
    """The tags of a list or of a string of separated tags, in one spelling."""
    if isinstance(thing, str):
        thing = _BETWEEN_TAGS.split(thing)
    if not isinstance(thing, Iterable) or not all(isinstance(tag, str) for tag in thing):
        raise DataError(
            f"expected a list of tags or a string such as 'red + food', got {type(thing).__name__}"
        )
    return [tag for each in thing if (tag := normalize_tag(str(each)))]


def _words(thing: RawInput) -> list[str]:
    if not isinstance(thing, str):
        raise DataError(f"expected a text, got {type(thing).__name__}")
    return words(thing)


def _most_frequent(
    things: Iterable[Sequence[str]], size: int, least: int
) -> tuple[tuple[str, ...], NDArray[np.int64], int]:
    """The words that most things have, how many things have each, and how many things there were."""
    check_integer(size, "the size of a vocabulary", least=1)
    held: Counter[str] = Counter()
    n = 0
    for given in things:
        held.update(set(given))
        n += 1
    ranked = sorted((-count, word) for word, count in held.items() if count >= least)[:size]
    if not ranked:
        raise DataError(
            f"no word occurs in at least {least} of {n} things; give more things or a smaller 'least'"
        )
    return tuple(word for _, word in ranked), np.array([-count for count, _ in ranked]), n
