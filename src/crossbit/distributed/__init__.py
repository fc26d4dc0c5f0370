"""Past one machine: the same training loop and the same encoder on Ray, and what a cluster would need."""

from crossbit.distributed.encoding import Encoded, Work, encode, encode_into
from crossbit.distributed.training import fit

__all__ = ["Encoded", "Work", "encode", "encode_into", "fit"]
