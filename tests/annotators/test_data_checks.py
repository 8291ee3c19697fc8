"""Bad input to learning gets a word, and hopeless input is refused by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.small_department import cohort
from whatelse.annotators import AnchorSet, NoiseRates
from whatelse.annotators.anchors import Anchor, Condition
from whatelse.annotators.data_checks import doubts, refuse_hopeless, seen_before, sketch
from whatelse.cohort import Cohort
from whatelse.cohort.build import build_cohort
from whatelse.errors import CohortError
from whatelse.tagger import Tagger
from whatelse.visits import Code, Visit


def without_labels(whole: Cohort) -> Cohort:
    return Cohort(whole.X, whole.vocabulary, whole.ids)


def test_a_sound_cohort_with_its_own_rates_raises_no_doubt_about_rates() -> None:
    whole = cohort()
    rates = NoiseRates.from_labels(whole.A, whole.Y, whole.conditions)
    said = [str(doubt) for doubt in doubts(whole, rates)]
    assert not any("imply" in text or "same anchor" in text for text in said)
    refuse_hopeless(doubts(whole, rates))


def test_a_prior_three_times_too_high_is_seen_without_a_label() -> None:
    whole = cohort()
    rates = NoiseRates.from_labels(whole.A, whole.Y, whole.conditions)
    i = int(np.argmax(rates.prior))
    prior = rates.prior.copy()
    prior[i] = min(3 * prior[i], 0.9)
    wrong = NoiseRates.from_given(
        whole.conditions, prior=prior, sensitivity=rates.sensitivity, false_positive=rates.false_positive
    )
    found = [d for d in doubts(without_labels(whole), wrong) if d.condition == whole.conditions[i]]
    assert any("the rates imply that its anchor fires in" in d.says for d in found)


def test_two_conditions_with_one_anchor_are_refused_by_name() -> None:
    whole = cohort()
    a, b = (whole.conditions.index(name) for name in ("pneumonia", "uti"))
    X = whole.X.tolil()
    X[:, whole.anchor_columns[b]] = X[:, whole.anchor_columns[a]]
    same = Cohort(sp.csr_matrix(X, dtype=np.uint8), whole.vocabulary, whole.ids)
    with pytest.raises(CohortError, match="'pneumonia': nothing tells the two apart"):
        refuse_hopeless(doubts(same))


def test_no_visit_with_two_anchors_is_said_unless_a_visit_is_labelled_with_two_conditions() -> None:
    whole = cohort()
    apart = whole[whole.A.sum(1) < 2]
    assert not any("no visit has two anchors" in str(doubt) for doubt in doubts(without_labels(whole)))
    assert any("no visit has two anchors" in str(doubt) for doubt in doubts(without_labels(apart)))
    assert not any("no visit has two anchors" in str(doubt) for doubt in doubts(apart))


def test_an_anchor_that_never_fires_is_refused_unless_labels_tell() -> None:
    whole = cohort()
    X = whole.X.tolil()
    X[:, whole.anchor_columns[whole.conditions.index("uti")]] = 0
    silent = replace(whole, X=sp.csr_matrix(X, dtype=np.uint8))
    assert not any(d.hopeless for d in doubts(silent) if d.condition == "uti")
    with pytest.raises(CohortError, match=r"uti: its anchor never fires in [\d,]+ visits"):
        refuse_hopeless(doubts(without_labels(silent)))
    X[:, whole.anchor_columns[whole.conditions.index("fall")]] = 0
    both = without_labels(replace(whole, X=sp.csr_matrix(X, dtype=np.uint8)))
    with pytest.raises(CohortError, match=r"fall: .*likewise hopeless: uti.*leave the condition out of the conditions"):
        refuse_hopeless(doubts(both))


def test_an_anchor_of_the_wrong_code_system_is_told_the_right_one() -> None:
    anchors = AnchorSet((Condition("gout", "Gout", "acute", {}, (Anchor("code", "G1", ("coded",), "mine"),)),))
    visits = [Visit(str(k), coded=(Code("coded", f"G{k % 3}"),)) for k in range(30)]
    built = build_cohort(visits, anchors)
    assert any("under the system 'coded', not 'mine'" in str(d) for d in doubts(built))


def test_few_visits_labels_and_anchors_and_a_useless_anchor() -> None:
    some = cohort().rows(np.arange(222))
    assert any("222 visits are few" in str(d) for d in doubts(some))
    (one,) = [str(d) for d in doubts(without_labels(some)) if "anchors that fire in few of 222 visits" in str(d)]
    assert one.count("(") > 3 and " more; too few" in one  # all such conditions in one line
    ten = replace(cohort(), known=np.arange(len(cohort()))[:, None] < np.full((1, len(cohort().conditions)), 10))
    assert any("10 labelled visits say next to nothing" in str(d) for d in doubts(ten))
    m = len(cohort().conditions)
    weak = NoiseRates.from_given(
        cohort().conditions, prior=np.full(m, 0.1), sensitivity=np.full(m, 0.11), false_positive=np.full(m, 0.1)
    )
    assert sum("says next to nothing" in d.says for d in doubts(cohort(), weak)) == m


def test_labels_that_never_say_no() -> None:
    whole = cohort()
    assert whole.Y is not None
    uti = whole.conditions.index("uti")
    known = np.ones_like(whole.Y)
    known[:, uti] = whole.Y[:, uti]  # of one condition only where it is
    said = [str(d) for d in doubts(replace(whole, known=known))]
    assert [text for text in said if "labels are 1" in text and text.startswith("uti: ")]
    assert not any("labels are 1" in str(d) for d in doubts(whole))
    assert any("labels are 0" in str(d) for d in doubts(replace(whole, known=~whole.Y)))
    assert not any("labels are 0" in str(d) for d in doubts(whole))
    only = replace(whole, known=whole.Y.copy())  # and of all of them
    with pytest.raises(CohortError, match=r"none that one is not: .* write 0 where a labelled visit does not have"):
        Tagger().fit(only)


def test_visits_that_were_learned_from_are_noticed() -> None:
    kept = sketch(cohort())
    assert "flatters it" in (seen_before(kept, cohort()) or "")
    assert seen_before(kept, cohort("test")) is None and seen_before(None, cohort()) is None
