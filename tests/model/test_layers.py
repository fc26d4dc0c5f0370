from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from onnx import TensorProto, helper

from crossbit import DataError, FormatError
from crossbit.model import (
    RBF,
    Affine,
    Forest,
    Layer,
    Normalize,
    Onnx,
    Parallel,
    Power,
    Sine,
    Softmax,
    Standardize,
    Tanh,
)
from crossbit.model.layers import LAYERS
from tests.model.networks import onnx_affine

Rows = NDArray[np.float32]
rows = hnp.arrays(np.float32, (4, 3), elements=st.floats(-50, 50, width=16))
random = np.random.default_rng(0)
W, b, C = random.normal(size=(3, 5)), random.normal(size=5), random.normal(size=(6, 3))

# One tree that is a leaf, and one that splits at x₁ < 0.5.
LEAVES = np.array([[0.5, 0.5], [0.75, 0.25], [0.125, 0.875]], np.float16)
TREES = Forest(
    column=np.array([0, 1, 0, 0]),
    threshold=np.array([np.inf, 0.5, np.inf, np.inf], np.float32),
    child=np.array([0, 2, 2, 3]),
    leaf=np.array([0, 0, 1, 2]),
    values=LEAVES,
    prior=np.array([0.25, 0.75], np.float32),
    n_trees=2,
    n_columns=3,
    multi_label=False,
)


def mean_leaf(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithm of the mean of both leaves and the prior."""
    shares = [LEAVES[0], LEAVES[1 if x[1] < 0.5 else 2], TREES.prior]
    return np.asarray(np.log(np.mean(np.asarray(shares, np.float64), axis=0)))


# Each layer beside its definition, written out in float64.
DEFINITIONS: dict[str, tuple[Layer, Callable[[NDArray[np.float64]], NDArray[np.float64]]]] = {
    "normalize": (Normalize(), lambda x: x / max(np.sqrt((x**2).sum()), 1e-300)),
    "normalize-1": (Normalize(order=1), lambda x: x / max(np.abs(x).sum(), 1e-300)),
    "power": (Power(exponent=0.5), lambda x: np.sign(x) * np.sqrt(np.abs(x))),
    "standardize": (Standardize(W[:, 0], b[:3]), lambda x: (x - W[:, 0]) / b[:3]),
    "rbf": (
        RBF(C, gamma=0.01),
        lambda x: np.array([np.exp(-0.01 * ((x - c) ** 2).sum()) for c in C]),
    ),
    "affine": (Affine(W, b), lambda x: np.array([x @ W[:, j] + b[j] for j in range(5)])),
    "tanh": (Tanh(beta=2.0), lambda x: np.tanh(2 * x)),
    "sine": (Sine(), np.sin),
    "softmax": (Softmax(), lambda x: np.exp(x - x.max()) / np.exp(x - x.max()).sum()),
    "onnx": (Onnx(onnx_affine(W, b)), lambda x: x @ W + b),
    "forest": (TREES, mean_leaf),
    "parallel": (
        Parallel(((Tanh(beta=2.0), Affine(W, b)), (TREES,))),
        lambda x: np.concatenate([np.tanh(2 * x) @ W + b, mean_leaf(x)]),
    ),
}


def test_every_layer_has_a_definition_here() -> None:
    assert {layer.kind for layer, _ in DEFINITIONS.values()} == set(LAYERS)


@pytest.mark.parametrize("name", DEFINITIONS)
@given(X=rows)
def test_a_layer_equals_its_definition(name: str, X: Rows) -> None:
    layer, definition = DEFINITIONS[name]
    before = X.copy()
    out = layer(X)
    assert out.dtype == np.float32
    np.testing.assert_allclose(
        out, [definition(x.astype(np.float64)) for x in X], rtol=1e-4, atol=1e-4
    )
    np.testing.assert_array_equal(X, before)  # the input is left as it was


@pytest.mark.parametrize("name", DEFINITIONS)
def test_widths_are_those_of_the_output(name: str) -> None:
    layer, _ = DEFINITIONS[name]
    wide_in, wide_out = layer.widths()
    assert wide_in in (None, 3)
    if wide_out is not None:
        assert layer(np.ones((2, 3), np.float32)).shape == (2, wide_out)


def test_layers_are_equal_by_value() -> None:
    assert Affine(W, b) == Affine(W.copy(), b.copy())
    assert Affine(W, b) != Affine(W, b + 1)
    assert Tanh() != Tanh(beta=2.0)
    assert Tanh() != Sine()


def test_tags_become_minus_one_and_one() -> None:
    tags = Standardize(np.full(3, 0.5), np.full(3, 0.5))
    assert tags(np.array([[0, 1, 0]], np.float32)).tolist() == [[-1, 1, -1]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Affine(W, b[:3]), r"weight \(3, 5\) does not match bias \(3,\)"),
        (lambda: Affine(W * np.nan, b), "finite numbers"),
        (lambda: Standardize(b, np.zeros(5)), "no scale may be zero"),
        (lambda: RBF(b, 1.0), "rbf: landmarks: expected 2 dimensions"),
        (lambda: Normalize(order=3), "the order of the norm must be 1 or 2, got 3"),
    ],
)
def test_invalid_layers_are_rejected(make: Callable[[], object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        make()


def test_a_corrupted_network_is_a_format_error() -> None:
    with pytest.raises(FormatError, match="onnx: the network cannot be loaded"):
        Onnx(b"not a network")(np.zeros((1, 3), np.float32))


@pytest.mark.parametrize("nested", [False, True], ids=["initializer", "attribute"])
def test_a_network_with_weights_in_another_file_is_refused(
    nested: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights.bin").write_bytes(np.ones((3, 2), np.float32).tobytes())
    outside = TensorProto(name="W", data_type=TensorProto.FLOAT, dims=[3, 2])
    outside.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "weights.bin"), ("offset", "0"), ("length", "24")):
        outside.external_data.add(key=key, value=value)
    nodes = [helper.make_node("MatMul", ["x", "W"], ["y"])]
    if nested:
        nodes.insert(0, helper.make_node("Constant", [], ["W"], value=outside))
    graph = helper.make_graph(
        nodes,
        "outside",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 2])],
        [] if nested else [outside],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    with pytest.raises(FormatError, match="'W' is stored in another file; save the network as one"):
        Onnx(model.SerializeToString())(np.ones((1, 3), np.float32))


def test_branches_of_different_lengths_are_compared() -> None:
    affine = Affine(np.eye(2), np.zeros(2))
    layers = [Parallel(((affine,), (affine, Tanh(beta=beta)))) for beta in (1.0, 1.0, 2.0)]
    assert layers[0] == layers[1]
    assert layers[0] != layers[2]
