"""Results of many visits in the tables of an OMOP CDM."""
