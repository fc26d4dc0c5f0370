"""Exact nearest-neighbor search over binary codes."""

from crossbit.index.hamming import HammingIndex, weighted_hamming

__all__ = ["HammingIndex", "weighted_hamming"]
