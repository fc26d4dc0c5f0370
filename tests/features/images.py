"""Synthetic images for tests."""

import io

import numpy as np
from PIL import Image


def gradient(width: int = 64, height: int = 48) -> Image.Image:
    """Return an image whose red grows to the right and green downwards."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0] = np.linspace(0, 255, width)[None]
    pixels[..., 1] = np.linspace(0, 255, height)[:, None]
    return Image.fromarray(pixels)


def spots(seed: int, side: int = 96) -> Image.Image:
    """Return smooth random spots, which have SIFT features."""
    coarse = np.random.default_rng(seed).integers(0, 256, (12, 12, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, format_: str = "PNG", **options: object) -> bytes:
    """Return the content of an image file."""
    file = io.BytesIO()
    image.save(file, format_, **options)
    return file.getvalue()
