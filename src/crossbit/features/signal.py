"""Features of series of numbers, such as sensor readings; and vectors, which are features already.

A series has one row per point in time and one column per channel. It is a ``.npy`` file, or CSV
with or without a header.
"""

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crossbit._io.arrays import parse_npy
from crossbit._validation import check_integer
from crossbit.errors import DataError, FormatError
from crossbit.features._content import read_content
from crossbit.features.extractor import Extractor, RawInput, Rows

_NPY = b"\x93NUMPY"
_MAX_BYTES = 100_000_000
_MAX_CSV_BYTES = 20_000_000  # parsing text is a hundred times slower
_MAX_CHANNELS = 1024
_MAX_VALUES = 1 << 24
_LARGEST = 1e15  # the fourth power of a value must be finite
_DELIMITERS = ",;\t"
_SPECTRAL_BANDS = 8
# The kernels of MiniRocket: nine weights, three of them 2 and the others −1.
_KERNELS = np.full((84, 9), -1.0, np.float32)
_KERNELS[np.repeat(np.arange(84), 3), np.array(list(combinations(range(9), 3))).ravel()] = 2.0

_Series = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SignalStatistics(Extractor, kind="signal-statistics"):
    r"""Statistics of each channel of a series, and the correlations of its channels.

    Of a channel: mean, standard deviation, minimum, quartiles, maximum, mean absolute change,
    skewness, excess kurtosis, share of changes of sign around the mean, and the shares of its power
    in eight octaves, from the lowest frequencies to the highest. The first seven have the unit of
    the series, the others none. A constant channel has zeros where a value is undefined.

    Args:
        channels: Number of channels of a series.
    """

    accepts = "signal"
    accepts_uploads = True

    channels: int

    def __post_init__(self) -> None:
        """Validate the number of channels."""
        check_integer(self.channels, "channels", least=1)

    @classmethod
    def fit(cls, series: Iterable[RawInput]) -> Self:
        """Take the number of channels from the first usable series."""
        return cls(next(_usable(series)).shape[1])

    @property
    def width(self) -> int:
        """Statistics of each channel, then the correlation of each pair of channels."""
        return self.channels * (11 + _SPECTRAL_BANDS) + self.channels * (self.channels - 1) // 2

    def extract_one(self, raw: RawInput) -> Rows:
        """Decode a series and compute its statistics."""
        values = _decode(raw, self.channels)
        mean = values.mean(axis=0)
        scale = values.std(axis=0)
        # A constant channel can have a tiny deviation from rounding.
        varies = scale > 1e-9 * np.abs(values).max(axis=0)
        unit = np.where(varies, (values - mean) / np.where(varies, scale, 1), 0)
        changes = np.abs(np.diff(values, axis=0))
        parts = [
            mean,
            np.where(varies, scale, 0),
            *np.quantile(values, [0, 0.25, 0.5, 0.75, 1], axis=0),
            changes.mean(axis=0) if len(changes) else np.zeros(self.channels),
            (unit**3).mean(axis=0),
            np.where(varies, (unit**4).mean(axis=0) - 3, 0),
            _sign_changes(unit),
            *_octaves(unit),
            (unit.T @ unit)[np.triu_indices(self.channels, 1)] / len(unit),
        ]
        return np.concatenate(parts).astype(np.float32)


def _sign_changes(unit: _Series) -> _Series:
    positive = unit >= 0
    if len(unit) < 2:
        return np.zeros(unit.shape[1])
    return np.asarray((positive[1:] != positive[:-1]).mean(axis=0))


def _octaves(unit: _Series) -> _Series:
    """Shares of the power in eight octaves, shape (8, channels); zeros without power."""
    power = np.square(np.abs(np.fft.rfft(unit, axis=0)))[1:]
    octave = np.log2(np.arange(1, len(power) + 1) / max(len(power), 1)) + _SPECTRAL_BANDS
    bands = np.clip(np.ceil(octave) - 1, 0, _SPECTRAL_BANDS - 1).astype(np.int64)
    shares = np.zeros((_SPECTRAL_BANDS, unit.shape[1]))
    np.add.at(shares, bands, power)
    return np.asarray(shares / np.maximum(shares.sum(axis=0), 1e-12))


