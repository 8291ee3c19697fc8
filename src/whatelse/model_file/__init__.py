"""The model file, its signature and its summary."""
