"""What was accepted to stand in an anchor's place must not count against its condition."""

from __future__ import annotations

from pathlib import Path

import pytest

from whatelse.annotators import AnchorSet
from whatelse.cohort import build_cohort
from whatelse.simulate import simulate
from whatelse.tagger import Tagger
from whatelse.visits import Known, Visit
from whatelse.workbench.overview import own_labels

SEED = """\
conditions:
  - {name: headache, anchors: {notes: [headache]}}
  - {name: uti, anchors: {notes: [uti, dysuria]}}
  - {name: fall, anchors: {notes: [fell]}}
  - {name: back pain, anchors: {notes: [back pain]}}
"""
ACCEPTED = SEED.replace("[headache]", "[headache, ha, h/a, head pain]").replace("[fell]", "[fell, fall, s/p fall]")


def rewritten(visit: Visit, number: int) -> Visit:
    """A visit as hurried people write it: every other one has "h/a" wherever it had "headache", never both."""
    if number % 2:
        return visit
    notes = {f: (getattr(visit, f) or "").lower().replace("headache", "h/a") for f in ("triage_note", "md_comments")}
    notes["chief_complaint"] = (visit.chief_complaint or "").lower().replace("headache", "h/a")
    return Visit(visit.id, age=visit.age, sex=visit.sex, **notes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def visits() -> list[Visit]:
    return [rewritten(visit, k) for k, visit in enumerate(simulate(3000, 31))]


def learned(visits: list[Visit], text: str, folder: Path) -> Tagger:
    """A model learned without labels."""
    (folder / "conditions.yaml").write_text(text, encoding="utf-8")
    cohort = build_cohort(visits, AnchorSet.load(folder / "conditions.yaml"), max_terms=300, lexicon="none")
    unlabelled = type(cohort)(cohort.X, cohort.vocabulary, cohort.ids)
    assert not own_labels(unlabelled)[0].known.any()
    return Tagger().fit(unlabelled)


def log_odds(tagger: Tagger, word: str, condition: str) -> list[float]:
    """What a note of one word says for or against a condition, finding by finding."""
    visit = Visit("v", age=40.0, sex="F", chief_complaint="", triage_note=word, md_comments="")
    reasons = tagger.read(visit).why(Known(), condition, 50).reasons
    return [r.log_odds for r in reasons if r.present and any(part in r.finding for part in word.split())]


def test_an_accepted_phrase_counts_for_its_condition_and_nothing_of_it_against(
    visits: list[Visit], tmp_path: Path
) -> None:
    before, after = learned(visits, SEED, tmp_path), learned(visits, ACCEPTED, tmp_path)
    names = after.vocabulary_.names
    for phrase, condition in (("h/a", "headache"), ("head pain", "headache"), ("fall", "fall"), ("s/p fall", "fall")):
        words = phrase.split()
        assert not [n for n in names if n in words or n == "_".join(words)]  # nothing is left that could speak against
        visit = Visit("v", age=40.0, sex="F", chief_complaint="", triage_note=phrase, md_comments="")
        bare = Visit("v", age=40.0, sex="F", chief_complaint="", triage_note="", md_comments="")
        i = after.conditions_.index(condition)
        now, without = after.predict_proba([visit, bare])[:, i]
        assert now > max(2 * without, before.predict_proba([visit])[0, i]), phrase
        assert all(value >= 0 for value in log_odds(after, phrase, condition)), phrase


def test_before_it_is_accepted_a_substitute_does_not_count_against_either(visits: list[Visit], tmp_path: Path) -> None:
    """A finding that is present cannot lower its parent in a noisy-or, for failures are at most one. Linear evidence
    could; it is penalised and tested on silent cases, and here it leaves the substitute alone."""
    tagger = learned(visits, SEED, tmp_path)
    assert (tagger.model_.noisyor.fail <= 1 + 1e-12).all()
    found = log_odds(tagger, "h/a", "headache")
    assert found and all(value > 0 for value in found)
