"""Prior: what the knowledge base says about the parameters of a cohort's conditions and findings.

    facts_ij     log of how many times as common finding j is among cases of condition i as among all visits
                 (of the cohort, where finding j is commoner than the base says: injury, where people see little else)
    names_ij     the same for findings that name the condition itself, or an injury of its own body site
    coupling_ik  log of how many times as often conditions i and k occur together as by chance
    share_i      share of emergency visits with condition i

A condition of the cohort stands for entries or concepts of the base by its name, its codes, its title or its phrases
(`knowledge/matching.py`). A column stands for findings of the base by `cohort.concepts`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whatelse.annotators import Condition as AnchoredCondition
from whatelse.cohort import Vocabulary
from whatelse.cohort.concepts import concepts_of_findings
from whatelse.knowledge import Knowledge
from whatelse.knowledge.entries import Condition, plain
from whatelse.knowledge.matching import merged, stands_for
from whatelse.learning.knowledge_model import SMALLEST_RATE, couplings, finding_rate, frequencies, wider_findings
from whatelse.text.lexicon import Lexicon, load_lexicon
from whatelse.types import Bools, Floats, Ints

STRONGEST = 4.0  # log of the largest lift that is believed
STRONGEST_PAIR = 3.0
NAMED_BY_CASES = 0.5  # share of cases whose record mentions the condition by name, where no anchor does
RECALLED = 0.7  # of the weight of a condition's name: its name as history, or as a possibility
CLIMBED = 0.6  # of the weight of a wider finding: a narrower one that the entry does not name
SITE_COMPLAINT, SITE_OTHER = 2.5, 1.0  # log lift of a complaint, of another injury at the body site of a condition
COMPLAINTS = ("pain", "injury", "swelling", "tenderness", "impact", "deformity", "numbness", "weakness", "stiffness")
INJURED = {True: 3.0, False: 0.33}  # times as often marked as an injury: injuries and their causes, all others
NEARLY_ALL, DEFINED = 0.9, 0.3
ANY_INJURY = "_injury"  # ends findings that any blow to a body site implies: they do not state a condition
CODE, PHRASE, NAME, SYMPTOM_PHRASE, SYMPTOM_NAME = range(5)  # kinds of anchors
GROUPS = ("facts", "names")


@dataclass(frozen=True, eq=False)
class Prior:
    """Prior means of m conditions and n findings.

    weight    (2, m, n) facts and names; 0 where the base says nothing
    coupling  (m, m) log lift of each pair, symmetric
    share     (m,) share of emergency visits; NaN where the base does not know the condition
    entries   (m,) names of the entries that each condition stands for
    anchor    (m,) kind of each condition's anchor: CODE, or PHRASE or NAME of a symptom or of another condition
    own       (m, n) findings that are the condition itself, stated as present
    """

    weight: Floats
    coupling: Floats
    share: Floats
    entries: tuple[tuple[str, ...], ...]
    anchor: Ints
    own: Bools

    @property
    def known(self) -> Bools:
        """(m, n) where the base lists a finding for a condition."""
        out: Bools = (self.weight != 0).any(0)
        return out

    @classmethod
    def flat(cls, vocabulary: Vocabulary) -> Prior:
        """Nothing is known: all means are zero."""
        kinds = [_anchor_kind(condition, _shares_word(condition)) for condition in vocabulary.anchors.conditions]
        m, n = len(kinds), len(vocabulary.names)
        nothing = np.zeros((len(GROUPS), m, n)), np.zeros((m, m)), np.full(m, np.nan), ((),) * m
        return cls(*nothing, np.array(kinds, np.int64), np.zeros((m, n), bool))


def prior_of(vocabulary: Vocabulary, base: Knowledge) -> Prior:
    """The prior of a cohort's vocabulary. O(conditions x findings)."""
    conditions, names = vocabulary.anchors.conditions, vocabulary.names
    m, n = len(conditions), len(names)
    lexicon = load_lexicon()
    columns = concepts_of_findings(names, lexicon)
    seen = dict(zip(names, (vocabulary.counts / max(vocabulary.visits, 1)).tolist(), strict=True))
    weight, share, own = np.zeros((len(GROUPS), m, n)), np.full(m, np.nan), np.zeros((m, n), bool)
    entries, whole, kinds = list[tuple[str, ...]](), list[Condition | None](), list[int]()
    for i, condition in enumerate(conditions):
        found = stands_for(base, condition.name, condition.phrases, condition.codes, condition.title)
        entry = merged(base, condition.name, condition.title, found) if found else None
        entries.append(found)
        whole.append(entry)
        share[i] = entry.share if entry else np.nan
        symptom = entry is not None and entry.kind == "symptom"
        kinds.append(_anchor_kind(condition, _names_it(condition, base, lexicon, found, entry), symptom))
        own[i] = [name in found and not name.endswith(ANY_INJURY) for name in names]
        view = _View(base, lexicon, entry, found, seen)
        for j, concepts in enumerate(columns[: n - m]):
            if concepts:
                weight[:, i, j] = view.weights(concepts)
    weight = np.clip(weight, -STRONGEST, STRONGEST)
    return Prior(weight, couplings(whole, entries, STRONGEST_PAIR), share, tuple(entries), np.array(kinds), own)


