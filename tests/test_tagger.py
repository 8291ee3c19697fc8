"""Tagger: scikit-learn's conventions, and what it answers about one visit."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import sklearn.base
import sklearn.exceptions
from sklearn.base import clone

from tests.support.small_department import cohort, visits
from whatelse.annotators import NoiseRates
from whatelse.annotators.votes import Votes
from whatelse.cohort import Cohort
from whatelse.errors import CohortError, ModelError, NotFittedError, QueryError
from whatelse.learning import learners as learning
from whatelse.tagger import Tagger
from whatelse.visits import Visit


@pytest.fixture(scope="module")
def tagger() -> Tagger:
    return Tagger("naive").fit(cohort())


@pytest.fixture(scope="module")
def default() -> Tagger:
    """The default learner's: it may have couplings, weights and evidence."""
    return Tagger(learning.DEFAULT).fit(cohort())


@pytest.fixture(scope="module")
def visit() -> Visit:
    """One with two true conditions."""
    return next(v for v in visits("test") if len(v.truth or ()) >= 2)


AGAIN = """
from tests.support.small_department import cohort
from whatelse.tagger import Tagger
print(Tagger().fit(cohort()).save({!r}))
"""


@pytest.mark.slow
def test_another_process_at_another_time_learns_the_same_bytes(default: Tagger, tmp_path: Path) -> None:
    default.save(tmp_path / "a")
    changed = {
        "PYTHONHASHSEED": "7",
        "OPENBLAS_NUM_THREADS": "1",
        "TZ": "Asia/Tokyo",
        "SOURCE_DATE_EPOCH": "1700000000",
    }
    environment = {**os.environ, **changed, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    subprocess.run([sys.executable, "-c", AGAIN.format(str(tmp_path / "b"))], env=environment, check=True, timeout=600)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_parameters_and_clone() -> None:
    tagger = Tagger("nvil", settings={"hidden": 50}, tolerance=1e-2, seed=4)
    assert tagger.get_params() == {
        "learner": "nvil",
        "settings": {"hidden": 50},
        "settings__hidden": 50,
        "tolerance": 1e-2,
        "seed": 4,
    }
    copy = clone(tagger.set_params(seed=5))
    assert copy.get_params() == tagger.get_params() and copy is not tagger and not hasattr(copy, "model_")


def test_fit_returns_itself_and_learned_attributes_end_in_an_underscore() -> None:
    tagger = Tagger("naive")
    assert tagger.fit(cohort()) is tagger
    assert tagger.conditions_ == cohort().conditions and tagger.converged_ and isinstance(tagger.history_, tuple)
    assert set(vars(tagger)) - set(tagger.get_params()) <= {name for name in vars(tagger) if name.endswith("_")}


def test_unknown_learner_and_setting_are_refused() -> None:
    with pytest.raises(ModelError, match="no learner 'magic'"):
        Tagger("magic").fit(cohort())
    with pytest.raises(
        ModelError, match="'joint' has no setting 'knowlege'; it has labels, weights, belief, knowledge"
    ):
        Tagger(settings={"knowlege": False}).fit(cohort())


def test_without_labels_rates_are_given_or_assumed() -> None:
    whole = cohort()
    bare = Cohort(whole.X, whole.vocabulary, whole.ids)
    assumed = Tagger("naive").fit(bare).rates_
    np.testing.assert_allclose(assumed.ppv, 0.5)
    np.testing.assert_allclose(assumed.sensitivity, 0.5)
    rates = NoiseRates.from_labels(whole.A, whole.Y, whole.conditions)
    learned, direct = Tagger("naive").fit(bare, rates=rates), Tagger("naive").fit(whole)
    assert np.array_equal(learned.model_.noisyor.fail, direct.model_.noisyor.fail)


def test_labels_of_the_cohort_are_used_unless_rates_are_given() -> None:
    whole = cohort()
    some = np.arange(len(whole)) < len(whole) // 2
    half = Cohort(whole.X, whole.vocabulary, whole.ids, whole.Y, some)
    taught = Tagger().fit(half)
    assert taught.notes_["labels"]["labelled_visits"] == some.sum()
    hidden = Cohort(whole.X, whole.vocabulary, whole.ids)
    given, blind = Tagger().fit(half, rates=taught.rates_), Tagger().fit(hidden, rates=taught.rates_)
    assert "labels" not in given.notes_
    assert given.model_.evidence.weight.tobytes() == blind.model_.evidence.weight.tobytes()


def test_unfitted(visit: Visit) -> None:
    for ask in (lambda t: t.suggest(visit), lambda t: t.predict_proba(cohort()), lambda t: t.save("nowhere")):
        with pytest.raises(NotFittedError, match="call fit"):
            ask(Tagger())
    with pytest.raises(sklearn.exceptions.NotFittedError):
        Tagger().predict_proba(cohort())


def test_settings_of_the_learner_are_parameters() -> None:
    tagger = Tagger("nvil", settings={"hidden": 50}).set_params(settings__hidden=20, seed=3)
    assert tagger.settings == {"hidden": 20} and tagger.get_params()["settings__hidden"] == 20 and tagger.seed == 3
    assert sklearn.base.clone(tagger).settings == {"hidden": 20}
    with pytest.raises(ValueError, match="Invalid parameter"):
        tagger.set_params(hidden=10)


def test_fit_of_what_is_no_cohort_says_how_to_make_one() -> None:
    with pytest.raises(CohortError, match="not from list: make one with build_cohort"):
        Tagger().fit([])  # type: ignore[arg-type]


@pytest.mark.parametrize("which", ["tagger", "default"])
def test_saved_and_loaded_it_answers_the_same(
    which: str, visit: Visit, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    tagger: Tagger = request.getfixturevalue(which)
    digest = tagger.save(tmp_path / "model")
    loaded = Tagger.load(tmp_path / "model")
    assert loaded.suggest(visit, ["fall"]) == tagger.suggest(visit, ["fall"])
    assert loaded.why(visit, "uti") == tagger.why(visit, "uti") and loaded.ask(visit) == tagger.ask(visit)
    assert loaded.digest_ == digest == loaded.suggest(visit).digest
    assert loaded.get_params() == tagger.get_params() | {"settings": {}}


@pytest.mark.parametrize("which", ["tagger", "default"])
def test_suggestions_are_those_of_the_arrays(which: str, request: pytest.FixtureRequest) -> None:
    tagger: Tagger = request.getfixturevalue(which)
    records = visits("test")[:20]
    batch, one_by_one = tagger.predict_proba(records), [tagger.suggest(v) for v in records]
    for row, found in zip(batch, one_by_one, strict=True):
        assert found.certified and found.error_bound <= tagger.tolerance
        single = {tag.condition: tag.probability for tag in found.tags}
        assert np.allclose(row, [single[c] for c in tagger.conditions_], atol=2e-3)
    arrays = tagger.predict_proba(cohort("test").rows(np.arange(20)))
    assert np.allclose(arrays, batch, atol=2e-3) and np.array_equal(tagger.predict(cohort("test").X[:20]), arrays > 0.5)


def test_what_is_decided_leaves_the_list(tagger: Tagger, visit: Visit) -> None:
    yes, no, *_ = [tag.condition for tag in tagger.suggest(visit).tags]
    found = tagger.suggest(visit, confirmed=[yes], rejected=[no])
    names = [tag.condition for tag in found.tags]
    assert set(names) == set(tagger.conditions_) - {yes, no}
    assert all(a.probability >= b.probability for a, b in pairwise(found.tags))


def test_confirming_explains_away(tagger: Tagger) -> None:
    """Two conditions that share a visit's findings: with one confirmed, on average the wrong ones lose."""
    records = [v for v in visits("test") if len(v.truth or ()) >= 2][:40]
    moved = []
    for record in records:
        assert record.truth is not None
        confirmed = record.truth[0]
        before = {t.condition: t.probability for t in tagger.suggest(record).tags}
        after = {t.condition: t.probability for t in tagger.suggest(record, [confirmed]).tags}
        moved.append(sum(after[c] - before[c] for c in after if c not in record.truth))
    assert np.mean(moved) < 0


@pytest.mark.parametrize("which", ["tagger", "default"])
@pytest.mark.parametrize("confirmed", [[], ["fall"]])
def test_reasons_add_up(which: str, confirmed: list[str], request: pytest.FixtureRequest) -> None:
    tagger: Tagger = request.getfixturevalue(which)
    for record in [v for v in visits("test") if v.truth][:5]:
        found = tagger.suggest(record, confirmed)
        for tag in (found.tags[0], found.tags[-1]):
            because = tagger.why(record, tag.condition, confirmed)
            lines = because.prior + sum(r.log_odds for r in because.reasons) + sum(because.absent.values())
            lines += sum(because.others.values()) + because.sureness
            assert lines + because.rest == pytest.approx(because.total)
            assert all(r.present or r.finding.startswith("anchor:") for r in because.reasons)
            sizes = [abs(r.log_odds) for r in because.reasons]
            assert sizes == sorted(sizes, reverse=True) and len(sizes) <= 12
            assert set(because.confirmed) == set(confirmed)
            odds = np.log(tag.probability) - np.log1p(-tag.probability)
            if 1e-3 < tag.probability < 1 - 1e-3:
                assert because.total == pytest.approx(odds, abs=0.2)


def test_reasons_point_into_the_note(tagger: Tagger) -> None:
    pointed = 0
    for record in visits("test")[:30]:
        top = tagger.suggest(record).tags[0].condition
        for reason in tagger.why(record, top).reasons:
            for place in reason.places:
                assert reason.present
                if place.start is not None:
                    assert getattr(record, place.field)[place.start : place.end].strip()
                    pointed += 1
    assert pointed > 30


@pytest.mark.parametrize("which", ["tagger", "default"])
def test_questions(which: str, visit: Visit, request: pytest.FixtureRequest) -> None:
    tagger: Tagger = request.getfixturevalue(which)
    questions = tagger.ask(visit)
    assert 0 < len(questions) <= 5 and all(q.information >= 0 for q in questions)
    assert all(a.information >= b.information for a, b in pairwise(questions))
    present = {tagger.vocabulary_.names[j] for j in tagger.vocabulary_.present(visit)}
    assert not present & {q.finding for q in questions}
    first = questions[0]
    yes = {t.condition: t.probability for t in tagger.suggest(visit, present=[first.finding]).tags}
    no = {t.condition: t.probability for t in tagger.suggest(visit, absent=[first.finding]).tags}
    now = {t.condition: t.probability for t in tagger.suggest(visit).tags}
    for said, meant in ((yes, first.if_yes), (no, first.if_no), (now, first.now)):
        assert said[first.about] == pytest.approx(meant, abs=5e-3)
    answered = tagger.ask(visit, present=[first.finding])
    assert first.finding not in {q.finding for q in answered}
    assert {q.about for q in tagger.ask(visit, about="uti")} == {"uti"}


def test_names_it_does_not_know(tagger: Tagger, visit: Visit) -> None:
    with pytest.raises(QueryError, match="'gout' is not a condition of this model; it knows"):
        tagger.suggest(visit, confirmed=["gout"])
    with pytest.raises(QueryError, match="'gout' is not a condition"):
        tagger.why(visit, "gout")
    with pytest.raises(QueryError, match="not a finding"):
        tagger.suggest(visit, present=["no such word"])
    with pytest.raises(QueryError):
        tagger.suggest(visit, confirmed=["fall"], rejected=["fall"])


def test_a_field_that_nobody_filled_in_argues_neither_way(tagger: Tagger, visit: Visit) -> None:
    """A record of which nothing is known gives the priors; an empty one argues against what would have been written."""
    nothing = Visit("n")
    for tag in tagger.suggest(nothing).tags:
        assert tag.probability == pytest.approx(tag.baseline, abs=2e-3)
    empty = Visit("e", 40.0, "F", "", "", "", (), (), (), (), truth=())
    said = {t.condition: t.probability for t in tagger.suggest(empty).tags}
    assert sum(said.values()) < 0.5 * tagger.rates_.prior.sum()
    without_drugs = replace(visit, dispensed=None)
    hidden = {tagger.vocabulary_.names[j] for j in tagger.vocabulary_.unobserved(without_drugs)}
    assert hidden and all(name.startswith(("rx:", "anchor:")) for name in hidden)
    for tag in tagger.suggest(without_drugs).tags[:2]:
        assert not hidden & {r.finding for r in tagger.why(without_drugs, tag.condition).reasons}


def test_heldout_tag_is_a_scorer(tagger: Tagger) -> None:
    test = cohort("test").multi()
    assert test.Y is not None
    confirmed = test.Y.copy()
    confirmed[np.arange(len(test)), test.Y.argmax(1)] = False
    scores = tagger.heldout_tag(test.X, confirmed)
    assert np.allclose(scores.sum(1), 1) and not scores[confirmed].any()


def test_votes_are_used_instead_of_the_labels_of_the_cohort() -> None:
    train = cohort()
    bare = Cohort(train.X, train.vocabulary, train.ids)
    own, as_votes = Tagger("naive").fit(train), Tagger("naive").fit(bare, votes=[Votes.of_cohort(train)])
    assert np.array_equal(own.rates_.sensitivity, as_votes.rates_.sensitivity) and not as_votes.assumed_
    assert np.array_equal(own.model_.noisyor.fail, as_votes.model_.noisyor.fail)
    weighted = replace(Votes.of_cohort(train), weight=np.linspace(1, 3, len(train)))
    by_votes = Tagger("naive").fit(bare, votes=[weighted])
    by_weight = Tagger("naive").fit(train, sample_weight=np.linspace(1, 3, len(train)))
    assert np.array_equal(by_votes.rates_.prior, by_weight.rates_.prior)
    assert not np.array_equal(by_votes.rates_.prior, own.rates_.prior)


def test_rates_beside_votes_or_weights_are_refused_and_not_ignored() -> None:
    train = cohort()
    rates, votes, weight = (
        NoiseRates.assumed_of(train.A.sum(0), len(train), train.conditions),
        [Votes.of_cohort(train)],
        np.ones(len(train)),
    )
    for given in ({"votes": votes}, {"sample_weight": weight}):
        with pytest.raises(CohortError, match="rates are for learning from anchors alone: leave out votes"):
            Tagger("naive").fit(train, rates=rates, **given)  # type: ignore[arg-type]
    with pytest.raises(CohortError, match="votes have weights of their own"):
        Tagger("naive").fit(train, votes=votes, sample_weight=weight)


def test_an_unknown_name_is_answered_with_the_nearest_of_many() -> None:
    shipped = Tagger.load("emergency")
    with pytest.raises(
        QueryError, match="'pnuemonia' is not a condition of this model; the nearest are pneumonia"
    ) as no:
        shipped.condition_indices(["pnuemonia"])
    assert len(str(no.value)) < 200
    with pytest.raises(QueryError, match="'zzzzzzzz' is not a finding of this model; and no name is like it"):
        shipped.finding_indices(["zzzzzzzz"])


def test_old_names_of_weights_and_votes_warn_once_and_work() -> None:
    train = cohort()
    weight = np.linspace(1, 3, len(train))
    with pytest.warns(FutureWarning, match=r"fit\(weights=...\) is now fit\(sample_weight=...\)"):
        old = Tagger("naive").fit(train, weights=weight)
    assert np.array_equal(old.rates_.prior, Tagger("naive").fit(train, sample_weight=weight).rates_.prior)
    assert train.Y is not None
    with pytest.warns(FutureWarning, match=r"fit\(belief=...\) is now fit\(votes="):
        old = Tagger("naive").fit(train, belief=np.where(train.Y, 0.95, 0.02))
    assert np.array_equal(old.rates_.sensitivity, Tagger("naive").fit(train).rates_.sensitivity)
