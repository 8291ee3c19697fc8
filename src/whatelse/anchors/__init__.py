"""Conditions, the anchors that stand in for them, and how noisy anchors are."""

from whatelse.anchors.conditions import Anchor, AnchorSet, Condition
from whatelse.anchors.noise import NoiseRates

__all__ = ["Anchor", "AnchorSet", "Condition", "NoiseRates"]
