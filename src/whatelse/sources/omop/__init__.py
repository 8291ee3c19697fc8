"""OMOP CDM -> visits. `batch/omop/` writes results back."""
