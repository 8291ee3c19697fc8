"""The simulated department: what it promises about its visits, and that it obeys the model when told to."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import fields, replace

import numpy as np
import pytest

from whatelse.anchors import AnchorSet
from whatelse.cohort import Cohort, build_cohort
from whatelse.cohort.findings import Finder
from whatelse.simulate import Departures, simulate, truth_model
from whatelse.simulate.content import load
from whatelse.visits import Code, Visit

OFF = Departures.none()


@pytest.fixture(scope="module")
def visits() -> list[Visit]:
    return list(simulate(10_000, 1))


@pytest.fixture(scope="module")
def obeying() -> Cohort:
    return build_cohort(simulate(14_000, 1, OFF), max_terms=None)


def test_same_seed_same_visits_and_a_longer_run_begins_with_a_shorter_one(visits: list[Visit]) -> None:
    assert list(simulate(2100, 1)) == visits[:2100]
    assert list(simulate(50, 2)) != visits[:50]
    assert len({visit.id for visit in visits}) == len(visits)


def test_same_bytes_in_another_process() -> None:
    """String hashes differ between processes: nothing may depend on them."""
    code = "from whatelse.simulate import simulate; import sys; sys.stdout.write(repr(list(simulate(300, 9))))"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert hashlib.sha256(runs[0]).digest() == hashlib.sha256(runs[1]).digest()


def test_only_visits_with_several_conditions_are_the_same_visits(visits: list[Visit]) -> None:
    every = [visit for visit in visits if len(visit.truth or ()) >= 2][:200]
    assert list(simulate(200, 1, min_conditions=2)) == every


@pytest.mark.parametrize("departures", [Departures(), OFF], ids=["default", "none"])
def test_about_six_in_a_hundred_have_two_conditions(departures: Departures) -> None:
    counts = Counter(len(visit.truth or ()) for visit in simulate(12_000, 3, replace(departures, prose=False)))
    several = sum(count for size, count in counts.items() if size >= 2) / 12_000
    assert 0.05 < several < 0.075
    assert 0.25 < 1 - counts[0] / 12_000 < 0.37


def test_the_conditions_are_those_that_ship() -> None:
    assert load().conditions == AnchorSet.shipped().names


def test_ages_sexes_and_drugs_fit(visits: list[Visit]) -> None:
    for visit in visits:
        assert visit.age is not None and 1 <= visit.age <= 98
        assert visit.sex in ("F", "M") and visit.chief_complaint and visit.triage_note
        assert visit.billing is not None and (len(visit.billing) >= len(visit.truth or ()))
        drugs = {code.name for code in visit.medication_history or ()}
        if visit.sex == "M":
            assert "pregnant" not in visit.triage_note and "oral contraceptive" not in drugs
        else:
            assert "finasteride" not in drugs
        if visit.age < 50:
            assert "donepezil" not in drugs
    hips = [v.age for v in visits if "fall" in (v.truth or ())]
    crashes = [v.age for v in visits if "vehicle collision" in (v.truth or ())]
    assert np.mean([a for a in hips if a]) > np.mean([a for a in crashes if a]) + 10
    times = [visit.time for visit in visits if visit.time]
    assert times == sorted(times) and (times[-1] - times[0]).days > 60


def test_billing_says_what_is_true(visits: list[Visit]) -> None:
    shipped = AnchorSet.shipped()
    for visit in visits[:4000]:
        by_billing = shipped.labels(replace(visit, truth=None))
        assert by_billing == shipped.labels(visit), (visit.truth, visit.billing)


def test_conditions_correlate_only_when_asked(visits: list[Visit]) -> None:
    def lift(some: list[Visit], a: str, b: str) -> float:
        both = sum(a in (v.truth or ()) and b in (v.truth or ()) for v in some)
        each = [sum(x in (v.truth or ()) for v in some) for x in (a, b)]
        return both * len(some) / (each[0] * each[1])

    off = list(simulate(12_000, 1, replace(OFF, prose=False)))
    for a, b in [("alcohol", "fall"), ("pneumonia", "severe sepsis"), ("fall", "intracranial hemorrhage")]:
        assert lift(visits, a, b) > 2
    assert 0.4 < lift(off, "alcohol", "fall") < 1.8


def test_anchor_phrases_fire_for_their_own_condition_and_nothing_else_does() -> None:
    shipped, department = AnchorSet.shipped(), load()
    finder = Finder(shipped)
    slots = department.style["slots"]

    def fired(field: str, text: str) -> set[str]:
        filled = re.sub(r"\{(\w+)\}", lambda match: slots.get(match[1], ["x"])[0], text)
        return {shipped.names[i] for i, _, _ in finder.phrases(field, filled, finder.tokens(filled))}

    for name, profile in department.profiles.items():
        assert not any(fired("chief_complaint", text) for text in profile.get("complaint", ()))
        anchor = profile.get("anchor", {})
        places = [("complaint", "chief_complaint"), ("triage", "triage_note"), ("md", "md_comments")]
        for part, field in [*places, ("elsewhere", "md_comments")]:
            for text in anchor.get(part, ()):
                assert fired(field, text) == {name}, (name, text)
        for part, field in [("home", "medication_history"), ("given", "dispensed")]:
            for drug in anchor.get(part, ()):
                assert [shipped.names[i] for i in finder.code(field, Code("name", drug, drug))[1]] == [name]
    for name, phrases, code in zip(department.names, department.phrases, department.codes, strict=True):
        if code is not None:
            assert not finder.code("medication_history" if name.startswith("hx:") else "dispensed", code)[1], name
        else:
            assert not any(fired(field, text) for text in phrases for field in ("chief_complaint", "md_comments")), name


def test_anchors_are_as_good_as_anchors_are(visits: list[Visit]) -> None:
    cohort = build_cohort(visits)
    assert cohort.Y is not None
    sensitivity = (cohort.A & cohort.Y).sum(0) / cohort.Y.sum(0)
    false_alarm = (cohort.A & ~cohort.Y).sum(0) / (~cohort.Y).sum(0)
    assert sensitivity.min() > 0.15 and sensitivity.max() < 0.85
    assert false_alarm.max() < 0.06


# ---- obeying the model


def test_a_cohort_of_obeying_visits_has_the_findings_of_the_model(obeying: Cohort) -> None:
    names, prior, fail, leak = truth_model()
    assert set(obeying.vocabulary.names) == set(names) and len(names) == len(set(names)) >= 600
    assert fail.shape == (23, len(names)) and leak.shape == (len(names),) and prior.shape == (23,)
    first = next(simulate(1, 1, OFF))
    assert first.age is None and first.sex is None


def test_both_negation_rules_read_obeying_notes_alike() -> None:
    some = list(simulate(300, 4, OFF))
    default, paper = (build_cohort(some, max_terms=None, rules=rules) for rules in ("default", "paper"))
    assert set(default.vocabulary.names) == set(paper.vocabulary.names)
    order = [paper.vocabulary.index[name] for name in default.vocabulary.names]
    assert (paper.X[:, order] != default.X).nnz == 0


def test_frequencies_are_those_of_the_model(obeying: Cohort) -> None:
    """P(X_j = 1) = 1 - (1 - l_j) prod_i (1 - pi_i + pi_i f_ij), and P(X_j = 1 | Y_i = 1) likewise."""
    names, prior, fail, leak = truth_model()
    order = [obeying.vocabulary.index[name] for name in names]
    X, Y = obeying.X[:, order].astype(float), obeying.Y
    assert Y is not None
    off = (1 - leak) * np.prod(1 - prior[:, None] + prior[:, None] * fail, axis=0)

    def scores(shown: np.ndarray, p: np.ndarray, size: int) -> np.ndarray:
        return (shown - p * size) / np.sqrt(size * p * (1 - p))

    z = scores(np.asarray(X.sum(0)).ravel(), 1 - off, len(obeying))
    assert np.abs(z).max() < 4.5 and 0.85 < np.mean(z**2) < 1.15
    given = []
    for i in range(23):
        p = 1 - off * fail[i] / (1 - prior[i] + prior[i] * fail[i])
        given.append(scores(np.asarray(X[Y[:, i]].sum(0)).ravel(), p, int(Y[:, i].sum())))
    common = np.abs(np.array(given)) < 8  # a normal score is rough for rare findings, but nothing may be far out
    assert common.all() and 0.9 < np.mean(np.array(given) ** 2) < 1.1
    assert np.abs(scores(Y.sum(0), prior, len(obeying))).max() < 4


def test_findings_are_independent_given_the_conditions(obeying: Cohort) -> None:
    """Among visits without conditions, and with one given condition only, correlations are those of chance."""
    Y = obeying.Y
    assert Y is not None
    alone = Y.sum(1) == 0
    fall = (Y.sum(1) == 1) & Y[:, obeying.conditions.index("fall")]
    for rows in (alone, fall):
        X = obeying.X[rows].toarray().astype(float)
        X = X[:, X.sum(0) > 20]
        correlation = np.corrcoef(X, rowvar=False)[np.triu_indices(X.shape[1], 1)]
        z = correlation * np.sqrt(len(X))
        assert 0.97 < np.mean(z**2) < 1.03


def test_prose_is_not_independent_given_the_conditions(visits: list[Visit]) -> None:
    cohort = build_cohort(visits, max_terms=200)
    assert cohort.Y is not None
    X = cohort.X[cohort.Y.sum(1) == 0].toarray().astype(float)
    correlation = np.corrcoef(X[:, X.sum(0) > 20], rowvar=False)
    z = correlation[np.triu_indices(len(correlation), 1)] * np.sqrt(len(X))
    assert np.mean(z**2) > 2


def test_each_departure_changes_the_visits() -> None:
    """Switching one off alone gives other visits: no field is without effect."""
    usual = list(simulate(400, 2))
    for field in fields(Departures):
        assert list(simulate(400, 2, replace(Departures(), **{field.name: getattr(OFF, field.name)}))) != usual


def test_what_cannot_be_asked() -> None:
    with pytest.raises(ValueError, match="verbosity is 3"):
        Departures(verbosity=3.0)
    with pytest.raises(ValueError, match=r"Departures\.none"):
        truth_model(Departures())
    with pytest.raises(ValueError, match="negative"):
        next(simulate(-1, 1))
    with pytest.raises(ValueError, match="min_conditions"):
        next(simulate(1, 1, min_conditions=9))
    assert list(simulate(0, 1)) == []
