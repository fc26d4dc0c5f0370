"""Layers of a model: each maps float32 rows to float32 rows and needs only NumPy.

A layer is a frozen dataclass. Its array fields are its weights (stored in ``weights.safetensors``),
its ``bytes`` fields are stored as separate files, and the other fields are its settings (stored in
``config.json``). To add a layer, define a class.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_number
from crossbit.errors import DataError, FormatError, MissingExtraError
from crossbit.kernels.matmul import Matmul

Rows: TypeAlias = NDArray[np.float32]

_BLOCK = 4096  # rows per block of `apply_layers`
_FAR = 100.0  # largest |mean| / deviation at which one affine layer keeps float32 precision

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
        """Map rows to rows without changing the input."""

    def widths(self) -> tuple[int | None, int | None]:
        """Return columns in and out; None if any number is accepted, or if both are equal."""
        return None, None

    def work(self) -> int:
        """Return the multiplications per row, which decide the size of a block."""
        return 0

    def weights(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of this layer by name."""
        return {
            f.name: value
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), np.ndarray)
        }

    def settings(self) -> dict[str, Any]:
        """Return the plain fields of this layer by name."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            name: value
            for name, value in values.items()
            if not isinstance(value, np.ndarray | bytes)
        }

    def blobs(self) -> dict[str, bytes]:
        """Return the content of this layer's separate files by name."""
        return {
            f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), bytes)
        }

    @classmethod
    def restore(cls, settings: Mapping[str, Any], values: Mapping[str, Any]) -> Self:
        """Make the layer from its `settings`, and from its `weights` and `blobs` together."""
        return cls(**settings, **values)

    def __eq__(self, other: object) -> bool:
        """Whether both have the same kind and equal fields."""
        if type(self) is not type(other):
            return NotImplemented
        values = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return all(
            np.array_equal(own, its) if isinstance(own, np.ndarray) else own == its
            for own, its in values
        )


def _float32(value: NDArray[Any], ndim: int, what: str) -> Rows:
    """Return a contiguous float32 array; reject other dimensions and values that are not finite."""
    array = np.ascontiguousarray(value, np.float32)
    if array.ndim != ndim or not np.isfinite(array).all():
        raise DataError(
            f"{what}: expected {ndim} dimensions of finite numbers, got shape {array.shape}"
        )
    return array


def _check_factor(value: float, what: str) -> None:
    """Reject what is not a finite float32."""
    if abs(check_number(value, what)) > float(np.finfo(np.float32).max):
        raise DataError(f"{what} must be a finite float32, got {value!r}")


@dataclass(frozen=True, eq=False)
class Normalize(Layer, kind="normalise"):
    r"""Scale rows to unit length, $x / \|x\|_p$; a row of zeros is unchanged."""

    order: int = 2

    def __post_init__(self) -> None:
        """Accept the sum of absolute values (1) and the Euclidean norm (2)."""
        if self.order not in (1, 2):
            raise DataError(f"normalize: the order of the norm must be 1 or 2, got {self.order!r}")

    def __call__(self, X: Rows) -> Rows:
        """Divide each row by its norm."""
        norm: Rows = np.linalg.norm(X, ord=self.order, axis=1, keepdims=True)
        norm[norm == 0] = 1
        return X / norm


@dataclass(frozen=True, eq=False)
class Power(Layer):
    r"""$\operatorname{sign}(x)\,|x|^p$; $p = \tfrac12$ suits histograms (Hellinger distance)."""

    exponent: float = 0.5

    def __post_init__(self) -> None:
        """Accept exponents that keep numbers finite."""
        check_number(self.exponent, "exponent")
        if not 0 <= self.exponent <= 2:
            raise DataError(f"power: the exponent must be between 0 and 2, got {self.exponent!r}")

    def __call__(self, X: Rows) -> Rows:
        """Raise each value to the power, keeping its sign."""
        return np.copysign(np.abs(X) ** np.float32(self.exponent), X)


@dataclass(frozen=True, eq=False)
class Standardize(Layer, kind="standardise"):
    r"""$(x - \mu) / \sigma$ per column; $\mu = \sigma = \tfrac12$ maps tags 0, 1 to −1, 1."""

    mean: NDArray[Any]
    scale: NDArray[Any]

    def __post_init__(self) -> None:
        """Reject a scale of zero."""
        object.__setattr__(self, "mean", _float32(self.mean, 1, "standardize: mean"))
        object.__setattr__(self, "scale", _float32(self.scale, 1, "standardize: scale"))
        if self.mean.shape != self.scale.shape or not self.scale.all():
            raise DataError("standardize: mean and scale need one length, and no scale may be zero")

    @classmethod
    def fit(cls, X: NDArray[Any]) -> "Standardize":
        """Estimate mean and standard deviation; a constant column is only centered."""
        mean = X.mean(axis=0, dtype=np.float64)
        deviation = X.std(axis=0, dtype=np.float64)
        # Relative to the column, because columns may have very different units.
        tiny = 1e-6 * np.abs(X).max(axis=0)
        return cls(mean, np.where(deviation > tiny, deviation, 1.0))

    def __call__(self, X: Rows) -> Rows:
        """Shift and scale every column."""
        out: Rows = (X - self.mean) / self.scale
        return out

    def widths(self) -> tuple[int, int]:
        """Return the number of columns, in and out."""
        return len(self.mean), len(self.mean)


