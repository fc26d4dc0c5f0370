"""The service: a collection over HTTP, and the page that shows it; ``crossbit serve COLLECTION``."""

from crossbit.server.app import create_app
from crossbit.server.server import serve
from crossbit.server.settings import Settings

__all__ = ["create_app", "serve", "Settings"]
