"""OMOP CDM -> visits (`read_omop`), and what a model says of them back as OHDSI tools want it (`results.py`)."""

from whatelse.sources.omop.visits import read_omop

__all__ = ["read_omop"]
