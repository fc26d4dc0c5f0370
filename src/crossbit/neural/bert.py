"""BERT-like encoders of sentences, such as MiniLM, read from their safetensors."""

import math
import re
from os import PathLike
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from crossbit._io.files import read_json
from crossbit.errors import DataError, FormatError

# What the parts are called in files of the family, and here.
_NAMES = {
    r"^embeddings\.word_embeddings\.": "words.",
    r"^embeddings\.position_embeddings\.": "places.",
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
_UNUSED = re.compile(r"pooler\.|.*position_ids$")


class _Layer(nn.Module):
    """Attention between the tokens of a sentence, then a hidden layer for each; both add to what came in."""

    def __init__(self, width: int, heads: int, hidden: int, epsilon: float) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.joined, self.norm1 = nn.Linear(width, width), nn.LayerNorm(width, epsilon)
        self.wide, self.narrow = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.norm2 = nn.LayerNorm(width, epsilon)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self._split(part(x)) for part in (self.query, self.key, self.value))
        attention = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(dim=-1)
        seen = (attention @ v).transpose(1, 2).flatten(2)
        x = self.norm1(x + self.joined(seen))
        out: Tensor = self.norm2(x + self.narrow(functional.gelu(self.wide(x))))
        return out

    def _split(self, x: Tensor) -> Tensor:
        """(n, tokens, width) to (n, heads, tokens, width / heads)."""
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)


class Bert(nn.Module):
    """Tokens (n, length) to sentences (n, width): the mean of the last layer over the tokens, to unit length.

    Sentences of one batch need one length: there is no padding, hence no mask.

    Args:
        config: The family's ``config.json``.

    References:
        W. Wang et al. "MiniLM: deep self-attention distillation for task-agnostic compression of pre-trained
        transformers." NeurIPS 2020. N. Reimers, I. Gurevych. "Sentence-BERT." EMNLP 2019.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        """Build the network, with random weights."""
        super().__init__()
        width, epsilon = config["hidden_size"], config["layer_norm_eps"]
        self.words = nn.Embedding(config["vocab_size"], width)
        self.places = nn.Embedding(config["max_position_embeddings"], width)
        self.types = nn.Embedding(config["type_vocab_size"], width)
        self.norm = nn.LayerNorm(width, epsilon)
        heads, hidden = config["num_attention_heads"], config["intermediate_size"]
        layers = [_Layer(width, heads, hidden, epsilon) for _ in range(config["num_hidden_layers"])]
        self.layers = nn.Sequential(*layers)

    def forward(self, tokens: Tensor) -> Tensor:
        """Encode sentences."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.words(tokens) + self.places(places) + self.types.weight[0])
        return functional.normalize(self.layers(x).mean(dim=1), dim=1)

    @classmethod
    def read(cls, folder: str | PathLike[str]) -> Self:
        """Read ``config.json`` and ``model.safetensors`` from a folder.

        Raises:
            DataError: There is no such folder.
            FormatError: The files are not those of such a network.
        """
        config, path = read_json(Path(folder) / "config.json"), Path(folder) / "model.safetensors"
        try:
            network = cls(config)
            weights = load_file(path)
            network.load_state_dict(
                {_ours(n): value for n, value in weights.items() if not _UNUSED.match(n)}
            )
        except FileNotFoundError as error:
            raise DataError(f"{path}: there is no such file") from error
        except (KeyError, TypeError, RuntimeError, SafetensorError) as error:
            raise FormatError(f"{folder}: not a BERT-like encoder ({error})") from error
        return network.eval()


def _ours(name: str) -> str:
    """The name of a weight in this module."""
    for theirs, ours in _NAMES.items():
        name = re.sub(theirs, ours, name)
    return name
