"""Past one machine: the same training loop and the same encoder on Ray, and what a cluster would need."""

from crossbit.scale.training import fit

__all__ = ["fit"]
