"""Collections on Milvus: the same verbs, for more items than one machine holds."""

from crossbit.collection.milvus.store import MilvusStore
from crossbit.collection.milvus.uri import Address, is_address, parse

__all__ = ["Address", "MilvusStore", "is_address", "parse"]
