"""Loops over packed bits: the NumPy reference, and compiled kernels where they are built."""

from crossbit.kernels.reference import hamming_matrix

__all__ = ["hamming_matrix"]
