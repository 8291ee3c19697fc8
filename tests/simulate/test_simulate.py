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
from benchmarks.plausibility import implausibilities, rules

from whatelse.annotators import AnchorSet
from whatelse.cohort import Cohort, build_cohort
from whatelse.cohort.findings import Finder
from whatelse.simulate import Departures, simulate, simulate_causes, truth_model
from whatelse.simulate.content import SECTIONS, load
from whatelse.simulate.notes import KINDS
from whatelse.simulate.rates import FINE, condition_states, fine_band, state_shares
from whatelse.text import Rules
from whatelse.visits import Code, Visit

OFF = Departures.none()


@pytest.fixture(scope="module")
def visits() -> list[Visit]:
    return list(simulate(10_000, 1))


@pytest.fixture(scope="module")
def obeying() -> Cohort:
    return build_cohort(simulate(14_000, 1, OFF), max_terms=None, function_words=True, lexicon="none")


def test_same_seed_same_visits_and_a_longer_run_begins_with_a_shorter_one(visits: list[Visit]) -> None:
    assert list(simulate(2100, 1)) == visits[:2100]
    assert list(simulate(50, 2)) != visits[:50]
    assert len({visit.id for visit in visits}) == len(visits)


def test_same_bytes_in_another_process() -> None:
    """String hashes differ between processes: nothing may depend on them."""
    code = "from whatelse.simulate import simulate; import sys; sys.stdout.write(repr(list(simulate(300, 9))))"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert hashlib.sha256(runs[0]).digest() == hashlib.sha256(runs[1]).digest()


def test_only_visits_with_several_conditions_are_the_same_visits(visits: list[Visit]) -> None:
    every = [visit for visit in visits if len(visit.truth or ()) >= 2][:200]
    assert list(simulate(200, 1, min_conditions=2)) == every


@pytest.mark.parametrize(("departures", "least"), [(Departures(), 0.37), (OFF, 0.25)], ids=["default", "none"])
def test_about_six_in_a_hundred_have_two_conditions(departures: Departures, least: float) -> None:
    counts = Counter(len(visit.truth or ()) for visit in simulate(12_000, 3, replace(departures, prose=False)))
    several = sum(count for size, count in counts.items() if size >= 2) / 12_000
    assert 0.05 < several < 0.075
    assert least < 1 - counts[0] / 12_000 < least + 0.12


def test_the_conditions_are_those_that_ship() -> None:
    assert load().conditions == AnchorSet.shipped().names


def test_ages_sexes_and_times_fit(visits: list[Visit]) -> None:
    for visit in visits:
        assert visit.age is not None and 0 <= visit.age <= 100
        assert visit.sex in ("F", "M") and visit.chief_complaint and visit.triage_note
        assert visit.billing is not None and (len(visit.billing) >= len(visit.truth or ()))
        text = " ".join([visit.chief_complaint, visit.triage_note, visit.md_comments or ""])
        assert not re.search(r"[{}]|\bnan\b", text)
    ages = {name: np.mean([v.age for v in visits if name in (v.truth or ())]) for name in ("fall", "cva", "headache")}
    assert ages["cva"] > ages["fall"] + 10 and ages["cva"] > ages["headache"] + 15
    times = [visit.time for visit in visits if visit.time]
    assert times == sorted(times) and (times[-1] - times[0]).days > 60
    hours = np.bincount([time.hour for time in times], minlength=24)
    assert hours[9:21].min() > 2 * hours[3:6].max()  # nights are quiet


def test_nothing_that_a_clinician_would_not_believe(visits: list[Visit]) -> None:
    found = Counter(line for visit in visits for line in implausibilities(visit))
    assert not found, found.most_common(5)


@pytest.mark.parametrize(
    ("visit", "says"),
    [
        (Visit("1", 3.0, "F", md_comments="exam: L leg shortened and rotated"), "hip fracture"),
        (Visit("1", 3.0, "F", medication_history=(Code("name", "gabapentin", "gabapentin"),)), "at home"),
        (Visit("1", 30.0, "M", triage_note="8 wks preg, cramping"), "pregnancy"),
        (Visit("1", 6.0, "M", triage_note="+SI"), "suicidal"),
        (Visit("1", 50.0, "F", dispensed=(Code("name", "finasteride", "finasteride"),)), "prostate"),
        (Visit("1", 2.0, "F", triage_note="pain 7/10"), "no number"),
        (Visit("1", 70.0, "M", md_comments="admit icu. d/c home"), "intensive care"),
        (Visit("1", 1.0, "M", truth=("kidney stone",)), "kidney stone"),
    ],
)
def test_the_rules_find_what_is_absurd(visit: Visit, says: str) -> None:
    assert any(says in line for line in implausibilities(visit)), implausibilities(visit)
    assert len(rules()[0]) >= 15


