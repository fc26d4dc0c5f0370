"""Collections on Milvus: the same methods, for more items than one machine holds."""

from crossbit.collection.milvus.store import MilvusStore
from crossbit.collection.milvus.uri import MilvusAddress

__all__ = ["MilvusAddress", "MilvusStore"]
