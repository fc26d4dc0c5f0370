"""Audio features without pretrained networks, and safe decoding of audio files."""

import io
import math
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_integer, check_number
from crossbit.errors import DataError, MissingExtraError
from crossbit.features._content import read_content
from crossbit.features.extractor import Extractor, RawInput, Rows

# libsndfile reads two dozen other formats, with decoders that few people test.
_MAGIC = (b"RIFF", b"RF64", b"fLaC", b"OggS")
_FORMATS = ("WAV", "WAVEX", "RF64", "FLAC", "OGG")
_MAX_BYTES = 100_000_000
_MAX_SECONDS = 10.0  # of decoding
_MAX_CHANNELS = 16
_RATES = (1_000, 192_000)  # hertz
_BLOCK_FRAMES = 1 << 16
_WINDOW = 0.025  # seconds of a frame of the spectrogram
_HOP = 0.010
_LOWEST = 50.0  # hertz
_FLOOR = 1e-6  # of the mean power: 60 dB below a clip's own loudness counts as silence
_QUIET = 1e-4  # of the loudest frame: leading and trailing frames below it are cut off

_Samples = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class LogMel(Extractor, kind="log-mel"):
    r"""Log-mel spectrogram of a clip, averaged over equal parts of its time.

    The clip is converted to mono and scaled to unit power, so the row does not depend on gain. Its
    power spectrum $P$, in windows of 25 ms every 10 ms, is summed in triangular filters $H_b$ that
    are evenly spaced on the mel scale. With $T_s$ the windows of part $s$,

    $$ x_{s,b} = \frac{1}{|T_s|} \sum_{t \in T_s} \log\Big( \sum_f H_b(f)\,P(t, f) + 10^{-6}
       \Big) . $$

    Silence before and after is cut off, so parts of two clips of one word match whatever precedes
    it. A window that lies in two parts counts in both, with the share that lies in each.

    Args:
        rate: Sampling rate in hertz that clips are converted to.
        bands: Number of mel filters.
        segments: Number of parts.
        seconds: Longest clip; what follows is ignored.
    """

    accepts = "audio"
    accepts_uploads = True

    rate: int = 16_000
    bands: int = 40
    segments: int = 8
    seconds: float = 30.0

    def __post_init__(self) -> None:
        """Validate the numbers."""
        check_integer(self.rate, "rate, in hertz,", least=_RATES[0])
        check_integer(self.bands, "bands", least=2)
        check_integer(self.segments, "segments", least=1)
        if not 0 < check_number(self.seconds, "seconds") <= 600:
            raise DataError(f"seconds must be positive and at most 600, got {self.seconds}")

    @property
    def width(self) -> int:
        """The bands of each part, part by part."""
        return self.segments * self.bands

    def extract_one(self, raw: RawInput) -> Rows:
        """Decode a clip and average its spectrogram."""
        return self.from_samples(decode_audio(raw, rate=self.rate, seconds=self.seconds))

    def from_samples(self, samples: NDArray[Any]) -> Rows:
        """Extract the features of a clip that is already decoded.

        Args:
            samples: Mono samples at ``rate`` hertz, shape (n,).

        Raises:
            DataError: The clip is empty or silent, or has samples that are not finite.
        """
        frames = self.spectrogram(samples)
        return self._pool(self._describe(frames)).reshape(-1).astype(np.float32)

    def spectrogram(self, samples: NDArray[Any]) -> _Samples:
        """Return the log-mel spectrogram without silence around it, shape (windows, bands)."""
        power = _power_spectrum(_unit_power(samples), self.rate)
        mel = power @ self._filters.T
        loudness = mel.sum(axis=1)
        audible = np.flatnonzero(loudness >= _QUIET * loudness.max())
        part = slice(audible[0], audible[-1] + 1) if len(audible) else slice(None)
        return np.asarray(np.log(mel[part] + _FLOOR))

    def _describe(self, frames: _Samples) -> _Samples:
        """Features of each window."""
        return frames

    def _pool(self, frames: _Samples) -> _Samples:
        """Mean of each part of the time, shape (segments, features)."""
        n = len(frames)
        total = np.concatenate([np.zeros((1, frames.shape[1])), np.cumsum(frames, axis=0)])
        edges = np.linspace(0, n, self.segments + 1)
        before = np.minimum(edges.astype(np.int64), n - 1)
        at_edges = total[before] + (edges - before)[:, None] * frames[before]
        return np.diff(at_edges, axis=0) * (self.segments / n)

    @cached_property
    def _filters(self) -> _Samples:
        """Triangular mel filters, shape (bands, frequencies)."""
        frequencies = np.fft.rfftfreq(_window_size(self.rate), 1 / self.rate)
        edges = _to_hertz(np.linspace(_to_mel(_LOWEST), _to_mel(self.rate / 2), self.bands + 2))
        rise = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
        fall = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
        filters = np.maximum(0, np.minimum(rise, fall))
        # A narrow filter can lie between two frequencies: it then takes the nearest one.
        centers = np.abs(frequencies - edges[1:-1, None]).argmin(axis=1)
        filters[np.arange(self.bands), centers] += filters.sum(axis=1) == 0
        return np.asarray(filters / filters.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False, kw_only=True)
