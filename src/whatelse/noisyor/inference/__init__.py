"""Answers of a noisy-or model: search, enumeration, sampling."""
