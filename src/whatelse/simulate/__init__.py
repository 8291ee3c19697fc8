"""An emergency department that never existed: visits with their truth, harder than the model or obeying it exactly."""

from whatelse.simulate.causes import write_causes
from whatelse.simulate.departures import Departures
from whatelse.simulate.engine import simulate, simulate_causes
from whatelse.simulate.truth import truth_model

__all__ = ["Departures", "simulate", "simulate_causes", "truth_model", "write_causes"]
