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
from whatelse.explanations import NEWS, Explanation, Place, Question, Reason, Suggestions, Tag
from whatelse.noisyor.attribution import why
from whatelse.noisyor.inference.information import expected_information
from whatelse.noisyor.inference.posterior import Posterior, posterior
from whatelse.text import Mention, ReadNote
from whatelse.types import Bools, Floats, Ints
from whatelse.visits import TEXT_FIELDS, Code, Known, Visit

if TYPE_CHECKING:
    from whatelse.tagger import Tagger

CANDIDATES = 24  # questions weighed exactly, out of those that look most telling
SMALL = 1e-3  # log odds not worth a line
ASKING_TOLERANCE = 1e-3  # of the posteriors by which questions are ranked
SAID_AGAINST = 0.25  # log odds that explicit denials must bring to count as evidence against a tag
NOTHING = Known()
KEPT = 4  # answers that a reading keeps: a page asks for the same ones again
TELLING = 1e-4  # bits: a question expected to tell less is not asked
STATED_KINDS = ("symptom", "cause", "social")  # a record that mentions such a condition says that it is there
BACKGROUND = ("symptom", "chronic", "social")
FITS = 0.15  # a finding whose causes are rarer than that in patients of this age and sex is not asked about
FLARE = 0.5  # a chronic condition that is named is known; it is news if the findings alone make it this likely


