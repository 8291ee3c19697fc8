"""Annotators: anchors, labels and decisions, with their noise rates."""

from whatelse.annotators.anchors import Anchor, AnchorSet, Condition
from whatelse.annotators.noise_rates import NoiseRates

__all__ = ["Anchor", "AnchorSet", "Condition", "NoiseRates"]
