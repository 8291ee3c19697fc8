"""Run the notebooks of docs/notebooks/ and keep what they show: `python scripts/notebooks.py` (the extra `docs`).

`make docs` runs them again by itself; this is for those who read them on a page that does not.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "docs" / "notebooks"


def run(path: Path) -> nbformat.NotebookNode:
    """The notebook with its outputs, run in an empty folder; an error in a cell is an error here."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=600, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it ran
    return notebook


if __name__ == "__main__":
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        nbformat.write(run(path), path)
        print(f"ran {path.name}")
