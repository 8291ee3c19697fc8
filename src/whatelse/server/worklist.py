"""Worklist: the visits in memory, found by an opaque key, a search or a filter; scored in the background.

A visit's id may identify somebody, so it is in no URL: the key there is an HMAC of the id with a secret of the
database, the same at every start. Searching is a scan: 50,000 notes take some 20 ms.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whatelse.lifecycle.drift import out_of_band
from whatelse.server.lru import Lru
from whatelse.store.audit import visit_key
from whatelse.tagger import Tagger
from whatelse.types import Floats
from whatelse.visits import TEXT_FIELDS, Visit

CHUNK = 16  # visits scored at a time
HELD = 1_000  # visits of an EHR that are kept
URGENT = 1.0  # added to the score of a condition that must not be missed
WORTH_LISTING = 0.02  # probability of a condition in a list of the visits that may have it


class Standing(NamedTuple):
    """Where a visit stands before anybody has decided: conditions and probabilities of its parts.

    attention   how much it deserves a look: the best score of what is shown, higher if it must not be missed
    """

    likely: list[tuple[str, float]]
    must_not_miss: list[tuple[str, float]]
    attention: float


@dataclass(frozen=True, slots=True)
class Scores:
    """Probabilities of the first `done` visits by one model: (V, m) float32; and where each of them stands."""

    tagger: Tagger
    probabilities: NDArray[np.float32]
    done: int
    counts: NDArray[np.int64]  # (n,) of those visits that have each finding
    standing: list[Standing]

    def drift(self) -> dict[str, tuple[str, float | dict[str, float]]]:
        """How common anchors are among the visits scored and among those learned from, for Prometheus."""
        vocabulary = self.tagger.vocabulary_
        anchors = dict(zip(vocabulary.conditions, vocabulary.anchor_columns.tolist(), strict=True))
        learned = {c: int(vocabulary.counts[j]) / max(vocabulary.visits, 1) for c, j in anchors.items()}
        now = {c: int(self.counts[j]) / max(self.done, 1) for c, j in anchors.items()}
        return {
            "anchor_share": ("Share of the scored visits in which a condition's anchor is found.", now),
            "anchor_share_learned": ("The same of the visits learned from.", learned),
            "findings_out_of_band": (
                "Findings whose share of the scored visits has left its band; see 'whatelse drift'.",
                float(out_of_band(vocabulary, self.counts, self.done).sum()),
            ),
        }


class Worklist:
    """V visits in the order of their file."""

    def __init__(self, visits: Iterable[Visit], secret: bytes) -> None:
        self.visits = list(visits)
        self.keys = [visit_key(visit.id, secret) for visit in self.visits]
        self._by_key = {key: i for i, key in enumerate(self.keys)}
        self._by_id = {visit.id: i for i, visit in enumerate(self.visits)}
        self._text = [_searchable(visit) for visit in self.visits]
        self._secret = secret
        self._held: Lru[str, Visit] = Lru(HELD)
        self.scores: Scores | None = None
        self._stop = threading.Event()
        self._scorer: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self.visits)

    def hold(self, visit: Visit) -> str:
        """Keep a visit that is in no list, as an EHR has it now; the key that finds it."""
        key = self.key(visit.id)
        self._held.put(key, visit)
        return key

    def key(self, visit: str) -> str:
        return visit_key(visit, self._secret)

    def find(self, key: str) -> Visit | None:
        if (held := self._held.get(key)) is not None:
            return held
        i = self._by_key.get(key)
        return None if i is None else self.visits[i]

    def search(
        self,
        words: str = "",
        condition: str | None = None,
        among: set[str] | None = None,
        without: set[str] | None = None,
        *,
        must_not_miss: bool = False,
        by_attention: bool = False,
    ) -> NDArray[np.intp]:
        """Which visits hold all the words, in file order.

        condition       only visits scored that may have it, likeliest first
        among, without  ids to keep, ids to leave out
        must_not_miss   only visits with such a condition
        by_attention    first what deserves a look; visits not scored yet come last
        """
        chosen = range(len(self.visits)) if among is None else sorted(self._by_id[i] for i in among if i in self._by_id)
        needles = words.casefold().split()
        text, visits, scores = self._text, self.visits, self.scores
        rows = [i for i in chosen if all(needle in text[i] for needle in needles)] if needles else list(chosen)
        if without:
            rows = [i for i in rows if visits[i].id not in without]
        standing = [] if scores is None else scores.standing
        if must_not_miss:
            rows = [i for i in rows if i < len(standing) and standing[i].must_not_miss]
        found = np.array(rows, dtype=np.intp)
        if condition is not None and scores is not None and condition in scores.tagger.conditions_:
            found = found[found < scores.done]
            column = scores.probabilities[found, scores.tagger.conditions_.index(condition)]
            listed = np.argsort(-column, kind="stable")
            found = found[listed[column[listed] >= WORTH_LISTING]]
        elif by_attention:
            attention = np.array([standing[i].attention if i < len(standing) else -math.inf for i in found.tolist()])
            found = found[np.argsort(-attention, kind="stable")]
        return found

    # ---- scoring

    def score(self, tagger: Tagger) -> None:
        """Start scoring every visit with a model; one that is under way stops."""
        self.stop()
        self._stop = threading.Event()
        self._scorer = threading.Thread(
            target=self._score, args=(tagger, self._stop), daemon=True, name="whatelse-scores"
        )
        self._scorer.start()

    def stop(self) -> None:
        if self._scorer is not None:
            self._stop.set()
            self._scorer.join()
            self._scorer = None

    def _score(self, tagger: Tagger, stop: threading.Event) -> None:
        table = np.zeros((len(self.visits), len(tagger.conditions_)), np.float32)
        counts = np.zeros(len(tagger.vocabulary_.names), np.int64)
        standing: list[Standing] = []
        self.scores = Scores(tagger, table, 0, counts, standing)
        for start in range(0, len(self.visits), CHUNK):
            if stop.is_set():
                return
            end = min(start + CHUNK, len(self.visits))
            found = tagger.predict_proba(self.visits[start:end])
            table[start:end] = found
            for visit, row in zip(self.visits[start:end], found, strict=True):
                counts[tagger.vocabulary_.present(visit)] += 1
                standing.append(_standing(tagger, visit, row))
                stop.wait(0.0005)  # let those who wait for an answer go first
            self.scores = Scores(tagger, table, end, counts, standing)

    def standing(self, i: int, tagger: Tagger) -> Standing | None:
        """Where visit i stands with nothing decided; None if its turn has not come: a page of them takes seconds."""
        scores = self.scores
        return scores.standing[i] if scores is not None and scores.tagger is tagger and i < scores.done else None


def _standing(tagger: Tagger, visit: Visit, probabilities: Floats) -> Standing:
    reading = tagger.read(visit)
    found = reading.ranked(probabilities)
    scores = [tag.score for tag in found.likely] + [tag.score + URGENT for tag in found.must_not_miss]
    likely, missed = ([(t.condition, t.probability) for t in tags] for tags in (found.likely, found.must_not_miss))
    return Standing(likely, missed, max(scores, default=-math.inf))


def _searchable(visit: Visit) -> str:
    texts = (getattr(visit, field) for field in TEXT_FIELDS)
    return "\n".join([visit.id, *(text for text in texts if text)]).casefold()