def _names_it(
    condition: AnchoredCondition, base: Knowledge, lexicon: Lexicon, found: tuple[str, ...], entry: Condition | None
) -> bool:
    """Whether a phrase of the anchor names the condition; other phrases only go with it.

    found, entry: the entries that the condition stands for, and their union. A phrase names the condition if it means
    one of them or a narrower one (a blow to the head is not yet a head injury), if it is the condition's name or title,
    or if nearly all cases have what it means and DEFINED of those who have that are cases (hives, for urticaria). Where
    the base knows neither, a phrase that shares a word with the title names it.
    """
    phrases = [plain(phrase) for phrase in condition.phrases]
    if entry is None:
        return _shares_word(condition)
    for phrase, read in zip(phrases, concepts_of_findings(phrases, lexicon), strict=True):
        exact = [name for name in read if entry.kind != "injury" or name in found or lexicon.composed(name)]
        meant = {up for name in exact for up in (name, *lexicon.ancestors(name))}
        if phrase in (plain(condition.name), plain(condition.title)) or not meant.isdisjoint(found):
            return True
        often = {name: entry.findings.get(name, 0.0) for name in read}
        if any(p >= NEARLY_ALL and entry.share * p >= DEFINED * _rate(base, name) for name, p in often.items()):
            return True
    return False


def _shares_word(condition: AnchoredCondition) -> bool:
    """Whether a phrase of the anchor shares a word with the condition's name or title."""
    words = set(plain(f"{condition.title} {condition.name}").split())
    return any(words & set(plain(phrase).split()) for phrase in condition.phrases)


def _anchor_kind(condition: AnchoredCondition, names: bool, symptom: bool = False) -> int:
    """Kind of an anchor. A record states a symptom far more often than a disease: symptoms have kinds of their own."""
    if not condition.phrases:
        return CODE
    if symptom:
        return SYMPTOM_NAME if names else SYMPTOM_PHRASE
    return NAME if names else PHRASE


class _View:
    """What the base says about one condition: the entry, the names that are its own, the body sites of an injury.

    seen: the cohort's findings, each with the share of visits that have it
    """

    def __init__(
        self, base: Knowledge, lexicon: Lexicon, entry: Condition | None, found: tuple[str, ...], seen: dict[str, float]
    ) -> None:
        self.base, self.lexicon, self.entry, self.own, self.seen = base, lexicon, entry, frozenset(found), seen
        self.row = frequencies(base, [entry])[0] if entry else {}
        made = filter(None, (lexicon.composed(name) for name in found))
        self.sites = frozenset(site.name for site, _ in made)
        self.around = self.sites | {up for site in self.sites for up in lexicon.ancestors(site)}
        self.injury = (entry is not None and entry.kind in ("injury", "cause")) or bool(self.sites)

    def weights(self, concepts: tuple[str, ...]) -> tuple[float, float]:
        """Facts and names of a column that stands for these findings of the base."""
        named = [v for name in concepts if (v := self._named(name)) is not None]
        if named:
            return 0.0, max(named, key=abs)
        facts = [v for name in concepts if (v := self._fact(name)) is not None]
        return max(facts, key=abs, default=0.0), 0.0

    def _named(self, name: str) -> float | None:
        """Log lift of a name of the condition, or of a complaint at its own body site."""
        prefix, _, rest = name.rpartition(":")
        if rest in self.own and prefix in ("", "hx", "possible"):
            times = NAMED_BY_CASES / _rate(self.base, rest if prefix == "possible" else name)
            return float(np.log(times)) * (1.0 if not prefix else RECALLED)
        place = self._place(rest) if prefix in ("", "possible") and name not in self.row else None
        if place is None or place[0] != "here":
            return None
        return SITE_COMPLAINT if place[1] in COMPLAINTS else SITE_OTHER

    def _place(self, name: str) -> tuple[str, str] | None:
        """Where a composed finding is, seen from the condition's body sites (here, around, elsewhere), and its head."""
        made = self.lexicon.composed(name) if self.sites else None
        if made is None:
            return None
        site, head = made
        here = bool(self.sites & {site.name, *self.lexicon.ancestors(site.name)})
        return "here" if here else "around" if site.name in self.around else "elsewhere", head.name

    def _fact(self, name: str) -> float | None:
        """Log lift of a finding that the entry speaks of, itself or by a wider finding; else None."""
        entry, base = self.entry, self.base
        prefix, _, rest = name.rpartition(":")
        if entry is None:
            return None
        if prefix in ("age", "sex"):
            factors = entry.age if prefix == "age" else entry.sex
            return float(np.log(max(factors.get(rest, 1.0), 0.01))) if factors else None
        if prefix == "neg" and rest in self.row:
            absent = max(1 - self.row[rest][0], 0.05) / max(1 - _rate(base, rest), 0.05)
            return float(np.log(absent))
        if (place := self._place(rest)) is not None and place[0] == "elsewhere":
            return None
        if name in self.row:
            return self._lift(name)
        if name in entry.against:
            return float(np.log(max(entry.against[name], 0.01)))
        if name == "injury":
            return float(np.log(INJURED[self.injury]))
        if prefix in ("", "rx", "hx"):
            for up in wider_findings(base, name):
                if up in self.row and up not in self.seen:
                    return CLIMBED * self._lift(up)
        return None

    def _lift(self, name: str) -> float:
        """Log lift of a finding that the entry lists; never negative: only `against` speaks against."""
        rate = max(_rate(self.base, name), self.seen.get(name, 0.0))
        return max(float(np.log(max(self.row[name][0], 1e-4) / rate)), 0.0)


def _rate(base: Knowledge, name: str) -> float:
    return max(finding_rate(base, name), SMALLEST_RATE)
