"""Features of pretrained ONNX networks: any image, audio or sentence encoder."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crossbit._io.files import read_json
from crossbit._validation import check_integer, check_known
from crossbit.errors import DataError, FormatError, MissingExtraError
from crossbit.features.audio import LogMel, decode_audio
from crossbit.features.extractor import Extractor, RawInput, Rows
from crossbit.features.image import decode_image
from crossbit.features.text import words
from crossbit.model.layers import Onnx

_FITS = ("squash", "crop")
_LAYOUTS = ("nchw", "nhwc")
_ORDERS = ("rgb", "bgr")
_POOLS = ("mean", "first")
_AUDIO_INPUTS = ("samples", "log-mel")


@dataclass(frozen=True, eq=False, kw_only=True)
class _Network(Extractor):
    """Base class of extractors that run a network.

    Args:
        network: Content of the ONNX file.
    """

    network: bytes

    @cached_property
    def _onnx(self) -> Onnx:
        return Onnx(self.network)

    @classmethod
    def _from_files(cls, settings: Path, **files: Path) -> Self:
        """Read fields from files, and the others from a JSON file if there is one."""
        contents = {name: _read_bytes(path) for name, path in files.items()}
        values = read_json(settings) if settings.is_file() else {}
        names = [f.name for f in fields(cls) if f.name not in contents]
        if not isinstance(values, dict):
            raise DataError(f"{settings}: expected a JSON object with some of {names}")
        for name in values:
            check_known(name, names, f"field in {settings}")
        return cls(**contents, **values)


@dataclass(frozen=True, eq=False, kw_only=True)
class ImageNetwork(_Network, kind="image-network"):
    r"""Image features of an ONNX network: its first output, flattened.

    The input is an array of ``size`` × ``size`` pixels with values $(v - \mu) / \sigma$, where $v$
    ranges from 0 to 255.

    Args:
        network: Content of the ONNX file; the network takes a batch of images.
        size: Width and height in pixels.
        fit: ``"squash"`` resizes the whole image without keeping proportions, ``"crop"`` takes the
            square in the center.
        mean: $\mu$ of red, green and blue.
        deviation: $\sigma$ of red, green and blue.
        layout: Position of the channels, ``"nchw"`` or ``"nhwc"``.
        order: Order of the channels, ``"rgb"`` or ``"bgr"``.
    """

    accepts = "image"
    accepts_uploads = True

    size: int = 224
    fit: str = "squash"
    mean: Sequence[float] = field(default_factory=lambda: [127.0, 127.0, 127.0])
    deviation: Sequence[float] = field(default_factory=lambda: [128.0, 128.0, 128.0])
    layout: str = "nchw"
    order: str = "rgb"

    def __post_init__(self) -> None:
        """Validate the preprocessing."""
        check_integer(self.size, "size, in pixels,", least=1)
        check_known(self.fit, _FITS, "fit")
        check_known(self.layout, _LAYOUTS, "layout")
        check_known(self.order, _ORDERS, "order")
        for name in ("mean", "deviation"):
            values = np.asarray(getattr(self, name))
            if (
                values.shape != (3,)
                or values.dtype.kind not in "if"
                or (name == "deviation" and not values.all())
            ):
                raise DataError(
                    f"{name}: expected one number for each of red, green and blue,"
                    f" got {getattr(self, name)!r}"
                )

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Self:
        """Read a network, and its preprocessing from a JSON file of the same name if there is one.

        Args:
            path: The ONNX file, such as ``net.onnx``. ``net.json`` holds fields of this class, such
                as ``{"size": 256, "fit": "crop"}``.
        """
        return cls._from_files(Path(path).with_suffix(".json"), network=Path(path))

    @cached_property
    def width(self) -> int:
        """Size of the network's output, found by running it once."""
        return len(self._run(np.zeros((self.size, self.size, 3), np.float32)))

    def extract_one(self, raw: RawInput) -> Rows:
        """Decode and resize an image, and run the network."""
        from PIL import Image

        image = decode_image(raw, side=4 * self.size)
        if self.fit == "crop":
            side = min(image.size)
            left = (image.width - side) // 2
            top = (image.height - side) // 2
            image = image.crop((left, top, left + side, top + side))
        resized = image.resize((self.size, self.size), Image.Resampling.BICUBIC)
        return self._run(np.asarray(resized, np.float32))

    def _run(self, pixels: Rows) -> Rows:
        mean = np.array(self.mean, np.float32)
        deviation = np.array(self.deviation, np.float32)
        values: Rows = (pixels - mean) / deviation
        if self.order == "bgr":
            values = values[:, :, ::-1]
        if self.layout == "nchw":
            values = values.transpose(2, 0, 1)
        row: Rows = self._onnx(np.ascontiguousarray(values[None]))[0]
        return row