class Mfcc(LogMel, kind="mfcc"):
    r"""Mel-frequency cepstral coefficients and their changes, averaged over equal parts of time.

    The coefficients of a window are the cosine transform of its log-mel spectrum (see `LogMel`),
    without the first, which is its loudness. They separate the shape of the vocal tract, and so
    what is said, from pitch. The mean over the clip is subtracted, which removes what a voice or a
    microphone adds to all of it. Their derivatives in time follow in the row.

    Args:
        rate: Sampling rate in hertz that clips are converted to.
        bands: Number of mel filters.
        segments: Number of parts.
        seconds: Longest clip; what follows is ignored.
        coefficients: Number of coefficients, less than ``bands``.

    References:
        S. B. Davis, P. Mermelstein. "Comparison of parametric representations for monosyllabic word
        recognition in continuously spoken sentences." IEEE TASSP 1980.
    """

    coefficients: int = 16

    def __post_init__(self) -> None:
        """Validate the numbers."""
        super().__post_init__()
        check_integer(self.coefficients, "coefficients", least=1)
        if self.coefficients >= self.bands:
            raise DataError(
                f"coefficients must be less than the number of bands, {self.bands}; got"
                f" {self.coefficients}"
            )

    @property
    def width(self) -> int:
        """Coefficients and their derivatives, part by part."""
        return 2 * self.segments * self.coefficients

    def _describe(self, frames: _Samples) -> _Samples:
        angles = np.outer(np.arange(1, self.coefficients + 1), np.arange(self.bands) + 0.5)
        cepstrum = frames @ np.cos(np.pi / self.bands * angles).T * math.sqrt(2 / self.bands)
        changes = np.gradient(cepstrum, axis=0) if len(cepstrum) > 1 else np.zeros_like(cepstrum)
        return np.concatenate([cepstrum - cepstrum.mean(axis=0), changes], axis=1)


def decode_audio(raw: RawInput, *, rate: int, seconds: float) -> NDArray[np.float32]:
    """Decode an audio file to mono at a sampling rate.

    Channels are averaged. Bytes, channels, samples and time are limited, so files from untrusted
    clients are safe: at most 100 MB, 16 channels, 192 kHz, and 10 seconds of decoding.

    Args:
        raw: Path or content of a WAV, FLAC or OGG (Vorbis, Opus) file.
        rate: Sampling rate of the result in hertz.
        seconds: Longest clip; what follows is not decoded.

    Returns:
        The samples, at least one, between −1 and 1 for files of integers.

    Raises:
        DataError: Not audio, corrupted, empty, out of the limits, or samples that are not finite.
        MissingExtraError: soundfile is not installed.
    """
    try:
        import soundfile
    except ImportError as error:
        raise MissingExtraError("soundfile") from error
    content = read_content(raw, "an audio file", _MAX_BYTES)
    if not content.startswith(_MAGIC):
        raise DataError("not audio in one of the formats WAV, FLAC, OGG")
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            _check_format(file)
            samples = _read_mono(file, math.ceil(seconds * file.samplerate))
            return _resample(samples, file.samplerate, rate)
    except DataError:
        raise
    except Exception as error:  # libsndfile raises several types on corrupted files
        raise DataError(f"corrupted audio ({error})") from error


