"""Pictures to rows without any training set of others: bags of SIFT features, colors and gradients."""

import io
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_integer, check_matrix
from crossbit.errors import DataError, MissingExtraError
from crossbit.features.extractor import Extractor, RawInput, Rows
from crossbit.features.kmeans import k_means, nearest

if TYPE_CHECKING:
    from PIL.Image import Image

_SIFT = 128  # numbers of a SIFT feature


@dataclass(frozen=True, eq=False)
class BagOfSift(Extractor, kind="sift"):
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

    accepts = "image"
    accepts_uploads = True

    words: NDArray[Any]
    side: int = 512

    def __post_init__(self) -> None:
        """Keep the words as float32."""
        object.__setattr__(
            self,
            "words",
            np.ascontiguousarray(check_matrix(self.words, "words", width=_SIFT), np.float32),
        )
        check_integer(self.side, "side, in pixels,", least=16)

    @classmethod
    def fit(
        cls,
        pictures: Iterable[RawInput],
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

    def extract_one(self, thing: RawInput) -> Rows:
        """Find features and count their words."""
        features = sift(thing, self.side)
        counts = np.bincount(nearest(features, self.words)[0], minlength=self.width)
        return (counts / len(features)).astype(np.float32)


def _smallest(
    rows: Rows, marks: NDArray[np.float64], most: int
) -> tuple[Rows, NDArray[np.float64]]:
    chosen = np.sort(np.argsort(marks)[:most])
    return rows[chosen], marks[chosen]


def sift(thing: RawInput, side: int) -> Rows:
    """The SIFT features of a picture, shape (n, 128).

    Raises:
        DataError: The picture cannot be decoded, or is so even that it has none.
        MissingExtraError: OpenCV is not installed.
    """
    try:
        import cv2
    except ImportError as error:
        raise MissingExtraError("opencv-python-headless", "image") from error
    gray = np.asarray(decode_image(thing, side=side).convert("L"))
    _, features = cv2.SIFT.create().detectAndCompute(gray, None)
    if features is None:
        raise DataError("there are no SIFT features in it; the picture is too even or too small")
    return np.asarray(features, np.float32)


@dataclass(frozen=True, eq=False)
class ColorHistogram(Extractor, kind="colour-gradients"):
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

    accepts = "image"
    accepts_uploads = True

    side: int = 96
    levels: int = 4
    cells: int = 4
    angles: int = 8

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        for name in ("side", "levels", "cells", "angles"):
            check_integer(getattr(self, name), name, least=1)
        if self.side < 2 * self.cells:
            raise DataError(
                f"side: {self.cells} cells need at least {2 * self.cells} pixels, got {self.side}"
            )

    @property
    def width(self) -> int:
        """Boxes of color, then sectors cell by cell."""
        return self.levels**3 + self.cells**2 * self.angles

    def extract_one(self, thing: RawInput) -> Rows:
        """Count colors and directions."""
        from PIL import Image

        picture = decode_image(thing).resize((self.side, self.side), Image.Resampling.BICUBIC)
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


FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM")
"""The formats that are read; others that Pillow knows start programs of their own or are rarely tried by anyone."""

MOST_PIXELS = 50_000_000
MOST_BYTES = 100_000_000
MOST_SECONDS = 10.0
_MOST_SCANS = (
    200  # of a progressive JPEG, each of which passes over all pixels; cameras write about ten
)
_READ = 8192  # bytes that a decoder gets between two looks at the clock


def decode_image(thing: RawInput, *, side: int = 1024) -> "Image":
    """Read a picture as RGB, upright, its longer side at most ``side`` pixels.

    Palettes, gray, 16 bits a value and CMYK become RGB, what is transparent becomes white, of an animation the first
    frame is taken, and the orientation that the camera noted is applied.

    Args:
        thing: The path of a file, or its bytes.
        side: Pixels that are enough; larger pictures are made smaller.

    Raises:
        DataError: It is no picture, broken, truncated, too large or too slow to decode.
        MissingExtraError: Pillow is not installed.
    """
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError as error:
        raise MissingExtraError("pillow", "image") from error
    raw = _read(thing)
    if raw.startswith(b"\xff\xd8") and raw.count(b"\xff\xda") > _MOST_SCANS:
        raise DataError(f"a JPEG of more than {_MOST_SCANS} scans; convert it first")
    try:
        with Image.open(_Clocked(raw, MOST_SECONDS), formats=FORMATS) as image:
            _check_size(*image.size)
            image.draft("RGB", (side, side))  # a JPEG can be decoded at a fraction of its size
            image.decodermaxblock = _READ
            image.load()
            upright = _to_rgb(ImageOps.exif_transpose(image))
    except DataError:
        raise
    except TimeoutError as error:
        raise DataError(
            f"decoding takes more than {MOST_SECONDS:g} seconds; convert it first"
        ) from error
    except UnidentifiedImageError as error:
        raise DataError(f"not a picture in one of the formats {', '.join(FORMATS)}") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _too_large() from error
    except Exception as error:  # decoders raise many kinds on broken files
        raise DataError(f"a broken picture ({error})") from error
    upright.thumbnail((side, side), Image.Resampling.BICUBIC)
    return upright


def _read(thing: RawInput) -> bytes:
    """The bytes of a picture; of a file that is too large not even those."""
    if isinstance(thing, str | PathLike):
        path = Path(thing)
        try:
            if path.is_file() and path.stat().st_size > MOST_BYTES:
                raise DataError(f"a file of more than {MOST_BYTES // 10**6} MB; make it smaller")
            return path.read_bytes()
        except (OSError, ValueError) as error:
            raise DataError(
                f"cannot be read ({getattr(error, 'strerror', None) or error})"
            ) from error
    if not isinstance(thing, bytes):
        raise DataError(f"expected the path or the bytes of a picture, got {type(thing).__name__}")
    return thing


def _check_size(width: int, height: int) -> None:
    if width * height > MOST_PIXELS:
        raise _too_large()


def _too_large() -> DataError:
    return DataError(
        f"a picture of more than {MOST_PIXELS // 10**6} million pixels; make it smaller"
    )


def _to_rgb(image: "Image") -> "Image":
    """The picture in RGB; what is transparent becomes white."""
    from PIL import Image

    if image.mode == "F":
        raise DataError(
            "a picture of fractional values, which have no known range; convert it first"
        )
    if image.mode.startswith("I"):  # 16 bits; Pillow itself would cut off everything above 255
        image = image.point(lambda value: value / 256).convert("L")
    if image.has_transparency_data:
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    return image.convert("RGB")


class _Clocked(io.BytesIO):
    """Bytes that stop being read when the time is up."""

    def __init__(self, raw: bytes, seconds: float) -> None:
        super().__init__(raw)
        self._end = time.monotonic() + seconds

    def read(self, *size: Any) -> bytes:  # noqa: ANN401 - as BytesIO takes it
        if time.monotonic() > self._end:
            raise TimeoutError
        return super().read(*size)
