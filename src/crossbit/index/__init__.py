"""Search: the nearest of many codes, exactly."""

from crossbit.index.hamming import HammingIndex

__all__ = ["HammingIndex"]
