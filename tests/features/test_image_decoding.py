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
from crossbit.features.image import decode_image, limit_uploads
from tests.features.images import encoded, gradient

GRADIENT = gradient()
GRAY16 = Image.fromarray((np.arange(48 * 64, dtype=np.uint16) * 21).reshape(48, 64))
FRAMES = [gradient().rotate(90 * turn, expand=False) for turn in (1, 2)]
FILES = {
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


@pytest.mark.parametrize("name", FILES)
def test_every_format_becomes_rgb(name: str) -> None:
    image = decode_image(FILES[name])
    assert (image.mode, image.size) == ("RGB", (64, 48))
    difference = np.abs(np.asarray(image, int) - np.asarray(GRADIENT, int))
    assert difference.mean() < 8


@pytest.mark.parametrize("format_", ["PNG", "TIFF"])
def test_16_bit_images_keep_their_range(format_: str) -> None:
    gray = np.asarray(decode_image(encoded(GRAY16, format_)))[..., 0]
    np.testing.assert_allclose(gray, np.asarray(GRAY16) / 256, atol=1)


def test_transparency_becomes_white() -> None:
    clear = Image.new("RGBA", (8, 8), (10, 20, 30, 0))
    assert np.asarray(decode_image(encoded(clear))).min() == 255
    palette = Image.new("RGB", (8, 8), "navy").quantize(2)
    assert (
        np.asarray(decode_image(encoded(palette, transparency=palette.getpixel((0, 0))))).min()
        == 255
    )


def test_the_exif_orientation_is_applied() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated by 90°
    turned = decode_image(encoded(GRADIENT, "JPEG", exif=exif))
    assert turned.size == (48, 64)
    upright = np.asarray(GRADIENT.rotate(-90, expand=True), int)
    assert np.abs(np.asarray(turned, int) - upright).mean() < 8


def test_large_images_are_scaled_down() -> None:
    for format_ in ("PNG", "JPEG"):
        assert max(decode_image(encoded(gradient(1200, 600), format_), side=100).size) == 100


def test_paths_and_bytes_give_the_same_image(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(FILES["png"])
    for raw in (path, str(path)):
        np.testing.assert_array_equal(decode_image(raw), decode_image(FILES["png"]))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparency_is_replaced_in_bands(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 30, 4), np.uint8)
    options = {"transparency": 3} if mode == "P" else {}
    raw = encoded(Image.fromarray(pixels).convert(mode), "PNG", **options)
    whole = np.asarray(decode_image(raw))
    monkeypatch.setattr("crossbit.features.image._BAND_PIXELS", 200)
    np.testing.assert_array_equal(decode_image(raw), whole)


def test_a_webp_file_may_have_fewer_pixels() -> None:
    raw = encoded(Image.new("RGB", (5000, 5000)), "WEBP", lossless=True, quality=0)
    with pytest.raises(DataError, match="an image of more than 20 million pixels"):
        decode_image(raw)


def _huge_png() -> bytes:
    """Return a small, valid PNG that would decode to gigabytes."""

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
    ("raw", "message"),
    [
        (b"", "not an image in one of the formats JPEG, PNG"),
        (b"hello, I am not an image", "not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
        (FILES["jpeg"][:700], "a corrupted image"),
        (FILES["png"][:120], "a corrupted image"),
        (_huge_png(), "an image of more than 50 million pixels; reduce it first"),
        (encoded(Image.fromarray(np.ones((4, 4), np.float32)), "TIFF"), "floating-point values"),
        (b"\xff\xd8" + b"\xff\xda" * 300, "a JPEG of more than 200 scans"),
        ("no-such-file.jpg", "cannot be read"),
        ("nul\0byte", "cannot be read"),
        (["a", "list"], "expected the path or the bytes of an image, got list"),
    ],
)
def test_unusable_images_are_rejected(raw: bytes | str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        decode_image(raw)


def test_uploads_may_have_fewer_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossbit.features.image._MAX_UPLOADED_PIXELS", 200_000)
    large = {format_: encoded(gradient(1600, 800), format_) for format_ in ("PNG", "JPEG", "WEBP")}
    with limit_uploads():
        for format_ in ("PNG", "WEBP"):
            with pytest.raises(DataError, match="more than 0 million pixels; reduce it first"):
                decode_image(large[format_], side=100)
        # A JPEG is decoded at a fraction of its size.
        assert decode_image(large["JPEG"], side=100).size == (100, 50)
    assert decode_image(large["PNG"], side=100).size == (100, 50)


def test_a_folder_is_not_an_image(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        decode_image(tmp_path)


def test_a_large_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossbit.features.image._MAX_BYTES", 10)
    path = tmp_path / "a.png"
    path.write_bytes(FILES["png"])
    with pytest.raises(DataError, match="a file of more than 0 MB"):
        decode_image(path)


def test_decoding_stops_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossbit.features.image._MAX_SECONDS", -1.0)
    with pytest.raises(DataError, match="decoding takes more than -1 seconds"):
        decode_image(FILES["jpeg"])


def _cut(raw: bytes, at: int, _: int) -> bytes:
    return raw[: at % len(raw)]


def _flip(raw: bytes, at: int, value: int) -> bytes:
    return raw[: at % len(raw)] + bytes([value]) + raw[at % len(raw) + 1 :]


def _repeat(raw: bytes, at: int, value: int) -> bytes:
    return raw[: at % len(raw)] + raw[value % len(raw) :]


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=60)
@given(
    change=st.sampled_from([_cut, _flip, _repeat]),
    at=st.integers(0, 2**16),
    value=st.integers(0, 255),
)
def test_mutated_files_are_decoded_or_rejected(
    name: str, change: Callable[[bytes, int, int], bytes], at: int, value: int
) -> None:
    with contextlib.suppress(DataError):
        assert decode_image(change(FILES[name], at, value)).mode == "RGB"
