"""The same record gives the same findings and the same probabilities, however it enters."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.support import small_department
from tests.text.test_reader import ENTRIES
from whatelse.batch.answers import Asked, answers
from whatelse.cohort import Cohort, build_cohort
from whatelse.cohort.batches import BatchReader
from whatelse.sources import read_visits, write_visits
from whatelse.tagger import Tagger
from whatelse.text.lexicon import EMPTY, Lexicon
from whatelse.visits import Visit

LACKING = (
    {},
    {"triage_note": None},
    {"triage_note": None, "md_comments": None, "chief_complaint": None},
    {"medication_history": None, "dispensed": None},
    {"age": None, "sex": None, "coded": None},
)


def some_visits() -> list[Visit]:
    """Simulated visits, most of which lack fields."""
    return [replace(v, **LACKING[k % len(LACKING)]) for k, v in enumerate(small_department.visits("test")[:60])]


@cache
def tagger(lexicon: bool) -> Tagger:
    concepts = Lexicon.of(ENTRIES) if lexicon else EMPTY
    cohort = build_cohort(small_department.visits()[:1100], max_terms=150, lexicon=concepts)
    return Tagger().fit(cohort)


@pytest.mark.parametrize("lexicon", [False, True])
def test_a_record_has_one_probability_wherever_it_enters(lexicon: bool, tmp_path: Path) -> None:
    model, visits = tagger(lexicon), some_visits()
    one_by_one = np.array(
        [[{t.condition: t.probability for t in model.suggest(v).tags}[c] for c in model.conditions_] for v in visits]
    )
    cohort = build_cohort(visits, like=model.vocabulary_)
    cohort.save(tmp_path / "cohort")
    write_visits(visits, tmp_path / "visits.jsonl")
    ways = {
        "visits": model.predict_proba(visits),
        "a cohort": model.predict_proba(cohort),
        "a cohort from its folder": model.predict_proba(Cohort.open(tmp_path / "cohort")),
        "some rows of a cohort": model.predict_proba(cohort[30:])[-30:],
        "a file": model.predict_proba(read_visits(tmp_path / "visits.jsonl")),
        "a batch": _batch(model, visits),
    }
    for way, found in ways.items():
        expected = one_by_one[-len(found) :]
        np.testing.assert_allclose(found, expected, atol=2 * model.tolerance, err_msg=way)


def _batch(model: Tagger, visits: list[Visit]) -> np.ndarray:
    table = pa.table(answers(model, BatchReader(model.vocabulary_), visits, Asked.of(model)))
    return np.stack([table.column(c).to_numpy() for c in model.conditions_], axis=1)


def test_a_cohort_knows_what_was_unobserved() -> None:
    model, visits = tagger(False), some_visits()
    hidden = build_cohort(visits, like=model.vocabulary_).unobserved()
    assert hidden is not None
    for row, visit in enumerate(visits):
        np.testing.assert_array_equal(hidden[[row]].indices, model.vocabulary_.unobserved(visit))


def test_an_old_cohort_says_nothing_about_missing_fields() -> None:
    old = Path(__file__).parents[1] / "data" / "cohort-version-1"
    assert Cohort.open(old).unobserved() is None
