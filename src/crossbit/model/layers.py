"""The small layers that every model ends as: each maps float32 rows to float32 rows, with NumPy alone.

A layer is a frozen dataclass. Its array fields are its weights (kept in ``weights.safetensors``), its ``bytes`` fields
are files of their own, and the rest are its settings (kept in ``config.json``): a new layer is a class, nothing more.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit.errors import DataError, FormatError, MissingExtraError
from crossbit.kernels import Matmul

Rows: TypeAlias = NDArray[np.float32]

LAYERS: dict[str, type["Layer"]] = {}
"""Kind → class, as named in a model's ``config.json``."""


@dataclass(frozen=True, eq=False)
class Layer(ABC):
    """One step of an encoder."""

    kind: ClassVar[str]

    def __init_subclass__(cls, kind: str | None = None) -> None:
        """Register the class under its kind, by default its name in lower case."""
        super().__init_subclass__()
        cls.kind = kind or cls.__name__.lower()
        LAYERS[cls.kind] = cls

    @abstractmethod
    def __call__(self, X: Rows) -> Rows:
        """Map rows to rows; the input is left as it was."""

    def widths(self) -> tuple[int | None, int | None]:
        """Columns in and out; nothing where any number will do, or where they are equal."""
        return None, None

    def work(self) -> int:
        """Multiplications a row, as far as they matter for the size of a block."""
        return 0

    def weights(self) -> dict[str, NDArray[Any]]:
        """The arrays of this layer, by name."""
        return {
            f.name: value
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), np.ndarray)
        }

    def settings(self) -> dict[str, Any]:
        """The plain fields of this layer, by name."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            name: value
            for name, value in values.items()
            if not isinstance(value, np.ndarray | bytes)
        }

    def blobs(self) -> dict[str, bytes]:
        """What this layer keeps in files of their own, by name."""
        return {
            f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), bytes)
        }

    def __eq__(self, other: object) -> bool:
        """Whether both are of one kind with equal fields."""
        if type(self) is not type(other):
            return NotImplemented
        return all(
            np.array_equal(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)
        )


def _float32(value: NDArray[Any], ndim: int, what: str) -> Rows:
    """Whatever floats were given, as the contiguous float32 that is kept."""
    array = np.ascontiguousarray(value, np.float32)
    if array.ndim != ndim or not np.isfinite(array).all():
        raise DataError(
            f"{what}: expected {ndim} dimensions of finite numbers, got shape {array.shape}"
        )
    return array


@dataclass(frozen=True, eq=False)
class Normalize(Layer, kind="normalise"):
    r"""Rows to unit length, $x / \|x\|_p$; a row of zeros stays as it is."""

    order: int = 2

    def __post_init__(self) -> None:
        """Know the sum of absolute values (1) and the Euclidean length (2)."""
        if self.order not in (1, 2):
            raise DataError(f"normalize: the order of the norm is 1 or 2, got {self.order!r}")

    def __call__(self, X: Rows) -> Rows:
        """Divide each row by its norm."""
        norm: Rows = np.linalg.norm(X, ord=self.order, axis=1, keepdims=True)
        norm[norm == 0] = 1
        return X / norm


@dataclass(frozen=True, eq=False)
class Power(Layer):
    r"""$\operatorname{sign}(x)\,|x|^p$; with $p = \tfrac12$ histograms become comparable by Euclidean distance."""

    exponent: float = 0.5

    def __call__(self, X: Rows) -> Rows:
        """Raise each value to the power, keeping its sign."""
        return np.copysign(np.abs(X) ** np.float32(self.exponent), X)


@dataclass(frozen=True, eq=False)
class Standardize(Layer, kind="standardise"):
    r"""$(x - \mu) / \sigma$, a column at a time; $\mu = \sigma = \tfrac12$ maps tags 0, 1 to −1, 1."""

    mean: NDArray[Any]
    scale: NDArray[Any]

    def __post_init__(self) -> None:
        """Refuse a scale of zero."""
        object.__setattr__(self, "mean", _float32(self.mean, 1, "standardize: mean"))
        object.__setattr__(self, "scale", _float32(self.scale, 1, "standardize: scale"))
        if self.mean.shape != self.scale.shape or not self.scale.all():
            raise DataError("standardize: mean and scale need one length, and no scale may be zero")

    def __call__(self, X: Rows) -> Rows:
        """Shift and scale every column."""
        out: Rows = (X - self.mean) / self.scale
        return out

    def widths(self) -> tuple[int, int]:
        """As many columns as there are means."""
        return len(self.mean), len(self.mean)


@dataclass(frozen=True, eq=False)
class RBF(Layer):
    r"""Nearness to landmarks, $\exp(-\gamma \|x - c_j\|^2)$."""

    landmarks: NDArray[Any]
    gamma: float

    def __post_init__(self) -> None:
        """Take landmarks (m, d)."""
        object.__setattr__(self, "landmarks", _float32(self.landmarks, 2, "rbf: landmarks"))

    @cached_property
    def _product(self) -> Matmul:
        r"""$-2 x c_j + \|c_j\|^2$."""
        return Matmul(-2 * self.landmarks.T, np.square(self.landmarks).sum(axis=1))

    def __call__(self, X: Rows) -> Rows:
        """Compare each row with every landmark, by one matrix product."""
        distances = self._product(X)
        distances += np.square(X).sum(axis=1, keepdims=True)
        np.maximum(distances, 0, out=distances)
        distances *= np.float32(-self.gamma)
        np.exp(distances, out=distances)
        return distances

    def widths(self) -> tuple[int, int]:
        """From the landmarks' columns to one column a landmark."""
        return self.landmarks.shape[1], self.landmarks.shape[0]

    def work(self) -> int:
        """One product with the landmarks."""
        return self.landmarks.size


