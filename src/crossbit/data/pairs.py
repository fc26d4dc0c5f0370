"""Pairs of rows that are known to be similar or dissimilar."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import modality_name, plain_array
from crossbit.errors import DataError


@dataclass(frozen=True, eq=False, repr=False)
class Pairs:
    """Pairs of row numbers of two modalities, or of one with itself, and whether they are similar.

    Args:
        left: Modality of the first column of ``index``.
        right: Modality of the second; equal to ``left`` for pairs within a modality.
        index: Row numbers, shape (p, 2).
        similar: Boolean, or zeros and ones, shape (p,).

    Example:
        >>> Pairs("image", "text", index=[[0, 0], [0, 1]], similar=[True, False])
        Pairs(image-text: 1 similar, 1 dissimilar)
    """

    left: str
    right: str
    index: NDArray[np.int64]
    similar: NDArray[np.bool_]

    def __post_init__(self) -> None:
        """Refuse shapes that do not agree and row numbers below zero."""
        modality_name(self.left)
        modality_name(self.right)
        index, similar = plain_array(self.index, "pairs"), plain_array(self.similar, "similar")
        if index.size == 0:
            index = index.astype(np.int64).reshape(-1, 2)
        if index.ndim != 2 or index.shape[1] != 2 or index.dtype.kind not in "iu":
            raise DataError(
                f"pairs are row numbers of shape (p, 2), got {index.dtype} {index.shape}"
            )
        if similar.shape != (len(index),):
            raise DataError(
                f"{len(index)} pairs need as many answers to 'similar?', got shape {similar.shape}"
            )
        if similar.dtype.kind not in "biuf" or not np.isin(similar, (0, 1)).all():
            raise DataError(
                f"similar: expected booleans, or zeros and ones, got {similar.dtype} such as {similar[:3].tolist()};"
                " of ±1 or scores make booleans with similar > 0"
            )
        if len(index) and index.min() < 0:
            raise DataError(f"pairs are row numbers from 0, got {index.min()}")
        object.__setattr__(self, "index", index.astype(np.int64, copy=False))
        object.__setattr__(self, "similar", similar.astype(np.bool_, copy=False))

    @property
    def key(self) -> str:
        """Name of the two modalities together, such as ``"image-text"``."""
        return f"{self.left}-{self.right}"

    def among(self, rows: Mapping[str, NDArray[np.int64]]) -> "Pairs":
        """The pairs both of whose rows are taken, by their new numbers: row ``rows[modality][k]`` becomes row k.

        Example:
            >>> pairs = Pairs("image", "text", index=[[5, 9], [6, 9]], similar=[True, False])
            >>> pairs.among({"image": np.array([4, 5]), "text": np.array([9])}).index
            array([[1, 0]])
        """
        index = np.stack(
            [
                _places(rows[self.left], self.index[:, 0]),
                _places(rows[self.right], self.index[:, 1]),
            ],
            1,
        )
        keep = (index >= 0).all(axis=1)
        return Pairs(self.left, self.right, index[keep], self.similar[keep])

    def __len__(self) -> int:
        """How many pairs there are."""
        return len(self.index)

    def __repr__(self) -> str:
        """Such as ``Pairs(image-text: 100 similar, 100 dissimilar)``."""
        n_similar = int(self.similar.sum())
        return f"Pairs({self.key}: {n_similar} similar, {len(self) - n_similar} dissimilar)"


def listed(pairs: Pairs | Sequence[Pairs] | None) -> tuple[Pairs, ...]:
    """None, one or several `Pairs` as a tuple; bare arrays and tuples are refused."""
    given: object = () if pairs is None else (pairs,) if isinstance(pairs, Pairs) else pairs
    found = tuple(given) if isinstance(given, list | tuple) else (given,)
    for some in found:
        if not isinstance(some, Pairs):
            raise DataError(
                "pairs: expected Pairs objects, such as Pairs('image', 'text', index, similar);"
                f" got {type(some).__name__}"
            )
    return found


def _places(rows: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each wanted row stands among the rows taken, −1 where it was not taken."""
    place = np.full(max(rows.max(initial=-1), wanted.max(initial=-1)) + 1, -1)
    place[rows] = np.arange(len(rows))
    return place[wanted]
