"""Reading and writing files: atomic writes, limits, templates, text tables."""
