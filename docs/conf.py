"""How Sphinx makes a site of these pages: `make docs`, into docs/_build/html. No network is needed."""

from __future__ import annotations

import os
import re
from typing import Any

from whatelse import __version__

os.environ.pop("MPLBACKEND", None)  # notebooks draw into their pages, whatever a test run asks for

project = "whatelse"
author = "The whatelse authors"
copyright = "The whatelse authors, MIT licence"
release = __version__
version = release

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
exclude_patterns = ["_build", "tutorial/*.py"]
nitpicky = False

myst_heading_anchors = 3
nb_execution_mode = "force"  # what a page shows is what the code gives
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # the first run on a machine compiles the kernels
nb_execution_in_temp = True
nb_merge_streams = True

autosummary_generate = True
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "none"  # signatures are long; the docstrings give shapes and meaning
autodoc_preserve_defaults = True

html_theme = "pydata_sphinx_theme"
html_title = "whatelse"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "show_prev_next": True,
    "navigation_with_keys": False,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "show_nav_level": 2,
}


def plain_docstrings(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are written to be read as they stand: prose becomes paragraphs, two aligned columns become a list of
    names and what they mean, and whatever else is aligned (an equation, a tree) stays as it is."""
    out: list[str] = []
    for paragraph in filter(str.strip, "\n".join(lines).split("\n\n")):
        rows = paragraph.strip("\n").split("\n")
        if listed := definitions(rows):
            for term, meaning in listed:
                out += [f"``{term}``", "    " + prose(meaning)]
        elif any(row.startswith(" ") or re.search(r"\S {2,}\S", row) for row in rows):
            out += [".. code-block:: text", "", *("    " + row for row in rows)]
        else:
            out += prose(paragraph).split("\n")
        out.append("")
    lines[:] = out


def definitions(rows: list[str]) -> list[tuple[str, str]]:
    """(name, meaning) of rows such as "weights  (N,) how many visits each stands for"; none if rows are not so."""
    found: list[tuple[str, str]] = []
    for row in rows:
        start = re.match(r"(\S(?:.*?\S)?) {2,}(\S.*)", row)
        if start:
            found.append((start[1], start[2]))
        elif found and row.startswith("    "):
            found[-1] = (found[-1][0], f"{found[-1][1]} {row.strip()}")
        else:
            return []
    return found


def prose(text: str) -> str:
    """Text with `names` as code, and no other sign of it taken for markup."""
    parts = re.split(r"`([^`]+)`", text)
    return "".join(f"``{part}``" if k % 2 else re.sub(r"[*|_\\]", r"\\\g<0>", part) for k, part in enumerate(parts))


def skip_routing(app: Any, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool:
    """scikit-learn adds set_fit_request and the like to every estimator: they are its own, and described there."""
    return skip or bool(re.fullmatch(r"set_\w+_request", name))


def setup(app: Any) -> None:
    app.connect("autodoc-skip-member", skip_routing)
    app.connect("autodoc-process-docstring", plain_docstrings)
