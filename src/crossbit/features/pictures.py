"""Decoding pictures from anywhere, within bounds of pixels and time."""

import io
import time
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossbit.errors import DataError, MissingExtraError
from crossbit.features.describer import Thing

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM")
"""The formats that are read; others that Pillow knows start programs of their own or are rarely tried by anyone."""

MOST_PIXELS = 50_000_000
MOST_BYTES = 100_000_000
MOST_SECONDS = 10.0
_MOST_SCANS = (
    200  # of a progressive JPEG, each of which passes over all pixels; cameras write about ten
)
_READ = 8192  # bytes that a decoder gets between two looks at the clock


def decode(thing: Thing, *, side: int = 1024) -> "Image":
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


def _read(thing: Thing) -> bytes:
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
