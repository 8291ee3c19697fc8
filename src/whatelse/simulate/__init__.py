"""Simulated emergency visits with their true conditions. `Departures`: distance from the noisy-or model."""

from whatelse.simulate.causes import write_causes
from whatelse.simulate.departures import Departures
from whatelse.simulate.engine import simulate, simulate_causes, truth_model

__all__ = ["Departures", "simulate", "simulate_causes", "truth_model", "write_causes"]
