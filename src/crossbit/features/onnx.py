"""Pretrained encoders through one door: any ONNX network of pictures, any ONNX network of sentences."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crossbit._io.files import read_json
from crossbit._validation import check_integer, check_known
from crossbit.errors import DataError, FormatError, MissingExtraError
from crossbit.features.extractor import Extractor, RawInput, Rows
from crossbit.features.image import decode_image
from crossbit.model import Onnx

_FITS, _LAYOUTS, _ORDERS, _POOLS = (
    ("squash", "crop"),
    ("nchw", "nhwc"),
    ("rgb", "bgr"),
    ("mean", "first"),
)


@dataclass(frozen=True, eq=False, kw_only=True)
class ImageNetwork(Extractor, kind="image-network"):
    r"""Features of a picture by an ONNX network: its first output, flattened.

    The picture becomes an array of ``size`` × ``size`` pixels with the values $(v - \mu) / \sigma$, $v$ from 0 to 255.

    Args:
        network: The bytes of the ONNX file; its input is a batch of pictures.
        size: Pixels a side.
        fit: ``"squash"`` keeps the whole picture without its proportions, ``"crop"`` takes the square in the middle.
        mean: $\mu$ of red, green and blue.
        deviation: $\sigma$ of red, green and blue.
        layout: ``"nchw"`` or ``"nhwc"``: where the network has its channels.
        order: ``"rgb"`` or ``"bgr"``.
    """

    accepts = "image"
    accepts_uploads = True

    network: bytes
    size: int = 224
    fit: str = "squash"
    mean: Sequence[float] = field(default_factory=lambda: [127.0, 127.0, 127.0])
    deviation: Sequence[float] = field(default_factory=lambda: [128.0, 128.0, 128.0])
    layout: str = "nchw"
    order: str = "rgb"

    def __post_init__(self) -> None:
        """Refuse settings that mean nothing."""
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
                    f"{name}: expected a number for red, green and blue each, got {getattr(self, name)!r}"
                )

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Self:
        """Read ``net.onnx``, and the preprocessing from ``net.json`` beside it if there is one.

        Args:
            path: The ONNX file; the JSON file holds fields of this class, such as ``{"size": 256, "fit": "crop"}``.
        """
        path = Path(path)
        names = ("size", "fit", "mean", "deviation", "layout", "order")
        settings = _settings(path.with_suffix(".json"), names)
        return cls(network=_content(path), **settings)

    @cached_property
    def width(self) -> int:
        """Columns that the network gives, found by asking it once."""
        return len(self._run(np.zeros((self.size, self.size, 3), np.float32)))

    def extract_one(self, thing: RawInput) -> Rows:
        """Decode, resize, run the network."""
        from PIL import Image

        picture = decode_image(thing, side=4 * self.size)
        if self.fit == "crop":
            side = min(picture.size)
            left, top = (picture.width - side) // 2, (picture.height - side) // 2
            picture = picture.crop((left, top, left + side, top + side))
        return self._run(
            np.asarray(picture.resize((self.size, self.size), Image.Resampling.BICUBIC), np.float32)
        )

    def _run(self, pixels: Rows) -> Rows:
        mean, deviation = (np.array(values, np.float32) for values in (self.mean, self.deviation))
        values: Rows = (pixels - mean) / deviation
        if self.order == "bgr":
            values = values[:, :, ::-1]
        if self.layout == "nchw":
            values = values.transpose(2, 0, 1)
        row: Rows = self._onnx(np.ascontiguousarray(values[None]))[0]
        return row

    @cached_property
    def _onnx(self) -> Onnx:
        return Onnx(self.network)


@dataclass(frozen=True, eq=False, kw_only=True)
class SentenceNetwork(Extractor, kind="sentence-network"):
    r"""Features of a text by an ONNX network of tokens.

    Inputs whose name holds ``mask`` get ones, ``type`` zeros, and the other one the tokens. An output for every token
    is pooled to one row; an output that is one row already is taken as it is.

    Args:
        network: The bytes of the ONNX file.
        tokenizer: The bytes of ``tokenizer.json``, as the library ``tokenizers`` writes it.
        most: Tokens that are looked at, at most.
        pool: ``"mean"`` of the tokens, or the ``"first"``.
        unit: Rows to unit length.
    """

    accepts = "text"

    network: bytes
    tokenizer: bytes
    most: int = 128
    pool: str = "mean"
    unit: bool = True

    def __post_init__(self) -> None:
        """Refuse settings that mean nothing."""
        check_integer(self.most, "most, in tokens,", least=3)
        check_known(self.pool, _POOLS, "pool")

    @classmethod
    def from_folder(cls, folder: str | PathLike[str]) -> Self:
        """Read ``model.onnx``, ``tokenizer.json`` and, if there is one, ``settings.json`` from a folder.

        Args:
            folder: Such as an ONNX export of a sentence encoder; ``settings.json`` holds fields of this class.
        """
        folder = Path(folder)
        settings = _settings(folder / "settings.json", ("most", "pool", "unit"))
        network, tokenizer = _content(folder / "model.onnx"), _content(folder / "tokenizer.json")
        return cls(network=network, tokenizer=tokenizer, **settings)

    @cached_property
    def width(self) -> int:
        """Columns that the network gives, found by asking it once."""
        return len(self.extract_one("a"))

    def extract_one(self, thing: RawInput) -> Rows:
        """Split into tokens, run the network, pool."""
        if not isinstance(thing, str) or not thing.strip():
            raise DataError("expected a text that is not empty")
        tokens = np.array([self._tokenizer.encode(thing).ids], np.int64)
        out: Rows = self._onnx.run({name: _input(name, tokens) for name in self._onnx.inputs})[0]
        if out.ndim == 2:
            out = out.mean(axis=0) if self.pool == "mean" else out[0]
        return out / max(float(np.linalg.norm(out)), 1e-12) if self.unit else out

    @cached_property
    def _onnx(self) -> Onnx:
        return Onnx(self.network)

    @cached_property
    def _tokenizer(self) -> Any:  # noqa: ANN401 - tokenizers brings no types
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingExtraError("tokenizers", "text") from error
        try:
            tokenizer = Tokenizer.from_str(self.tokenizer.decode())
        except Exception as error:  # tokenizers raises Exception itself
            raise FormatError(f"the tokenizer cannot be loaded ({error})") from error
        tokenizer.no_padding()  # a sentence goes alone
        tokenizer.enable_truncation(self.most)
        return tokenizer


def _input(name: str, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """What an input of a network of tokens gets, told by its name."""
    if "mask" in name:
        return np.ones_like(tokens)
    return np.zeros_like(tokens) if "type" in name else tokens


def _settings(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """Fields of a describer, from a JSON file that need not be there."""
    settings = read_json(path) if path.is_file() else {}
    if not isinstance(settings, dict):
        raise DataError(f"{path}: expected a JSON object with some of {list(names)}")
    for name in settings:
        check_known(name, names, f"field in {path}")
    return settings


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