@dataclass(frozen=True, eq=False, kw_only=True)
class AudioNetwork(_Network, kind="audio-network"):
    """Audio features of an ONNX network: its first output, averaged over time if it has an axis.

    The network takes samples of shape (1, n), or (n,) if its input has one axis; or a log-mel
    spectrogram of shape (1, windows, bands), with an axis of length 1 in front of the windows if
    its input has four (see `LogMel`).

    Args:
        network: Content of the ONNX file.
        rate: Sampling rate in hertz.
        seconds: Longest clip; what follows is ignored.
        fixed: Whether shorter clips are repeated until they are ``seconds`` long, for networks that
            take one length.
        input: ``"samples"`` or ``"log-mel"``.
        bands: Number of mel bands of ``"log-mel"``.
    """

    accepts = "audio"
    accepts_uploads = True

    rate: int = 16_000
    seconds: float = 10.0
    fixed: bool = False
    input: str = "samples"
    bands: int = 64

    def __post_init__(self) -> None:
        """Validate the preprocessing."""
        LogMel(rate=self.rate, seconds=self.seconds, bands=self.bands)
        check_known(self.input, _AUDIO_INPUTS, "input")

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Self:
        """Read a network, and its preprocessing from a JSON file of the same name if there is one.

        Args:
            path: The ONNX file, such as ``net.onnx``. ``net.json`` holds fields of this class, such
                as ``{"rate": 32000, "input": "log-mel"}``.
        """
        return cls._from_files(Path(path).with_suffix(".json"), network=Path(path))

    @cached_property
    def width(self) -> int:
        """Size of the network's output, found by running it on a second of a tone."""
        tone = np.sin(0.1 * np.arange(self.rate, dtype=np.float32))
        return len(self._run(tone))

    def extract_one(self, raw: RawInput) -> Rows:
        """Decode a clip and run the network."""
        return self._run(decode_audio(raw, rate=self.rate, seconds=self.seconds))

    def _run(self, samples: Rows) -> Rows:
        if self.fixed:
            samples = np.resize(samples, round(self.seconds * self.rate))
        values = samples
        if self.input == "log-mel":
            mel = LogMel(rate=self.rate, bands=self.bands, seconds=self.seconds)
            values = mel.spectrogram(samples).astype(np.float32)
        missing = self._onnx.rank - values.ndim
        if missing < 0:
            raise DataError(
                f"the network takes inputs of {self._onnx.rank} axes, but a clip as {self.input}"
                f" has {values.ndim}; choose another input"
            )
        batch = np.ascontiguousarray(values.reshape((1,) * missing + values.shape))
        row = self._onnx.run({self._onnx.inputs[0]: batch})
        row = row.reshape(row.shape[1:]) if row.ndim > 1 and len(row) == 1 else row
        while row.ndim > 1:
            row = row.mean(axis=0)
        return np.atleast_1d(row)


