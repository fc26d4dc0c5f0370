"""Pictures to rows without any training set of others: bags of SIFT features, colors and gradients."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import matrix, whole_number
from crossbit.errors import DataError, MissingExtraError
from crossbit.features.describer import Describer, Rows, Thing
from crossbit.features.kmeans import k_means, nearest
from crossbit.features.pictures import decode

_SIFT = 128  # numbers of a SIFT feature


@dataclass(frozen=True, eq=False)
class BagOfSift(Describer, kind="sift"):
    r"""How often each visual word occurs in a picture, as shares that sum to one.

    SIFT features are found in the gray picture; each counts for the nearest word $c_j$ of the vocabulary:

    $$ x_j = \frac1n \, \big|\{ i : j = \arg\min_l \|f_i - c_l\| \}\big| $$

    The paper's pictures of NUS are described so, by 500 words.

    Args:
        words: The vocabulary, shape (k, 128).
        side: Pixels of the longer side at which features are sought.

    References:
        J. Sivic, A. Zisserman. "Video Google: a text retrieval approach to object matching in videos." ICCV 2003.
        D. G. Lowe. "Distinctive image features from scale-invariant keypoints." IJCV 2004.
    """

    words: NDArray[Any]
    side: int = 512

    def __post_init__(self) -> None:
        """Keep the words as float32."""
        object.__setattr__(
            self,
            "words",
            np.ascontiguousarray(matrix(self.words, "words", width=_SIFT), np.float32),
        )
        whole_number(self.side, "side, in pixels,", least=16)

    @classmethod
    def fit(
        cls,
        pictures: Iterable[Thing],
        *,
        size: int = 500,
        side: int = 512,
        most: int = 200_000,
        seed: int = 0,
    ) -> Self:
        """Learn a vocabulary by k-means.

        Args:
            pictures: Paths or bytes; those that cannot be decoded or have no features are passed over.
            size: Words.
            side: Pixels of the longer side at which features are sought.
            most: Features to learn from; of more, a random choice.
            seed: Of the choice and of k-means.
        """
        random = np.random.default_rng(seed)
        kept, marks = np.empty((0, _SIFT), np.float32), np.empty(0)
        for picture in pictures:
            try:
                found = sift(picture, side)
            except DataError:
                continue
            # Every feature draws a mark and the smallest marks stay: a fair choice, however many come.
            kept, marks = (
                np.concatenate([kept, found]),
                np.concatenate([marks, random.random(len(found))]),
            )
            if len(kept) > 2 * most:
                kept, marks = _smallest(kept, marks, most)
        return cls(k_means(_smallest(kept, marks, most)[0], size, seed=seed), side)

    @property
    def width(self) -> int:
        """One column a word."""
        return len(self.words)

    def row(self, thing: Thing) -> Rows:
        """Find features and count their words."""
        features = sift(thing, self.side)
        counts = np.bincount(nearest(features, self.words)[0], minlength=self.width)
        return (counts / len(features)).astype(np.float32)


def _smallest(
    rows: Rows, marks: NDArray[np.float64], most: int
) -> tuple[Rows, NDArray[np.float64]]:
    chosen = np.sort(np.argsort(marks)[:most])
    return rows[chosen], marks[chosen]


def sift(thing: Thing, side: int) -> Rows:
    """The SIFT features of a picture, shape (n, 128).

    Raises:
        DataError: The picture cannot be decoded, or is so even that it has none.
        MissingExtraError: OpenCV is not installed.
    """
    try:
        import cv2
    except ImportError as error:
        raise MissingExtraError("opencv-python-headless", "image") from error
    gray = np.asarray(decode(thing, side=side).convert("L"))
    _, features = cv2.SIFT.create().detectAndCompute(gray, None)
    if features is None:
        raise DataError("there are no SIFT features in it; the picture is too even or too small")
    return np.asarray(features, np.float32)


@dataclass(frozen=True, eq=False)
class ColorGradients(Describer, kind="colour-gradients"):
    """Histograms of colors and of the directions of edges in the cells of a grid, as shares.

    Colors are counted in ``levels``³ boxes of red, green and blue over the whole picture; in each of ``cells`` ×
    ``cells`` parts, directions of the gray gradient (without sign) are counted in ``angles`` sectors, weighted by their
    strength. The two parts of a row sum to ½ each; an even picture has no directions. It needs Pillow alone.

    Args:
        side: Pixels a side that the picture is squashed to.
        levels: Levels of each color.
        cells: Cells a side.
        angles: Sectors of the half circle.
    """

    side: int = 96
    levels: int = 4
    cells: int = 4
    angles: int = 8

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        for name in ("side", "levels", "cells", "angles"):
            whole_number(getattr(self, name), name, least=1)
        if self.side < 2 * self.cells:
            raise DataError(
                f"side: {self.cells} cells need at least {2 * self.cells} pixels, got {self.side}"
            )

    @property
    def width(self) -> int:
        """Boxes of color, then sectors cell by cell."""
        return self.levels**3 + self.cells**2 * self.angles

    def row(self, thing: Thing) -> Rows:
        """Count colors and directions."""
        from PIL import Image

        picture = decode(thing).resize((self.side, self.side), Image.Resampling.BICUBIC)
        pixels = np.asarray(picture, np.int64)
        level = pixels * self.levels // 256
        boxes = (level[..., 0] * self.levels + level[..., 1]) * self.levels + level[..., 2]
        colors = np.bincount(boxes.reshape(-1), minlength=self.levels**3)
        edges = self._directions(pixels.mean(axis=2))
        parts = [part / (2 * max(part.sum(), 1e-12)) for part in (colors, edges)]
        return np.concatenate(parts).astype(np.float32)

    def _directions(self, gray: NDArray[np.float64]) -> NDArray[np.float64]:
        down, right = np.gradient(gray)
        strength = np.hypot(down, right)
        sector = (np.mod(np.arctan2(down, right), np.pi) * self.angles / np.pi).astype(
            np.int64
        ) % self.angles
        bins = self._cell * self.angles + sector
        return np.bincount(
            bins.reshape(-1), strength.reshape(-1), self.cells**2 * self.angles
        ).astype(np.float64)

    @cached_property
    def _cell(self) -> NDArray[np.int64]:
        """The number of the cell that each pixel is in."""
        place = np.arange(self.side) * self.cells // self.side
        return place[:, None] * self.cells + place