@dataclass(frozen=True, eq=False, kw_only=True)
class RandomConvolutions(Extractor, kind="signal-convolutions"):
    r"""Shares of time at which convolutions of a series exceed their thresholds.

    The kernels $w_k$ are the 84 of MiniRocket, of nine weights −1 or 2 that sum to 0, at several
    dilations. Each adds up a random subset of the standardized channels $z_c$:

    $$ x_{k,b} = \frac1T \Big|\Big\{ t : \sum_{c \in C_k} (w_k * z_c)(t) > \theta_{k,b}
       \Big\}\Big| $$

    The thresholds $\theta$ are quantiles of the convolutions of training series. A series of
    another length is first interpolated to ``length`` points.

    Args:
        length: Number of points in time.
        mean: Mean of each channel, shape (channels,).
        deviation: Standard deviation of each channel.
        subsets: Channels of each dilation and kernel, boolean (dilations, 84, channels).
        thresholds: Thresholds, shape (dilations, 84, quantiles).

    References:
        A. Dempster, D. F. Schmidt, G. I. Webb. "MiniRocket: a very fast (almost) deterministic
        transform for time series classification." KDD 2021.
    """

    accepts = "signal"
    accepts_uploads = True

    length: int
    mean: NDArray[Any]
    deviation: NDArray[Any]
    subsets: NDArray[Any]
    thresholds: NDArray[Any]

    def __post_init__(self) -> None:
        """Check that the arrays fit together."""
        check_integer(self.length, "length", least=1)
        dilations, kernels, channels = self.subsets.shape if self.subsets.ndim == 3 else (0, 0, 0)
        expected = [(channels,), (channels,), (dilations, len(_KERNELS))]
        shapes = [self.mean.shape, self.deviation.shape, self.thresholds.shape[:2]]
        if shapes != expected or kernels != len(_KERNELS) or self.thresholds.ndim != 3:
            raise DataError(
                "expected mean and deviation (channels,), subsets (dilations, 84, channels) and"
                f" thresholds (dilations, 84, quantiles); got {self.mean.shape},"
                f" {self.deviation.shape}, {self.subsets.shape}, {self.thresholds.shape}"
            )

    @classmethod
    def fit(
        cls, series: Iterable[RawInput], *, size: int = 1000, samples: int = 64, seed: int = 0
    ) -> Self:
        """Learn length, scale and thresholds; series that cannot be decoded are skipped.

        Args:
            series: Paths or contents of files, all with the same number of channels.
            size: Number of features; rounded to a multiple of 84 per dilation.
            samples: Number of series to learn from, drawn at random.
            seed: Seed of the sample, the subsets of channels and the quantiles.
        """
        check_integer(size, "the number of features", least=1)
        random = np.random.default_rng(seed)
        files = list(series)
        order = random.permutation(len(files))
        decoded = _usable(files[position] for position in order)
        chosen = [values for _, values in zip(range(samples), decoded, strict=False)]
        channels = chosen[0].shape[1]
        chosen = [values for values in chosen if values.shape[1] == channels]
        points = np.concatenate(chosen)
        length = int(np.median([len(values) for values in chosen]))
        dilations = len(_dilations(length))
        quantiles = max(1, round(size / (dilations * len(_KERNELS))))
        subsets = random.random((dilations, len(_KERNELS), channels)) < 0.5
        first = random.integers(channels, size=(dilations, len(_KERNELS), 1))
        subsets |= np.arange(channels) == first  # at least one channel
        scale = points.std(axis=0)
        draft = cls(
            length=length,
            mean=points.mean(axis=0).astype(np.float32),
            deviation=np.where(scale > 0, scale, 1).astype(np.float32),
            subsets=subsets,
            thresholds=np.zeros((dilations, len(_KERNELS), quantiles), np.float32),
        )
        outputs = np.stack([draft._convolve(values) for values in chosen])
        levels = (np.arange(quantiles) + random.random(quantiles)) / quantiles
        thresholds = np.quantile(outputs, levels, axis=(0, 3)).transpose(1, 2, 0)
        return replace(draft, thresholds=np.ascontiguousarray(thresholds, np.float32))

    @property
    def width(self) -> int:
        """One column per dilation, kernel and threshold."""
        return int(self.thresholds.size)

    def extract_one(self, raw: RawInput) -> Rows:
        """Decode a series, convolve it, and count."""
        outputs = self._convolve(_decode(raw, len(self.mean)))
        above = outputs[:, :, None, :] > self.thresholds[..., None]
        return np.asarray(above.mean(axis=3).reshape(-1), np.float32)

    def _convolve(self, series: _Series) -> NDArray[np.float32]:
        """Outputs of all kernels, shape (dilations, 84, length)."""
        at = np.linspace(0, len(series) - 1, self.length)
        points = np.arange(len(series))
        columns = [np.interp(at, points, column) for column in series.T]
        z = (np.stack(columns) - self.mean[:, None]) / self.deviation[:, None]
        outputs = []
        for dilation, subset in zip(_dilations(self.length), self.subsets, strict=True):
            padded = np.pad(z.astype(np.float32), ((0, 0), (4 * dilation, 4 * dilation)))
            shifts = np.stack(
                [padded[:, tap * dilation : tap * dilation + self.length] for tap in range(9)],
                axis=1,
            )
            weights = subset[:, :, None] * _KERNELS[:, None, :]
            outputs.append(weights.reshape(len(_KERNELS), -1) @ shifts.reshape(-1, self.length))
        return np.stack(outputs)


