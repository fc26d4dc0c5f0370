"""Exact nearest-neighbor search over binary codes."""

from crossbit.index.budget import Budget
from crossbit.index.hamming import HammingIndex
from crossbit.index.weights import bit_weights, weighted_hamming

__all__ = ["Budget", "HammingIndex", "bit_weights", "weighted_hamming"]
