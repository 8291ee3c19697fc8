"""Keeping a model current: rebuild a cohort, choose visits to label, refit, compare, watch for drift."""
