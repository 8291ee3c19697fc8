"""The tagging page and the service under it: `serve(settings)` runs it, `create_app(service)` is the ASGI app."""

from whatelse.server.app import create_app
from whatelse.server.run import serve
from whatelse.server.service import Service
from whatelse.server.settings import Settings

__all__ = ["Service", "Settings", "create_app", "serve"]
