"""Collections in a PostgreSQL database with the extension pgvector."""

from crossbit.collection.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
