"""Collections on Milvus: the same verbs, for more items than one machine holds."""

from crossbit.collection.milvus.address import Address, is_address, parse
from crossbit.collection.milvus.store import MilvusStore

__all__ = ["Address", "MilvusStore", "is_address", "parse"]
