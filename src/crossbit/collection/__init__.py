"""Collections: items of several modalities, stored durably and searched by code."""

from crossbit.collection.collection import Collection
from crossbit.collection.stores import Capabilities, StaleModelError, Store, register_store
from crossbit.collection.values import Finding, Hit, Id, Item, Payload, Results, Stats

__all__ = [
    "Collection",
    "Hit",
    "Results",
    "Item",
    "Stats",
    "Finding",
    "Id",
    "Payload",
    "StaleModelError",
    "Capabilities",
    "Store",
    "register_store",
]
