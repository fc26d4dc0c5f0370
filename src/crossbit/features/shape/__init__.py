"""Surfaces: meshes to eigenpairs, heat kernel signatures and bags of geometric words."""

from crossbit.features.shape.bags import BagOfGeometry, HeatOfShape, SpatialBag
from crossbit.features.shape.heat import Heat, heat_kernel_signature, scale_invariant_signature
from crossbit.features.shape.mesh import Mesh, clean, ply, read_mesh
from crossbit.features.shape.spectrum import Spectrum, spectrum

__all__ = [
    "Mesh",
    "read_mesh",
    "clean",
    "ply",
    "Spectrum",
    "spectrum",
    "heat_kernel_signature",
    "scale_invariant_signature",
    "Heat",
    "HeatOfShape",
    "BagOfGeometry",
    "SpatialBag",
]