def _dilations(length: int) -> list[int]:
    """Powers of two at which a kernel of nine weights still fits into the series."""
    largest = max(1, (length - 1) // 8)
    return [1 << power for power in range(largest.bit_length())]


@dataclass(frozen=True, eq=False)
class Vector(Extractor, kind="vector"):
    """Features as they are: the numbers of a ``.npy`` file, or of a line of CSV.

    Args:
        size: Number of features.

    Example:
        >>> Vector(3).extract([b"1,2.5,-3"])
        array([[ 1. ,  2.5, -3. ]], dtype=float32)
    """

    accepts = "vector"
    accepts_uploads = True

    size: int

    def __post_init__(self) -> None:
        """Validate the size."""
        check_integer(self.size, "size", least=1)

    @classmethod
    def fit(cls, vectors: Iterable[RawInput]) -> Self:
        """Take the number of features from the first usable vector."""
        return cls(next(_usable(vectors)).size)

    @property
    def width(self) -> int:
        """The size."""
        return self.size

    def extract_one(self, raw: RawInput) -> Rows:
        """Read the numbers."""
        values = decode_signal(raw)
        if min(values.shape) > 1 or values.size != self.size:
            raise DataError(f"expected {self.size} numbers, got an array of shape {values.shape}")
        return values.reshape(-1).astype(np.float32)


def decode_signal(raw: RawInput) -> _Series:
    """Decode a series: one row per point in time, one column per channel.

    Bytes and channels are limited, pickles are refused, and memory grows with the size of the file
    alone, so files from untrusted clients are safe.

    Args:
        raw: Path or content of a ``.npy`` file with an array (time,) or (time, channels), or of CSV
            with commas, semicolons or tabs; a first line that is not of numbers is a header.

    Raises:
        DataError: Not a series, corrupted, empty, too large, or with NaN or infinite values.
    """
    content = read_content(raw, "a series", _MAX_BYTES)
    values = _parse_array(content) if content.startswith(_NPY) else _parse_csv(content)
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or 0 in values.shape:
        raise DataError(f"expected an array (time,) or (time, channels), got {values.shape}")
    if values.shape[1] > _MAX_CHANNELS and len(values) > 1:
        raise DataError(
            f"{values.shape[1]:,} channels; at most {_MAX_CHANNELS} are supported. Time must be the"
            " first axis"
        )
    if not (np.abs(values) <= _LARGEST).all():
        raise DataError(
            f"some values are NaN, infinite or beyond ±{_LARGEST:.0e}; fill the gaps first"
        )
    return values


def _parse_array(content: bytes) -> _Series:
    try:
        array = parse_npy(content)
    except FormatError as error:
        raise DataError(str(error)) from error
    if array.dtype.kind not in "biuf":
        raise DataError(f"expected an array of numbers, got {array.dtype}")
    if array.size > _MAX_VALUES:
        raise DataError(f"{array.size:,} values; at most {_MAX_VALUES:,} are supported")
    return array.astype(np.float64)


def _parse_csv(content: bytes) -> _Series:
    if len(content) > _MAX_CSV_BYTES:
        raise DataError(
            f"CSV of more than {_MAX_CSV_BYTES // 10**6} MB; save the series as .npy instead"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError("neither a .npy file nor CSV (it is not UTF-8)") from error
    first, _, rest = text.lstrip().partition("\n")
    if not first:
        raise DataError("empty; expected numbers")
    delimiter = max(_DELIMITERS, key=first.count)
    has_header = not all(map(_is_number, first.split(delimiter)))
    lines = rest if has_header else text
    if not lines.strip():
        raise DataError("neither a .npy file nor CSV of numbers")
    try:
        return np.loadtxt(io.StringIO(lines), delimiter=delimiter, ndmin=2, comments=None)
    except ValueError as error:
        raise DataError(f"not a series of numbers ({error})") from error


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _decode(raw: RawInput, channels: int) -> _Series:
    values = decode_signal(raw)
    if values.shape[1] != channels:
        raise DataError(f"expected {channels} channels, got {values.shape[1]}")
    return values


def _usable(series: Iterable[RawInput]) -> Iterator[_Series]:
    """Series that can be decoded.

    Raises:
        DataError: None can; the message has the reason of the last one.
    """
    reason = "there is none"
    found = False
    for raw in series:
        try:
            values = decode_signal(raw)
        except DataError as error:
            reason = f"{Extractor.input_name(raw)}: {error}"
            continue
        found = True
        yield values
    if not found:
        raise DataError(f"no usable series ({reason})")
