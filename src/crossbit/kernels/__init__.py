"""Loops over packed bits and products of rows: the NumPy reference, and compiled kernels where they are built."""

from crossbit.kernels.dispatch import compiled, forced, level, levels
from crossbit.kernels.product import Product, pack_signs
from crossbit.kernels.rows import Rows, hamming_matrix

__all__ = [
    "hamming_matrix",
    "Rows",
    "Product",
    "pack_signs",
    "compiled",
    "level",
    "levels",
    "forced",
]
