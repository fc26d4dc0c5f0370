"""Train and encode on a Ray cluster."""

from crossbit.distributed.encoding import EncodedRows, EncodingJob, encode, encode_into
from crossbit.distributed.training import fit

__all__ = ["EncodedRows", "EncodingJob", "encode", "encode_into", "fit"]
