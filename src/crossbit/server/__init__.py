"""The service: a collection over HTTP, with a web page; ``crossbit serve COLLECTION``."""

from crossbit.server.app import create_app
from crossbit.server.config import LOOPBACK, ServerConfig
from crossbit.server.run import serve, serve_workers

__all__ = ["create_app", "serve", "serve_workers", "ServerConfig", "LOOPBACK"]
