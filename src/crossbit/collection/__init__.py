"""Collections: a durable home for items of many kinds, changed while it is searched."""

from crossbit.collection.collection import Collection
from crossbit.collection.records import Finding, Hit, Id, Item, Payload, Stats

__all__ = ["Collection", "Hit", "Item", "Stats", "Finding", "Id", "Payload"]
