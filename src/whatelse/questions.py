"""Which findings to ask about next: those whose answer is expected to tell most of the conditions that matter.

A question asks for a finding that the record does not have. Its information is, summed over conditions,

    worth_i  sum over yes and no of  P(answer) KL( P(y_i | answer) || P(y_i) )      in bits

An answer must move its condition by MOVES, unless questions about one condition are wanted. A learned model weighs all
conditions and all findings that notes affirm and deny. The shipped model knows more:

- questions are about the first candidates, and about dangerous conditions that are far above the usual;
- a question about a condition is a finding that its entry names, and "yes" makes the condition likelier;
- a dangerous condition is worth more; a laboratory result or image counts half of what can be asked at the bedside;
- of a finding and its wider forms one is asked, and at most MOST_ABOUT questions are about one condition.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from whatelse.explanations import Question
from whatelse.noisyor.inference.posterior import posterior
from whatelse.noisyor.inference.solver import Posterior
from whatelse.types import Bools, Floats, Ints
from whatelse.visits import Known

if TYPE_CHECKING:
    from whatelse.reading import Reading

CANDIDATES = 16  # questions weighed exactly, out of those that look most telling
TOLERANCE = 1e-3  # of the posteriors by which questions are ranked
TELLING = 1e-4  # bits: a question expected to tell less is not asked
MOVES = 0.05  # a question over all conditions is asked if an answer changes a probability by so much
FITS = 0.15  # a finding whose causes are rarer than that in patients of this age and sex is not asked about
DANGEROUS, DANGEROUS_PROBABILITY, DANGEROUS_TIMES = 3, 0.002, 5.0  # conditions asked about though they are not shown
LASTING, LASTING_PROBABILITY = ("chronic", "social"), 0.3  # asked about only if this likely
EASE = {"result": 0.5, "quality": 0.4, "mechanism": 0.25}  # kind of finding -> what a bit is worth; others 1
BEDSIDE = ("pregnancy_test", "ecg", "glucose", "glycemia", "urine")  # names of results that are at hand in minutes
MOST_ABOUT = 3
ASKED_ABOUT = 5  # candidates, in order, that questions are about besides what must not be missed
STATES = 200


def ask(reading: Reading, known: Known, about: str | None, most: int) -> tuple[Question, ...]:
    """The most telling questions about all open conditions, or about one, best first."""
    tagger = reading.tagger
    now = reading.posterior(known, TOLERANCE, top=STATES)
    worth = _worth(reading, known, now.marginals, about)
    candidates = _candidates(reading, known, worth)
    if not candidates.size:
        return ()
    chance, rough = _rough_information(reading, known, now, candidates, worth)
    best = np.argsort(-rough, kind="stable")[: 3 * CANDIDATES]
    best = best[_fits(reading, candidates[best])][:CANDIDATES]
    candidates, chance = candidates[best], chance[best]
    names = [tagger.vocabulary_.names[j] for j in candidates]
    after = _if_answered(reading, known, names)
    shares = np.stack([chance, _chance_of_denial(reading, now, names, chance)])
    shares = shares / shares.sum(0)
    mixed = (shares[:, :, None] * after).sum(0)
    gain = (shares[:, :, None] * _divergence(after, mixed)).sum(0) * worth
    if tagger.profiles_:
        gain = np.where(_links(reading, candidates) & (after[0] > after[1]), gain, 0.0)
    information = gain.sum(1) * _ease(reading, names)
    questions: list[Question] = []
    asked, wider = Counter[str](), tagger.wider_
    for k in np.argsort(-information, kind="stable").tolist():
        i = int(np.argmax(gain[k]))
        condition, name = tagger.conditions_[i], names[k]
        if information[k] < TELLING or len(questions) == most:
            break
        related = any(name in wider.get(q.finding, ()) or q.finding in wider.get(name, ()) for q in questions)
        repeats = bool(tagger.profiles_) and (related or asked[condition] == MOST_ABOUT)
        if about is None and (repeats or np.abs(after[:, k, i] - now.marginals[i]).max() < MOVES):
            continue
        asked[condition] += 1
        answers = float(now.marginals[i]), float(after[0, k, i]), float(after[1, k, i])
        questions.append(Question(name, float(information[k]), condition, *answers))
    return tuple(questions)


def _worth(reading: Reading, known: Known, now: Floats, about: str | None) -> Floats:
    """(m,) what a bit about each condition is worth, by its probability now; 1 for all if the model has no profiles."""
    tagger = reading.tagger
    m = len(tagger.conditions_)
    if about is not None:
        worth = np.zeros(m)
        worth[tagger.condition_indices([about])] = 1.0
        return worth
    if not tagger.profiles_:
        return np.ones(m)
    found = reading.ranked(now, known)
    first = found.candidates[:ASKED_ABOUT]
    shown = {tag.condition for tag in (*first, *found.must_not_miss)}
    shown |= {form.condition for tag in first for form in found.forms(tag)}
    worth = np.zeros(m)
    index = {name: i for i, name in enumerate(tagger.conditions_)}
    for tag in found.tags:
        dangerous = (
            tag.danger >= DANGEROUS and tag.probability >= DANGEROUS_PROBABILITY and tag.times >= DANGEROUS_TIMES
        )
        lasting = tag.kind in LASTING and tag.probability < LASTING_PROBABILITY
        if not tag.stated and tag.kind != "symptom" and not lasting and (dangerous or tag.condition in shown):
            worth[index[tag.condition]] = 1.0 + tag.danger
    return worth


def _candidates(reading: Reading, known: Known, worth: Floats) -> Ints:
    """Findings that could be asked about: not in the record, not answered, read by the model."""
    tagger = reading.tagger
    here, _ = reading.with_answers(known)
    if tagger.profiles_:
        index = tagger.vocabulary_.index
        named = {f for i in np.flatnonzero(worth).tolist() for f in tagger.profiles_[tagger.conditions_[i]].asks}
        some = np.array(sorted(index[name] for name in named if name in index), np.int64)
        denied = [f"neg:{tagger.vocabulary_.names[j]}" for j in some.tolist()]
        some = some[~np.isin([index.get(name, -1) for name in denied], here)]
    else:
        some = tagger.vocabulary_.askable
    answered = tagger.finding_indices([*known.present, *known.absent])
    some = np.setdiff1d(some, np.concatenate([here, answered]))
    read = (tagger.model_.noisyor.weight > 0) | tagger.model_.evidence.weight.any(0)
    out: Ints = some[read[some] & (tagger.model_.noisyor.leak[some] > 0)]
    return out


def _links(reading: Reading, findings: Ints) -> Bools:
    """(c, m) whether a condition's entry names a finding."""
    tagger = reading.tagger
    names = [tagger.vocabulary_.names[j] for j in findings.tolist()]
    asks = [frozenset(tagger.profiles_[condition].asks) for condition in tagger.conditions_]
    return np.array([[name in own for own in asks] for name in names])


