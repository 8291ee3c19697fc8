"""HTML from Jinja2 templates. Values are escaped."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

LINES: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}


def templates(package: str) -> Environment:
    """The folder `templates` of a package. Values are escaped. An undefined name is an error."""
    return Environment(loader=PackageLoader(package), autoescape=True, undefined=StrictUndefined, **LINES)


def html(text: str) -> Markup:
    """Text that is HTML already, made by this package: a template puts it in as it is."""
    return Markup(text)


def text_templates(package: str) -> Environment:
    """The folder `templates` of a package, for plain text: nothing is escaped."""
    return templates(package).overlay(autoescape=False)
