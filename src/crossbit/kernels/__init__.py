"""Kernels over packed bits and matrix rows: compiled C where available, NumPy elsewhere."""

from crossbit.kernels.dispatch import available_cores, compiled, forced, level, levels
from crossbit.kernels.matmul import Matmul, pack_signs
from crossbit.kernels.search import CodeArray, SubstringTable, hamming_matrix
from crossbit.kernels.selfcheck import choose_level

__all__ = [
    "hamming_matrix",
    "CodeArray",
    "SubstringTable",
    "Matmul",
    "pack_signs",
    "compiled",
    "level",
    "levels",
    "forced",
    "available_cores",
]

choose_level()
