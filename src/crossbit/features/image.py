"""Image features without pretrained networks, and safe decoding of image files."""

import io
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_integer, check_matrix
from crossbit.errors import DataError, MissingExtraError
from crossbit.features._content import read_content
from crossbit.features.extractor import Extractor, RawInput, Rows
from crossbit.features.kmeans import k_means, nearest

if TYPE_CHECKING:
    from PIL.Image import Image

_SIFT_WIDTH = 128

# Other formats that Pillow reads run external programs, or have decoders that few people test.
_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM")
# Decoding takes up to 8 bytes per pixel. WebP takes 20, because its decoder holds several frames.
_MAX_PIXELS = 50_000_000
_MAX_WEBP_PIXELS = 20_000_000
_BAND_PIXELS = 1 << 20
# Copies of this many pixels hold up other threads.
_MAX_UPLOADED_PIXELS = 12_000_000
_max_decoded_pixels = ContextVar("_max_decoded_pixels", default=_MAX_PIXELS)
_MAX_BYTES = 100_000_000
_MAX_SECONDS = 10.0
# Every scan of a progressive JPEG passes over all pixels; cameras write about ten.
_MAX_SCANS = 200
_READ_BYTES = 8192  # that a decoder gets between two checks of the deadline


@dataclass(frozen=True, eq=False)
class BagOfSift(Extractor, kind="sift"):
    r"""Bag of visual words: the share of SIFT features nearest to each word; shares sum to one.

    SIFT features $f_i$ of the gray image are assigned to the nearest word $c_j$ of the vocabulary:

    $$ x_j = \frac1n \, \big|\{ i : j = \arg\min_l \|f_i - c_l\| \}\big| $$

    The paper represents the images of NUS this way, with 500 words.

    Args:
        words: The vocabulary, shape (k, 128).
        side: Longer side, in pixels, at which features are detected.

    References:
        J. Sivic, A. Zisserman. "Video Google: a text retrieval approach to object matching in
        videos." ICCV 2003.
        D. G. Lowe. "Distinctive image features from scale-invariant keypoints." IJCV 2004.
    """

    accepts = "image"
    accepts_uploads = True

    words: NDArray[Any]
    side: int = 512

    def __post_init__(self) -> None:
        """Store the words as float32."""
        words = check_matrix(self.words, "words", width=_SIFT_WIDTH)
        object.__setattr__(self, "words", np.ascontiguousarray(words, np.float32))
        check_integer(self.side, "side, in pixels,", least=16)

    @classmethod
    def fit(
        cls,
        images: Iterable[RawInput],
        *,
        size: int = 500,
        side: int = 512,
        max_features: int = 200_000,
        seed: int = 0,
    ) -> Self:
        """Learn a vocabulary by k-means.

        Args:
            images: Paths or contents of files; images that cannot be decoded or have no features
                are skipped.
            size: Number of words.
            side: Longer side, in pixels, at which features are detected.
            max_features: Number of features for k-means; a larger set is sampled at random.
            seed: Seed of the sample and of k-means.
        """
        random = np.random.default_rng(seed)
        sample = np.empty((0, _SIFT_WIDTH), np.float32)
        priorities = np.empty(0)
        for image in images:
            try:
                features = _sift(image, side)
            except DataError:
                continue
            # Reservoir sampling: each feature draws a priority, and the smallest ones stay.
            sample = np.concatenate([sample, features])
            priorities = np.concatenate([priorities, random.random(len(features))])
            if len(sample) > 2 * max_features:
                sample, priorities = _smallest(sample, priorities, max_features)
        sample, _ = _smallest(sample, priorities, max_features)
        return cls(k_means(sample, size, seed=seed), side)

    @property
    def width(self) -> int:
        """One column per word."""
        return len(self.words)

    def extract_one(self, raw: RawInput) -> Rows:
        """Detect SIFT features and count their words."""
        features = _sift(raw, self.side)
        counts = np.bincount(nearest(features, self.words)[0], minlength=self.width)
        return (counts / len(features)).astype(np.float32)


def _smallest(
    rows: Rows, priorities: NDArray[np.float64], n: int
) -> tuple[Rows, NDArray[np.float64]]:
    chosen = np.sort(np.argsort(priorities)[:n])
    return rows[chosen], priorities[chosen]


def _sift(raw: RawInput, side: int) -> Rows:
    """SIFT features of an image, shape (n, 128)."""
    try:
        import cv2
    except ImportError as error:
        raise MissingExtraError("opencv-python-headless") from error
    gray = np.asarray(decode_image(raw, side=side).convert("L"))
    _, features = cv2.SIFT.create().detectAndCompute(gray, None)
    if features is None:
        raise DataError("has no SIFT features; the image is too uniform or too small")
    return np.asarray(features, np.float32)


