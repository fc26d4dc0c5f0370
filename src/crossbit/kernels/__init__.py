"""Loops over packed bits: the NumPy reference, and compiled kernels where they are built."""

from crossbit.kernels.dispatch import forced, level, levels
from crossbit.kernels.rows import Rows, hamming_matrix

__all__ = ["hamming_matrix", "Rows", "level", "levels", "forced"]
