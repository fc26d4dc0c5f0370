"""Surfaces: meshes to eigenpairs, heat kernel signatures and bags of geometric words."""

from crossbit.features.shape.bags import BagOfGeometry, HeatKernelExtractor, SpatialBag
from crossbit.features.shape.mesh import Mesh, clean_mesh, read_mesh, to_ply
from crossbit.features.shape.spectrum import (
    Heat,
    Spectrum,
    heat_kernel_signature,
    scale_invariant_signature,
    spectrum,
)

__all__ = [
    "Mesh",
    "read_mesh",
    "clean_mesh",
    "to_ply",
    "Spectrum",
    "spectrum",
    "heat_kernel_signature",
    "scale_invariant_signature",
    "Heat",
    "HeatKernelExtractor",
    "BagOfGeometry",
    "SpatialBag",
]