@dataclass(frozen=True, eq=False)
class ColorHistogram(Extractor, kind="colour-gradients"):
    """Histograms of colors and of gradient orientations on a grid; needs only Pillow.

    Colors are counted in ``levels``³ RGB bins over the whole image. In each cell of a grid of
    ``cells`` × ``cells``, unsigned orientations of the gray gradient are counted in ``angles``
    bins, weighted by gradient magnitude. The two parts of a row sum to ½ each; a uniform image has
    no orientations.

    Args:
        side: Width and height, in pixels, that the image is resized to.
        levels: Number of bins per color channel.
        cells: Number of cells per side.
        angles: Number of orientation bins over the half circle.
    """

    accepts = "image"
    accepts_uploads = True

    side: int = 96
    levels: int = 4
    cells: int = 4
    angles: int = 8

    def __post_init__(self) -> None:
        """Validate the numbers."""
        for name in ("side", "levels", "cells", "angles"):
            check_integer(getattr(self, name), name, least=1)
        if self.side < 2 * self.cells:
            raise DataError(
                f"side: {self.cells} cells need at least {2 * self.cells} pixels, got {self.side}"
            )

    @property
    def width(self) -> int:
        """Color bins, then the orientation bins of each cell."""
        return self.levels**3 + self.cells**2 * self.angles

    def extract_one(self, raw: RawInput) -> Rows:
        """Count colors and gradient orientations."""
        from PIL import Image

        image = decode_image(raw).resize((self.side, self.side), Image.Resampling.BICUBIC)
        pixels = np.asarray(image, np.int64)
        level = pixels * self.levels // 256
        bins = (level[..., 0] * self.levels + level[..., 1]) * self.levels + level[..., 2]
        colors = np.bincount(bins.reshape(-1), minlength=self.levels**3)
        edges = self._orientations(pixels.mean(axis=2))
        parts = [part / (2 * max(part.sum(), 1e-12)) for part in (colors, edges)]
        return np.concatenate(parts).astype(np.float32)

    def _orientations(self, gray: NDArray[np.float64]) -> NDArray[np.float64]:
        down, right = np.gradient(gray)
        magnitude = np.hypot(down, right)
        angle = np.mod(np.arctan2(down, right), np.pi)
        sector = (angle * self.angles / np.pi).astype(np.int64) % self.angles
        bins = self._cell * self.angles + sector
        return np.bincount(
            bins.reshape(-1), magnitude.reshape(-1), self.cells**2 * self.angles
        ).astype(np.float64)

    @cached_property
    def _cell(self) -> NDArray[np.int64]:
        """Cell number of each pixel."""
        index = np.arange(self.side) * self.cells // self.side
        return index[:, None] * self.cells + index


def decode_image(raw: RawInput, *, side: int = 1024) -> "Image":
    """Decode an image file to RGB, upright, with a longer side of at most ``side`` pixels.

    Palette, gray, 16-bit and CMYK images are converted to RGB, transparency becomes white, an
    animation yields its first frame, and the EXIF orientation is applied. Bytes, pixels and time
    are limited, so files from untrusted clients are safe.

    Args:
        raw: Path or content of a file.
        side: Largest useful size; larger images are scaled down.

    Raises:
        DataError: Not an image, corrupted, truncated, too large, or too slow to decode.
        MissingExtraError: Pillow is not installed.
    """
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError as error:
        raise MissingExtraError("pillow") from error
    content = read_content(raw, "an image", _MAX_BYTES)
    if content.startswith(b"\xff\xd8") and content.count(b"\xff\xda") > _MAX_SCANS:
        raise DataError(f"a JPEG of more than {_MAX_SCANS} scans; convert it first")
    try:
        with Image.open(_DeadlineReader(content, _MAX_SECONDS), formats=_FORMATS) as image:
            _check_pixels(image, _MAX_WEBP_PIXELS if image.format == "WEBP" else _MAX_PIXELS)
            image.draft("RGB", (side, side))  # a JPEG can be decoded at a fraction of its size
            _check_pixels(image, _max_decoded_pixels.get())
            image.decodermaxblock = _READ_BYTES
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
            rgb = _to_rgb(image)
            rgb.thumbnail((side, side), Image.Resampling.BICUBIC)
            return rgb.copy()  # a plain image, independent of the file
    except DataError:
        raise
    except TimeoutError as error:
        raise DataError(
            f"decoding takes more than {_MAX_SECONDS:g} seconds; convert it first"
        ) from error
    except UnidentifiedImageError as error:
        raise DataError(f"not an image in one of the formats {', '.join(_FORMATS)}") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _too_large(_MAX_PIXELS) from error
    except Exception as error:  # decoders raise many types on corrupted files
        raise DataError(f"a corrupted image ({error})") from error


@contextmanager
def limit_uploads() -> Iterator[None]:
    """Decode fewer pixels in this block, for files of unknown origin; a JPEG counts as reduced."""
    token = _max_decoded_pixels.set(_MAX_UPLOADED_PIXELS)
    try:
        yield
    finally:
        _max_decoded_pixels.reset(token)


def _check_pixels(image: "Image", most: int) -> None:
    if image.width * image.height > most:
        raise _too_large(most)


def _too_large(most: int) -> DataError:
    return DataError(f"an image of more than {most // 10**6} million pixels; reduce it first")


def _to_rgb(image: "Image") -> "Image":
    """Convert an image to RGB, with white for transparent pixels."""
    from PIL import Image

    if image.mode == "F":
        raise DataError("an image of floating-point values without a known range; convert it first")
    if image.mode.startswith("I"):  # 16 bits: Pillow would clip everything above 255
        image = image.point(lambda value: value / 256).convert("L")
    if not image.has_transparency_data:
        return image if image.mode == "RGB" else image.convert("RGB")
    opaque = Image.new("RGB", image.size)
    rows = max(1, _BAND_PIXELS // image.width)
    for top in range(0, image.height, rows):  # in bands, which saves several copies of the image
        box = (0, top, image.width, min(top + rows, image.height))
        band = image.crop(box).convert("RGBA")
        white = Image.new("RGBA", band.size, "white")
        opaque.paste(Image.alpha_composite(white, band).convert("RGB"), box)
    return opaque


class _DeadlineReader(io.BytesIO):
    """Bytes that raise TimeoutError when they are read after a deadline."""

    def __init__(self, content: bytes, seconds: float) -> None:
        super().__init__(content)
        self._deadline = time.monotonic() + seconds

    def read(self, *size: Any) -> bytes:  # noqa: ANN401 - the signature of BytesIO
        if time.monotonic() > self._deadline:
            raise TimeoutError
        return super().read(*size)