@dataclass(frozen=True, eq=False)
class Affine(Layer):
    r"""$x W + b$, with $W$ of shape (in, out)."""

    weight: NDArray[Any]
    bias: NDArray[Any]

    def __post_init__(self) -> None:
        """Refuse shapes that do not agree."""
        object.__setattr__(self, "weight", _float32(self.weight, 2, "affine: weight"))
        object.__setattr__(self, "bias", _float32(self.bias, 1, "affine: bias"))
        if self.bias.shape != (self.weight.shape[1],):
            raise DataError(
                f"affine: weight {self.weight.shape} and bias {self.bias.shape} do not agree"
            )

    @cached_property
    def product(self) -> Matmul:
        """The weight as the kernels take it."""
        return Matmul(self.weight, self.bias)

    def __call__(self, X: Rows) -> Rows:
        """Multiply and shift."""
        return self.product(X)

    def widths(self) -> tuple[int, int]:
        """The shape of the weight."""
        return self.weight.shape[0], self.weight.shape[1]

    def work(self) -> int:
        """One product with the weight."""
        return self.weight.size


@dataclass(frozen=True, eq=False)
class Tanh(Layer):
    r"""$\tanh(\beta x)$, the paper's smooth sign."""

    beta: float = 1.0

    def __call__(self, X: Rows) -> Rows:
        """Squash every value into −1 … 1."""
        out: Rows = np.tanh(X * np.float32(self.beta))
        return out


@dataclass(frozen=True, eq=False)
class Sine(Layer):
    r"""$\sin x$: with an affine layer before it, the eigenfunctions of spectral hashing."""

    def __call__(self, X: Rows) -> Rows:
        """Take the sine of every value."""
        return np.sin(X)


@dataclass(frozen=True, eq=False)
class Softmax(Layer):
    r"""$e^{x_j} / \sum_l e^{x_l}$: scores of classes to posteriors."""

    def __call__(self, X: Rows) -> Rows:
        """Exponentiate and let every row sum to one."""
        out: Rows = np.exp(X - X.max(axis=1, keepdims=True))
        out /= out.sum(axis=1, keepdims=True)
        return out


@dataclass(frozen=True, eq=False)
class Onnx(Layer):
    """Any network in ONNX form, of one input and one output; run by onnxruntime, on one thread.

    Args:
        model: The bytes of the ONNX file.
    """

    model: bytes

    def __call__(self, X: Rows) -> Rows:
        """Run the network on a block of rows."""
        out = self.run({self.inputs[0]: X})
        return out.reshape(len(X), -1)

    @property
    def inputs(self) -> list[str]:
        """The names of its inputs, for networks that are run by other means than rows."""
        return [each.name for each in self._session.get_inputs()]

    def run(self, values: Mapping[str, NDArray[Any]]) -> Rows:
        """Run the network on named inputs; its first output, as float32."""
        return np.asarray(self._session.run(None, dict(values))[0], np.float32)

    @cached_property
    def _session(self) -> Any:  # noqa: ANN401 - onnxruntime brings no types
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingExtraError("onnxruntime", "onnx") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            return onnxruntime.InferenceSession(
                self.model, options, providers=["CPUExecutionProvider"]
            )
        except (
            Exception
        ) as error:  # onnxruntime raises classes of its own, which share no base but Exception
            raise FormatError(f"onnx: the network cannot be loaded ({error})") from error