@dataclass(frozen=True, eq=False)
class RBF(Layer):
    r"""RBF features, $\exp(-\gamma \|x - c_j\|^2)$ for landmarks $c_j$."""

    landmarks: NDArray[Any]
    gamma: float

    def __post_init__(self) -> None:
        """Check the landmarks (m, d)."""
        object.__setattr__(self, "landmarks", _float32(self.landmarks, 2, "rbf: landmarks"))
        _check_factor(self.gamma, "rbf: gamma")

    @cached_property
    def _product(self) -> Matmul:
        r"""$-2 x c_j + \|c_j\|^2$."""
        return Matmul(-2 * self.landmarks.T, np.square(self.landmarks).sum(axis=1))

    def __call__(self, X: Rows) -> Rows:
        """Compare each row with every landmark, with one matrix product."""
        distances = self._product(X)
        distances += np.square(X).sum(axis=1, keepdims=True)
        np.maximum(distances, 0, out=distances)
        with np.errstate(over="ignore"):  # farther than any number: similarity 0
            distances *= np.float32(-self.gamma)
        np.exp(distances, out=distances)
        return distances

    def widths(self) -> tuple[int, int]:
        """From the columns of a landmark to one column per landmark."""
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
        """Reject inconsistent shapes."""
        object.__setattr__(self, "weight", _float32(self.weight, 2, "affine: weight"))
        object.__setattr__(self, "bias", _float32(self.bias, 1, "affine: bias"))
        if self.bias.shape != (self.weight.shape[1],):
            raise DataError(
                f"affine: weight {self.weight.shape} does not match bias {self.bias.shape}"
            )

    @cached_property
    def product(self) -> Matmul:
        """Weight and bias in the layout of the kernels."""
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

    def __post_init__(self) -> None:
        """Validate the slope."""
        _check_factor(self.beta, "tanh: beta")

    def __call__(self, X: Rows) -> Rows:
        """Squash every value into −1 … 1."""
        with np.errstate(over="ignore"):  # steeper than any number: ±1
            out: Rows = np.tanh(X * np.float32(self.beta))
        return out


@dataclass(frozen=True, eq=False)
class Sine(Layer):
    r"""$\sin x$: after an affine layer, the eigenfunctions of spectral hashing."""

    def __call__(self, X: Rows) -> Rows:
        """Take the sine of every value."""
        return np.sin(X)


@dataclass(frozen=True, eq=False)
class Softmax(Layer):
    r"""$e^{x_j} / \sum_l e^{x_l}$: class scores to posteriors."""

    def __call__(self, X: Rows) -> Rows:
        """Exponentiate and normalize each row to sum 1."""
        out: Rows = np.exp(X - X.max(axis=1, keepdims=True))
        out /= out.sum(axis=1, keepdims=True)
        return out


@dataclass(frozen=True, eq=False)
class Onnx(Layer):
    """An ONNX network with one input and one output, run by onnxruntime on one thread.

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
        """Names of its inputs, for networks with several inputs."""
        return [each.name for each in self._session.get_inputs()]

    @property
    def rank(self) -> int:
        """Number of axes of its first input."""
        return len(self._session.get_inputs()[0].shape)

    def run(self, values: Mapping[str, NDArray[Any]]) -> Rows:
        """Run the network on named inputs; return its first output as float32."""
        return np.asarray(self._session.run(None, dict(values))[0], np.float32)

    @cached_property
    def _session(self) -> Any:  # noqa: ANN401 - onnxruntime brings no types
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingExtraError("onnxruntime") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        _reject_external_data(self.model)
        try:
            return onnxruntime.InferenceSession(
                self.model, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # the errors of onnxruntime share no other base class
            raise FormatError(f"onnx: the network cannot be loaded ({error})") from error


def _reject_external_data(model: bytes) -> None:
    """Reject a network whose weights are in other files.

    onnxruntime would read any file that the network names, relative to the working directory; no
    checksum covers it.
    """
    try:
        import onnx
        from google.protobuf.message import Message
    except ImportError as error:
        raise MissingExtraError("onnx") from error
    try:
        network = onnx.load_model_from_string(model)
    except Exception as error:  # protobuf raises several types
        raise FormatError(f"onnx: the network cannot be loaded ({error})") from error
    # A tensor can be an initializer or an attribute, in any nested graph: search all messages.
    pending: list[Any] = [network]
    while pending:
        message = pending.pop()
        if isinstance(message, onnx.TensorProto):
            if message.data_location == onnx.TensorProto.EXTERNAL or message.external_data:
                raise FormatError(
                    f"onnx: the tensor {message.name!r} is stored in another file;"
                    " save the network as one file, without external data"
                )
            continue
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE:
                pending.extend([value] if isinstance(value, Message) else value)


def apply_layers(layers: Sequence[Layer], X: NDArray[np.floating]) -> Rows:
    """Apply layers to rows, one block at a time."""
    if not layers:
        return np.ascontiguousarray(X, np.float32)
    out: Rows | None = None
    for start in range(0, len(X), _BLOCK):
        rows: Rows = np.ascontiguousarray(X[start : start + _BLOCK], np.float32)
        for layer in layers:
            rows = layer(rows)
        if out is None:
            out = np.empty((len(X), rows.shape[1]), np.float32)
        out[start : start + _BLOCK] = rows
    return np.empty((0, 0), np.float32) if out is None else out


def projection_layers(
    mean: NDArray[np.floating], W: NDArray[np.floating], deviation: NDArray[np.floating]
) -> list[Layer]:
    """Return the layers of $(x - m) W$.

    This is one affine layer, unless the means are so large that float32 would lose precision.
    """
    if np.all(np.abs(mean) <= _FAR * deviation):
        return [Affine(W, -mean @ W)]
    return [Standardize(mean, np.ones(len(mean))), Affine(W, np.zeros(W.shape[1]))]
