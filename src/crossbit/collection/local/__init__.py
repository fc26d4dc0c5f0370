"""The embedded store: SQLite holds the truth, Hamming indexes are derived from it."""

from crossbit.collection.local.store import LocalStore

__all__ = ["LocalStore"]
