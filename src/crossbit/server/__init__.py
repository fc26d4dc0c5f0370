"""The service: a collection over HTTP, with a web page; ``crossbit serve COLLECTION``."""

from crossbit.server.app import create_app
from crossbit.server.config import LOOPBACK, ServerConfig
from crossbit.server.run import serve

__all__ = ["create_app", "serve", "ServerConfig", "LOOPBACK"]
