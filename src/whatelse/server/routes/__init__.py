"""Routes and pages of the server."""
