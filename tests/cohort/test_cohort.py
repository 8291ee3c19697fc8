"""Cohort: one pass gives what the vocabulary finds, what is kept, and a folder that is whole or refused."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.bigrams import count_bigrams
from whatelse.annotators import AnchorSet
from whatelse.cohort import Cohort, build_cohort
from whatelse.cohort import counting as collecting
from whatelse.cohort.vocabulary import Vocabulary
from whatelse.errors import CohortError, OutputError
from whatelse.simulate import simulate
from whatelse.sources import read_visits
from whatelse.text import BigramCounts, tokenize
from whatelse.visits import TEXT_FIELDS, Code, Visit

COMPLAINTS = ("chest pain", "abd pain", "s/p fall", "etoh", "fever cough", "headache", "dysuria")
NOTES = (
    "pt with chest pain radiating to left arm, denies shortness of breath",
    "no chest pain or shortness of breath. fever at home 101.5",
    "tripped and fell, head strike, no loc, denies etoh",
    "found intoxicated. denies chest pain, denies shortness of breath",
    "dysuria and flank pain x3 days, hx uti",
    "chest-pain\nchest pain chest pain; shortness of breath of breath of",
)
DRUGS = (Code("gsn", "004380", "Aspirin 81mg TAB"), Code("gsn", "027546", "tamsulosin"), Code("gsn", "1", "lactulose"))


def visits(count: int = 400, seed: int = 1) -> Iterator[Visit]:
    rng = np.random.default_rng(seed)
    names = AnchorSet.shipped().names
    for i in range(count):
        pick = rng.integers
        yield Visit(
            id=f"v{i}",
            age=None if i % 7 == 0 else float(pick(0, 99)),
            sex="F" if pick(2) else "M",
            chief_complaint=COMPLAINTS[pick(len(COMPLAINTS))],
            triage_note=None if i % 5 == 0 else " ".join(NOTES[k] for k in pick(0, len(NOTES), size=2)),
            md_comments="" if i % 3 == 0 else NOTES[pick(len(NOTES))],
            medication_history=tuple(DRUGS[k] for k in pick(0, 3, size=2)),
            dispensed=() if i % 2 else (DRUGS[pick(3)],),
            billing=(Code("icd9", "599.0"), Code("icd10", "W18.30XA"), Code("icd9", "724.2"))[: pick(4)],
            truth=(names[3], names[4]) if i == 0 else None,
        )


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    return build_cohort(visits(), lexicon="none")


def test_one_pass_gives_what_the_vocabulary_finds_visit_by_visit(cohort: Cohort) -> None:
    assert cohort.vocabulary.bigrams, "the notes repeat enough for bigrams"
    for i, visit in enumerate(visits()):
        np.testing.assert_array_equal(cohort.X[i].indices, cohort.vocabulary.present(visit))


def test_the_same_on_simulated_notes() -> None:
    records = list(simulate(600, seed=3))
    cohort = build_cohort(records, rules="paper")
    assert cohort.vocabulary.bigrams and cohort.Y is not None
    again = Vocabulary.from_json(json.loads(json.dumps(cohort.vocabulary.to_json())))
    for i, visit in enumerate(records):
        np.testing.assert_array_equal(cohort.X[i].indices, again.present(visit))
        assert {c for c, on in zip(cohort.conditions, cohort.Y[i], strict=True) if on} == set(visit.truth or ())


def test_it_does_not_matter_how_the_stream_is_cut(cohort: Cohort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "CHUNK", 37)
    again = build_cohort(visits(), lexicon="none")
    assert again.vocabulary.names == cohort.vocabulary.names
    assert (again.X != cohort.X).nnz == 0


def test_bigrams_are_those_of_the_text_module(cohort: Cohort) -> None:
    counts = BigramCounts()
    for visit in visits():
        for text in (getattr(visit, field) for field in TEXT_FIELDS):
            count_bigrams(counts, tokenize(text or ""))
    assert cohort.vocabulary.bigrams == counts.learn()


def test_what_is_kept(cohort: Cohort) -> None:
    names, counts = cohort.vocabulary.names, cohort.vocabulary.counts
    assert names[-23:] == tuple(f"anchor:{c}" for c in cohort.conditions)
    np.testing.assert_array_equal(counts, np.asarray(cohort.X.sum(0)).ravel())
    assert (counts[:-23] <= 200).all() and (np.diff(counts[:-23]) <= 0).all()
    everything = set(build_cohort(visits(), max_share=1.0, lexicon="none").vocabulary.names)
    assert set(names) <= everything
    assert not {"etoh", "fell", "tripped", "s/p", "fall", "uti", "pain", "headache"} & everything
    assert not {"rx:tamsulosin", "rx:lactulose", "hx:lactulose"} & everything
    assert {"neg:etoh", "hx:tamsulosin", "chest_pain", "neg:chest_pain", "sex:F", "sex:M"} <= everything


def test_the_three_numbers_are_options() -> None:
    few = build_cohort(visits(), max_terms=5)
    kept = [n for n in few.vocabulary.names if not n.startswith("anchor:")]
    assert 0 < len(kept) <= 5 and len(few.vocabulary.names) == len(kept) + 23
    rare = build_cohort(visits(), max_terms=None, min_visits=100).vocabulary
    assert (rare.counts[:-23] >= 100).all()
    some = build_cohort(visits(), max_share=0.2).vocabulary
    assert (some.counts[:-23] <= 80).all()
    for wrong in ({"max_share": 0.0}, {"max_terms": -1}, {"min_visits": -1}):
        with pytest.raises(CohortError):
            build_cohort(visits(3), **wrong)  # type: ignore[arg-type]


def test_labels_and_the_papers_selection(cohort: Cohort) -> None:
    assert cohort.Y is not None and cohort.labelled.all()
    assert [cohort.conditions[i] for i in np.flatnonzero(cohort.Y[0])] == ["asthma-copd", "back pain"]
    several = cohort.multi()
    assert several.Y is not None and (several.Y.sum(1) >= 2).all()
    assert len(several) == (cohort.Y.sum(1) >= 2).sum()
    np.testing.assert_array_equal(several.A, several.X[:, several.anchor_columns].toarray() > 0)
    part = cohort.rows([5, 3])
    assert part.ids.tolist() == ["v5", "v3"]


def test_visits_nobody_labelled_are_told_apart_from_visits_without_conditions() -> None:
    mixed = build_cohort([Visit("a", billing=(Code("icd9", "599.0"),)), Visit("b"), Visit("c", billing=())])
    assert mixed.Y is not None and mixed.labelled.tolist() == [True, False, True]
    none = build_cohort([Visit("a"), Visit("b")])
    assert none.Y is None and not none.labelled.any()
    with pytest.raises(CohortError, match="no labels"):
        none.multi()
    with pytest.raises(CohortError, match="no visits"):
        build_cohort([])


def test_like_uses_the_same_findings_for_other_visits(cohort: Cohort) -> None:
    other = build_cohort(visits(50, seed=9), like=cohort)
    assert other.vocabulary is cohort.vocabulary and other.X.shape == (50, cohort.X.shape[1])
    for i, visit in enumerate(visits(50, seed=9)):
        np.testing.assert_array_equal(other.X[i].indices, cohort.vocabulary.present(visit))


@pytest.mark.parametrize("labelled", [True, False])
def test_folder_round_trip(tmp_path: Path, labelled: bool) -> None:
    some = list(visits(60)) if labelled else [Visit("a", chief_complaint="etoh"), Visit("b")]
    cohort = build_cohort([*some, Visit("last")], about={"source": "test"})
    folder = cohort.save(tmp_path / "made" / "cohort")
    for _ in range(2):
        again = Cohort.open(folder)
        assert (again.X != cohort.X).nnz == 0 and again.X.dtype == np.uint8 and again.X.has_canonical_format
        assert again.ids.tolist() == cohort.ids.tolist() and again.about == {"source": "test"}
        assert again.vocabulary.to_json() == cohort.vocabulary.to_json()
        np.testing.assert_array_equal(again.labelled, cohort.labelled)
        np.testing.assert_array_equal(again.known, cohort.known)
        assert (again.Y is None) == (cohort.Y is None)
        if cohort.Y is not None:
            np.testing.assert_array_equal(again.Y, cohort.Y)
        again.rows(np.arange(len(again)) % 2 == 0).save(tmp_path / "half")
        cohort.save(folder)  # over itself
    assert sorted(p.name for p in tmp_path.iterdir()) == ["half", "made"]
    assert sorted(p.name for p in folder.iterdir()) == ["cohort.json", "visits.arrow"]


OWN = AnchorSet.from_json(
    {
        "conditions": [
            {"name": "fall", "codes": {"icd10": ["W1"]}, "anchors": {"notes": ["s/p fall"]}},
            {"name": "frail", "anchors": {"notes": ["frail"]}},
        ]
    }
)


def test_billing_says_nothing_about_a_condition_without_codes(tmp_path: Path) -> None:
    some = [
        Visit("1", chief_complaint="s/p fall", billing=(Code("icd10", "W18"),)),
        Visit("2", chief_complaint="frail", billing=()),
        Visit("3", chief_complaint="cough"),
        Visit("4", truth=("frail",)),
    ]
    cohort = build_cohort(some, OWN)
    for made in (cohort, Cohort.open(cohort.save(tmp_path / "c"))):
        assert made.known.tolist() == [[True, False], [True, False], [False, False], [True, True]]
        assert made.Y is not None and made.Y.tolist() == [[True, False], [False, False], [False, False], [False, True]]
        assert made.labelled.tolist() == [False, False, False, True]
        assert made.rows([3, 0]).known.tolist() == [[True, True], [True, False]]


def test_known_labels_are_given_whole_by_row_or_not_at_all() -> None:
    X, vocabulary = build_cohort([Visit("1"), Visit("2")], OWN).X, build_cohort([Visit("1")], OWN).vocabulary
    ids, Y = np.array(["1", "2"], dtype=object), np.ones((2, 2), dtype=bool)
    assert Cohort(X, vocabulary, ids, Y).known.all() and not Cohort(X, vocabulary, ids).known.any()
    by_row = Cohort(X, vocabulary, ids, Y, np.array([True, False]))
    assert by_row.known.tolist() == [[True, True], [False, False]] == by_row.Y.tolist()  # nothing true where unknown
    with pytest.raises(CohortError, match=r"known has shape \(3,\)"):
        Cohort(X, vocabulary, ids, Y, np.ones(3, bool))


def test_a_folder_of_version_1_still_opens() -> None:
    """Written by whatelse 0.1.0. Never write it again."""
    old = Cohort.open(Path(__file__).parents[1] / "data" / "cohort-version-1")
    assert old.conditions == ("fall", "uti") and old.vocabulary.rules.name == "default"
    assert old.labelled.tolist() == [True, True, False, True] and old.known[0].all() and not old.known[2].any()
    assert old.Y is not None and old.Y.tolist() == [[True, False], [True, True], [False, False], [False, False]]
    assert old.A.tolist() == [[True, False], [False, True], [False, False], [False, False]]


def test_a_folder_of_version_2_still_opens() -> None:
    """Written by whatelse 0.2.0. Never write it again."""
    old = Cohort.open(Path(__file__).parents[1] / "data" / "cohort-version-2")
    assert old.conditions == ("uti", "fall", "pneumonia") and len(old) == 150 and old.known.all()
    assert old.A.sum(0).tolist() == [1, 5, 0] and old.X.nnz == 2029
    assert old.Y is not None and old.Y.sum(0).tolist() == [7, 12, 8]


def test_rows_by_index(cohort: Cohort) -> None:
    mask = np.arange(len(cohort)) % 3 == 0
    for which, rows in (
        (slice(5, 20, 2), range(5, 20, 2)),
        (mask, np.flatnonzero(mask)),
        ([7, 3], [7, 3]),
        (-1, [len(cohort) - 1]),
        ((np.array([2, 4]), ...), [2, 4]),
    ):
        part = cohort[which]
        assert part.ids.tolist() == cohort.ids[list(rows)].tolist() and part.shape == (len(rows), cohort.shape[1])
        assert (cohort.X[list(rows)] != part.X).nnz == 0
    with pytest.raises(IndexError):
        cohort[len(cohort)]


def test_the_same_id_twice_is_refused() -> None:
    with pytest.raises(CohortError, match="1 visits have an id that another visit has"):
        build_cohort([Visit("1"), Visit("2"), Visit("1")], OWN)


@pytest.mark.parametrize("failing", [1, 2])
def test_a_save_that_fails_leaves_the_old_cohort(
    tmp_path: Path, cohort: Cohort, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    folder = cohort.save(tmp_path / "c")
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    done: list[int] = []

    def rename(a: object, b: object, really: Any = os.replace) -> None:
        done.append(1)
        if len(done) == failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        really(a, b)

    monkeypatch.setattr(os, "replace", rename)
    with pytest.raises(OutputError, match="cannot be written"):
        cohort.rows([1, 2]).save(folder)
    monkeypatch.undo()
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["c"]
    assert len(Cohort.open(folder)) == len(cohort)


def test_an_old_cohort_that_cannot_be_put_back_is_kept(
    tmp_path: Path, cohort: Cohort, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = cohort.save(tmp_path / "c")

    def rename(a: Any, b: Any, really: Any = os.replace) -> None:
        if Path(b) == folder:
            raise OSError(errno.EACCES, "Permission denied")
        really(a, b)

    monkeypatch.setattr(os, "replace", rename)
    with pytest.raises(OutputError, match="move it back by hand") as refused:
        cohort.rows([1, 2]).save(folder)
    monkeypatch.undo()
    (kept,) = tmp_path.glob(".c-*/old")
    assert str(kept) in str(refused.value) and len(Cohort.open(kept)) == len(cohort)


def test_a_folder_that_is_something_else_is_left_alone(tmp_path: Path, cohort: Cohort) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CohortError, match="is not a cohort"):
        cohort.save(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_a_damaged_folder_says_what_is_wrong(tmp_path: Path, cohort: Cohort) -> None:
    folder = cohort.save(tmp_path / "c")
    header, data = (folder / "cohort.json").read_text("utf-8"), (folder / "visits.arrow").read_bytes()

    def refused(says: str) -> None:
        with pytest.raises(CohortError, match=says):
            Cohort.open(folder)

    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 1
    for wrong in (data[:-100], bytes(flipped), b""):
        (folder / "visits.arrow").write_bytes(wrong)
        refused("visits.arrow is damaged: its checksum")
    (folder / "visits.arrow").unlink()
    refused("visits.arrow cannot be opened")
    (folder / "visits.arrow").write_bytes(data)
    for text, says in (
        ("{", "not JSON"),
        ("{}", "not the header"),
        (header.replace('"version": 2', '"version": 9'), "version 9"),
    ):
        (folder / "cohort.json").write_text(text, encoding="utf-8")
        refused(says)
    short = json.loads(header)
    short["vocabulary"]["names"] = short["vocabulary"]["names"][5:]
    short["vocabulary"]["counts"] = short["vocabulary"]["counts"][5:]
    (folder / "cohort.json").write_text(json.dumps(short), encoding="utf-8")
    refused("findings that the vocabulary does not have")
    (folder / "cohort.json").unlink()
    refused("no cohort.json")


@pytest.mark.data
def test_mimic_iv_ed_demo(data_folder: Path) -> None:
    cohort = build_cohort(read_visits(data_folder / "mimic-iv-ed-demo", source="mimic-ed"))
    assert cohort.Y is not None
    several = cohort.Y.sum(1)
    assert (len(cohort), int((several >= 1).sum()), int((several >= 2).sum())) == (222, 91, 20)