def _ease(reading: Reading, names: list[str]) -> Floats:
    """(c,) what a bit of each finding is worth by its kind."""
    if not reading.tagger.profiles_:
        return np.ones(len(names))
    kinds = reading.tagger.vocabulary_.lexicon.by_name
    at_hand = [any(part in name for part in BEDSIDE) or name not in kinds for name in names]
    return np.array([1.0 if at else EASE.get(kinds[name].kind, 1.0) for name, at in zip(names, at_hand, strict=True)])


def _fits(reading: Reading, findings: Ints) -> Bools:
    """Whether each finding fits the patient: it is asked about at this age, and its causes are at least FITS times as
    common at this age and sex.

    For the sex the mean is geometric: a cause that both sexes have does not make heavy periods a man's finding.
    """
    model = reading.tagger.model_
    causes = 1 - model.noisyor.fail[:, findings]
    causes = np.where(causes.any(0), causes, np.maximum(model.evidence.weight[:, findings], 0.0))
    causes = causes * model.noisyor.prior[:, None]
    causes = causes / np.maximum(causes.sum(0), 1e-12)
    age, sex = np.exp(reading.brought("age:")) @ causes, np.exp(reading.brought("sex:") @ causes)
    fits: Bools = (np.minimum(age, sex) >= FITS) | (causes.sum(0) == 0)
    if (years := reading.visit.age) is None:
        return fits
    names, ages = reading.tagger.vocabulary_.names, reading.tagger.ages_
    between = (ages.get(names[j], (0.0, np.inf)) for j in findings.tolist())
    fits &= np.array([low <= years < high for low, high in between], bool)
    return fits


