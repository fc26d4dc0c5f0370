"""From what callers pass to codes: arrays as they are, raw things through the recipe of their modality."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit import features
from crossbit._validation import known, numbers
from crossbit.codes import Codes
from crossbit.collection.store import Part
from crossbit.errors import DataError
from crossbit.features import Describer, Thing
from crossbit.model import HashModel

Things: TypeAlias = "ArrayLike | Codes | Sequence[Thing | None]"
"""Rows of numbers, codes, or raw things of a modality that has a recipe."""


class Encoder:
    """A model that takes whatever callers pass; what is slow about it is done once.

    Args:
        model: The model.
    """

    def __init__(self, model: HashModel) -> None:
        self.model = model
        self._describers: dict[str, Describer] = {}

    @cached_property
    def fingerprint(self) -> str:
        """The model's fingerprint."""
        return self.model.fingerprint()

    def among(self, asked: str | Iterable[str] | None) -> list[str]:
        """The modalities to be searched: the one asked for, several, or all."""
        if asked is None:
            return self.model.modalities
        if not isinstance(asked, Iterable):
            raise DataError(f"among: expected modalities of {self.model.modalities}, got {asked!r}")
        names = [asked] if isinstance(asked, str) else list(asked)
        if not names:
            raise DataError(
                f"among: expected at least one modality of {self.model.modalities}, got none"
            )
        return [known(name, self.model.modalities) for name in dict.fromkeys(names)]

    def rows(self, modality: str, given: Things) -> NDArray[Any]:
        """Rows of numbers, one a thing; raw things are described as the model's recipe says."""
        known(modality, self.model.modalities)
        if not _are_raw(given):
            return numbers(given, f"rows of {modality!r}")  # type: ignore[arg-type]
        return self._describer(modality).describe(given)  # type: ignore[arg-type]

    def _describer(self, modality: str) -> Describer:
        if modality not in self.model.recipes:
            raise DataError(
                f"the model has no recipe for raw things of {modality!r}; pass rows of numbers, or Codes,"
                " or learn the model from raw things"
            )
        if modality not in self._describers:
            self._describers[modality] = features.open(self.model.recipes[modality])
        return self._describers[modality]

    def encode(self, modality: str, given: Things) -> tuple[Codes, NDArray[Any] | None]:
        """Codes, and the rows that they were made from unless codes were given."""
        if isinstance(given, Codes):
            known(modality, self.model.modalities)
            if given.n_bits != self.model.n_bits:
                raise DataError(
                    f"the collection holds codes of {self.model.n_bits} bits, got {given!r}"
                )
            return given, None
        rows = self.rows(modality, given)
        return self.model.encode(modality, rows), rows

    def encode_with_scores(self, modality: str, given: Things) -> tuple[Codes, NDArray[np.float32]]:
        """Codes, and the real-valued scores whose signs they are."""
        if isinstance(given, Codes):
            raise DataError(
                "rescore needs real-valued scores; pass rows of numbers instead of Codes"
            )
        rows = self.rows(modality, given)
        return self.model.encode(modality, rows), self.model.scores(modality, rows)

    def parts(self, views: Mapping[str, Things], n: int) -> dict[str, Part]:
        """The codes of a batch of ``n`` items: of each modality, those that have it.

        An item whose row is all NaN, or whose thing is None, does not have the modality.
        """
        if not isinstance(views, Mapping):
            raise DataError(
                f"views map modalities to rows, such as {{'image': X}}; got {type(views).__name__}"
            )
        return {modality: self._part(modality, given, n) for modality, given in views.items()}

    def _part(self, modality: str, given: Things, n: int) -> Part:
        if _length(given) != n:
            raise DataError(
                f"rows of {modality!r}: expected one for each of {n} ids, got {_length(given)}"
            )
        at = _present(given)
        if len(at) < n:
            given = (
                [given[i] for i in at] if isinstance(given, list | tuple) else np.asarray(given)[at]
            )
        if not len(at):
            known(modality, self.model.modalities)
            return Part(
                at, Codes(np.empty((0, -(-self.model.n_bits // 64)), np.uint64), self.model.n_bits)
            )
        codes, rows = self.encode(modality, given)
        return Part(at, codes, rows)


def _are_raw(given: object) -> bool:
    """Whether these are things to be described: strings, paths, bytes, lists of tags."""
    if isinstance(given, str | bytes | PathLike):
        raise DataError(f"expected a list of things, got one {type(given).__name__}; pass [thing]")
    if not isinstance(given, list | tuple):
        return False
    first = next((thing for thing in given if thing is not None), None)
    if isinstance(first, list | tuple) and first:
        first = first[0]
    return isinstance(first, str | bytes | PathLike)


def _length(given: object) -> int:
    try:
        return len(given)  # type: ignore[arg-type]
    except TypeError as error:
        raise DataError(f"expected rows or a list of things, got {type(given).__name__}") from error


def _present(given: Things) -> NDArray[np.intp]:
    """Positions of the things that are there."""
    if isinstance(given, list | tuple) and any(thing is None for thing in given):
        return np.flatnonzero([thing is not None for thing in given])
    if isinstance(given, np.ndarray) and given.dtype.kind == "f" and given.ndim > 1 and given.size:
        flat = given.reshape(len(given), -1)
        perhaps = np.flatnonzero(
            np.isnan(flat[:, 0])
        )  # their first number tells of most rows that they are there
        absent = perhaps[np.isnan(flat[perhaps]).all(axis=1)]
        return np.setdiff1d(np.arange(len(given)), absent, assume_unique=True)
    return np.arange(_length(given))
