"""Suggested anchors: forms of words, meanings, candidates, company and the ranking."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_matrix, csr_matrix

from whatelse.annotators import AnchorSet, Condition
from whatelse.annotators.anchor_uses import as_anchor
from whatelse.annotators.discovery import cooccurrence as companies
from whatelse.annotators.discovery.forms import initials_of, misspelled, shortens, stem, stems
from whatelse.annotators.discovery.meanings import Meanings
from whatelse.annotators.discovery.phrases import EDGES, Phrase, PhraseTable, from_visits
from whatelse.annotators.discovery.suggest import Suggestion, by_condition, suggest
from whatelse.annotators.discovery.words import WEIGHTS, ConditionWords, read
from whatelse.annotators.spelling import distance
from whatelse.cohort import Cohort, build_cohort
from whatelse.cohort.findings import Finder
from whatelse.errors import CohortError
from whatelse.simulate import simulate
from whatelse.text import tokenize
from whatelse.visits import Code, Visit

# ---- forms


@pytest.mark.parametrize(
    "forms",
    [
        "vomit vomiting vomited vomits vomitting",
        "pruritus pruritic pruritis",
        "urticaria urticarial",
        "syncope syncopal",
        "irritable irritability",
        "cyanosis cyanotic",
        "anaphylaxis anaphylactic",
        "sepsis septic",
        "dyspnea dyspnoea dyspneic",
        "fall fell fallen",
        "swollen swelling swelled",
        "seizure seizures seizing",
        "ache aches achy aching ached achiness",
        "lac lacs",
    ],
)
def test_forms_of_a_word_have_one_stem(forms: str) -> None:
    assert len({stem(word) for word in forms.split()}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("arthralgia", "arthritis"),
        ("hypotension", "hypertension"),
        ("vomiting", "emesis"),
        ("fever", "fracture"),
        ("hives", "hiv"),
    ],
)
def test_other_words_have_others(one: str, other: str) -> None:
    assert stem(one) != stem(other)


@cache
def slow_distance(a: str, b: str) -> int:
    """Optimal string alignment by its definition."""
    if not a or not b:
        return len(a) + len(b)
    best = min(slow_distance(a[:-1], b) + 1, slow_distance(a, b[:-1]) + 1)
    best = min(best, slow_distance(a[:-1], b[:-1]) + (a[-1] != b[-1]))
    if len(a) > 1 and len(b) > 1 and a[-1] == b[-2] and a[-2] == b[-1]:
        best = min(best, slow_distance(a[:-2], b[:-2]) + 1)
    return best


@given(st.text("abc", max_size=6), st.text("abc", max_size=6))
def test_distance_is_that_of_its_definition(a: str, b: str) -> None:
    assert distance(a, b, 2) == min(slow_distance(a, b), 3)


def test_slips_shortenings_and_initials() -> None:
    assert misspelled("diarhea", "diarrhea") and misspelled("seziure", "seizure")
    assert not misspelled("rash", "rush") and not misspelled("nausea", "vomiting")
    assert shortens("abd", "abdominal") and shortens("temp", "temperature") and not shortens("ab", "abdominal")
    assert initials_of(("shortness", "of", "breath")) == {"sob", "sb"}
    assert initials_of(("fever",)) == set()
    assert stems(("pain", "in", "the", "joints")) == stems(("pain", "joint")) and stems(("not", "eating")) != stems(
        ("eat",)
    )


# ---- meanings


def test_knowledge_base_says_what_phrases_mean() -> None:
    meanings = Meanings.of()
    assert len(meanings.phrases) > 200 and len(meanings.by_stems) > 2_500
    assert meanings.meaning(("h/a",))["headache"] == "same"
    assert meanings.meaning(("thunderclap", "headache"))["headache"] == "same"  # a kind of it
    assert meanings.meaning(("passing", "out"))["syncope"] == "same"  # by its stem
    assert meanings.concepts_of(["hives", "urticaria"]) >= {"urticaria"} and not meanings.concepts_of(["gizmo"])


def test_own_knowledge_file_adds_phrases(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    flurbs = "flurbs: {kind: symptom, rate: 0.01, same: [flurby], near: [blarg]}"
    own.write_text(f"concepts:\n  headache: {{same: [noggin ache]}}\n  {flurbs}\n", encoding="utf-8")
    meanings = Meanings.of(own)
    assert meanings.meaning(("noggin", "ache"))["headache"] == meanings.meaning(("h/a",))["headache"] == "same"
    assert meanings.meaning(("blarg",)) == {"flurbs": "near"}


def test_what_words_say() -> None:
    condition = AnchorSet.from_json(
        {"conditions": [{"name": "headache", "anchors": {"notes": ["headache", "headche"]}}]}
    ).conditions[0]
    meanings = Meanings.of()
    own = ConditionWords(condition, meanings, {("headache",): 100, ("haedache",): 3, ("headaches",): 500})

    def says(phrase: str) -> dict[str, float]:
        return {r.source: r.log_odds for r in own.reasons(read(tuple(phrase.split()), meanings))}

    assert says("headaches")["forms"] == WEIGHTS["form"]
    assert says("haedache") == {"forms": WEIGHTS["misspelling"]}
    assert says("h/a")["knowledge"] == WEIGHTS["same"]
    assert says("nausea") == {"knowledge": WEIGHTS["other"]}
    assert says("new h/a") == {"knowledge": WEIGHTS["holds"]}
    assert says("gizmo") == {}


# ---- candidates

WORDS = st.sampled_from(["fever", "cough", "no", "denies,", "pain", "of", "chest", "101", "h/a", "-", "x"])
NOTES = st.lists(st.lists(WORDS, max_size=12).map(" ".join), min_size=1, max_size=8)
FEVER = AnchorSet.from_json({"conditions": [{"name": "fever", "anchors": {"notes": ["fever"]}}]})


def slow_candidates(note: str) -> set[str]:
    """Every run of one to three words that may be an anchor."""
    tokens = tokenize(note)
    found = set()
    for a in range(len(tokens)):
        for b in range(a + 1, min(a + 4, len(tokens) + 1)):
            run = tokens[a:b]
            follow = not any(t.opens for t in run[1:]) and not any(t.negated or "#" in t.text for t in run)
            if follow and run[0].text not in EDGES and run[-1].text not in EDGES:
                found.add(" ".join(t.text for t in run))
    return found


@settings(deadline=None, max_examples=60)
@given(NOTES, st.integers(1, 3))
def test_candidates_are_those_of_a_slow_reading(notes: list[str], least: int) -> None:
    visits = [Visit(id=str(k), triage_note=note) for k, note in enumerate(notes)]
    cohort = build_cohort([*visits, Visit(id="last", triage_note="fever")], FEVER, max_share=1.0, lexicon="none")
    table = from_visits(cohort, [*visits, Visit(id="stranger", triage_note="fever cough")], min_visits=least)
    counts = Counter(phrase for note in notes for phrase in slow_candidates(note))
    expected = {phrase: count for phrase, count in counts.items() if count >= least}
    assert {p.phrase: int(c) for p, c in zip(table.phrases, table.counts, strict=True)} == expected
    for phrase in expected:
        rows = table.rows(table.index[Phrase(phrase)])
        assert rows.tolist() == [k for k, note in enumerate(notes) if phrase in slow_candidates(note)]


def test_neighbours_are_the_words_before_and_after() -> None:
    visits = [Visit(id=str(k), triage_note="severe chest pain today, severe cough") for k in range(3)]
    table = from_visits(build_cohort(visits, FEVER, max_share=1.0), visits, min_visits=1)
    assert table.neighbours is not None
    around = table.neighbours.toarray()
    severe, today = (around[table.index[Phrase(word)]] for word in ("severe", "today"))
    half = around.shape[1] // 2
    assert severe[:half].sum() == severe[half:].sum() == 6 and severe[0] == 6  # a sign or the edge is before it
    before_chest = int(np.flatnonzero(around[table.index[Phrase("chest pain")]][:half])[0])
    assert severe[half:].max() == 3 and today[half] == 3 and before_chest > 0


def test_drugs_and_codes_are_candidates_as_a_conditions_file_has_them() -> None:
    anchors = AnchorSet.from_json(
        {"conditions": [{"name": "uti", "anchors": {"drugs": ["macrobid"], "coded": {"rfv": ["1"]}}}]}
    )
    visits = [
        Visit(
            id=str(k),
            dispensed=(Code("gsn", "1", "Ciprofloxacin 500mg TAB"), Code("gsn", "2", "Macrobid 100mg")),
            coded=(Code("rfv", "1", "Bladder"), Code("rfv", "16551", "Painful urination")),
        )
        for k in range(5)
    ]
    cohort = build_cohort(visits, anchors, max_share=1.0)
    phrases = from_visits(cohort, visits).phrases
    assert set(phrases) == {Phrase("ciprofloxacin", "dispensed"), Phrase("16551", "coded", "rfv", "painful urination")}


# ---- company


def test_share_is_the_most_likely_one() -> None:
    rng = np.random.default_rng(0)
    who = np.repeat([0, 1], [400, 300])
    ratio = np.exp(rng.normal(size=700) * 2)
    found = companies.mixture_share(ratio, who, np.array([400, 300]))
    doubt, low = companies.PULL
    grid = np.linspace(0.001, 0.999, 999)
    for k in (0, 1):
        r = ratio[who == k]
        likely = np.log(grid[:, None] * r + 1 - grid[:, None]).sum(1)
        likely += doubt * (low * np.log(grid) + (1 - low) * np.log(1 - grid))
        assert abs(found[k] - grid[likely.argmax()]) < 0.03  # twelve steps of EM


def test_alike_is_the_cosine_of_what_is_around() -> None:
    rng = np.random.default_rng(1)
    near, anchors = rng.poisson(1.5, (6, 10)), rng.poisson(2.0, (2, 10))
    column = near.sum(0)

    def weigh(row: np.ndarray) -> np.ndarray:
        lift = row * column.sum() / (row.sum() * np.maximum(column, 1))
        return np.array([max(np.log(x), 0) if n >= 2 and x > 0 else 0.0 for x, n in zip(lift, row, strict=True)])

    found = companies.alike(csr_matrix(near), csr_matrix(anchors))
    for k in range(6):
        for i in range(2):
            u, v = weigh(near[k]), weigh(anchors[i])
            cosine = u @ v / max(np.linalg.norm(u) * np.linalg.norm(v), 1e-12)
            seen = near[k].sum() / 2
            assert found[k, i] == pytest.approx(cosine * np.sqrt(seen / (seen + companies.SMOOTH)), abs=1e-9)


def test_a_substitute_keeps_the_company_but_is_seldom_beside() -> None:
    """Y causes the anchor or the substitute, never both, and five other findings."""
    rng = np.random.default_rng(2)
    N = 4000
    Y = rng.random(N) < 0.2
    instead = rng.random(N) < 0.5
    anchor, substitute = Y & ~instead, Y & instead
    others = rng.random((N, 5)) < np.where(Y[:, None], 0.7, 0.1)
    unrelated = rng.random(N) < 0.1
    X = csr_matrix(np.column_stack([others, substitute, unrelated, anchor]).astype(np.uint8))
    has = csc_matrix(np.column_stack([substitute, unrelated]).astype(np.uint8))
    found = companies.cooccurrence(X, anchor[:, None], np.arange(7), has, np.array([[5], [6]]))
    assert found.share[0, 0] > 0.8 and found.share[1, 0] < 0.4
    assert found.fires[0, 0] == 0 and found.expected[0, 0] > 50
    assert found.fires[1, 0] == pytest.approx(found.expected[1, 0], rel=0.4)


# ---- the ranking


@pytest.fixture(scope="module")
def visits() -> list[Visit]:
    return list(simulate(3000, seed=5))


@pytest.fixture(scope="module")
def department(visits: list[Visit]) -> tuple[Cohort, PhraseTable]:
    cohort = build_cohort(visits, lexicon="none")
    bare = Cohort(cohort.X, cohort.vocabulary, cohort.ids, None, np.zeros(len(cohort), bool), cohort.about)
    return bare, from_visits(cohort, visits)


@pytest.fixture(scope="module")
def found(department: tuple[Cohort, PhraseTable]) -> list[Suggestion]:
    return suggest(*department)


def test_with_a_lexicon_candidates_fire_as_anchors_where_they_were_counted(visits: list[Visit]) -> None:
    """A word inside a longer phrase of the lexicon ("abd" of "abd pain") would not fire; other spellings may."""
    some = visits[:200]
    cohort = build_cohort(some)
    table = from_visits(cohort, some)
    words = [(k, phrase) for k, phrase in enumerate(table.phrases) if phrase.key == "notes"]
    conditions = tuple(Condition(str(k), "", "acute", {}, (as_anchor(phrase.phrase),)) for k, phrase in words)
    finder = Finder(AnchorSet(conditions), lexicon=cohort.vocabulary.lexicon)
    fires = {(there.row, there.condition) for there in finder.anchor_mentions(some)}
    silent = {p.phrase for n, (k, p) in enumerate(words) for row in table.rows(k).tolist() if (row, n) not in fires}
    assert len(words) > 200 and len(silent) < 0.03 * len(words), silent  # "d/c": the lexicon reads it as discharge


def test_suggestions_are_mostly_right_without_a_label(
    visits: list[Visit], department: tuple[Cohort, PhraseTable], found: list[Suggestion]
) -> None:
    truth = {visit.id: visit.truth or () for visit in visits}
    cohort, table = department
    right = []
    for s in found:
        rows = table.rows(table.index[Phrase(s.phrase, s.key, s.system, s.label)])
        right.append(np.mean([s.condition in truth[str(cohort.ids[row])] for row in rows]))
    assert len(found) > 40 and np.mean(right) > 0.4
    assert np.mean(np.array(right) >= 0.7) > 0.2  # of all phrases hardly one in fifty is


def test_each_fires_as_an_anchor_where_it_says(
    visits: list[Visit], department: tuple[Cohort, PhraseTable], found: list[Suggestion]
) -> None:
    """The phrase as it is written, put into a conditions file, is found in exactly the visits that were counted."""
    cohort, _ = department
    conditions = tuple(
        Condition(str(k), "", "acute", {}, (as_anchor(s.phrase, s.key, s.system),)) for k, s in enumerate(found)
    )
    finder = Finder(AnchorSet(conditions))
    fires, gained = Counter[int](), Counter[int]()
    for row, visit in enumerate(visits):
        here = {there.condition for there in finder.anchor_mentions([visit])}
        here |= {k for _, anchored, _, _ in finder.facts(visit) for k in anchored}
        fires.update(here)
        gained.update(k for k in here if not cohort.A[row, cohort.conditions.index(found[k].condition)])
    exact = [k for k, s in enumerate(found) if s.key == "notes"]
    assert [fires[k] for k in exact] == [found[k].fires for k in exact]
    assert [gained[k] for k in exact] == [found[k].gained for k in exact]
    assert all(fires[k] >= s.fires for k, s in enumerate(found))  # a drug's name may begin another's


def test_no_anchor_twice_none_refused_and_the_best_first(
    department: tuple[Cohort, PhraseTable], found: list[Suggestion]
) -> None:
    cohort, table = department
    anchors = {a.value for c in cohort.vocabulary.anchors.conditions for a in c.anchors}
    assert not anchors & {s.phrase for s in found if s.key == "notes"}
    groups = by_condition(found)
    expected = [sum(s.precision * s.gained for s in group) for group in groups.values()]
    assert all(a >= b for a, b in pairwise(expected))
    assert all(a.score >= b.score for group in groups.values() for a, b in pairwise(group))
    assert all(len(group) <= 10 and all(s.why for s in group) for group in groups.values())
    condition = next(iter(groups))
    first = groups[condition][0].phrase
    again = suggest(cohort, table, conditions=[condition], refused={condition: [first]}, most=3)
    assert len(again) == 3 and first not in {s.phrase for s in again} and {s.condition for s in again} == {condition}
    with pytest.raises(CohortError, match="not a condition"):
        suggest(cohort, table, conditions=["gout"])


def test_labels_decide_where_there_are_some(visits: list[Visit], department: tuple[Cohort, PhraseTable]) -> None:
    _, table = department
    cohort = build_cohort(visits)
    assert cohort.Y is not None
    found = suggest(cohort, table)
    for s in found:
        rows = table.rows(table.index[Phrase(s.phrase, s.key, s.system, s.label)])
        if rows.size >= 100:
            true = cohort.Y[rows, cohort.conditions.index(s.condition)].mean()
            assert abs(s.precision - true) < 0.1
    assert any(r.source == "labels" for s in found for r in s.why)


def test_a_model_counts(department: tuple[Cohort, PhraseTable]) -> None:
    cohort, table = department
    sure = np.full((len(cohort), len(cohort.conditions)), 0.99)
    plain = {(s.condition, s.phrase): s.precision for s in suggest(cohort, table)}
    more = suggest(cohort, table, probability=sure)
    assert all(s.precision >= plain[s.condition, s.phrase] for s in more if (s.condition, s.phrase) in plain)
    assert any(r.source == "model" for s in more for r in s.why)
