"""Where researchers live: data frames in and out, scikit-learn's tools, answers that print as tables."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.utils.validation import check_is_fitted

from tests.support.small_department import cohort, visits
from whatelse.cohort import Cohort, build_cohort
from whatelse.errors import CohortError, NotFittedError, QueryError
from whatelse.evaluation.measures import measure
from whatelse.explanations import Explanation, Reason, Suggestions, Tag
from whatelse.tagger import Tagger
from whatelse.visits import Visit

pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")


@cache
def tagger() -> Tagger:
    return Tagger("naive").fit(cohort())


@cache
def records() -> dict[str, list[Any]]:
    """A few visits as columns of a table."""
    some = visits("test")[:6]
    fields = ("id", "age", "sex", "chief_complaint", "triage_note", "md_comments")
    return {field: [getattr(visit, field) for visit in some] for field in fields}


def plain() -> list[Visit]:
    return [Visit(*row) for row in zip(*records().values(), strict=True)]


# ---- data frames


def test_a_frame_gives_a_frame_of_its_own_library() -> None:
    expected = tagger().predict_proba(plain())
    frame = pandas.DataFrame(records(), index=[3, 1, 4, 15, 9, 2])
    tagged = tagger().tag(frame)
    assert isinstance(tagged, pandas.DataFrame) and tuple(tagged.columns) == tagger().conditions_
    assert tagged.index.tolist() == frame.index.tolist() and frame.join(tagged).shape == (6, 6 + 23)
    np.testing.assert_array_equal(tagged.to_numpy(), expected)
    np.testing.assert_array_equal(tagger().tag(frame.set_index("id")).to_numpy(), expected)
    other = tagger().tag(polars.DataFrame(records()))
    assert isinstance(other, polars.DataFrame) and tuple(other.columns) == tagger().conditions_
    np.testing.assert_array_equal(other.to_numpy(), expected)
    table = tagger().tag(pa.table(records()))
    assert isinstance(table, pa.Table) and tuple(table.column_names) == tagger().conditions_
    np.testing.assert_array_equal(np.column_stack(table.columns), expected)


def test_the_columns_are_those_it_learned_from_unless_told() -> None:
    names = {"id": "No", "triage_note": "Nurse"}
    frame = pandas.DataFrame(records()).rename(columns=names)
    learned = Tagger("naive").fit(build_cohort(frame, columns=names, max_share=1))
    assert learned.tag(frame).equals(learned.tag(frame, columns=names))
    other = frame.rename(columns={"No": "Number"})
    assert learned.tag(other, columns=names | {"id": "Number"}).equals(learned.tag(frame))


def test_visits_and_cohorts_are_tagged_with_their_ids() -> None:
    some = visits("test")[:6]
    for given in (some, list(some), iter(some), cohort("test")[:6]):
        tagged = tagger().tag(given)
        assert tagged.index.tolist() == [visit.id for visit in some] and tagged.index.name == "visit"
        np.testing.assert_allclose(tagged.to_numpy(), tagger().predict_proba(some), atol=2e-3)
    assert tagger().tag([]).shape == (0, 23)
    assert tagger().tag(cohort("test").X[:6]).index.tolist() == [0, 1, 2, 3, 4, 5]


def test_without_pandas_it_is_a_dict_of_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    tagged = tagger().tag(visits("test")[:3])
    assert list(tagged) == list(tagger().conditions_) and all(column.shape == (3,) for column in tagged.values())


def test_what_is_known_of_all_visits() -> None:
    some = visits("test")[:6]
    masks = np.zeros((6, 23), bool)
    masks[:, tagger().conditions_.index("fall")] = True
    expected = tagger().predict_proba(some, confirmed=masks)
    for said in ("fall", ["fall"], ("fall",), np.array(["fall"])):
        np.testing.assert_array_equal(tagger().predict_proba(some, confirmed=said), expected)
        np.testing.assert_array_equal(tagger().tag(some, said)["fall"], 1.0)
    assert (tagger().predict_proba(some, rejected="fall")[:, masks[0]] == 0).all()
    np.testing.assert_array_equal(tagger().predict_proba(some, confirmed=[]), tagger().predict_proba(some))
    with pytest.raises(QueryError, match="'trauma' is not a condition"):
        tagger().predict_proba(some, confirmed="trauma")


def test_one_name_is_one_condition() -> None:
    visit = visits("test")[0]
    assert tagger().suggest(visit, confirmed="fall") == tagger().suggest(visit, confirmed=["fall"])
    assert tagger().suggest(visit, "fall", "uti") == tagger().suggest(visit, ("fall",), ("uti",))
    assert tagger().why(visit, "uti", confirmed="fall") == tagger().why(visit, "uti", confirmed=["fall"])
    with pytest.raises(QueryError, match="'trauma' is not a condition of this model; it knows"):
        tagger().suggest(visit, confirmed="trauma")


def test_matrices_and_frames_of_findings() -> None:
    some = cohort("test")[:8]
    expected = tagger().predict_proba(some)
    findings = some.to_pandas()["finding"]
    for given in (
        some.X, some.X.toarray(), some.X.toarray().astype(float), some.X.toarray().astype(bool), findings,
        findings.sparse.to_dense(), polars.DataFrame(findings.sparse.to_dense().to_dict("list")),
        pa.table(findings.sparse.to_dense().to_dict("list")),
    ):  # fmt: skip
        np.testing.assert_array_equal(tagger().predict_proba(given), expected)
    assert tagger().feature_names_in_.tolist() == list(findings.columns) and tagger().n_features_in_ == some.shape[1]


def test_what_holds_no_visits_is_refused() -> None:
    some = cohort("test")[:8]
    findings, X = some.to_pandas()["finding"], some.X.toarray().astype(float)
    first, last = findings.columns[0], findings.columns[-1]
    for given, problem in (
        (findings[findings.columns[::-1]], "they are in another order"),
        (findings.drop(columns=[first]), f"it lacks 1 of them, the first {re.escape(repr(first))}"),
        (findings.rename(columns={last: "other"}), f"it lacks 1 of them, the first {re.escape(repr(last))}"),
        (findings.assign(other=1), "1 columns are none, the first 'other'"),
        (X[:, :-1], r"the matrix has shape \(8, \d+\), needs \(visits, \d+\)"),
        (X[0], r"the matrix has shape"),
        (X * 3, "other values than 0 and 1"),
        (np.where(X > 0, np.nan, 0), "other values than 0 and 1"),
        (visits("test")[0], r"give \[visit\]"),
        ("visits.csv", "read_visits"),
        (["some text"], "entry 0 is of type str"),
        (3, "int holds none"),
    ):
        with pytest.raises(QueryError, match=problem):
            tagger().predict_proba(given)


# ---- scikit-learn


def test_it_is_a_classifier() -> None:
    assert is_classifier(tagger()) and tagger().classes_.tolist() == list(tagger().conditions_)
    check_is_fitted(tagger())
    for asked in ("classes_", "feature_names_in_", "n_features_in_"):
        with pytest.raises(NotFittedError):
            getattr(Tagger(), asked)
    assert not hasattr(clone(tagger()), "model_")


def test_rows_of_a_cohort() -> None:
    whole = cohort("test")
    assert whole.shape == (len(whole), whole.X.shape[1])
    for which, ids in (
        (slice(2, 5), whole.ids[2:5]), (np.array([5, 3]), whole.ids[[5, 3]]), ([1, 2], whole.ids[1:3]),
        (3, whole.ids[3:4]), (-1, whole.ids[-1:]), (np.arange(len(whole)) < 2, whole.ids[:2]),
    ):  # fmt: skip
        part = whole[which]
        assert isinstance(part, Cohort) and part.ids.tolist() == ids.tolist() and part.Y is not None


def test_score_is_the_held_out_tag_of_evaluate() -> None:
    measured = measure(tagger(), cohort("test"))
    assert tagger().score(cohort("test")) == pytest.approx(measured["heldout_tag"]["accuracy"])
    assert tagger().score(cohort("test"), cohort("test").Y) == tagger().score(cohort("test"))
    bare = Cohort(cohort("test").X, cohort("test").vocabulary, cohort("test").ids)
    with pytest.raises(CohortError, match="needs a cohort with labels"):
        tagger().score(bare)
    with pytest.raises(CohortError, match="two or more"):
        tagger().score(replace(cohort("test"), Y=np.zeros_like(cohort("test").Y)))
    for refused in (lambda: tagger().score(cohort("test"), ~cohort("test").Y), lambda: Tagger().fit(bare, bare.known)):
        with pytest.raises(CohortError, match="labels come with the cohort"):
            refused()


def test_cross_validation_by_hand_and_by_scikit_learn() -> None:
    whole, folds = cohort(), KFold(3, shuffle=True, random_state=4)
    by_hand = [Tagger("naive").fit(whole[a]).score(whole[b]) for a, b in folds.split(whole.ids)]
    assert cross_val_score(Tagger("naive"), whole, cv=folds).tolist() == by_hand
    loss = cross_val_score(Tagger("naive"), whole, whole.Y, cv=folds, scoring=_log_likelihood)
    assert (loss < 0).all() and len(set(loss.tolist())) == 3
    probabilities = cross_val_predict(Tagger("naive"), whole, cv=folds, method="predict_proba")
    first, second = next(folds.split(whole.ids))
    np.testing.assert_allclose(
        probabilities[second], Tagger("naive").fit(whole[first]).predict_proba(whole[second]), atol=2e-3
    )


def test_grid_search() -> None:
    found = GridSearchCV(Tagger(), {"learner": ["naive", "moments"]}, cv=2).fit(cohort())
    assert found.best_params_["learner"] in ("naive", "moments") and found.predict(cohort("test")).shape[1] == 23


def _log_likelihood(tagger: Tagger, cohort: Cohort, y: Any) -> float:
    p = np.clip(tagger.predict_proba(cohort), 1e-6, 1 - 1e-6)
    return float(np.where(y, np.log(p), np.log1p(-p)).mean())


# ---- answers as tables


def test_answers_print_and_show_as_tables() -> None:
    visit = next(v for v in visits("test") if len(v.truth or ()) >= 2)
    found, because = tagger().suggest(visit), tagger().why(visit, "uti", confirmed="fall")
    lines = str(found).splitlines()
    assert lines[0].split() == ["what", "else?", "probability", "usually"] and len(lines) == 2 + 23 + 1
    assert lines[2].startswith(found.tags[0].condition) and f"{found.tags[0].probability:.1%}" in lines[2]
    assert found._repr_html_().count("<tr>") == 24 and "certified" in str(replace(found, certified=False))
    shown = because.shown()
    brought = [float(cell) for _, cell in shown.rows]
    assert sum(brought[:-1]) == pytest.approx(brought[-1], abs=0.1) and brought[-1] == pytest.approx(
        because.total, abs=0.01
    )
    assert "why uti" in str(because) and "confirming fall moved it" in because._repr_html_()


def test_nothing_in_a_record_becomes_html() -> None:
    bad = "<script>alert('x')</script>"
    because = Explanation(bad, 1.0, 0.5, (Reason(bad, 0.5, True, ()),), {bad: 0.1}, {bad: 0.1}, 0.0, 0.0, {bad: 0.2})
    found = Suggestions((Tag(bad, 0.5, 0.0, 0.1),), True, 1e-3, "", bad)
    for html in (because._repr_html_(), found._repr_html_()):
        assert "<script" not in html and "&lt;script&gt;" in html
    assert "100.0%" in str(replace(because, total=2000.0))
