import contextlib
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from crossbit import DataError
from crossbit.features.image import decode_image
from tests.features.pictures import encoded, gradient

GRADIENT = gradient()
GRAY16 = Image.fromarray((np.arange(48 * 64, dtype=np.uint16) * 21).reshape(48, 64))
FRAMES = [gradient().rotate(90 * turn, expand=False) for turn in (1, 2)]
AS_GIVEN = {
    "png": encoded(GRADIENT),
    "jpeg": encoded(GRADIENT, "JPEG", quality=95),
    "progressive": encoded(GRADIENT, "JPEG", quality=95, progressive=True),
    "cmyk": encoded(GRADIENT.convert("CMYK"), "JPEG", quality=95),
    "palette": encoded(GRADIENT.quantize(256)),
    "animated": encoded(GRADIENT, "GIF", save_all=True, append_images=FRAMES),
    "webp": encoded(GRADIENT, "WEBP", lossless=True),
    "tiff": encoded(GRADIENT, "TIFF"),
    "bmp": encoded(GRADIENT, "BMP"),
    "opaque": encoded(GRADIENT.convert("RGBA")),
}


@pytest.mark.parametrize("name", AS_GIVEN)
def test_every_kind_becomes_rgb(name: str) -> None:
    picture = decode_image(AS_GIVEN[name])
    assert (picture.mode, picture.size) == ("RGB", (64, 48))
    difference = np.abs(np.asarray(picture, int) - np.asarray(GRADIENT, int))
    assert difference.mean() < 8


@pytest.mark.parametrize("format_", ["PNG", "TIFF"])
def test_sixteen_bits_keep_their_range(format_: str) -> None:
    gray = np.asarray(decode_image(encoded(GRAY16, format_)))[..., 0]
    np.testing.assert_allclose(gray, np.asarray(GRAY16) / 256, atol=1)


def test_what_is_transparent_becomes_white() -> None:
    clear = Image.new("RGBA", (8, 8), (10, 20, 30, 0))
    assert np.asarray(decode_image(encoded(clear))).min() == 255
    palette = Image.new("RGB", (8, 8), "navy").quantize(2)
    assert (
        np.asarray(decode_image(encoded(palette, transparency=palette.getpixel((0, 0))))).min()
        == 255
    )


def test_the_orientation_of_the_camera_is_applied() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    turned = decode_image(encoded(GRADIENT, "JPEG", exif=exif))
    assert turned.size == (48, 64)
    upright = np.asarray(GRADIENT.rotate(-90, expand=True), int)
    assert np.abs(np.asarray(turned, int) - upright).mean() < 8


def test_large_pictures_are_made_smaller() -> None:
    for format_ in ("PNG", "JPEG"):
        assert max(decode_image(encoded(gradient(1200, 600), format_), side=100).size) == 100


def test_paths_and_bytes_are_alike(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(AS_GIVEN["png"])
    for thing in (path, str(path)):
        np.testing.assert_array_equal(decode_image(thing), decode_image(AS_GIVEN["png"]))


def _huge_png() -> bytes:
    """A valid PNG of some bytes that would take gigabytes."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 40_000, 40_000, 8, 2, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n"
        + header
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (b"", "not a picture in one of the formats JPEG, PNG"),
        (b"hello, I am no picture", "not a picture"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not a picture"),
        (AS_GIVEN["jpeg"][:700], "a broken picture"),
        (AS_GIVEN["png"][:120], "a broken picture"),
        (_huge_png(), "a picture of more than 50 million pixels; make it smaller"),
        (encoded(Image.fromarray(np.ones((4, 4), np.float32)), "TIFF"), "fractional values"),
        (b"\xff\xd8" + b"\xff\xda" * 300, "a JPEG of more than 200 scans"),
        ("no-such-file.jpg", "cannot be read"),
        ("nul\0byte", "cannot be read"),
        (["a", "list"], "expected the path or the bytes of a picture, got list"),
    ],
)
def test_what_is_no_picture_is_refused(thing: bytes | str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        decode_image(thing)


def test_a_folder_is_no_picture(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        decode_image(tmp_path)


def test_a_large_file_is_not_even_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MOST_BYTES", 10)
    path = tmp_path / "a.png"
    path.write_bytes(AS_GIVEN["png"])
    with pytest.raises(DataError, match="a file of more than 0 MB"):
        decode_image(path)


def test_decoding_ends_when_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MOST_SECONDS", -1.0)
    with pytest.raises(DataError, match="decoding takes more than -1 seconds"):
        decode_image(AS_GIVEN["jpeg"])


def _cut(raw: bytes, at: int, _: int) -> bytes:
    return raw[: at % len(raw)]


def _flip(raw: bytes, at: int, value: int) -> bytes:
    return raw[: at % len(raw)] + bytes([value]) + raw[at % len(raw) + 1 :]


def _repeat(raw: bytes, at: int, value: int) -> bytes:
    return raw[: at % len(raw)] + raw[value % len(raw) :]


@pytest.mark.parametrize("name", AS_GIVEN)
@settings(max_examples=60)
@given(
    change=st.sampled_from([_cut, _flip, _repeat]),
    at=st.integers(0, 2**16),
    value=st.integers(0, 255),
)
def test_mutated_files_are_decoded_or_refused(
    name: str, change: Callable[[bytes, int, int], bytes], at: int, value: int
) -> None:
    with contextlib.suppress(DataError):
        assert decode_image(change(AS_GIVEN[name], at, value)).mode == "RGB"
