"""Networks: the trainable twins of model layers, and the user's own modules."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from crossbit.model import Affine, Layer, Tanh


class Network(nn.Module):
    """Affine layers with tanh or softmax between them; what leaves the last is squashed by the objective.

    It is made from model layers and turns back into model layers, so that whatever initializes a network
    (chance, or a quick linear method) speaks the language in which the result is kept.

    Args:
        layers: `Affine`, `Tanh` and `Softmax` layers.
        dropout: Share of the values entering each affine layer that are zeroed while training.
    """

    def __init__(self, layers: Sequence[Layer], *, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers, self.dropout = list(layers), dropout
        affine = [layer for layer in self.layers if isinstance(layer, Affine)]
        self.weights = nn.ParameterList(torch.from_numpy(layer.weight.copy()) for layer in affine)
        self.biases = nn.ParameterList(torch.from_numpy(layer.bias.copy()) for layer in affine)
        self.random: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Scores, whose signs are the bits."""
        affine = 0
        for layer in self.layers:
            if isinstance(layer, Affine):
                x = torch.addmm(self.biases[affine], self._drop(x), self.weights[affine])
                affine += 1
            elif isinstance(layer, Tanh):
                x = torch.tanh(layer.beta * x)
            else:
                x = torch.softmax(x, dim=1)
        return x

    def _drop(self, x: Tensor) -> Tensor:
        if not self.training or not self.dropout:
            return x
        kept = torch.rand(x.shape, generator=self.random, device=x.device) >= self.dropout
        return x * kept / (1 - self.dropout)

    def to_layers(self) -> list[Layer]:
        """The layers with the weights as they are now."""
        weights = [parameter.detach().cpu().numpy().copy() for parameter in self.weights]
        biases = [parameter.detach().cpu().numpy().copy() for parameter in self.biases]
        fresh = (Affine(weight, bias) for weight, bias in zip(weights, biases, strict=True))
        return [next(fresh) if isinstance(layer, Affine) else layer for layer in self.layers]


def random_layers(widths: Sequence[int], random: np.random.Generator) -> list[Layer]:
    r"""Affine layers between the widths, tanh between them; weights $\mathcal N(0, 1/n_\text{in})$, biases 0."""
    layers: list[Layer] = []
    for wide_in, wide_out in pairwise(widths):
        weight = random.standard_normal((wide_in, wide_out)) / np.sqrt(wide_in)
        layers += [Affine(weight, np.zeros(wide_out)), Tanh()]
    return layers[:-1]
