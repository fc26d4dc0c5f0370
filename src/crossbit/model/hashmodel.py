"""HashModel: the result of training, which encodes rows of any modality as binary codes."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit._validation import (
    check_bits,
    check_integer,
    check_known,
    check_modality,
    check_rows,
)
from crossbit.codes import Codes
from crossbit.errors import DataError, FormatError, RowError
from crossbit.kernels.dispatch import compiled
from crossbit.kernels.matmul import pack_signs
from crossbit.model import storage
from crossbit.model.layers import Affine, Layer, Onnx, Rows, Tanh
from crossbit.model.recipe import Recipe

_WORK = 1 << 25  # multiplications per block: enough to keep the processor busy
_MIN_ROWS = 512  # per block
_MAX_ROWS = 4096
_ROW_MULTIPLE = 16  # fills SIMD vectors exactly


@dataclass(frozen=True, eq=False, repr=False)
class HashModel:
    r"""A chain of layers and a sign per modality, $\operatorname{sign}(\ell_k(\dots \ell_1(x)))$.

    Every method of Crossbit returns one; encoding, storing and serving need nothing else. It
    requires only NumPy (and onnxruntime if a layer is a custom network).

    Args:
        encoders: Modality → its layers; the last one outputs ``n_bits`` columns.
        n_bits: Length of a code, 1 to 1024.
        recipes: Modality → how its rows are extracted from raw inputs, if known.
        card: Facts about the model: method, fields, data, metrics.
        n_inputs: Modality → how many of its leading layers are its *inputs*, the preparation of the
            features; the rest is the method's. 0 for a modality that is not named. It describes
            the layers; the codes do not depend on it.

    Example:
        >>> import numpy as np
        >>> from crossbit.model import Affine, HashModel
        >>> sign = Affine(np.eye(2), np.zeros(2))
        >>> model = HashModel({"image": [sign], "text": [sign]}, n_bits=2)
        >>> model.encode("text", [[0.5, -1.0]]).unpack()
        array([[ True, False]])
    """

    encoders: Mapping[str, Sequence[Layer]]
    n_bits: int
    recipes: Mapping[str, Recipe] = field(default_factory=dict)
    card: Mapping[str, Any] = field(default_factory=dict)
    n_inputs: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reject chains of layers whose widths do not match, and names of other modalities."""
        object.__setattr__(self, "n_bits", check_bits(self.n_bits))
        if not self.encoders:
            raise DataError("a model needs at least one modality")
        encoders = {check_modality(name): tuple(layers) for name, layers in self.encoders.items()}
        for name, layers in encoders.items():
            _check_widths(name, layers, self.n_bits)
        for name in self.recipes:
            check_known(name, encoders)
        for name in self.n_inputs:
            check_known(name, encoders)
        n_inputs = {
            name: _check_inputs(name, self.n_inputs.get(name, 0), len(layers))
            for name, layers in encoders.items()
        }
        object.__setattr__(self, "encoders", encoders)
        object.__setattr__(self, "n_inputs", n_inputs)

    @property
    def modalities(self) -> list[str]:
        """Names of the modalities that the model can encode."""
        return list(self.encoders)

    def width(self, modality: str) -> int | None:
        """Return the number of input columns of a modality; None if a custom network decides."""
        for layer in self.encoders[check_known(modality, self.encoders)]:
            if isinstance(layer, Onnx):
                return None
            if (width := layer.widths()[0]) is not None:
                return width
        return None

    def encode(self, modality: str, X: ArrayLike) -> Codes:
        """Encode rows as binary codes: a bit is 1 where the output is ≥ 0.

        A row's code does not depend on the other rows: the kernels sum every product in a fixed
        order. Without them, rows are multiplied in blocks of one size, padded with zeros.

        Args:
            modality: Modality of the rows.
            X: Rows, shape (n, width); a memory-mapped array is read one block at a time.
        """
        layers = self.encoders[check_known(modality, self.encoders)]
        if isinstance(layers[-1], Tanh):  # keeps the sign of its input
            layers = layers[:-1]
        array = self._check(modality, X)
        words = np.empty((len(array), -(-self.n_bits // 64)), np.uint64)
        last = layers[-1]
        before = layers[:-1] if isinstance(last, Affine) else layers
        for rows, outputs in self._run(modality, before, array):
            n = rows.stop - rows.start
            if not isinstance(last, Affine):
                words[rows] = pack_signs(outputs[:n])
                continue
            signs, bad = last.product.signs(outputs)
            words[rows] = signs[:n]
            if bad < len(outputs) and not before:
                _check_finite(array[rows], rows.start, modality)
        return Codes(words, self.n_bits, model=self.fingerprint())

    def scores(self, modality: str, X: ArrayLike) -> NDArray[np.float32]:
        """Return the real-valued outputs whose signs are the bits, shape (n, n_bits).

        Arguments are those of `encode`.
        """
        layers = self.encoders[check_known(modality, self.encoders)]
        array = self._check(modality, X)
        scores = np.empty((len(array), self.n_bits), np.float32)
        for rows, outputs in self._run(modality, layers, array):
            scores[rows] = outputs[: rows.stop - rows.start]
        return scores

    def _check(self, modality: str, X: ArrayLike) -> NDArray[Any]:
        """Check type and width of the rows; each block is checked for finite values later."""
        array = check_rows(X, f"rows of {modality!r}")
        width = self.width(modality)
        if width is not None and array.shape[1:] != (width,):
            raise DataError(f"rows of {modality!r}: expected shape (n, {width}), got {array.shape}")
        return array

    def _run(
        self, modality: str, layers: Sequence[Layer], X: NDArray[Any]
    ) -> Iterator[tuple[slice, Rows]]:
        """Apply layers to blocks of rows, padded with zeros, and check that the rows are finite.

        Without compiled kernels the size of a block depends on the model only: BLAS rounds
        differently for few rows than for many, so only equal shapes give equal bits.
        """
        work = sum(layer.work() for layer in self.encoders[modality])
        size = min(max(_MIN_ROWS, 1 << (_WORK // max(1, work)).bit_length() - 1), _MAX_ROWS)
        multiple = _ROW_MULTIPLE if compiled() else size
        for start in range(0, len(X), size):
            rows = slice(start, min(start + size, len(X)))
            with np.errstate(over="ignore", invalid="ignore"):  # checked below
                outputs = block = _padded(X[rows], multiple)
                if layers:
                    outputs = layers[0](block)
                    # An affine layer propagates NaN and infinity to its smaller output.
                    checked = outputs if isinstance(layers[0], Affine) else block
                    if not (np.isfinite(checked.min()) and np.isfinite(checked.max())):
                        _check_finite(X[rows], start, modality)
            for layer in layers[1:]:
                outputs = layer(outputs)
            yield rows, outputs

    def fingerprint(self) -> str:
        """Return a SHA-256 of all that determines the codes: equal fingerprint, equal codes."""
        return self._fingerprint

    def modality_fingerprint(self, modality: str) -> str:
        """Return a SHA-256 of all that determines the codes of one modality, whatever its name.

        Two modalities with equal fingerprints make equal codes of equal rows, also in models that
        differ otherwise. A model extends another if it has the modalities of the other, each with
        the same fingerprint: codes of both then are comparable.
        """
        layers = self.encoders[check_known(modality, self.encoders)]
        return self._digest({"": layers})

    @cached_property
    def _fingerprint(self) -> str:
        return self._digest(self.encoders)

    def _digest(self, encoders: Mapping[str, Sequence[Layer]]) -> str:
        digest = hashlib.sha256(repr(self.n_bits).encode())
        for name, layers in sorted(encoders.items()):
            for layer in layers:
                digest.update(repr((name, layer.kind, sorted(layer.settings().items()))).encode())
                for key, value in sorted(layer.weights().items()):
                    digest.update(
                        repr((key, value.shape, value.dtype.str)).encode() + value.tobytes()
                    )
                for key, blob in sorted(layer.blobs().items()):
                    digest.update(key.encode() + blob)
        return digest.hexdigest()

    def save(self, path: str | PathLike[str], *, parents: bool = True) -> None:
        """Write the model to a folder atomically; an existing model there is replaced.

        Args:
            path: The folder.
            parents: Whether missing parents of the folder are created.
        """
        parts = (self.encoders, self.n_bits, self.recipes, self.card, self.n_inputs)
        storage.save(Path(path), *parts, parents=parents)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Load a model; raise a `FormatError` that names a truncated, modified or newer file."""
        parts = storage.load(Path(path))
        try:
            return cls(*parts)
        except DataError as error:
            raise FormatError(f"{path}: not a valid model ({error})") from error

    def __eq__(self, other: object) -> bool:
        """Whether both have the same layers, inputs, recipes and card."""
        if not isinstance(other, HashModel):
            return NotImplemented
        return (
            self.n_bits == other.n_bits
            and self.encoders == other.encoders
            and dict(self.recipes) == dict(other.recipes)
            and dict(self.card) == dict(other.card)
            and self.n_inputs == other.n_inputs
        )

    def __repr__(self) -> str:
        """Such as ``HashModel(image, text → 32 bits)``."""
        return f"HashModel({', '.join(self.encoders)} → {self.n_bits} bits)"


def _check_widths(modality: str, layers: Sequence[Layer], n_bits: int) -> None:
    """Check that each layer accepts the output of the one before, and the last gives the bits."""
    if not layers:
        raise DataError(f"modality {modality!r} has no layers")
    width: int | None = None
    for layer in layers:
        n_in, n_out = layer.widths()
        if None not in (width, n_in) and width != n_in:
            raise DataError(
                f"modality {modality!r}: layer {layer.kind!r} expects {n_in} columns, got {width}"
            )
        if isinstance(layer, Onnx):
            width = None
        width = n_out if n_out is not None else width
    if width not in (None, n_bits):
        raise DataError(
            f"modality {modality!r}: its layers output {width} columns, expected {n_bits} bits"
        )


def _check_inputs(modality: str, n: object, n_layers: int) -> int:
    """Return the number of input layers; the method needs at least one layer after them."""
    n_inputs = check_integer(n, f"n_inputs of {modality!r}")
    if n_inputs >= n_layers:
        raise DataError(
            f"n_inputs of {modality!r} must be less than its {n_layers} layers, got {n_inputs};"
            " count only the layers that prepare its features"
        )
    return n_inputs


def _padded(X: NDArray[Any], multiple: int) -> Rows:
    """Return the rows as float32, padded with zeros to a multiple of rows."""
    size = -(-len(X) // multiple) * multiple
    if len(X) == size:
        return np.ascontiguousarray(X, np.float32)
    block = np.zeros((size, *X.shape[1:]), np.float32)
    block[: len(X)] = X
    return block


def _check_finite(X: NDArray[Any], start: int, modality: str) -> None:
    """Raise for the first row that is not finite; products of finite rows may overflow."""
    with np.errstate(over="ignore"):
        bad = ~np.isfinite(X.astype(np.float32)).reshape(len(X), -1).all(axis=1)
    if bad.any():
        raise RowError(
            modality,
            start + int(bad.argmax()),
            "contains NaN, infinity or numbers beyond float32; remove or impute it",
        )
