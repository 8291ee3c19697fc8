"""PhraseTable: candidates for anchors (runs of words, drugs, codes) and which visits of a cohort have each.

A candidate is a run of one to three words of a note, none of them negated and nothing but blanks or a hyphen between
them; or a drug; or a code of a structured field. Runs neither begin nor end with a function word, which would say no
more than what is left of them without it, and they hold no number, because a conditions file cannot say "any number".
A run that is only a part of a phrase of the lexicon ("abd" of "abd pain") does not count there: as an anchor it would
not fire there either.
What a candidate is written as (`phrase`) and where it goes (`key`: notes, dispensed, medication_history, or coded with
its `system`) is kept beside the visits that have it.

Cost: one reading of the records, 4 bytes for each word, and a sort of the words for each length of a run.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_matrix, csr_matrix, hstack, vstack

from whatelse.cohort import Cohort
from whatelse.cohort.coded import code_name
from whatelse.cohort.findings import Finder
from whatelse.text import tokenize
from whatelse.text.assertion import PRESENT
from whatelse.text.function_words import LINKING_WORDS
from whatelse.text.matcher import ASSERTION, COVERED, END, FLAGS, MENTION, START, TYPE, WORD_ITEM
from whatelse.visits import CODE_FIELDS, TEXT_FIELDS, Visit

LONGEST = 3  # words in a run
EDGES = LINKING_WORDS | frozenset("s t x & dx hx sx yo y/o mo".split())  # noqa: SIM905


@dataclass(frozen=True, order=True)
class Phrase:
    """A candidate: `phrase` as a conditions file has it, under `key` (for "coded": of code system `system`).

    `label` is what a person reads where that differs: the name of a code.
    """

    phrase: str
    key: str = "notes"
    system: str | None = None
    label: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """Its words; a code is read by its label."""
        return tuple((self.label or self.phrase).lower().split())


@dataclass(frozen=True, eq=False)
class PhraseTable:
    """K candidates and the (N, K) matrix of 0/1 that says which of the cohort's visits have which.

    neighbours  (K, 2 V) how often each of V words stands before (left half) and after (right half) a candidate; word 0
                is a sign, a number, a negated word or the edge of the note
    anchor_neighbours  (m, 2 V) the same around the phrases of each condition's anchor
    """

    phrases: tuple[Phrase, ...]
    has: csc_matrix
    neighbours: csr_matrix
    anchor_neighbours: csr_matrix

    @cached_property
    def index(self) -> dict[Phrase, int]:
        """Candidate -> column."""
        return {phrase: k for k, phrase in enumerate(self.phrases)}

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """(K,) visits that have each."""
        return np.asarray(self.has.getnnz(axis=0), dtype=np.int64)

    def only(self, keep: list[int]) -> PhraseTable:
        """The candidates of these columns."""
        phrases = tuple(self.phrases[k] for k in keep)
        return PhraseTable(phrases, self.has[:, keep].tocsc(), self.neighbours[keep], self.anchor_neighbours)

    def rows(self, k: int) -> NDArray[np.int32]:
        """The visits that have candidate k."""
        rows: NDArray[np.int32] = self.has.indices[self.has.indptr[k] : self.has.indptr[k + 1]]
        return rows


def from_visits(cohort: Cohort, visits: Iterable[Visit], min_visits: int = 5) -> PhraseTable:
    """The candidates in the records of a cohort's visits that at least `min_visits` of them have.

    Visits that are not in the cohort are passed over; a visit of the cohort without a record has no candidate.
    """
    finder = cohort.vocabulary.reader.finder
    row_of = {str(visit): row for row, visit in enumerate(cohort.ids)}
    numbers: dict[str, int] = {}
    words, rows = array("i"), array("i")  # word 0 stands between two words that do not follow one another
    part = array("b")  # 1: a run that begins with the word is only part of a phrase; 2: a run that ends with it is
    facts: dict[Phrase, set[int]] = {}
    for visit in visits:
        here = row_of.get(visit.id)
        if here is None:
            continue
        start = len(words)
        for field in TEXT_FIELDS:
            words.append(0)
            note = getattr(visit, field) or ""
            mentioned, silent = _mentioned(note, finder)
            for token in tokenize(note, finder.rules):
                left_out = token.assertion != "present" or "#" in token.text or token.start in silent
                if token.opens or left_out:
                    words.append(0)
                if not left_out:
                    words.append(numbers.setdefault(token.text, len(numbers) + 1))
                    part.extend([0] * (len(words) - len(part)))
                    for first, last in mentioned:
                        part[-1] |= (first < token.start < last) + 2 * (first < token.end < last)
        rows.extend([here] * (len(words) - start))
        for phrase in _facts(visit, finder):
            facts.setdefault(phrase, set()).add(here)
    text = ["", *numbers]
    edge = np.array([bool(word) and "#" not in word and word not in EDGES for word in text])  # may begin or end a run
    words.append(0)
    rows.append(0)
    part.extend([0] * (len(words) - len(part)))
    word, row = np.frombuffer(words, np.int32), np.frombuffer(rows, np.int32)
    runs, blocks, beside = _runs(word, row, np.frombuffer(part, np.int8), edge, len(cohort), min_visits)
    phrases = [Phrase(" ".join(text[w] for w in run)) for run in runs]
    common = sorted((p for p, there in facts.items() if len(there) >= min_visits), key=lambda p: (p.key, p.phrase))
    for phrase in common:
        there = np.array(sorted(facts[phrase]), dtype=np.int32)
        ones = np.ones(there.size, np.uint8)
        blocks.append(csc_matrix((ones, there, [0, there.size]), shape=(len(cohort), 1)))
    has = hstack(blocks, format="csc", dtype=np.uint8) if blocks else csc_matrix((len(cohort), 0), dtype=np.uint8)
    has.sort_indices()
    beside.append(csr_matrix((len(common), 2 * len(text)), dtype=np.int32))
    neighbours = vstack(beside, format="csr")
    return PhraseTable((*phrases, *common), has, neighbours, _around_anchors(cohort, phrases, neighbours))


def _runs(
    word: NDArray[np.int32],
    row: NDArray[np.int32],
    part: NDArray[np.int8],
    edge: NDArray[np.bool_],
    N: int,
    min_visits: int,
) -> tuple[list[tuple[int, ...]], list[csc_matrix], list[csr_matrix]]:
    """Runs of words in at least `min_visits` visits; for each length who has them (N, runs), and words beside them.

    A run can only be common if the runs one word shorter at either end are: `code` numbers those, 0 for the others.
    """
    runs: list[tuple[int, ...]] = []
    blocks: list[csc_matrix] = []
    beside: list[csr_matrix] = []
    code = word.astype(np.int64)  # number of the run of `length` words that begins here
    meaning: list[tuple[int, ...]] = [(w,) for w in range(edge.size)]
    for length in range(1, LONGEST + 1):
        if length > 1:
            left, right = code[:-1], code[1:]
            pair = np.where((left > 0) & (right > 0), left * len(meaning) + right, 0)
            found, code = np.unique(np.append(pair, 0), return_inverse=True)
            code, size = code[:-1].astype(np.int64), len(meaning)
            meaning = [(), *((*meaning[key // size], meaning[key % size][-1]) for key in found[1:].tolist())]
        here = np.flatnonzero(code)
        visit_of = row[: code.size][here].astype(np.int64)
        common = np.bincount(np.unique(code[here] * N + visit_of) // N, minlength=len(meaning)) >= min_visits
        whole = (part[here] & 1 == 0) & (part[here + length - 1] & 2 == 0)
        here, visit_of = here[whole], visit_of[whole]
        key = np.unique(code[here] * N + visit_of)
        found_in = np.bincount(key // N, minlength=len(meaning))
        often = np.flatnonzero(found_in >= min_visits).tolist()
        keep = [c for c in often if edge[meaning[c][0]] and edge[meaning[c][-1]]]
        column = np.full(len(meaning), -1)
        column[keep] = np.arange(len(keep))
        kept = column[key // N] >= 0
        at, there = column[key // N][kept], (key % N)[kept]
        runs += [meaning[c] for c in keep]
        blocks.append(csc_matrix((np.ones(at.size, np.uint8), (there, at)), shape=(N, len(keep))))
        at = column[code[here]]
        place, at = here[at >= 0], at[at >= 0]
        around = np.concatenate([word[place - 1], edge.size + word[place + length]])
        shape = (len(keep), 2 * edge.size)
        beside.append(csr_matrix((np.ones(around.size, np.int32), (np.tile(at, 2), around)), shape=shape))
        number = np.where(common, np.cumsum(common), 0)
        meaning = [(), *(meaning[c] for c in np.flatnonzero(common).tolist())]
        code = number[code]
    return runs, blocks, beside


def _mentioned(note: str, finder: Finder) -> tuple[list[tuple[int, int]], set[int]]:
    """(start, end) of phrases of the lexicon that a note asserts; where words start that fire as no anchor.

    Such words belong to a phrase that denies its concept ("afebrile"), or that means none ("call bell in reach").
    """
    if not note or not finder.lexicon.entries:
        return [], set()
    with finder.reader.lock:
        items = finder.reader.items([note])
    present = items[(items[:, TYPE] == MENTION) & (items[:, ASSERTION] == PRESENT)]
    spans: list[list[int]] = present[:, [START, END]].tolist()
    covered = items[(items[:, TYPE] == WORD_ITEM) & (items[:, FLAGS] & COVERED != 0), START].tolist()
    silent = {at for at in covered if not any(start <= at < end for start, end in spans)}
    return [(start, end) for start, end in spans], silent


def _around_anchors(cohort: Cohort, phrases: list[Phrase], neighbours: csr_matrix) -> csr_matrix:
    """(m, 2 V) the words around the phrases that are a condition's anchors: they are candidates like others here."""
    number = {p.phrase: k for k, p in enumerate(phrases)}
    conditions = cohort.vocabulary.anchors.conditions
    pairs = [
        (i, number[value])
        for i, condition in enumerate(conditions)
        for value in {" ".join(a.value.lower().replace("-", " ").split()) for a in condition.anchors}
        if value in number
    ]
    row, column = [i for i, _ in pairs], [k for _, k in pairs]
    sums = csr_matrix((np.ones(len(pairs)), (row, column)), shape=(len(conditions), neighbours.shape[0]))
    return csr_matrix(sums @ neighbours)


def _facts(visit: Visit, finder: Finder) -> Iterable[Phrase]:
    """Drugs by name and codes of structured fields, as a conditions file has them; none that is an anchor already."""
    codes = ((field, code) for field in CODE_FIELDS for code in getattr(visit, field) or ())
    for field, code in codes:
        if finder.code(field, code)[1]:
            continue
        if field == "coded":
            yield Phrase(code.code, "coded", code.system, (code.name or "").strip().lower())
        elif code.name:
            yield Phrase(code_name(field, code).partition(":")[2], "drug_labels" if code.system == "drug" else field)