@dataclass(frozen=True, eq=False, kw_only=True)
class SentenceNetwork(_Network, kind="sentence-network"):
    r"""Text features of an ONNX network of tokens.

    The network's inputs are recognized by name: one that contains ``mask`` gets ones, one that
    contains ``type`` gets zeros, and the remaining one gets the tokens. An output per token is
    pooled to one row; an output that is one row is used directly.

    Args:
        network: Content of the ONNX file.
        tokenizer: Content of ``tokenizer.json``, as written by the library ``tokenizers``.
        most: Largest number of tokens; longer texts are truncated.
        pool: ``"mean"`` of the tokens, or the ``"first"`` token.
        unit: Whether rows are scaled to unit length.
    """

    accepts = "text"
    batch_size = 256

    tokenizer: bytes
    most: int = 128
    pool: str = "mean"
    unit: bool = True

    def __post_init__(self) -> None:
        """Validate the settings."""
        check_integer(self.most, "most, in tokens,", least=3)
        check_known(self.pool, _POOLS, "pool")

    @classmethod
    def from_folder(cls, path: str | PathLike[str]) -> Self:
        """Read ``model.onnx``, ``tokenizer.json`` and, if present, ``settings.json``.

        Args:
            path: Folder with an ONNX export of a sentence encoder. ``settings.json`` holds fields
                of this class.
        """
        folder = Path(path)
        return cls._from_files(
            folder / "settings.json",
            network=folder / "model.onnx",
            tokenizer=folder / "tokenizer.json",
        )

    @cached_property
    def width(self) -> int:
        """Size of the network's output, found by running it once."""
        return len(self.extract_one("a"))

    def extract_one(self, raw: RawInput) -> Rows:
        """Tokenize a text, run the network and pool its output."""
        (outcome,) = self.extract_batch([raw])
        if isinstance(outcome, DataError):
            raise outcome
        return outcome

    def extract_batch(self, inputs: Sequence[RawInput]) -> list[Rows | DataError]:
        """Tokenize texts and run the network on those of equal length together.

        Texts are not padded, so a row does not depend on the length of the others.
        """
        outcomes: dict[int, Rows | DataError] = {}
        by_length: dict[int, dict[int, list[int]]] = {}
        for position, raw in enumerate(inputs):
            if isinstance(raw, str) and raw.strip():
                tokens = self._tokenizer.encode(raw).ids
                by_length.setdefault(len(tokens), {})[position] = tokens
            else:
                outcomes[position] = DataError("expected a text that is not empty")
        for texts in by_length.values():
            # onnxruntime averages a batch of one in another order: a lone text is run twice.
            rows = self._run(np.array([*texts.values()] * (1 + (len(texts) == 1)), np.int64))
            outcomes |= zip(texts, rows, strict=False)
        return [outcomes[position] for position in range(len(inputs))]

    def _run(self, tokens: NDArray[np.int64]) -> Rows:
        """Rows of texts of equal length, shape (texts, width)."""
        rows: Rows = self._onnx.run(
            {name: _network_input(name, tokens) for name in self._onnx.inputs}
        )
        if rows.ndim == 3:
            rows = rows.mean(axis=1) if self.pool == "mean" else rows[:, 0]
        if not self.unit:
            return rows
        norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        return np.asarray(rows / norms)

    def terms(self, raw: RawInput) -> list[str]:
        """Return the words of a text."""
        return words(raw) if isinstance(raw, str) else []

    @cached_property
    def _tokenizer(self) -> Any:  # noqa: ANN401 - tokenizers has no type hints
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingExtraError("tokenizers") from error
        try:
            tokenizer = Tokenizer.from_str(self.tokenizer.decode())
        except Exception as error:  # tokenizers raises plain Exception
            raise FormatError(f"the tokenizer cannot be loaded ({error})") from error
        tokenizer.no_padding()  # texts are encoded one by one
        tokenizer.enable_truncation(self.most)
        return tokenizer


def _network_input(name: str, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    if "mask" in name:
        return np.ones_like(tokens)
    return np.zeros_like(tokens) if "type" in name else tokens


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
