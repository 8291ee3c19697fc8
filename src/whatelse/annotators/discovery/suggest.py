"""suggest: further anchors for the conditions of a cohort, in one ranking of all sources.

The score of a candidate is the log odds that visits with it have the condition: a start, and what each source adds.

    START                          few candidates are anchors
    forms, knowledge               what its words say (`words.py`)
    neighbours    6 alike          words around it are those around the anchor, at most NEIGHBOURS
    context       0.4 logit(share) its visits look like the condition's, between -CONTEXT and CONTEXT
    instead       0.7 log((expected + 1) / (visits with the anchor + 1)), between 0 and INSTEAD: it stands in its place
    beside        3 x the share of its visits that have the anchor, with 3 more that have not
    elsewhere     minus what neighbours and context say more for another condition, at most ELSEWHERE
    model         0.5 logit of a model's mean probability where the anchor is silent, between -MODEL and MODEL

(`cooccurrence.py` defines alike, share, expected and the limits.) p = 1 / (1 + exp(-score)) counts
as if seen in PSEUDO visits; labelled visits that have the candidate, t with the condition and f without, make it

    precision = (PSEUDO p + t) / (PSEUDO + t + f)

Candidates of a condition are ranked by logit(precision) + 0.3 log(visits gained). The weights are round numbers set by
hand, the same for every condition and kind of record; none was fitted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from whatelse.annotators.anchor_checks import Overlap, overlaps
from whatelse.annotators.discovery.cooccurrence import alike, cooccurrence_of, model_says, records_say
from whatelse.annotators.discovery.meanings import Meanings, plain_words
from whatelse.annotators.discovery.phrases import PhraseTable
from whatelse.annotators.discovery.words import ConditionWords, Reason, read
from whatelse.cohort import Cohort
from whatelse.errors import CohortError
from whatelse.types import Floats

START = -3.0
PSEUDO = 10.0
GAIN = 0.3
LEAST_GAINED = 5  # visits: less is not worth a look
LIKELY = 0.3  # below this precision a candidate is not shown


@dataclass(frozen=True)
class Suggestion:
    """A phrase to look at.

    phrase, key, system  as the conditions file would have it; `label` is the name of a code
    score                logit(precision) + GAIN log(gained), what it is ranked by
    precision            the estimated share of visits with the phrase that have the condition
    fires, gained        visits that have the phrase, and those of them where the anchor is silent
    why                  what each source says, the strongest first
    overlaps             other conditions whose anchors fire in the same visits at least twice as often as chance
    """

    condition: str
    phrase: str
    key: str
    system: str | None
    label: str
    score: float
    precision: float
    fires: int
    gained: int
    why: tuple[Reason, ...]
    overlaps: tuple[Overlap, ...]


def suggest(
    cohort: Cohort,
    table: PhraseTable,
    *,
    meanings: Meanings | None = None,
    conditions: Collection[str] | None = None,
    probability: Floats | None = None,
    refused: Mapping[str, Collection[str]] | None = None,
    most: int = 10,
) -> list[Suggestion]:
    """At most `most` phrases for each condition; conditions that would gain most come first.

    table        the candidates of the cohort's records (`phrases.from_visits`)
    meanings     of phrases; None: by the shipped knowledge base
    conditions   names of the conditions to suggest for (all if None)
    probability  (N, m) of a model learned from this cohort, where there is one
    refused      by condition, phrases that a person has refused: never suggested again

    Cost: a logistic regression a condition over at most 40,000 visits, and O(m nnz) for the candidates.
    """
    names = cohort.conditions
    if unknown := set(conditions or ()) - set(names):
        raise CohortError(f"{sorted(unknown)[0]!r} is not a condition of this cohort; it has {', '.join(names)}")
    table = _free(table, cohort)
    if not table.phrases:
        return []
    ranking = _Ranking(cohort, table, meanings or Meanings.of(), probability)
    wanted = [i for i, name in enumerate(names) if conditions is None or name in conditions]
    found = [ranking.of(i, {plain_words(p) for p in (refused or {}).get(names[i], ())}, most) for i in wanted]
    found.sort(key=lambda own: -sum(s.precision * s.gained for s in own))
    return [s for own in found for s in own]


class _Ranking:
    """Ranks the candidates of a cohort for one condition after another."""

    def __init__(self, cohort: Cohort, table: PhraseTable, meanings: Meanings, probability: Floats | None) -> None:
        self.cohort, self.table, self.probability = cohort, table, probability
        self.known, self.similar = cooccurrence_of(cohort, table), alike(table.neighbours, table.anchor_neighbours)
        self.read = [read(p.words, meanings) for p in table.phrases]
        counts = {p.words: int(c) for p, c in zip(table.phrases, table.counts, strict=True) if p.key == "notes"}
        for i, condition in enumerate(cohort.vocabulary.anchors.conditions):
            fires = int(cohort.A[:, i].sum())  # an anchor's own word has left the candidates
            for anchor in condition.anchors:
                counts.setdefault(plain_words(anchor.value), fires)
        self.words = [ConditionWords(c, meanings, counts) for c in cohort.vocabulary.anchors.conditions]

    def of(self, i: int, refused: Collection[tuple[str, ...]], most: int) -> list[Suggestion]:
        """The phrases of condition i, best first."""
        table, anchor = self.table, self.cohort.A[:, i]
        said, reasons = self.words_say(i)
        parts = records_say(i, table, self.known, self.similar)
        if self.probability is not None:
            parts["model"] = model_says(table, anchor, self.probability[:, i])
        precision = self.with_labels(expit(START + said + sum(parts.values())), i)
        gained = table.counts - np.asarray(table.has.T @ anchor.astype(np.int64))
        rank = logit(np.clip(precision, 1e-6, 1 - 1e-6)) + GAIN * np.log(np.maximum(gained, 1))
        good = (gained >= LEAST_GAINED) & (precision >= LIKELY)
        out: list[Suggestion] = []
        taken: list[tuple[str, ...]] = []
        for k in sorted(np.flatnonzero(good).tolist(), key=lambda k: -rank[k]):
            phrase = table.phrases[k]
            mine = plain_words(phrase.phrase)
            if mine in refused or any(_inside(shorter, mine) for shorter in taken):
                continue
            why = [*reasons.get(k, []), *(self.explain(source, values[k], i, k) for source, values in parts.items())]
            why += self.label_reason(i, k)
            out.append(
                Suggestion(
                    condition=self.cohort.conditions[i],
                    phrase=phrase.phrase,
                    key=phrase.key,
                    system=phrase.system,
                    label=phrase.label,
                    score=round(float(rank[k]), 3),
                    precision=round(float(precision[k]), 3),
                    fires=int(table.counts[k]),
                    gained=int(gained[k]),
                    why=tuple(sorted((r for r in why if abs(r.log_odds) >= 0.1), key=lambda r: -r.log_odds)),
                    overlaps=overlaps(self.cohort, table.rows(k).astype(np.intp), i)[:3],
                )
            )
            if phrase.key == "notes":
                taken.append(mine)
            if len(out) == most:
                break
        return out

    def words_say(self, i: int) -> tuple[Floats, dict[int, list[Reason]]]:
        """(K,) log odds from the words alone, and candidate -> reasons, where it has reasons."""
        reasons = {k: found for k, words in enumerate(self.read) if (found := self.words[i].reasons(words))}
        said = np.zeros(len(self.read))
        for k, found in reasons.items():
            best = max(r.log_odds for r in found)
            said[k] = best if best > 0 else sum(r.log_odds for r in found)
        return said, reasons

    def with_labels(self, p: Floats, i: int) -> Floats:
        """(K,) precision of each candidate, given p (K,) and the labelled visits that have it."""
        if self.cohort.Y is None:
            return p
        labelled = self.cohort.labelled
        true, count = (self.table.has.T @ rows.astype(float) for rows in (self.cohort.Y[:, i] & labelled, labelled))
        joined: Floats = (PSEUDO * p + true) / (PSEUDO + count)
        return joined

    def explain(self, source: str, value: float, i: int, k: int) -> Reason:
        """What a source says about candidate k, in a sentence."""
        fires, expected, count = self.known.fires[k, i], self.known.expected[k, i], self.table.counts[k]
        says = {
            "neighbours": "stands between the same words as the anchor",
            "context": f"{self.known.share[k, i]:.0%} of its visits look like the condition's",
            "instead": f"stands beside the anchor in {fires:.0f} visits where {expected:.0f} were expected",
            "beside": f"the anchor fires in {fires / max(count, 1):.0%} of its visits",
            "elsewhere": "another condition's anchor keeps more of its company",
            "model": "the model's probability where the anchor is silent",
        }[source]
        return Reason(source, round(float(value), 2), says)

    def label_reason(self, i: int, k: int) -> list[Reason]:
        """What labelled visits with candidate k say, if there are any."""
        rows = self.table.rows(k)
        rows = rows[self.cohort.labelled[rows]]
        if self.cohort.Y is None or not rows.size:
            return []
        true = int(self.cohort.Y[rows, i].sum())
        odds = round(float(logit((true + 0.5) / (rows.size + 1))), 2)
        return [Reason("labels", odds, f"{true} of {rows.size} labelled visits with it have the condition")]


def _free(table: PhraseTable, cohort: Cohort) -> PhraseTable:
    """The candidates that are no condition's anchor already, without those that a longer one replaces.

    A shorter run of words that is almost always part of one longer run is left out for the longer one, which says more.
    """
    anchors = {plain_words(a.value) for c in cohort.vocabulary.anchors.conditions for a in c.anchors}
    runs = {tuple(p.phrase.split()): k for k, p in enumerate(table.phrases) if p.key == "notes"}
    replaced = set()
    for words, k in runs.items():
        for shorter in (words[1:], words[:-1]):
            other = runs.get(shorter)
            if other is not None and table.counts[k] >= 0.9 * table.counts[other]:
                replaced.add(other)
    keep = [
        k
        for k, p in enumerate(table.phrases)
        if k not in replaced and (p.key != "notes" or tuple(p.phrase.split()) not in anchors)
    ]
    return table.only(keep)


def _inside(shorter: tuple[str, ...], longer: tuple[str, ...]) -> bool:
    size = len(shorter)
    return any(longer[a : a + size] == shorter for a in range(len(longer) - size + 1))


def by_condition(found: Iterable[Suggestion]) -> dict[str, list[Suggestion]]:
    """Suggestions grouped by condition, in the order they came."""
    groups: dict[str, list[Suggestion]] = {}
    for suggestion in found:
        groups.setdefault(suggestion.condition, []).append(suggestion)
    return groups