def _check_format(file: Any) -> None:  # noqa: ANN401 - soundfile has no types
    if file.format not in _FORMATS:
        raise DataError(f"audio of the format {file.format}; expected WAV, FLAC or OGG")
    if not 1 <= file.channels <= _MAX_CHANNELS:
        raise DataError(f"{file.channels} channels; at most {_MAX_CHANNELS} are supported")
    if not _RATES[0] <= file.samplerate <= _RATES[1]:
        raise DataError(
            f"a sampling rate of {file.samplerate:,} Hz; expected {_RATES[0]:,} to {_RATES[1]:,} Hz"
        )


def _read_mono(file: Any, max_frames: int) -> NDArray[np.float32]:  # noqa: ANN401
    """Read blocks and average their channels; the header's number of frames is not trusted."""
    blocks: list[NDArray[np.float32]] = []
    left = max_frames
    deadline = time.monotonic() + _MAX_SECONDS
    while left > 0:
        if time.monotonic() > deadline:
            raise DataError(f"decoding takes more than {_MAX_SECONDS:g} seconds; convert it first")
        block = file.read(min(left, _BLOCK_FRAMES), dtype="float32", always_2d=True)
        if not len(block):
            break
        blocks.append(block.mean(axis=1, dtype=np.float32))
        left -= len(block)
    if not blocks:
        raise DataError("no samples; the clip is empty")
    samples = np.concatenate(blocks)
    if not np.isfinite(samples).all():
        raise DataError("some samples are NaN or infinite; repair the clip first")
    return samples


def _resample(samples: NDArray[np.float32], rate: int, target: int) -> NDArray[np.float32]:
    """Band-limited resampling: the spectrum is cut off, or continued with zeros."""
    if rate == target:
        return samples
    n = max(1, round(len(samples) * target / rate))
    spectrum = np.fft.rfft(samples)[: n // 2 + 1]
    return (np.fft.irfft(spectrum, n) * (n / len(samples))).astype(np.float32)


def _unit_power(samples: NDArray[Any]) -> _Samples:
    values = np.asarray(samples, np.float64)
    if values.ndim != 1 or not len(values):
        raise DataError(f"expected samples of shape (n,), got {values.shape}")
    if not np.isfinite(values).all():
        raise DataError("some samples are NaN or infinite; repair the clip first")
    loudest = np.abs(values).max()
    if loudest == 0:
        raise DataError("silent: every sample is zero")
    values = values / loudest  # the squares of tiny samples would be zero
    return np.asarray(values / np.sqrt(np.square(values).mean()))


def _power_spectrum(samples: _Samples, rate: int) -> _Samples:
    """Power in Hann windows, shape (windows, frequencies); a short clip is padded to one window."""
    size = _window_size(rate)
    hop = max(1, round(_HOP * rate))
    n = 1 + max(0, math.ceil((len(samples) - size) / hop))
    padded = np.pad(samples, (0, max(0, (n - 1) * hop + size - len(samples))))
    frames = np.lib.stride_tricks.sliding_window_view(padded, size)[::hop][:n]
    window = np.hanning(size + 2)[1:-1]  # without the zeros at its ends
    return np.asarray(np.square(np.abs(np.fft.rfft(frames * window))) / np.square(window).sum())


def _window_size(rate: int) -> int:
    return max(8, round(_WINDOW * rate))


def _to_mel(hertz: float) -> float:
    return 2595 * math.log10(1 + hertz / 700)


def _to_hertz(mel: _Samples) -> _Samples:
    return np.asarray(700 * (10 ** (mel / 2595) - 1))
