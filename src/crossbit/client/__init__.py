"""Clients of the service: the verbs of `Collection` over HTTP."""

from crossbit.client.asyncclient import AsyncClient
from crossbit.client.client import Client, connect

__all__ = ["connect", "Client", "AsyncClient"]
