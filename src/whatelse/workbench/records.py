"""Records: the visits of a cohort in memory, and which of them have a phrase, drug or code.

A phrase is first looked for as text, which takes 50,000 notes some 20 ms a word; only notes that hold all its words are
cut into words to see whether it stands there as one, not negated.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from whatelse.annotators import Anchor
from whatelse.annotators.anchor_uses import Excerpt, mentions
from whatelse.annotators.discovery.phrases import Phrase, PhraseTable
from whatelse.cohort import Cohort
from whatelse.text import Rules, tokenize
from whatelse.text.lexicon import EMPTY, Lexicon
from whatelse.text.pieces import lower
from whatelse.types import Indices
from whatelse.visits import CODE_FIELDS, TEXT_FIELDS, Code, Visit


class Records:
    """The records of N visits, by their rows in the cohort. Visits that the cohort does not have are passed over."""

    def __init__(self, cohort: Cohort, visits: Iterable[Visit]) -> None:
        row_of = {str(visit): row for row, visit in enumerate(cohort.ids)}
        found = {row_of[visit.id]: visit for visit in visits if visit.id in row_of}
        self.rows = np.array(sorted(found), np.intp)
        self.visits = [found[row] for row in self.rows.tolist()]
        self.by_row = found
        self._text = [_plain(visit) for visit in self.visits]

    def __len__(self) -> int:
        return len(self.visits)

    def having(
        self, anchor: Anchor, rules: str | Rules, table: PhraseTable | None = None, lexicon: Lexicon = EMPTY
    ) -> Indices:
        """Rows of the visits in which an anchor would fire. `table` knows common phrases by heart."""
        if anchor.how != "phrase":
            return self._coded(anchor)
        at: Iterable[int] = range(len(self))
        if not lexicon.entries:  # a lexicon finds other spellings too
            if table is not None and (k := _in_table(anchor, rules, table)) is not None:
                return table.rows(k).astype(np.intp)
            words = [t.text for t in tokenize(anchor.value, rules) if "#" not in t.text]
            at = [k for k, text in enumerate(self._text) if all(_holds(text, word) for word in words)]
        there = {e.visit for _, e in mentions((self.visits[k] for k in at), [anchor], rules, lexicon)}
        return np.array([self.rows[k] for k in at if self.visits[k].id in there], np.intp)

    def excerpts(
        self, anchor: Anchor, rules: str | Rules, rows: Iterable[int], lexicon: Lexicon = EMPTY
    ) -> dict[int, Excerpt]:
        """By row, the first mention in its context."""
        wanted = [row for row in rows if row in self.by_row]
        row_of = {self.by_row[row].id: row for row in wanted}
        visits = (self.by_row[row] for row in wanted)
        return {row_of[e.visit]: e for _, e in mentions(visits, [anchor], rules, lexicon)}

    @cached_property
    def _codes(self) -> dict[tuple[str, Code], list[int]]:
        """Field and code -> rows of the visits that have it."""
        found: dict[tuple[str, Code], list[int]] = {}
        for row, visit in zip(self.rows.tolist(), self.visits, strict=True):
            for field in CODE_FIELDS:
                for code in getattr(visit, field) or ():
                    found.setdefault((field, code), []).append(row)
        return found

    def _coded(self, anchor: Anchor) -> Indices:
        lists = [rows for (f, code), rows in self._codes.items() if f in anchor.fields and anchor.matches(code)]
        return np.unique(np.array([row for rows in lists for row in rows], np.intp))


def _plain(visit: Visit) -> str:
    texts = (getattr(visit, field) for field in TEXT_FIELDS)
    return lower("\n".join(text for text in texts if text)).replace("’", "'")


def _holds(text: str, word: str) -> bool:
    """Whether a word may be in a text: as it is, or with dots between its letters ("p.o." is read as "po")."""
    return word in text or (len(word) <= 8 and ".".join(word) in text)


def _in_table(anchor: Anchor, rules: str | Rules, table: PhraseTable) -> int | None:
    """The column of a phrase of the notes without signs in it."""
    tokens = tokenize(anchor.value, rules)
    if set(anchor.fields) != set(TEXT_FIELDS) or any(token.opens for token in tokens[1:]):
        return None
    return table.index.get(Phrase(" ".join(token.text for token in tokens)))