class Reading:
    """A visit as a tagger reads it. The tagger must not be fitted again while its readings are used.

    present, unobserved   indices of the findings that the record has, and of those that nobody looked for
    """

    def __init__(self, tagger: Tagger, visit: Visit) -> None:
        self.tagger, self.visit = tagger, visit
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
            found = self._posterior(known)
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
        stated = {*self._stated().tolist(), *self._in_history(known).tolist()} if profiles else set()
        usual = self._usual() if profiles else tagger.rates_.prior
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
        return Suggestions(ranked, certified, bound, tagger.digest_, tagger.caveat_)

    def why(self, known: Known, condition: str, most: int = 12) -> Explanation:
        """What speaks for and against one tag in log odds: at most `most` findings of the record, with their places,
        and what the record does not have, summed up by its parts."""
        tagger = self.tagger
        here, hidden = self._with_answers(known)
        yes, no = tagger.condition_indices(known.confirmed), tagger.condition_indices(known.rejected)
        (i,) = tagger.condition_indices([condition])
        lines = why(tagger.model_, int(i), here, hidden, yes, no)
        names, is_here = tagger.vocabulary_.names, np.zeros(len(lines.findings), bool)
        is_here[here] = True
        said = is_here.copy()
        said[tagger.vocabulary_.anchor_columns] = True  # a silent anchor is news, a word that is not there is not
        ranked = np.argsort(-np.where(said, np.abs(lines.findings), 0.0), kind="stable")[:most].tolist()
        reasons = tuple(
            Reason(names[j], float(lines.findings[j]), bool(is_here[j]), self.places.get(names[j], ()))
            for j in ranked
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
        """The findings not in the record whose answer is expected to tell most, about all open tags or about one.

        Candidates are findings that a person can be asked about. The most telling by a first estimate are weighed
        exactly: information is what yes or no is expected to tell of each tag, summed over tags, in bits.
        """
        tagger = self.tagger
        now = self._posterior(known, ASKING_TOLERANCE, top=200)
        answered = tagger.finding_indices([*known.present, *known.absent])
        here, _ = self._with_answers(known)
        candidates = np.setdiff1d(tagger.vocabulary_.askable, np.concatenate([here, answered]))
        read = (tagger.model_.noisyor.weight > 0) | tagger.model_.evidence.weight.any(0)
        candidates = candidates[read[candidates] & (tagger.model_.noisyor.leak[candidates] > 0)]
        if not candidates.size:
            return ()
        worth = self._worth_asking(now.marginals)
        chance, rough = self._rough_information(now, candidates, worth)
        best = np.argsort(-rough)[: 3 * CANDIDATES]
        best = best[self._fits(candidates[best])][:CANDIDATES]
        candidates, chance = candidates[best], chance[best]
        names = [tagger.vocabulary_.names[j] for j in candidates]
        after = self._if_answered(known, names)
        # among visits whose notes say yes or no, where notes say no
        denied = np.array([tagger.vocabulary_.index.get(f"neg:{name}", -1) for name in names])
        denied[tagger.model_.noisyor.leak[denied] == 0] = -1  # denials whose rate the model does not know
        said_no = np.where(denied >= 0, self._chance(now.explanations, now.probabilities, denied), 1 - chance)
        shares = np.stack([chance, said_no]) / (chance + said_no)
        mixed = (shares[:, :, None] * after).sum(0)
        gain = shares[:, :, None] * _divergence(after, mixed)
        gain = gain * worth
        watched = gain if about is None else gain[:, :, tagger.condition_indices([about])]
        information = watched.sum((0, 2))
        questions = []
        for k in np.argsort(-information)[:most].tolist():
            if information[k] < TELLING:
                break
            i = int(np.argmax(gain[:, k].sum(0))) if about is None else tagger.conditions_.index(about)
            questions.append(
                Question(
                    names[k], float(information[k]), tagger.conditions_[i],
                    float(now.marginals[i]), float(after[0, k, i]), float(after[1, k, i]),
                )
            )  # fmt: skip
        return tuple(questions)

    def _worth_asking(self, now: Floats) -> Floats:
        """(m,) what a bit about each condition is worth, by its probability now; 1 if the model has no profiles.

        More if it is dangerous. Nothing if the record states it, if nothing speaks for it, and if it is a symptom, a
        chronic condition or a habit.
        """
        profiles = [self.tagger.profiles_.get(name) for name in self.tagger.conditions_]
        if not self.tagger.profiles_:
            return np.ones(len(profiles))
        worth = np.array([1.0 if p is None else (1.0 + p.danger) * (p.kind not in BACKGROUND) for p in profiles])
        worth[self._stated()] = 0.0
        return np.where(now >= NEWS * self._usual(), worth, 0.0)

    def _fits(self, findings: Ints) -> Bools:
        """Whether each finding fits the patient: its causes are at least FITS times as common at this age and sex.

        For the sex the mean is geometric: a cause that both sexes have does not make heavy periods a man's finding.
        """
        noisyor = self.tagger.model_.noisyor
        causes = 1 - noisyor.fail[:, findings]
        causes = np.where(causes.any(0), causes, np.maximum(self.tagger.model_.evidence.weight[:, findings], 0.0))
        causes = causes * noisyor.prior[:, None]
        causes = causes / np.maximum(causes.sum(0), 1e-12)
        age, sex = np.exp(self._brought("age:")) @ causes, np.exp(self._brought("sex:") @ causes)
        fits: Bools = (np.minimum(age, sex) >= FITS) | (causes.sum(0) == 0)
        return fits

    def _stated(self) -> Ints:
        """Conditions that the record itself says are there: symptoms, causes and social facts that it mentions."""
        return self._named(STATED_KINDS)

    def _in_history(self, known: Known) -> Ints:
        """Chronic conditions that the record names, unless the findings alone would make one likelier than FLARE."""
        named = self._named(("chronic",))
        if not named.size:
            return named
        here, hidden = self._with_answers(known)
        anchors = self.tagger.vocabulary_.anchor_columns[named]
        without = posterior(
            self.tagger.model_, np.setdiff1d(here, anchors), np.union1d(hidden, anchors),
            self.tagger.condition_indices(known.confirmed), self.tagger.condition_indices(known.rejected), top=0,
        )  # fmt: skip
        return named[without.marginals[named] < FLARE]

    def _named(self, kinds: tuple[str, ...]) -> Ints:
        """Conditions of some kinds that the record names."""
        profiles, conditions = self.tagger.profiles_, self.tagger.conditions_
        if not profiles:
            return np.empty(0, np.int64)
        named = np.flatnonzero(np.isin(self.tagger.vocabulary_.anchor_columns, self.present))
        return named[[conditions[i] in profiles and profiles[conditions[i]].kind in kinds for i in named.tolist()]]

    def _usual(self) -> Floats:
        """Probability of each condition for a patient of this age and sex, with nothing else known."""
        prior = np.clip(self.tagger.rates_.prior, 1e-12, 1 - 1e-12)
        log_odds = np.log(prior / (1 - prior)) + self._brought("age:") + self._brought("sex:")
        usual: Floats = 1 / (1 + np.exp(-log_odds))
        return usual

    def _brought(self, prefix: str) -> Floats:
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
        for i, condition in enumerate(self.tagger.conditions_):
            if -np.minimum(lines[i], 0).sum() > SAID_AGAINST:
                order = [k for k in np.argsort(lines[i]).tolist() if lines[i, k] < -0.05]
                out[condition] = [words[k] for k in order[:3]]
        return out

    # ---- from names to arrays

    def _posterior(self, known: Known, tolerance: float | None = None, top: int = 1) -> Posterior:
        here, hidden = self._with_answers(known)
        return posterior(
            self.tagger.model_, here, hidden,
            self.tagger.condition_indices(known.confirmed), self.tagger.condition_indices(known.rejected),
            tolerance=tolerance or self.tagger.tolerance, top=top,
        )  # fmt: skip

    def _with_answers(self, known: Known) -> tuple[Ints, Ints]:
        """Indices present, and indices that nobody looked for, with the answers to questions.

        A "no" is a pertinent negative: where notes say so often enough, the model knows it as the finding `neg:` word.
        """
        if not (known.present or known.absent):
            return self.present, self.unobserved
        yes, no = self.tagger.finding_indices(known.present), self.tagger.finding_indices(known.absent)
        if both := np.intersect1d(yes, no).tolist():
            name = self.tagger.vocabulary_.names[both[0]]
            raise QueryError(f"the finding {name!r} is both present and absent; it can be only one")
        index = self.tagger.vocabulary_.index
        denied = [j for name in known.absent if (j := index.get(f"neg:{name}")) is not None]
        said = np.union1d(self.present, np.concatenate([yes, np.array(denied, np.int64)]))
        here = np.setdiff1d(said, no).astype(np.int64)
        hidden = np.setdiff1d(self.unobserved, np.concatenate([here, no])).astype(np.int64)
        return here, hidden

    # ---- what an answer would tell

    def _if_answered(self, known: Known, names: list[str]) -> Floats:
        """(2, c, m) probabilities of all conditions if each of c findings were present, and if it were absent."""
        answers = [replace(known, present=(*known.present, name)) for name in names]
        answers += [replace(known, absent=(*known.absent, name)) for name in names]
        here, hidden = map(list, zip(*map(self._with_answers, answers), strict=True))
        tagger = self.tagger
        found = posterior(
            tagger.model_, here, hidden,
            tagger.condition_indices(known.confirmed), tagger.condition_indices(known.rejected),
            tolerance=ASKING_TOLERANCE, top=0,
        )  # fmt: skip
        return found.marginals.reshape(2, len(names), -1)

    def _chance(self, states: Bools, weights: Floats, findings: Ints) -> Floats:
        """Probability (c,) that each finding is present, given joint states (S, m) and their weights (S,)."""
        model = self.tagger.model_.noisyor
        with np.errstate(divide="ignore"):
            kept = np.maximum(np.log(model.fail[:, findings]), -700.0)
        quiet = np.exp(states.astype(float) @ kept) * (1 - model.leak[findings])
        chance: Floats = 1 - weights @ quiet / weights.sum()
        return chance

    def _rough_information(self, now: Posterior, candidates: Ints, worth: Floats) -> tuple[Floats, Floats]:
        """Chance that each candidate is present, and roughly what it would tell: the noisy-or's information, and for
        the evidence half its variance in log odds times that of the tag."""
        model = self.tagger.model_
        chance, rough = expected_information(model.noisyor, now.explanations, now.probabilities, candidates)
        spread = now.marginals * (1 - now.marginals) * worth
        return chance, rough + 0.5 * chance * (1 - chance) * (spread @ model.evidence.weight[:, candidates] ** 2)


def _item(visit: Visit, field: str, code: Code) -> int | None:
    codes: tuple[Code, ...] = getattr(visit, field) or ()
    return codes.index(code) if code in codes else None


def _divergence(after: Floats, before: Floats) -> Floats:
    """KL(after || before) of each Bernoulli probability, in bits."""
    a, b = np.clip(after, 1e-12, 1 - 1e-12), np.clip(before, 1e-12, 1 - 1e-12)
    gain: Floats = (a * np.log(a / b) + (1 - a) * np.log((1 - a) / (1 - b))) / np.log(2)
    return gain
