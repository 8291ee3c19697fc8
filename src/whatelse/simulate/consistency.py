"""Makes findings agree with measurements, disposition and drugs: "febrile" needs a fever, "d/c home" a discharge."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whatelse.simulate.content import SECTIONS, Department
from whatelse.simulate.patients import Patients
from whatelse.simulate.presentation import Presentation
from whatelse.types import Bools, Floats, Singles

FAST_PULSE = ((1, 160.0), (5, 140.0), (12, 120.0), (200, 100.0))  # under this age, above this pulse
FAST_BREATH = ((1, 55.0), (5, 38.0), (12, 28.0), (200, 22.0))
STAYS = ("medicine", "tele", "icu", "observation", "bedsearch", "amaleft", "detoxbed")
LEAVES = ("home", "followup", "outpatient", "strain", "sobriety", "headsheet", "wrap", "crutches")
COLLISION = "vehicle collision"
SEVERE = ("icu", "intubated", "pressors", "centralline", "egdt", "cath", "heparin", "reversal", "medicine", "tele")


def enforce_consistency(
    department: Department, patients: Patients, presentation: Presentation, findings: Bools, u: Singles
) -> None:
    """Change findings in place where they contradict the presentation of their visit. O(N n)."""
    column = {name: j for j, name in enumerate(department.names)}

    def off(keys: tuple[str, ...], where: Bools) -> None:
        for key in keys:
            if key in column:
                findings[where, column[key]] = False

    def on(key: str, where: Bools) -> None:
        fits = where & department.limits.fits(patients.age, patients.male)[:, column[key]]
        findings[fits, column[key]] = True

    _vitals(patients, presentation, u, off, on)
    ambulance = presentation.of("ambulance") == 1
    on("ambulance", ambulance & (u[:, 4] < 0.55))
    off(("walkin",), ambulance)
    off(
        ("ambulance", "nebs", "collar", "satlow", "hypotension", "tachy", "bystander", "street", "extrication"),
        ~ambulance,
    )

    admitted = (presentation.of("admitted") == 1) | (presentation.of("saturation") < 88)
    off(LEAVES, admitted)
    off(SEVERE, ~admitted)
    grave = admitted & (presentation.sick > 1.2)
    on("icu", grave & (u[:, 5] < 0.4))
    on("medicine", admitted & ~grave & (u[:, 5] < 0.6))
    stays = np.any([findings[:, column[key]] for key in STAYS], axis=0)
    off(("home",), stays)
    on("home", ~admitted & ~stays & (u[:, 6] < 0.3))

    given = np.zeros((findings.shape[0], len(department.rates.drugs) + 1), dtype=bool)
    np.put_along_axis(given, presentation.drugs, True, axis=1)  # -1, no more, is the last column
    place = {name: k for k, name in enumerate(department.rates.drugs)}
    for key, drugs in department.style["drugs"].items():
        known = [place[d] for d in drugs if d in place]
        if known:
            findings[:, column[key]] &= given[:, known].any(axis=1)
    _parts(department, presentation, findings, u, column)
    for drugs in department.style["one_of"]:  # one drug of a group with the same effect
        same = np.array([column[f"hx:{d}"] for d in drugs if f"hx:{d}" in column])
        taken = findings[:, same] * (1 + np.argsort(np.argsort(u[:, 8 : 8 + same.size], axis=1), axis=1))
        findings[:, same] = (taken > 0) & (taken == taken.max(axis=1, keepdims=True))
    pregnant = np.any([findings[:, column[k]] for k in ("pregnantcramps", "pregnantbleeding", "contractions")], axis=0)
    told = np.asarray(findings[:, column["contractions"]])
    off(("pregnant", "lmp", "pregnantcramps", "pregnantbleeding"), told)  # the weeks are told with the contractions
    carrying = patients.on[:, len(department.conditions) + department.reasons.index("pregnancy")] | pregnant
    off(("hcg", "ctabd", "oral contraceptive", "spotting", "latemenses"), carrying)
    off(("pregnant", "gravida", "fetalheart", "prenatalcare", "contractions"), ~carrying)
    _stories(department, patients, findings, column, off)


def _vitals(
    patients: Patients,
    presentation: Presentation,
    u: Singles,
    off: Callable[[tuple[str, ...], Bools], None],
    on: Callable[[str, Bools], None],
) -> None:
    """Words of fever, pulse, breath, pressure and oxygen follow the numbers."""
    hot = presentation.of("temperature") >= 1004
    on("fever", hot & (u[:, 0] < 0.5))
    on("febrile", hot & (u[:, 1] < 0.35))
    off(("afebrile",), hot)
    off(("febrile",), ~hot)
    fast = presentation.of("pulse") > _limit(FAST_PULSE, patients.age)
    on("tachycardic", fast & (u[:, 2] < 0.3))
    off(("tachycardic", "tachy"), ~fast)
    off(("tachypneic",), ~(presentation.of("respirations") > _limit(FAST_BREATH, patients.age)))
    low = presentation.of("systolic") < 90
    on("hypotensive", low & (u[:, 3] < 0.4))
    off(("hypotensive", "hypotension"), ~low)
    thin = presentation.of("saturation") < 90  # the words say "8.%"
    on("hypoxic", thin & (u[:, 3] < 0.5))
    off(("hypoxic", "satlow"), ~thin)
    unwell = (low & hot) | thin | (presentation.sick > 2)
    off(("wellappearing", "playful", "reassuring"), unwell)
    off(("toxic", "mottled", "obtunded"), presentation.sick < 0.3)
    off(("worst", "writhing"), presentation.of("pain") < 5)


def _stories(
    department: Department,
    patients: Patients,
    findings: Bools,
    column: dict[str, int],
    off: Callable[[tuple[str, ...], Bools], None],
) -> None:
    """What one visit does not tell together: a crash and the edge of a table, a nursing home and a job."""

    def has(*keys: str) -> Bools:
        return np.asarray(np.any([findings[:, column[key]] for key in keys if key in column], axis=0))

    off(("nkda",), has("pcnallergy", "sulfaallergy"))
    off(("facecut", "knife", "couch", "playground", "ladder"), patients.on[:, department.conditions.index(COLLISION)])
    off(("work", "sports", "exertion"), has("nursing", "walker", "foundfloor", "shelter"))
    off(("inr", "reversal"), ~has("anticoagulated", "afib", "hx:warfarin", "ascites", "varices"))
    off(("reassuring",), has("fracture", "hipfracture", "opacity"))
    absent = has("unresponsive", "intubated")  # nobody who could deny anything
    off(("baseline", "cooperative", "walkin"), absent)
    findings[np.ix_(np.flatnonzero(absent), np.flatnonzero(department.section == SECTIONS.index("negative")))] = False


def _limit(table: tuple[tuple[int, float], ...], age: Floats) -> Floats:
    return np.select([age < under for under, _ in table], [value for _, value in table])


def _parts(
    department: Department, presentation: Presentation, findings: Bools, u: Singles, column: dict[str, int]
) -> None:
    """Body parts in a note: those of the reasons for visit; without such a reason one part, or seldom two."""
    parts = np.array([column[key] for key in department.style["parts"]])
    said = np.zeros(findings.shape, dtype=bool)
    for k in range(presentation.reasons.shape[1]):
        rows = np.flatnonzero(presentation.reasons[:, k] >= 0)
        said[rows, department.reason_key[presentation.reasons[rows, k]]] = True
    told = np.asarray(said[:, parts].any(axis=1))
    keep = findings[:, parts] & (said[:, parts] | ~told[:, None])
    first = keep & (np.cumsum(keep, axis=1) <= np.where(u[:, 7] < 0.8, 1, 2)[:, None])
    findings[:, parts] = np.where(told[:, None], keep, first)
