"""The service: a collection over HTTP, and the page that shows it; ``crossbit serve COLLECTION``."""

from crossbit.web.app import create_app
from crossbit.web.server import serve
from crossbit.web.settings import Settings

__all__ = ["create_app", "serve", "Settings"]
