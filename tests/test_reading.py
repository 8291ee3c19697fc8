"""One visit read once: what a Reading answers is what a Tagger answers, and reading is done once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from tests.support.small_department import cohort, visits
from whatelse import Known
from whatelse.cohort import Cohort, Vocabulary, build_cohort
from whatelse.errors import CohortError, QueryError
from whatelse.learning import learners
from whatelse.server.answers import Answers, questions
from whatelse.server.reasons import marks, why
from whatelse.store import State
from whatelse.tagger import Tagger
from whatelse.visits import Visit


@pytest.fixture(scope="module")
def tagger() -> Tagger:
    return Tagger("naive").fit(cohort())


@pytest.fixture(scope="module")
def visit() -> Visit:
    return next(v for v in visits("test") if len(v.truth or ()) >= 2)


def test_known_takes_any_names_and_one_name_means_one() -> None:
    assert Known("trauma").confirmed == ("trauma",)
    assert Known(["a", "b"], rejected=iter("c")) == Known(("a", "b"), ("c",))
    said = Known(("a",), ("b",), ("fever",), ("cough",))
    assert said.about("a") and said.about("b") and not said.about("c")
    assert said.without("a") == Known((), ("b",), ("fever",), ("cough",))


def test_a_reading_answers_as_the_tagger_does(tagger: Tagger, visit: Visit) -> None:
    reading = tagger.read(visit)
    known = Known("fall", ["uti"])
    assert reading.suggest(known) == tagger.suggest(visit, "fall", ["uti"])
    assert reading.why(known, "pneumonia") == tagger.why(visit, "pneumonia", ["fall"], ["uti"])
    assert reading.ask(known) == tagger.ask(visit, ["fall"], ["uti"])


def test_opening_a_page_reads_the_visit_once(tagger: Tagger, visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The view, the marks, a why and the questions of one stored visit, and the same again after a decision."""
    read: list[str] = []
    find = Vocabulary.find
    monkeypatch.setattr(Vocabulary, "find", lambda self, v: read.append(v.id) or find(self, v))
    answers = Answers()
    for state in (State(), State(confirmed=("fall",), version=1)):
        first = answers.shown(tagger, visit, state)
        assert answers.shown(tagger, visit, state) is first
        reading = answers.reading(tagger, visit)
        assert marks(reading, state).version == state.version
        assert why(reading, state, "uti").condition == "uti" and questions(reading, state)
    assert read == [visit.id]


def test_a_finding_cannot_be_both(tagger: Tagger, visit: Visit) -> None:
    asked = tagger.ask(visit)[0].finding
    with pytest.raises(QueryError, match="both present and absent"):
        tagger.suggest(visit, present=asked, absent=asked)


def test_a_condition_cannot_be_both(tagger: Tagger, visit: Visit) -> None:
    with pytest.raises(QueryError, match="'fall' is both confirmed and rejected"):
        tagger.suggest(visit, "fall", "fall")


def test_batch_masks_are_the_same_question(tagger: Tagger) -> None:
    test = cohort("test").rows(np.arange(30))
    yes, no = np.zeros((30, len(tagger.conditions_)), bool), np.zeros((30, len(tagger.conditions_)), bool)
    yes[:, tagger.conditions_.index("fall")] = no[::2, tagger.conditions_.index("uti")] = True
    found = tagger.predict_proba(test, confirmed=yes, rejected=no)
    assert (found[yes] == 1).all() and (found[no] == 0).all()
    record = next(v for v in visits("test") if v.id == test.ids[4])
    said = {t.condition: t.probability for t in tagger.suggest(record, "fall", "uti").tags}
    for condition, probability in said.items():
        assert found[4, tagger.conditions_.index(condition)] == pytest.approx(probability, abs=2e-3)


def test_a_cohort_of_other_findings_is_refused(tagger: Tagger) -> None:
    """As wide as the model's, but most of its columns mean something else."""
    other = build_cohort(iter(visits("test")), max_terms=len(tagger.vocabulary_.names) - len(tagger.conditions_))
    width = min(len(other.vocabulary.names), len(tagger.vocabulary_.names))
    assert width > 100
    for question in (tagger.predict_proba, tagger.predict):
        with pytest.raises(CohortError, match=r"columns mean other findings.*build --vocabulary-from"):
            question(other)


def test_a_refit_forgets_the_old_questions(visit: Visit) -> None:
    whole = cohort()
    small = build_cohort(iter(visits("test")), max_terms=80)
    tagger = Tagger("naive").fit(whole)
    tagger.ask(visit)
    tagger.fit(small)
    names = set(small.vocabulary.names)
    assert all(q.finding in names for q in tagger.ask(visit))


def test_tolerance_is_kept_in_the_file(tmp_path: Path) -> None:
    tagger = Tagger("naive", tolerance=0.02).fit(cohort())
    tagger.save(tmp_path / "model")
    assert Tagger.load(tmp_path / "model").tolerance == 0.02


def test_what_did_not_converge_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    def unfinished(cohort: Cohort, rates: object, seed: int, progress: object) -> learners.Learned:
        return learners.Learned(learners.learn_naive(cohort, rates, seed, progress).model, converged=False)  # type: ignore[arg-type]

    monkeypatch.setitem(learners.LEARNERS, "naive", unfinished)
    with pytest.warns(ConvergenceWarning, match="'naive' stopped before it converged"):
        assert not Tagger("naive").fit(cohort()).converged_


def test_an_anchor_that_says_nothing_is_refused_by_name() -> None:
    from whatelse.annotators import NoiseRates
    from whatelse.errors import ModelError

    m = len(cohort().conditions)
    rates = NoiseRates.from_given(
        cohort().conditions, prior=np.full(m, 0.1), sensitivity=np.full(m, 0.2), false_positive=np.full(m, 0.2)
    )
    with pytest.raises(ModelError, match="the anchor of 'abdominal pain' fires no more often with the condition"):
        Tagger("naive").fit(cohort(), rates=rates)