def test_the_same_words_are_no_absurdity_elsewhere() -> None:
    assert not implausibilities(Visit("1", 82.0, "F", md_comments="exam: L leg shortened and rotated. pain 7/10"))
    assert not implausibilities(Visit("1", 30.0, "F", triage_note="8 wks preg, cramping, anxious"))
    assert not implausibilities(Visit("1", None, None, triage_note="8 wks preg"))


def test_the_survey_is_what_patients_are_drawn_from() -> None:
    """Prevalence by age band and sex, and pairs, are those of the tables: every state's probability is summed."""
    rates = load().rates
    states, p = condition_states(23), state_shares(rates, 1.0, 1.0)
    assert np.allclose(p.sum(axis=1), 1)
    found = (p @ states).reshape(len(FINE), 2, 23)
    seen = rates.prevalence > 0.002
    assert np.abs(np.log(found[seen] / rates.prevalence[seen])).max() < 0.2
    alone = state_shares(rates, 0.0, 0.0).reshape(len(FINE), 2, -1)  # without couplings: independent given age and sex
    fall, back = load().conditions.index("fall"), load().conditions.index("back pain")
    both = states[:, fall] & states[:, back]
    each = [(alone[5, 0] * states[:, i]).sum() for i in (fall, back)]
    assert (alone[5, 0] * both).sum() == pytest.approx(each[0] * each[1], rel=0.05)
    assert [fine_band(age) for age in (0, 0.9, 1, 17, 18, 99)] == [0, 0, 1, 3, 4, 10]


def test_children_are_not_small_adults(visits: list[Visit]) -> None:
    small = [v for v in visits if v.age is not None and v.age < 5]
    old = [v for v in visits if v.age is not None and v.age > 75]
    assert len(small) > 500 and len(old) > 500
    spoken = sum(bool(re.search(r"(?i)\b(mom|mother|dad|parents?|grandmother)\b", v.triage_note or "")) for v in small)
    assert spoken > 0.5 * len(small)
    drugs = [len(v.medication_history or ()) for v in small], [len(v.medication_history or ()) for v in old]
    assert np.mean(drugs[0]) < 0.6 < 2 < np.mean(drugs[1])


def test_length_follows_the_admitted_and_is_no_evidence_by_itself(visits: list[Visit]) -> None:
    """Admitted patients have longer notes. What is written of anyone is not commoner beside a condition."""
    adults = [v for v in visits if v.age is not None and v.age >= 18]
    texts = [f"{v.triage_note} {v.md_comments}".lower() for v in adults]
    words = np.array([len(text.split()) for text in texts])
    admitted = np.array([bool(re.search("admit|micu|to icu", text)) for text in texts])
    assert words[admitted].mean() > 1.2 * words[~admitted].mean()
    short, long = np.quantile(words, [0.1, 0.9])
    assert long > 2.2 * short
    has = np.array([bool(v.truth) for v in adults])
    assert words[has].mean() > 1.1 * words[~has].mean()
    asides = [aside.lower() for aside in load().style["asides"] if "{" not in aside]
    on = np.array([[aside in text for aside in asides] for text in texts])
    assert 0.9 < np.median(on[has].mean(axis=0) / on[~has].mean(axis=0)) < 1.15


def test_every_word_and_code_has_its_cause() -> None:
    count, kinds = 0, Counter[str]()
    for visit, causes in simulate_causes(300, 3):
        for field in ("chief_complaint", "triage_note", "md_comments"):
            text, covered = getattr(visit, field), np.zeros(len(getattr(visit, field)), dtype=int)
            for name, start, end, _, _ in causes:
                if name == field:
                    covered[start:end] += 1
            assert (covered <= 1).all()
            assert all(c == 1 for c, letter in zip(covered, text, strict=True) if not letter.isspace())
        for field in ("medication_history", "dispensed", "billing", "coded"):
            assert sorted(start for name, start, *_ in causes if name == field) == list(
                range(len(getattr(visit, field)))
            )
        for _, _, _, kind, cause in causes:
            kinds[kind] += 1
            if kind == "condition":
                assert cause in (visit.truth or ())
            if kind == "mention":
                condition, how = cause.split(":")
                assert condition not in (visit.truth or ()) and how in KINDS
        count += 1
    assert count == 300 and set(kinds) == {"condition", "outside", "illness", "mention", "none"}
    assert [visit for visit, _ in simulate_causes(300, 3)] == list(simulate(300, 3))


