"""From torch to ONNX: a user's own network, as the layer that serves it without torch."""

import io
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from crossbit.errors import DataError, MissingExtraError
from crossbit.model import Onnx

_NEAR_ZERO = 1e-5  # scores below this share of their scale may round to either sign


def to_onnx(network: nn.Module, example: NDArray[Any], *, any_length: bool = False) -> Onnx:
    """Export a network of one input and one output.

    Args:
        network: The network, on any device; it is exported in evaluation mode.
        example: A few rows of its input; their number does not matter, their shape does. Whole numbers stay such.
        any_length: The second dimension may vary too, as the words of a sentence do.

    Raises:
        MissingExtraError: ``onnx`` is not installed.
        DataError: The network uses something that ONNX cannot say.
    """
    file = io.BytesIO()
    rows = torch.from_numpy(
        np.ascontiguousarray(example, None if example.dtype.kind == "i" else np.float32)
    )
    axes = {"x": {0: "n", 1: "length"} if any_length else {0: "n"}, "y": {0: "n"}}
    try:
        with (
            warnings.catch_warnings()
        ):  # torch announces that this exporter, which needs no further library, may go
            warnings.simplefilter("ignore")
            torch.onnx.export(
                network.cpu().eval(),
                (rows,),
                file,  # type: ignore[arg-type] # it takes anything like a file
                dynamo=False,
                input_names=["x"],
                output_names=["y"],
                dynamic_axes=axes,
            )
    except ImportError as error:
        raise MissingExtraError("onnx", "onnx") from error
    except Exception as error:  # torch raises many kinds here
        raise DataError(f"the network cannot be exported to ONNX ({error})") from error
    return Onnx(file.getvalue())


def disagreements(network: nn.Module, exported: Onnx, rows: NDArray[Any]) -> tuple[int, int]:
    """Bits that differ between torch and ONNX: those too near zero to tell, and all others.

    A score counts as near zero when it is below 1e-5 of the scale of the scores, their root mean square.
    """
    given = np.ascontiguousarray(rows, np.float32)
    with torch.no_grad():
        ours = network.cpu().eval()(torch.from_numpy(given)).reshape(len(given), -1).numpy()
    differ = (ours >= 0) != (exported(given) >= 0)
    near = np.abs(ours) <= _NEAR_ZERO * float(np.sqrt(np.square(ours).mean()))
    return int((differ & near).sum()), int((differ & ~near).sum())