# ---- what an answer would tell


def _if_answered(reading: Reading, known: Known, names: list[str]) -> Floats:
    """(2, c, m) probabilities of all conditions if each of c findings were present, and if it were absent."""
    answers = [replace(known, present=(*known.present, name)) for name in names]
    answers += [replace(known, absent=(*known.absent, name)) for name in names]
    here, hidden = map(list, zip(*map(reading.with_answers, answers), strict=True))
    tagger = reading.tagger
    found = posterior(
        tagger.model_, here, hidden,
        tagger.condition_indices(known.confirmed), tagger.condition_indices(known.rejected),
        tolerance=TOLERANCE, top=0,
    )  # fmt: skip
    return found.marginals.reshape(2, len(names), -1)


def _chances(reading: Reading, states: Bools, findings: Ints) -> Floats:
    """(S, c) probability that each finding is present in each of S joint states (S, m)."""
    noisyor = reading.tagger.model_.noisyor
    on = np.flatnonzero(states.any(0))
    with np.errstate(divide="ignore"):
        kept = np.maximum(np.log(noisyor.fail[np.ix_(on, findings)]), -700.0)
    chances: Floats = 1 - np.exp(states[:, on].astype(float) @ kept) * (1 - noisyor.leak[findings])
    return chances


def _rough_information(
    reading: Reading, known: Known, now: Posterior, candidates: Ints, worth: Floats
) -> tuple[Floats, Floats]:
    """Chance that each candidate is present, and roughly what it would tell of the conditions, from the top states.

    A finding counts given its wider ones: it is present together with those of them that the record does not have.
    The evidence adds half its variance in log odds times that of the condition.
    """
    tagger, index = reading.tagger, reading.tagger.vocabulary_.index
    present = frozenset(reading.with_answers(known)[0].tolist())
    names = [tagger.vocabulary_.names[j] for j in candidates.tolist()]
    implied = [
        [j, *(w for up in tagger.wider_.get(name, ()) if (w := index.get(up)) is not None and w not in present)]
        for j, name in zip(candidates.tolist(), names, strict=True)
    ]
    columns = np.unique(np.concatenate([np.array(some) for some in implied]))
    weights = now.probabilities / now.probabilities.sum()
    chances = _chances(reading, now.explanations, columns)
    together = np.stack([chances[:, np.searchsorted(columns, some)].prod(1) for some in implied], axis=1)
    chance: Floats = np.clip(weights @ together, 1e-9, 1 - 1e-9)
    some = np.flatnonzero(worth)
    on = now.explanations[:, some].astype(float) * weights[:, None]
    p = np.clip(on.sum(0), 1e-9, 1 - 1e-9)[:, None]
    if_on = (on.T @ together) / p
    if_off = np.clip((chance - p * if_on) / (1 - p), 0.0, 1.0)
    information = p * _divergence(if_on, chance) + (1 - p) * _divergence(if_off, chance)
    spread = (now.marginals * (1 - now.marginals) * worth)[some]
    squares = spread @ tagger.model_.evidence.weight[np.ix_(some, candidates)] ** 2
    if tagger.profiles_:
        information = information * _links(reading, candidates).T[some]
    return chance, (worth[some] @ information + 0.5 * chance * (1 - chance) * squares) * _ease(reading, names)


def _chance_of_denial(reading: Reading, now: Posterior, names: list[str], chance: Floats) -> Floats:
    """(c,) how often a note denies each finding, where the model knows it; else how often the finding is absent."""
    index, leak = reading.tagger.vocabulary_.index, reading.tagger.model_.noisyor.leak
    denied = np.array([index.get(f"neg:{name}", -1) for name in names])
    denied[leak[denied] == 0] = -1
    weights = now.probabilities / now.probabilities.sum()
    return np.where(denied >= 0, weights @ _chances(reading, now.explanations, denied), 1 - chance)


def _divergence(after: Floats, before: Floats) -> Floats:
    """KL(after || before) of each Bernoulli probability, in bits."""
    a, b = np.clip(after, 1e-12, 1 - 1e-12), np.clip(before, 1e-12, 1 - 1e-12)
    gain: Floats = (a * np.log(a / b) + (1 - a) * np.log((1 - a) / (1 - b))) / np.log(2)
    return gain
