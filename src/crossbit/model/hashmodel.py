"""HashModel: what learning leaves behind, one plain value that turns rows of any modality into codes."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit._validation import check_bits, check_known, check_modality, check_rows
from crossbit.codes import Codes
from crossbit.errors import DataError, FormatError
from crossbit.kernels import compiled, pack_signs
from crossbit.model import storage
from crossbit.model.layers import Affine, Layer, Onnx, Rows, Tanh
from crossbit.model.recipe import Recipe

_WORK = 1 << 25  # multiplications in a block: enough to keep the processor busy
_FEWEST, _MOST = 512, 4096  # rows in a block
_TOGETHER = 16  # rows that make every array a whole number of vectors


@dataclass(frozen=True, eq=False, repr=False)
class HashModel:
    r"""For each modality a chain of layers and a sign, $\operatorname{sign}(\ell_k(\dots \ell_1(x)))$.

    Every method of Crossbit learns one of these; encoding, storing and serving know nothing else. It needs
    NumPy alone (and onnxruntime when a user's own network is among the layers).

    Args:
        encoders: Modality → its layers; the last one gives ``n_bits`` columns.
        n_bits: Length of a code, 1 to 1024.
        recipes: Modality → how its rows are made from raw things, where that is known.
        card: What is known about the model: method, fields, data, metrics.

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

    def __post_init__(self) -> None:
        """Refuse chains whose widths do not fit together."""
        object.__setattr__(self, "n_bits", check_bits(self.n_bits))
        if not self.encoders:
            raise DataError("a model needs at least one modality")
        encoders = {check_modality(name): tuple(layers) for name, layers in self.encoders.items()}
        for name, layers in encoders.items():
            _check_widths(name, layers, self.n_bits)
        for name in self.recipes:
            check_known(name, encoders)
        object.__setattr__(self, "encoders", encoders)

    @property
    def modalities(self) -> list[str]:
        """The names of the modalities the model can encode."""
        return list(self.encoders)

    def width(self, modality: str) -> int | None:
        """How many columns a row of this modality has; nothing when a user's own network decides."""
        for layer in self.encoders[check_known(modality, self.encoders)]:
            if isinstance(layer, Onnx):
                return None
            if (width := layer.widths()[0]) is not None:
                return width
        return None

    def encode(self, modality: str, X: ArrayLike) -> Codes:
        """Turn rows into codes: bit 1 where the output is ≥ 0.

        A row's code does not depend on its company: the kernels sum every product in one order. Without them
        rows are multiplied in blocks of one size, the last one filled up with zeros.

        Args:
            modality: Which of the model's modalities the rows belong to.
            X: Rows, shape (n, width); a memory-mapped array is read a block at a time.
        """
        layers = self.encoders[check_known(modality, self.encoders)]
        if isinstance(layers[-1], Tanh):  # has the sign of what enters it
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
        return Codes(words, self.n_bits)

    def scores(self, modality: str, X: ArrayLike) -> NDArray[np.float32]:
        """The real-valued outputs whose signs are the bits, shape (n, n_bits)."""
        layers = self.encoders[check_known(modality, self.encoders)]
        array = self._check(modality, X)
        scores = np.empty((len(array), self.n_bits), np.float32)
        for rows, outputs in self._run(modality, layers, array):
            scores[rows] = outputs[: rows.stop - rows.start]
        return scores

    def _check(self, modality: str, X: ArrayLike) -> NDArray[Any]:
        """Rows of numbers of the right width; whether they are finite is looked at block by block."""
        array = check_rows(X, f"rows of {modality!r}")
        width = self.width(modality)
        if width is not None and array.shape[1:] != (width,):
            raise DataError(f"rows of {modality!r}: expected shape (n, {width}), got {array.shape}")
        return array

    def _run(
        self, modality: str, layers: Sequence[Layer], X: NDArray[Any]
    ) -> Iterator[tuple[slice, Rows]]:
        """Send blocks of rows, filled up with zeros, through layers; what enters the first is found to be finite.

        Without compiled kernels the size of a block depends on the model alone. (BLAS takes another path, and rounds
        otherwise, for few rows than for many; only equal shapes give equal bits.)
        """
        work = sum(layer.work() for layer in self.encoders[modality])
        size = min(max(_FEWEST, 1 << (_WORK // max(1, work)).bit_length() - 1), _MOST)
        together = _TOGETHER if compiled() else size
        for start in range(0, len(X), size):
            rows = slice(start, min(start + size, len(X)))
            with np.errstate(over="ignore", invalid="ignore"):  # looked at below
                outputs = block = _padded(X[rows], together)
                if layers:
                    outputs = layers[0](block)
                    # An affine layer carries NaN and infinity through to its output, where there is less to look at.
                    looked_at = outputs if isinstance(layers[0], Affine) else block
                    if not (np.isfinite(looked_at.min()) and np.isfinite(looked_at.max())):
                        _check_finite(X[rows], start, modality)
            for layer in layers[1:]:
                outputs = layer(outputs)
            yield rows, outputs

    def fingerprint(self) -> str:
        """A hexadecimal SHA-256 of everything that decides the codes: equal fingerprints, equal codes."""
        digest = hashlib.sha256(repr(self.n_bits).encode())
        for name, layers in sorted(self.encoders.items()):
            for layer in layers:
                digest.update(repr((name, layer.kind, sorted(layer.settings().items()))).encode())
                for key, value in sorted(layer.weights().items()):
                    digest.update(
                        repr((key, value.shape, value.dtype.str)).encode() + value.tobytes()
                    )
                for key, blob in sorted(layer.blobs().items()):
                    digest.update(key.encode() + blob)
        return digest.hexdigest()

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the model to a folder, whole or not at all; an earlier model there is replaced."""
        storage.save(Path(folder), self.encoders, self.n_bits, self.recipes, self.card)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Read a model; a truncated, altered or newer file is a `FormatError` that names it."""
        parts = storage.load(Path(folder))
        try:
            return cls(*parts)
        except DataError as error:
            raise FormatError(f"{folder}: does not describe a model ({error})") from error

    def __eq__(self, other: object) -> bool:
        """Whether both have the same layers, recipes and card."""
        if not isinstance(other, HashModel):
            return NotImplemented
        return (
            self.n_bits == other.n_bits
            and self.encoders == other.encoders
            and dict(self.recipes) == dict(other.recipes)
            and dict(self.card) == dict(other.card)
        )

    def __repr__(self) -> str:
        """Such as ``HashModel(image, text → 32 bits)``."""
        return f"HashModel({', '.join(self.encoders)} → {self.n_bits} bits)"


def _check_widths(modality: str, layers: Sequence[Layer], n_bits: int) -> None:
    """Walk down a chain: what leaves a layer must enter the next, and the last must give the bits."""
    if not layers:
        raise DataError(f"modality {modality!r} has no layers")
    width: int | None = None
    for layer in layers:
        wide_in, wide_out = layer.widths()
        if None not in (width, wide_in) and width != wide_in:
            raise DataError(
                f"modality {modality!r}: layer {layer.kind!r} takes {wide_in} columns, but {width} come in"
            )
        if isinstance(layer, Onnx):
            width = None
        width = wide_out if wide_out is not None else width
    if width not in (None, n_bits):
        raise DataError(
            f"modality {modality!r}: its layers give {width} columns, expected {n_bits} bits"
        )


def _padded(X: NDArray[Any], together: int) -> Rows:
    """The rows as float32, filled up with zeros to a multiple."""
    size = -(-len(X) // together) * together
    if len(X) == size:
        return np.ascontiguousarray(X, np.float32)
    block = np.zeros((size, *X.shape[1:]), np.float32)
    block[: len(X)] = X
    return block


def _check_finite(X: NDArray[Any], start: int, modality: str) -> None:
    """Name the first row that is not finite; a product that merely overflowed is no fault of the rows."""
    with np.errstate(over="ignore"):
        bad = ~np.isfinite(X.astype(np.float32)).reshape(len(X), -1).all(axis=1)
    if bad.any():
        raise DataError(
            f"rows of {modality!r}: row {start + int(bad.argmax())} contains NaN, infinity or numbers beyond float32;"
            " fill it in or leave it out"
        )
