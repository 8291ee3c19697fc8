"""Routes and pages of the workbench for curators."""
