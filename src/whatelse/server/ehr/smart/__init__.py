"""SMART on FHIR: the page launched from an EHR at a visit, or on its own. `routes.py` has the way of a launch."""
