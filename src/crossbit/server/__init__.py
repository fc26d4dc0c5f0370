"""The service: a collection over HTTP, with a web page; ``crossbit serve COLLECTION``."""

from crossbit.server.app import create_app
from crossbit.server.run import LOOPBACK, ServerConfig, serve
from crossbit.server.workers import serve_workers

__all__ = ["create_app", "serve", "serve_workers", "ServerConfig", "LOOPBACK"]