def test_limits_name_only_what_there_is() -> None:
    """A misspelled key would limit nothing."""
    department = load()
    known = set(department.keys) | {f"given {name}" for name in department.rates.drugs}
    assert not {key for group in department.style["limits"] for key in group["keys"]} - known
    assert not set(department.style["child_drugs"]) - known
    assert not set(department.style["drugs"]) - known


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
    for a, b in [("vehicle collision", "back pain"), ("pneumonia", "severe sepsis"), ("hematuria", "uti")]:
        assert lift(visits, a, b) > 2
    assert lift(visits, "abdominal pain", "fall") < 0.5
    assert 0.4 < lift(off, "vehicle collision", "back pain") < 1.8


def test_anchor_phrases_fire_for_their_own_condition_and_nothing_else_does() -> None:
    shipped, department = AnchorSet.shipped(), load()
    finder = Finder(shipped, Rules.from_json({"name": "none", "phrases": {}}))
    slots = {**department.style["slots"], "side": ["left"], "part": ["arm pain"]}

    def fired(field: str, text: str) -> set[str]:
        filled = re.sub(r"\{(\w+)\}", lambda match: slots.get(match[1], ["x"])[0], text)
        return {shipped.names[there.condition] for there in finder.anchor_mentions([Visit("1", **{field: filled})])}

    for entry in department.said:
        assert not any(fired("chief_complaint", text) for text in (*entry["says"], *entry.get("small", ())))
        assert all(fired("chief_complaint", text) == {entry["names"]} for text in entry.get("named", ())), entry
    for name in department.conditions:
        anchor, mentions = department.profiles[name]["anchor"], department.mentions[name]
        for part in ("triage", "md", "small_triage", "small_md"):
            assert all(fired("md_comments", text) == {name} for text in anchor.get(part, ())), (name, part)
        for part in KINDS:
            assert all(fired("md_comments", text) == {name} for text in mentions.get(part) or ()), (name, part)
        assert all(fired("md_comments", text) for text in mentions["denied"]), name
        for part, field in [("home", "medication_history"), ("given", "dispensed")]:
            for drug in anchor.get(part, ()):
                assert [shipped.names[i] for i in finder.code(field, Code("name", drug, drug))[1]] == [name]
    given = {drug for name in department.conditions for drug in department.profiles[name]["anchor"].get("given", ())}
    for drug in department.rates.drugs:
        assert bool(finder.code("dispensed", Code("name", drug, drug))[1]) == (drug in given), drug
    for name, key, phrases in zip(department.names, department.keys, department.phrases, strict=True):
        if name.startswith(("hx:", "rx:")):
            field = "medication_history" if name.startswith("hx:") else "dispensed"
            assert not finder.code(field, Code("name", key, key))[1], name
        else:
            assert not any(fired(field, text) for text in phrases for field in ("chief_complaint", "md_comments")), name
    for part in ("openers", "parent_openers", "asides", "child_asides", "md_asides", "md_openers", "whens"):
        assert not any(fired("triage_note", text) for text in department.style[part]), part
    assert SECTIONS[-1] == "given"


def test_anchors_are_as_good_as_anchors_are(visits: list[Visit]) -> None:
    cohort = build_cohort(visits)
    assert cohort.Y is not None
    sensitivity = (cohort.A & cohort.Y).sum(0) / cohort.Y.sum(0)
    false_alarm = (cohort.A & ~cohort.Y).sum(0) / (~cohort.Y).sum(0)
    assert sensitivity.min() > 0.05 and sensitivity.max() < 0.9 and 0.3 < np.median(sensitivity) < 0.6
    assert false_alarm.max() < 0.09


# ---- obeying the model


def test_a_cohort_of_obeying_visits_has_the_findings_of_the_model(obeying: Cohort) -> None:
    names, prior, fail, leak = truth_model()
    assert set(obeying.vocabulary.names) == set(names) and len(names) == len(set(names)) >= 600
    assert fail.shape == (23, len(names)) and leak.shape == (len(names),) and prior.shape == (23,)
    first = next(simulate(1, 1, OFF))
    assert first.age is None and first.sex is None


def test_both_negation_rules_read_obeying_notes_alike() -> None:
    some = list(simulate(300, 4, OFF))
    default, paper = (build_cohort(some, max_terms=None, rules=rules, lexicon="none") for rules in ("default", "paper"))
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
    with pytest.raises(ValueError, match="negative"):
        next(simulate(-1, 1))
    with pytest.raises(ValueError, match="min_conditions"):
        next(simulate(1, 1, min_conditions=9))
    assert list(simulate(0, 1)) == []
