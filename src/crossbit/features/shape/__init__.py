"""Shape features: meshes, Laplace–Beltrami spectra, heat kernel signatures, bags of features."""

from crossbit.features.shape.bags import BagOfGeometry, HeatKernelExtractor, SpatialBag
from crossbit.features.shape.mesh import Mesh, clean_mesh, read_mesh, to_ply
from crossbit.features.shape.spectrum import (
    HeatPatches,
    Spectrum,
    compute_spectrum,
    heat_kernel_signature,
    scale_invariant_signature,
)

__all__ = [
    "Mesh",
    "read_mesh",
    "clean_mesh",
    "to_ply",
    "Spectrum",
    "compute_spectrum",
    "heat_kernel_signature",
    "scale_invariant_signature",
    "HeatPatches",
    "HeatKernelExtractor",
    "BagOfGeometry",
    "SpatialBag",
]
