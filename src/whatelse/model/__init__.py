"""The model file, and other programs' formats."""
