"""What each modality of a collection takes from strangers: words, pictures, or numbers alone."""

import threading
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from numpy.typing import NDArray

from crossbit import features
from crossbit._validation import check_known
from crossbit.errors import DataError
from crossbit.features import (
    BagOfSift,
    BagOfTags,
    ColorHistogram,
    Extractor,
    ImageNetwork,
    RawInput,
    SentenceNetwork,
    Tfidf,
)
from crossbit.features.text import words
from crossbit.model import HashModel

Kind: TypeAlias = Literal["words", "pictures"]
_TAKES: dict[type[Extractor], Kind] = {
    BagOfTags: "words",
    Tfidf: "words",
    SentenceNetwork: "words",
    BagOfSift: "pictures",
    ColorHistogram: "pictures",
    ImageNetwork: "pictures",
}


class Describers:
    """The describers of a model's recipes, opened once and not for every query.

    A describer of pictures takes paths as well. Words from outside therefore only reach describers of words, and
    describers of pictures are only handed bytes.

    Args:
        model: Whose recipes they are.
    """

    def __init__(self, model: HashModel) -> None:
        self.model = model
        self._lock = threading.Lock()
        self._open: dict[str, Extractor] = {}

    def takes(self, modality: str) -> Kind | None:
        """What a modality takes beside rows of numbers."""
        recipe = self.model.recipes.get(modality)
        describer = None if recipe is None else features.extractor_class(recipe.kind)
        return None if describer is None else _TAKES.get(describer)

    def modality(self, asked: str | None, kind: Kind) -> str:
        """The modality that takes words, or pictures; the one asked for if it does."""
        taking = [name for name in self.model.modalities if self.takes(name) == kind]
        if asked is None and taking:
            return taking[0]
        if asked is None:
            raise DataError(
                f"no modality of this collection takes {kind}; ask with features or an item's id"
            )
        if check_known(asked, self.model.modalities) not in taking:
            raise DataError(
                f"{asked!r} takes no {kind}; ask with features or an item's id, or by one of {taking}"
            )
        return asked

    def rows(self, modality: str, things: Sequence[RawInput]) -> NDArray[Any]:
        """Describe things of a modality that takes them."""
        return self._describer(modality).extract(things)

    def tags(self, modality: str, thing: str | list[str]) -> tuple[list[str], bool]:
        """The words of a query, and whether they mean tags exactly, as in a bag of tags, or what a sentence says."""
        describer = self._describer(modality)
        if isinstance(describer, BagOfTags):
            return describer.known_tags(thing), True
        return words(thing if isinstance(thing, str) else " ".join(thing)), False

    def _describer(self, modality: str) -> Extractor:
        with self._lock:  # a network takes a while to open: once is enough
            if modality not in self._open:
                self._open[modality] = features.load_extractor(self.model.recipes[modality])
            return self._open[modality]
