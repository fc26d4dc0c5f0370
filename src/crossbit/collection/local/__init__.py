"""The embedded store: items in SQLite, Hamming indexes derived from them."""

from crossbit.collection.local.store import LocalStore

__all__ = ["LocalStore"]
