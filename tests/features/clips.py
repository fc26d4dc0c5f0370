"""Audio and signal files in memory."""

import io
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray


def encoded_clip(
    samples: NDArray[Any], rate: int = 16_000, format_: str = "WAV", subtype: str | None = None
) -> bytes:
    """Return the content of an audio file."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=format_, subtype=subtype)
    return file.getvalue()


def tone(hertz: float, seconds: float = 0.5, rate: int = 16_000) -> NDArray[np.float64]:
    """Return samples of a tone that fades in and out."""
    time = np.arange(round(seconds * rate)) / rate
    return np.asarray(0.5 * np.sin(2 * np.pi * hertz * time) * np.sin(np.pi * time / seconds))


def npy(array: NDArray[Any]) -> bytes:
    """Return the content of a ``.npy`` file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()
