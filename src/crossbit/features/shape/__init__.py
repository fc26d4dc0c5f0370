"""Shape features: meshes, Laplace–Beltrami spectra, heat kernel signatures, bags of features."""

from crossbit.features.shape.bags import BagOfGeometry, HeatKernelExtractor, SpatialBag
from crossbit.features.shape.mesh import Mesh
from crossbit.features.shape.spectrum import (
    HeatPatches,
    Spectrum,
    compute_spectrum,
    heat_kernel_signature,
    scale_invariant_signature,
)

__all__ = [
    "Mesh",
    "Spectrum",
    "compute_spectrum",
    "heat_kernel_signature",
    "scale_invariant_signature",
    "HeatPatches",
    "HeatKernelExtractor",
    "BagOfGeometry",
    "SpatialBag",
]
