"""Small ONNX networks for tests."""

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper


def onnx_affine(W: NDArray[Any], b: NDArray[Any]) -> bytes:
    """The bytes of a network that computes x W + b."""
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "W", "b"], ["y"])],
        "affine",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, W.shape[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, W.shape[1]])],
        [
            numpy_helper.from_array(W.astype(np.float32), "W"),
            numpy_helper.from_array(b.astype(np.float32), "b"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())
