"""Departures: how far simulated visits depart from the noisy-or model, one number for each kind of departure."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Departures:
    """Each field is one kind of departure; 0 or False switches it off.

    correlation        scales the survey's positive couplings between conditions (a fall and a head bleed, a urinary
                       infection and sepsis); 0 makes the 23 independent given age and sex, and with demographics and
                       competition off independent outright, each with its prior
    competition        scales the negative couplings: a visit for one condition seldom has another
    outside            illnesses and reasons for visit beyond the 23 exist and bring on findings; off, what they would
                       have brought on is spread evenly into the leaks
    interactions       scales the probabilities of the rules between findings: synergy, silence of those who cannot
                       speak, findings written only beside others, findings that exclude others
    prominence         share of its findings that a condition loses, on average, when it is not the reason for the visit
    verbosity          standard deviation of log note length between authors; length also depends on workload and on how
                       sick the patient is. A long note lists more findings, so findings are correlated given the
                       conditions
    anchor_dependence  how much naming or mentioning a condition leans on the length of the note, on whether it is why
                       the patient came, on its commonest symptoms being there, and on other conditions whose notes
                       mention it (a headache in a head bleed)
    drift              scales the seasons and trends of prevalence, and the change of templates after a year
    demographics       age and sex are known, fit the conditions and limit the findings; off, they are None
    prose              notes are written by people: phrases of several words, negations, misspellings, templates; off, a
                       note is a list with one word for each finding
    """

    correlation: float = 1.0
    competition: float = 1.0
    outside: bool = True
    interactions: float = 1.0
    prominence: float = 0.7
    verbosity: float = 0.35
    anchor_dependence: float = 0.5
    drift: float = 1.0
    demographics: bool = True
    prose: bool = True

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{field.name} is {value}, must be between 0 and 1")

    @classmethod
    def none(cls) -> Departures:
        """Everything off: the visits obey the noisy-or model of `truth_model` exactly."""
        return cls(0.0, 0.0, False, 0.0, 0.0, 0.0, 0.0, 0.0, False, False)
