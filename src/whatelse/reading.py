"""Reading: one visit, read once, and every question about it.

`tagger.read(visit)` finds what is present, what nobody looked for, and where each finding stands in the record. A
Reading then answers with that, whatever people say of the visit meanwhile (`Known`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from whatelse.errors import QueryError
from whatelse.explanations import COMPLAINTS, Explanation, Place, Question, Reason, Suggestions, Tag, in_words, telling
from whatelse.noisyor.attribution import why
from whatelse.noisyor.inference.posterior import posterior
from whatelse.noisyor.inference.solver import Posterior
from whatelse.questions import ask
from whatelse.text import Mention, ReadNote
from whatelse.text.lexicon import QUALITY
from whatelse.types import Floats, Ints
from whatelse.visits import TEXT_FIELDS, Code, Known, Visit

if TYPE_CHECKING:
    from whatelse.tagger import Tagger

SMALL = 1e-3  # log odds not worth a line
SAID_AGAINST = 0.25  # log odds that explicit denials must bring to count as evidence against a tag
NOTHING = Known()
KEPT = 4  # answers that a reading keeps: a page asks for the same ones again
STATED_KINDS = ("symptom", "cause", "social")  # a record that mentions such a condition says that it is there
FLARE = 0.5  # a chronic condition that is named is known; it is news if the findings alone make it this likely
FLARE_TOLERANCE = 0.01  # of the probability that is compared with it
MOST_LIKELY, ALERTS = 4, 3  # conditions that are shown as likely, and that must not be missed, at most
DEADLY, GRAVE = 3, 2  # danger
LEAST, LEAST_GRAVE = 0.15, 0.1  # of a condition that is shown as likely
LIKELY, LIKELY_DEADLY = 0.3, 0.15  # of a condition of danger GRAVE and DEADLY that is shown whatever speaks for it
LIKELY_WIDER = 0.2  # of a wider form of a condition that stands above it
SURE, SURE_LASTING = 0.9, 0.8  # of a condition, and of a chronic one, that is likely whatever speaks for it
SPECIFIC, RATHER_SPECIFIC, PECULIAR = 8.0, 4.0, 100.0  # times as common in cases as in all visits
MISSED, MISSED_TIMES = 0.03, 20.0  # probability, and times the usual, of a condition that must not be missed
NAMED = 0.5  # probability of a condition that words of the record name, to be shown as known


class Reading:
    """A visit as a tagger reads it. The tagger must not be fitted again while its readings are used.

    present, unobserved   indices of the findings that the record has, and of those that nobody looked for
    tolerance             error of the probabilities that `suggest` certifies; that of the tagger unless given
    """

    def __init__(self, tagger: Tagger, visit: Visit, tolerance: float) -> None:
        self.tagger, self.visit, self.tolerance = tagger, visit, tolerance
        self._found = tagger.vocabulary_.find(visit)
        self._suggested: dict[Known, Suggestions] = {}
        self.present: Ints = np.unique(np.array([f.finding for f in self._found], np.int64))
        self.unobserved: Ints = tagger.vocabulary_.unobserved(visit).astype(np.int64)

    @cached_property
    def notes(self) -> tuple[ReadNote, ...]:
        """The notes of the record as they were understood; a notebook shows them with marks."""
        reader, visit = self.tagger.vocabulary_._finder.reader, self.visit
        texts = [(field, getattr(visit, field)) for field in TEXT_FIELDS]
        return tuple(reader.note(text, field, visit.age) for field, text in texts if text)

    @property
    def mentions(self) -> tuple[Mention, ...]:
        """Concepts that the notes mention, each with its place and assertion, note by note in reading order."""
        return tuple(mention for note in self.notes for mention in note.mentions)

    def _repr_html_(self) -> str:
        return "".join(f"<p><b>{note.field.replace('_', ' ')}</b></p>{note._repr_html_()}" for note in self.notes)

    @cached_property
    def places(self) -> dict[str, tuple[Place, ...]]:
        """Finding -> where it stands in the record."""
        names, places = self.tagger.vocabulary_.names, dict[str, list[Place]]()
        for found in self._found:
            item = None if found.code is None else _item(self.visit, found.field, found.code)
            place = Place(found.field, found.start, found.end, item, found.negated)
            places.setdefault(names[found.finding], []).append(place)
        return {name: tuple(found) for name, found in places.items()}

    def suggest(self, known: Known = NOTHING) -> Suggestions:
        """Rank the conditions neither confirmed nor rejected."""
        kept = self._suggested.get(known)
        if kept is None:
            found = self.posterior(known)
            kept = self.ranked(found.marginals, known, bool(found.certified), float(found.error_bound))
            if len(self._suggested) >= KEPT:
                self._suggested.clear()
            self._suggested[known] = kept
        return kept

    def ranked(
        self, marginals: Floats, known: Known = NOTHING, certified: bool = True, bound: float = 0.0
    ) -> Suggestions:
        """Suggestions from probabilities (m,) that were computed already."""
        tagger = self.tagger
        profiles = tagger.profiles_
        stated = {*self.stated().tolist(), *self._in_history.tolist()} if profiles else set()
        usual = self.usual() if profiles else tagger.rates_.prior
        tags = []
        for i, (condition, probability, baseline) in enumerate(
            zip(tagger.conditions_, marginals.tolist(), tagger.rates_.prior.tolist(), strict=True)
        ):
            if known.about(condition):
                continue
            profile = profiles.get(condition)
            if profile is None:
                tags.append(Tag(condition, probability, bound, baseline))
                continue
            said = (profile.title, profile.kind, profile.danger, i in stated, profile.wider, float(usual[i]))
            tags.append(Tag(condition, probability, bound, baseline, *said))
        ranked = tuple(sorted(tags, key=(lambda tag: -tag.score) if profiles else (lambda tag: -tag.probability)))
        found = Suggestions(ranked, certified, bound, tagger.digest_, tagger.caveat_)
        return with_parts(self, known, found)

    def why(self, known: Known, condition: str, most: int = 12) -> Explanation:
        """What speaks for and against one tag in log odds: at most `most` findings of the record, with their places,
        and what the record does not have, summed up by its parts."""
        tagger = self.tagger
        here, hidden = self.with_answers(known)
        yes, no = tagger.condition_indices(known.confirmed), tagger.condition_indices(known.rejected)
        (i,) = tagger.condition_indices([condition])
        lines = why(tagger.model_, int(i), here, hidden, yes, no)
        names, is_here = tagger.vocabulary_.names, np.zeros(len(lines.findings), bool)
        is_here[here] = True
        said = is_here.copy()
        said[tagger.vocabulary_.anchor_columns] = True  # a silent anchor is news, a word that is not there is not
        ranked = np.argsort(-np.where(said, np.abs(lines.findings), 0.0), kind="stable")[:most].tolist()
        reasons = tuple(
            Reason(
                names[j],
                float(lines.findings[j]),
                here,
                self.places.get(names[j], ()),
                in_words(names[j], tagger, here),
            )
            for j, here in zip(ranked, is_here[ranked].tolist(), strict=True)
            if said[j] and abs(lines.findings[j]) > SMALL
        )
        absent = {
            part: float(brought)
            for part, columns in tagger.vocabulary_.parts.items()
            if abs(brought := lines.findings[columns][~said[columns]].sum()) > SMALL
        }
        others = {c: float(v) for c, v in zip(tagger.conditions_, lines.coupling, strict=True) if abs(v) > SMALL}
        moved = {tagger.conditions_[k]: float(lines.confirmed[k]) for k in yes.tolist()}
        listed = lines.prior + sum(r.log_odds for r in reasons) + sum(absent.values()) + sum(others.values())
        rest = lines.log_odds - listed - lines.evidence
        return Explanation(condition, lines.log_odds, lines.prior, reasons, absent, others, lines.evidence, rest, moved)

    def ask(self, known: Known = NOTHING, about: str | None = None, most: int = 5) -> tuple[Question, ...]:
        """The findings not in the record whose answer is expected to tell most, about all open tags or about one."""
        return ask(self, known, about, most)

    def stated(self) -> Ints:
        """Conditions that the record itself says are there: symptoms, causes and social facts that it mentions."""
        return self._named(STATED_KINDS)

    @cached_property
    def _in_history(self) -> Ints:
        """Chronic conditions that the record names, unless its findings alone would make one likelier than FLARE."""
        named = self._named(("chronic",))
        if not named.size:
            return named
        anchors = self.tagger.vocabulary_.anchor_columns[named]
        here, hidden = np.setdiff1d(self.present, anchors), np.union1d(self.unobserved, anchors)
        without = posterior(self.tagger.model_, here, hidden, tolerance=FLARE_TOLERANCE, top=0)
        return named[without.marginals[named] < FLARE]

    def _named(self, kinds: tuple[str, ...]) -> Ints:
        """Conditions of some kinds that the record names."""
        profiles, conditions = self.tagger.profiles_, self.tagger.conditions_
        if not profiles:
            return np.empty(0, np.int64)
        named = np.flatnonzero(np.isin(self.tagger.vocabulary_.anchor_columns, self.present))
        return named[[conditions[i] in profiles and profiles[conditions[i]].kind in kinds for i in named.tolist()]]

    def usual(self) -> Floats:
        """Probability of each condition for a patient of this age and sex, with nothing else known."""
        prior = np.clip(self.tagger.rates_.prior, 1e-12, 1 - 1e-12)
        log_odds = np.log(prior / (1 - prior)) + self.brought("age:") + self.brought("sex:")
        usual: Floats = 1 / (1 + np.exp(-log_odds))
        return usual

    def brought(self, prefix: str) -> Floats:
        """Log odds (m,) that present findings whose names begin so add."""
        names = self.tagger.vocabulary_.names
        known = [j for j in self.present.tolist() if names[j].startswith(prefix)]
        brought: Floats = self.tagger.model_.evidence.weight[:, known].sum(1)
        return brought

    def denials(self, known: Known = NOTHING) -> dict[str, list[str]]:
        """Condition -> findings that the record or an answer denies, strongest first, if they count against it.

        In a noisy-or model a finding that is not there takes log f_ij from the odds. Here that is summed over findings
        that somebody said are not there; those nobody mentioned are missing evidence, not evidence against.
        """
        index, model = self.tagger.vocabulary_.index, self.tagger.model_
        negated = {name.removeprefix("neg:") for name in self.places if name.startswith("neg:")}
        words = sorted(word for word in negated - self.places.keys() | set(known.absent) if word in index)
        if not words:
            return {}
        columns = np.array([index[word] for word in words])
        noisyor, evidence = model.noisyor, model.evidence
        lines = noisyor.weight[columns] * np.log(np.maximum(noisyor.fail[:, columns], 1e-300))
        lines = lines - evidence.weight[:, columns] * evidence.centre[columns]
        for k, word in enumerate(words):
            if (j := index.get(f"neg:{word}")) is not None:
                lines[:, k] += evidence.weight[:, j] * (1.0 - evidence.centre[j])
        out = {}
        for i in np.flatnonzero(-np.minimum(lines, 0).sum(1) > SAID_AGAINST).tolist():
            order = [k for k in np.argsort(lines[i]).tolist() if lines[i, k] < -0.05]
            out[self.tagger.conditions_[i]] = [words[k] for k in order[:3]]
        return out

    # ---- from names to arrays

    def posterior(self, known: Known, tolerance: float | None = None, top: int = 0) -> Posterior:
        here, hidden = self.with_answers(known)
        return posterior(
            self.tagger.model_, here, hidden,
            self.tagger.condition_indices(known.confirmed), self.tagger.condition_indices(known.rejected),
            tolerance=tolerance or self.tolerance, top=top,
        )  # fmt: skip

    def with_answers(self, known: Known) -> tuple[Ints, Ints]:
        """Indices present, and indices that nobody looked for, with the answers to questions.

        A "no" is a pertinent negative: where notes say so often enough, the model knows it as the finding `neg:` word.
        A "yes" implies the wider findings that the shipped model knows.
        """
        if twice := [name for name in known.confirmed if name in known.rejected]:
            raise QueryError(f"the condition {twice[0]!r} is both confirmed and rejected; it can be only one")
        if not (known.present or known.absent):
            return self.present, self.unobserved
        index, wider = self.tagger.vocabulary_.index, self.tagger.wider_
        yes, no = self.tagger.finding_indices(known.present), self.tagger.finding_indices(known.absent)
        if both := np.intersect1d(yes, no).tolist():
            name = self.tagger.vocabulary_.names[both[0]]
            raise QueryError(f"the finding {name!r} is both present and absent; it can be only one")
        implied = {up for name in known.present for up in wider.get(name, ())} | {
            f"neg:{name}" for name in known.absent
        }
        more = [j for name in implied if (j := index.get(name)) is not None]
        said = np.union1d(self.present, np.concatenate([yes, np.array(more, np.int64)]))
        here = np.setdiff1d(said, no).astype(np.int64)
        hidden = np.setdiff1d(self.unobserved, np.concatenate([here, no])).astype(np.int64)
        return here, hidden


def _item(visit: Visit, field: str, code: Code) -> int | None:
    codes: tuple[Code, ...] = getattr(visit, field) or ()
    return codes.index(code) if code in codes else None


# ---- the parts of an answer: known, likely, must not be missed


def with_parts(reading: Reading, known: Known, found: Suggestions) -> Suggestions:
    """Suggestions sorted into parts: the one rule of the page, of CDS cards and of `whatelse ask`.

    Each open condition is in one part at most; what is in none is not shown.

    known          the record names it, states it as a symptom, or a narrower condition that is known implies it
    likely         at least LEAST (of danger GRAVE: LEAST_GRAVE) and above the usual, and SURE or for a finding that is
                   rather specific to it (a chronic condition below GRAVE: SURE_LASTING; one of danger GRAVE or DEADLY
                   that is not chronic: LIKELY or LIKELY_DEADLY will do); the MOST_LIKELY best, chronic ones that the
                   visit does not show last; shown likeliest first. A wider form of a condition that stands above it:
                   if LIKELY_WIDER. Symptoms are no answer
    must_not_miss  not likely, but dangerous (3), at least MISSED and MISSED_TIMES the usual, for a finding that is
                   specific to it, and no form of a condition that is likely; at most ALERTS
    """
    profiles = reading.tagger.profiles_
    least = 0.0 if reading.tagger.vocabulary_.lexicon.entries else NAMED  # a concept is read with its assertion
    told = {tag.condition for tag in found.tags if tag.stated or (tag.probability >= least and _named(reading, tag))}
    implied = {up for name in (*told, *known.confirmed) for up in _wider(reading, name)}
    open_tags = [tag for tag in found.tags if tag.condition not in told and tag.condition not in implied]
    likely: list[Tag] = []
    first = set(replace(found, tags=tuple(open_tags)).candidates)  # a form of what is known is news
    for tag in open_tags:
        profile = profiles.get(tag.condition)
        stands = tag in first or (tag.worth and tag.probability >= LIKELY_WIDER)
        if not stands or any(tag.is_form_of(above) for above in likely):
            continue
        least = LEAST_GRAVE if tag.danger >= GRAVE else LEAST
        worth = tag.kind not in COMPLAINTS and tag.probability >= least and tag.probability > tag.baseline
        if tag.kind == "chronic" and tag.danger < GRAVE:
            sure = tag.probability >= SURE_LASTING
        else:
            grave = tag.danger >= GRAVE and tag.kind != "chronic"
            enough = SURE if not grave else LIKELY_DEADLY if tag.danger >= DEADLY else LIKELY
            sure = profile is None or tag.probability >= enough or _presented(reading, tag, RATHER_SPECIFIC)
        if worth and sure:
            likely.append(tag)
    # What is new comes before what the patient lives with, unless the visit shows it.
    likely.sort(key=lambda tag: tag.kind == "chronic" and not _presented(reading, tag, SPECIFIC))
    likely = sorted(likely[:MOST_LIKELY], key=lambda tag: -tag.probability)
    missed = [
        tag
        for tag in open_tags
        if tag.danger == DEADLY
        and tag.kind not in COMPLAINTS
        and tag.probability >= MISSED
        and tag.times >= MISSED_TIMES
        and not any(tag is other or tag.is_form_of(other) for other in likely)
        and _presented(reading, tag, SPECIFIC)
    ]
    stated = tuple(tag for tag in found.tags if tag.condition in told)
    return replace(found, known=stated, likely=tuple(likely), must_not_miss=tuple(missed[:ALERTS]))


def _presented(reading: Reading, tag: Tag, times: float) -> bool:
    """Whether the record has a finding so many times as common in cases as in all visits. Habits, history, qualities
    ("at night", "severe") and durations do not count, nor does the mechanism alone for an injury unless it is
    PECULIAR to it (a punched wall), nor an exposure alone for a condition below GRAVE."""
    tagger = reading.tagger
    share = 1 - tagger.model_.noisyor.fail[tagger.conditions_.index(tag.condition), reading.present]
    rate = tagger.vocabulary_.counts[reading.present] / max(1, tagger.vocabulary_.visits)
    lift = share / np.maximum(rate, 1e-6)
    kinds, vague = tagger.vocabulary_.lexicon.by_name, {QUALITY, "social", "history"}
    if tag.kind == "injury":
        vague.add("mechanism")
    if tag.danger < GRAVE:
        vague.add("exposure")
    for j in np.flatnonzero(lift >= times).tolist():
        name = tagger.vocabulary_.names[reading.present[j]]
        kind = kinds[name].kind if name in kinds else ""
        if telling(name, tagger) and (kind not in vague or (kind == "mechanism" and lift[j] >= PECULIAR)):
            return True
    return False


def _named(reading: Reading, tag: Tag) -> bool:
    """Whether a note names the condition itself."""
    places = reading.places.get(f"anchor:{tag.condition}", ())
    return any(place.start is not None and not place.negated for place in places)


def _wider(reading: Reading, condition: str) -> tuple[str, ...]:
    lexicon = reading.tagger.vocabulary_.lexicon
    return lexicon.ancestors(condition) if condition in lexicon.by_name else ()
