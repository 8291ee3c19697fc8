"""The knowledge base as a joint model: shares, frequencies and rates become parameters.

A condition i has share s_i; a finding j has rate r_j among all visits; a case of i has j with frequency p_ij.

    prior     P(y_i) = s_i
    fail      f_ij = 1 - p_ij, at least FLOOR: no finding is certain
    leak      l_j = r_j - sum_i s_i p_ij, at least LEAK r_j: what the conditions of the base do not explain
    alone     some findings count by themselves, and nothing need explain them. They add ALONE log (P(j | i) / l_j)
              to the log odds, at most MOST_ALONE: risks and drugs at home (where a case has N > FEW_RISKS of them on
              average, each adds sqrt(FEW_RISKS / N) of that, for they occur together), common mechanisms of injury
              (COMMON_STORY of visits or more: a chair, a game), social circumstances (came by ambulance), durations,
              and all findings of a symptom that is a tag. A finding that is as it should be (`normal` in its
              concept: clear lungs) adds ALONE log (p_ij / r_j), a treatment ALONE log (p_ij / (UNSPECIFIC r_j)) or 0
    narrower  a finding with a wider one ("right lower quadrant pain") counts given the wider one: p_ij / p_iw and
              r_j / r_w. Evidence is then counted once: abdominal pain first, its place afterwards
    elsewhere a narrower finding that a condition does not have, where the condition has the wider one only by other
              narrower ones (an ankle in pain says nothing of the knee): it takes back ELSEWHERE of what the wider
              one brings, at most MOST_ELSEWHERE
    age, sex  log of how many times as common, added to the log odds where age or sex is known
    against   log of the factor, where the finding is present
    denied    log(1 - p_ij) of a finding that the record denies; p at most DENIED, for denials err (DENIED_RESULT of a
              laboratory result or an image)
    silence   log(1 - p_ij) of findings that the record does not mention, times SILENCE L / (L + HALF_LENGTH) for a
              record with L findings: the silence of a short note says little. Of a narrower finding only where the
              wider one is mentioned; of risks and treatments less. UNMENTIONED times as much of what nearly every
              injury of a kind has (DEFINING: the cut of a laceration), and of what a condition is not without (ALWAYS:
              the pregnancy of preeclampsia), results and the pain of an injury excepted; UNNAMED times as much of
              the name of a symptom
    injury    every injury may have what any injury has (EVERY_INJURY; it counts alone), and findings at its site
              (AT_SITE, of a wound AT_WOUND)
    company   a named condition adds COMPANY times the log of how many times as often together to the log odds of the
              others, at most MOST_COMPANY, and at most LISTED where it is a finding or risk of the other, which counts
              already; not among chronic conditions, habits and symptoms. A named symptom speaks against nothing: it
              may be the complaint of what it is told apart from. A confirmed one counts
              in full, at most MOST_CONFIRMED, and does not explain away what its company brings. Conditions that
              nobody named are not coupled: all answers stay exact
    rivals    a visit has one reason: a confirmed disease or injury adds RIVAL to the log odds of those that it is
              mistaken for, ALIKE to those that bring one of its complaints (MAIN of cases or more), unless they keep
              company or one is a form of the other
    anchor    the condition's own name in the record, also as the meaning of a code: sensitivity NAMED (of a symptom
              NAMED_SYMPTOM), and a false-positive rate that makes it right PRECISION of the time (of a
              symptom PRECISION_SYMPTOM: who states a symptom has it)
    proof     as findings, with their own tiny rates
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from whatelse.knowledge import BANDS, Knowledge
from whatelse.knowledge.entries import Condition, plain
from whatelse.noisyor.evidence import Evidence
from whatelse.noisyor.joint import JointModel
from whatelse.noisyor.params import NoisyOr
from whatelse.types import Floats, Ints

FLOOR = 0.03
LEAK = 0.5
DENIED, DENIED_RESULT = 0.9, 0.97
SILENCE = 0.35
HALF_LENGTH = 12.0
MOST_COMPANY = 1.8
NAMED, NAMED_SYMPTOM = 0.5, 0.9
PRECISION, PRECISION_SYMPTOM = 0.8, 0.95
UNNAMED = 3.0
DEFINING, ALWAYS, UNMENTIONED = 0.85, 0.96, 4.0
ALONE = 0.5
ELSEWHERE, MOST_ELSEWHERE = 0.7, 2.0
COMMON_STORY = 0.002
FEW_RISKS = 2.0
UNSPECIFIC = 3.0  # times as common in cases as in all visits: a treatment says nothing below that
DURATION = "lasting_"  # how the names of durations begin
MOST_ALONE = 1.5
COMPANY, LISTED, MOST_CONFIRMED = 0.6, 0.5, 3.5
QUIET = {"findings": 1.0, "proof": 1.0, "risk": 0.3, "home_drugs": 0.2, "given": 0.1}
"""Part of an entry -> how much the silence of a record says about it."""
EVERY_INJURY = {"injury": 0.4, "impact": 0.2, "fall": 0.3, "sports_injury": 0.08}
AT_SITE = {"injury": 0.4, "impact": 0.15, "landing": 0.05, "pain": 0.6, "swelling": 0.3, "tenderness": 0.2}
"""What the record of any injury, of an injury at a site, may say -> how often it does."""
AT_WOUND, WOUNDS = {"injury": 0.1, "pain": 0.2, "tenderness": 0.1}, ("laceration", "abrasion", "burn", "bite", "wound")
"""The same of a wound, which is told as one and not as a blow; how the names of wounds end."""
RIVAL, ALIKE, MAIN = -0.7, -0.3, 0.3
HEARD = 0.5  # how much the silence about what any injury may have says: it counts alone
NARROWER_SITE = 0.3  # of the mentions of a wider site, where the rate of the narrower one is not written
SMALLEST_RATE = 1e-5
ASKED = 0.3  # denied so many times as often as said, if of one of ASKED_KINDS
ASKED_KINDS = ("symptom", "sign", "exposure", "history", "mechanism")
BACKGROUND = ("chronic", "social", "symptom")


@dataclass(frozen=True, eq=False)
class KnowledgeNetwork:
    """The compiled base: m conditions, n findings by name; the last m findings are the anchors.

    names, rates  of findings;  parent (n,): the wider finding each one counts given, or -1
    prior (m,), fail (m, n), leak (n,), weight (n,)    of the noisy-or
    company (m, m)   log odds that a confirmed condition adds to the others
    linear (m, n)    log odds that a present finding adds: what counts alone, age, sex, against, denied
    silence (m, n)   log odds that a silent finding adds (before its factor by length);  silence_base (m,): the sum over
                     all findings that can be silent when nothing is mentioned
    """

    conditions: tuple[str, ...]
    names: tuple[str, ...]
    rates: Floats
    parent: Ints
    prior: Floats
    fail: Floats
    leak: Floats
    weight: Floats
    company: Floats
    linear: Floats
    silence: Floats
    silence_base: Floats


def compile_knowledge(base: Knowledge, conditions: Sequence[Condition] = ()) -> KnowledgeNetwork:
    """Turn conditions, by default all of the base, into a network. O(entries)."""
    conditions = conditions or list(base.conditions.values())
    m, own = len(conditions), [own_concepts(base, condition) for condition in conditions]
    table = frequencies(base, conditions)
    for condition, row, names_of in zip(conditions, table, own, strict=True):
        if condition.kind == "injury":
            _complete_injury(base, row, names_of)
    findings = sorted({name for row in table for name in row})
    denied = [f"neg:{name}" for name in findings if ":" not in name]
    fixed = [f"age:{band}" for band in BANDS] + ["sex:F", "sex:M"]
    names = [*findings, *denied, *fixed, *(f"anchor:{c.name}" for c in conditions)]
    index = {name: j for j, name in enumerate(names)}
    n, k = len(names), len(findings)
    share = np.array([c.share for c in conditions])

    p, quiet = np.zeros((m, n)), np.zeros((m, n))
    for i, row in enumerate(table):
        for name, (frequency, heard) in row.items():
            p[i, index[name]], quiet[i, index[name]] = frequency, heard
    rates = np.zeros(n)
    rates[:k] = [max(finding_rate(base, name), SMALLEST_RATE) for name in findings]
    rates[:k] = np.maximum(rates[:k], 1.05 * (share @ p[:, :k]))
    ups = {index[name]: [index[up] for up in wider_findings(base, name) if up in index] for name in findings}
    for j, wider in ups.items():
        rates[wider] = np.maximum(rates[wider], rates[j])
    parent = np.full(n, -1)
    for j, wider in ups.items():
        if wider:
            parent[j] = min(wider, key=lambda w: rates[w])

    given_p, given_r = p.copy(), rates.copy()
    whole = p.copy()  # a case of a condition has the concept that is the condition itself
    for i, names_of in enumerate(own):
        whole[i, [index[name] for name in names_of if name in index]] = 1.0
    for j in range(k):
        w = parent[j]
        if w >= 0:
            narrower = NARROWER_SITE if names[j] in base.composed else 0.95
            rates[j] = min(rates[j], narrower * rates[w])
            given_r[j] = rates[j] / rates[w]
            given_p[:, j] = np.minimum(p[:, j] / np.maximum(whole[:, w], p[:, j] + 1e-9), 1.0)
    fail = np.ones((m, n))
    fail[:, :k] = np.maximum(1 - given_p[:, :k], FLOOR)
    leak = np.zeros(n)
    explained = np.where(parent[:k] >= 0, 0.0, share @ p[:, :k])
    leak[:k] = np.clip(np.maximum(given_r[:k] - explained, LEAK * given_r[:k]), SMALLEST_RATE, 0.95)

    linear = np.zeros((m, n))
    symptom = np.array([condition.kind == "symptom" for condition in conditions])
    story = np.array([rates[j] >= COMMON_STORY and _kind(base, name) == "mechanism" for j, name in enumerate(names)])
    story |= np.array([name.startswith(DURATION) or _kind(base, name) == "social" for name in names])
    alone = (fail < 1) & ((quiet < 1) | (symptom[:, None] & (p < DEFINING)) | story)
    gain = ALONE * np.log((leak[:k] * fail[:, :k] + 1 - fail[:, :k]) / leak[:k])
    normal = np.array([(concept := base.concept(name)) is not None and concept.normal for name in names])
    alone |= normal & (fail < 1)
    ratio = ALONE * np.log(np.maximum(given_p[:, :k], SMALLEST_RATE) / given_r[:k])
    placed = {j: [w for w in wider if base.site_of(names[w])] for j, wider in ups.items() if base.site_of(names[j])}
    elsewhere = _elsewhere(p[:, :k], placed, np.where(alone[:, :k], np.minimum(gain, MOST_ALONE), gain / ALONE))
    gain = np.where(normal[:k], np.maximum(ratio, -MOST_ALONE), gain)
    treated = (quiet == QUIET["given"])[:, :k]
    gain = np.where(treated, np.maximum(ratio - ALONE * np.log(UNSPECIFIC), 0.0), gain)
    risk = np.isin(quiet[:, :k], (QUIET["risk"], QUIET["home_drugs"]))
    usual = (p[:, :k] * (risk & (parent[:k] < 0))).sum(1)  # how many risks a case has
    gain = np.where(risk, np.minimum(gain, MOST_ALONE) / np.sqrt(np.maximum(usual / FEW_RISKS, 1.0))[:, None], gain)
    linear[:, :k] = np.where(alone[:, :k], np.minimum(gain, MOST_ALONE), -elsewhere)
    injury = np.array([condition.kind == "injury" for condition in conditions])
    result = np.array([_kind(base, name) == "result" for name in names])
    least = np.where(injury, DEFINING, ALWAYS)
    pain = np.array([name.endswith("pain") for name in names])  # that an injury hurts goes without saying
    defining = (p >= least[:, None]) & ~result & ~(injury[:, None] & pain)  # of a result the record may not know yet
    quiet_log = quiet * np.log(fail) * np.where(defining, UNMENTIONED, 1.0)
    fail = np.where(alone, 1.0, fail)
    for i, condition in enumerate(conditions):
        for band, factor in condition.age.items():
            linear[i, index[f"age:{band}"]] = np.log(max(factor, 1e-3))
        for sex, factor in condition.sex.items():
            linear[i, index[f"sex:{sex}"]] = np.log(max(factor, 1e-4))
        for name, factor in condition.against.items():
            if name in index:
                linear[i, index[name]] += np.log(max(factor, 1e-3))
    for name in denied:
        j = index[name.removeprefix("neg:")]
        linear[:, index[name]] = np.log1p(-np.minimum(p[:, j], DENIED_RESULT if result[j] else DENIED))
        rates[index[name]] = ASKED * rates[j] if _kind(base, names[j]) in ASKED_KINDS else 0.0

    kinds = [condition.kind for condition in conditions]
    named = np.where(symptom, NAMED_SYMPTOM, NAMED)
    precision = np.where(symptom, PRECISION_SYMPTOM, PRECISION)
    false = named * share * (1 - precision) / precision / (1 - share)
    quiet_log[np.arange(m), np.arange(n - m, n)] = np.where(symptom, UNNAMED * np.log(1 - named), 0.0)
    root = parent < 0
    silence = -quiet_log
    for j in np.flatnonzero(~root).tolist():
        silence[:, parent[j]] += quiet_log[:, j]
    for name in denied:  # a denied finding is not silent
        silence[:, index[name]] = (
            -quiet_log[:, index[name.removeprefix("neg:")]] * root[index[name.removeprefix("neg:")]]
        )

    for i in range(m):
        j = n - m + i
        leak[j], fail[i, j], rates[j] = false[i], (1 - named[i]) / (1 - false[i]), named[i] * share[i] / precision[i]
    together = couplings(conditions, own, MOST_CONFIRMED)
    background = np.isin(kinds, BACKGROUND)
    both = background[:, None] & background[None, :]
    listed = np.array([[not row.keys().isdisjoint(names_of) for names_of in own] for row in table])
    least_company = np.where(symptom, 0.0, -MOST_COMPANY)[None, :]
    company = np.clip(COMPANY * together, least_company, np.where(listed, LISTED, MOST_COMPANY))
    linear[:, n - m :] += np.where(both, 0.0, company)
    weight = np.where((fail < 1).any(0), 1.0, 0.0)  # some columns only the linear part reads
    return KnowledgeNetwork(
        conditions=tuple(c.name for c in conditions),
        names=tuple(names),
        rates=rates,
        parent=parent,
        prior=share,
        fail=fail,
        leak=leak,
        weight=weight,
        company=together + rivals(base, conditions, table, together),
        linear=linear,
        silence=silence,
        silence_base=quiet_log[:, root].sum(1),
    )


def _elsewhere(p: Floats, ups: dict[int, list[int]], gain: Floats) -> Floats:
    """(m, k) log odds to take back where a finding shows that its wider one is of another place.

    p (m, k) frequencies;  ups: finding with a body site -> its wider ones;  gain (m, k): log odds of each finding
    """
    narrowest = np.zeros_like(p)  # how often a case has the commonest narrower form of each finding
    for j, wider in ups.items():
        narrowest[:, wider] = np.maximum(narrowest[:, wider], p[:, [j]])
    by_narrower = (p > 0) & (p <= narrowest)
    own = (p > 0) & ~by_narrower
    other = np.zeros(p.shape, bool)
    for j, wider in ups.items():
        other[:, j] = (p[:, j] == 0) & by_narrower[:, wider].any(1) & ~own[:, wider].any(1)
    out = np.zeros_like(p)
    for j, wider in ups.items():
        for w in wider:
            between = [v for v in wider if v in ups and w in ups[v]]  # foot, for toe redness
            here = other[:, j] & by_narrower[:, w] & ~other[:, between].any(1)
            out[:, j] += np.where(here, gain[:, w], 0.0)
    return np.asarray(np.clip(ELSEWHERE * out, 0.0, MOST_ELSEWHERE))


def own_concepts(base: Knowledge, condition: Condition) -> frozenset[str]:
    """Concepts and entries that are the condition itself: what its name and its names mean."""
    return frozenset(base.phrases.get(plain(name), name) for name in (condition.name, *condition.names))


def frequencies(base: Knowledge, conditions: Sequence[Condition]) -> list[dict[str, tuple[float, float]]]:
    """For each condition: finding name -> (share of cases that have it, how much its silence says).

    A finding that a condition has implies its wider findings at least as often. A condition's own name is its anchor,
    never its finding.
    """
    table = []
    for condition in conditions:
        row: dict[str, tuple[float, float]] = {}
        own = own_concepts(base, condition)
        for part, heard in QUIET.items():
            for name, frequency in getattr(condition, part).items():
                full = _finding(base, name, part)
                if base.concept(full.rpartition(":")[2]) is None and not _drug(base, full):
                    continue
                wider = wider_findings(base, full)
                for implied in (full, *(wider[:1] if _drug(base, full) else wider)):  # the class a drug is given for
                    if implied not in own:
                        old = row.get(implied, (0.0, 0.0))
                        row[implied] = (max(old[0], min(frequency, 1 - FLOOR)), max(old[1], heard))
        table.append(row)
    return table


def _complete_injury(base: Knowledge, row: dict[str, tuple[float, float]], own: frozenset[str]) -> None:
    """Add what the record of any injury may say: that something was injured or struck, and where.

    The injured part is the site in the condition's name, or where its cases have pain (`wrist_pain`).
    """
    sites = {site: 1.0 for name in own if (site := base.site_of(name))}
    for name, (often, _) in row.items():
        if name.endswith("_pain") and often >= 0.3 and (site := base.site_of(name)):
            sites[site] = max(often, sites.get(site, 0.0))
    said = dict(EVERY_INJURY)
    at_site = AT_WOUND if any(name.endswith(WOUNDS) for name in own) else AT_SITE
    said |= {f"{site}_{head}": often * part for site, often in sites.items() for head, part in at_site.items()}
    for name, often in said.items():
        for implied in (name, *base.parents(name)):
            if implied not in own:
                old = row.get(implied, (0.0, 0.0))
                row[implied] = (max(often, old[0]), max(old[1], HEARD if base.site_of(implied) == "" else 1.0))


def _kind(base: Knowledge, name: str) -> str:
    concept = base.concept(name)
    return concept.kind if concept is not None else ""


def _drug(base: Knowledge, name: str) -> bool:
    return name.rpartition(":")[2] in base.drugs or name.rpartition(":")[2] in base.classes


def _finding(base: Knowledge, name: str, part: str) -> str:
    """The finding that a name in a part of an entry stands for."""
    if ":" in name:
        return name
    known = name in base.drugs or name in base.classes
    if part == "home_drugs" or (part == "risk" and known):
        return f"hx:{name}"
    if part == "given" and known:
        return f"rx:{name}"
    return name


def wider_findings(base: Knowledge, name: str) -> tuple[str, ...]:
    """Wider findings of a finding: of a drug its classes, of a concept its parents."""
    prefix, _, rest = name.rpartition(":")
    if prefix in ("hx", "rx") and rest in base.drugs:
        return tuple(f"{prefix}:{c}" for c in base.drugs[rest].classes)
    return base.parents(name) if not prefix else ()


def finding_rate(base: Knowledge, name: str) -> float:
    """Share of all visits with a finding."""
    prefix, _, rest = name.rpartition(":")
    if prefix in ("hx", "rx") and _drug(base, name):
        members = [base.drugs[rest]] if rest in base.drugs else [d for d in base.drugs.values() if rest in d.classes]
        quiet = np.prod([1 - (d.home if prefix == "hx" else d.given) for d in members]) if members else 0.98
        return float(1 - quiet)
    concept = base.concept(rest)
    rate = concept.rate if concept else 0.001
    if prefix == "hx":
        return min(0.05, 8 * rate)
    if prefix == "family":
        return min(0.02, 3 * rate)
    return rate


def couplings(conditions: Sequence[Condition | None], own: Sequence[Collection[str]], most: float) -> Floats:
    """(m, m) log lift of each pair, between -most and most: the mean of what the two entries say, or what one says.

    own  names that are each condition itself
    """
    owners: dict[str, list[int]] = {}
    for i, names in enumerate(own):
        for name in names:
            owners.setdefault(name, []).append(i)
    total, said = np.zeros((len(conditions),) * 2), np.zeros((len(conditions),) * 2)
    for i, condition in enumerate(conditions):
        for other, times in (condition.goes_with if condition else {}).items():
            value = float(np.clip(np.log(max(times, 1e-3)), -most, most))
            for k in owners.get(other, ()):
                if k != i:
                    total[[i, k], [k, i]] += value
                    said[[i, k], [k, i]] += 1
    return np.divide(total, said, out=np.zeros_like(total), where=said > 0)


def rivals(
    base: Knowledge, conditions: Sequence[Condition], table: Sequence[dict[str, tuple[float, float]]], together: Floats
) -> Floats:
    """(m, m) log odds that a confirmed disease or injury takes from others that would explain the same visit."""
    acute = np.array([condition.kind in ("disease", "injury") for condition in conditions])
    names = {condition.name: i for i, condition in enumerate(conditions)}
    complaints = sorted({name for row in table for name in row if _kind(base, name) == "symptom"})
    brings = np.array([[row.get(name, (0.0, 0.0))[0] >= MAIN for name in complaints] for row in table], np.float32)
    out = np.where(brings @ brings.T > 0, ALIKE, 0.0)
    for i, condition in enumerate(conditions):
        for other in condition.mistaken_for:
            if (k := names.get(other)) is not None:
                out[i, k] = out[k, i] = RIVAL
    for i, condition in enumerate(conditions):
        forms = base.wider(condition.name) if condition.name in base.conditions else ()
        for k in (names[other] for other in forms if other in names):
            out[i, k] = out[k, i] = 0.0
    free = acute[:, None] & acute[None, :] & (together == 0) & ~np.eye(len(conditions), dtype=bool)
    return np.where(free, out, 0.0)


def knowledge_model(net: KnowledgeNetwork) -> JointModel:
    """The network as a joint model: an absent finding counts only through its silence."""
    m, n = net.fail.shape
    noisyor = NoisyOr(net.prior, net.fail, net.leak, weight=net.weight, absence=np.zeros(n))
    evidence = replace(
        Evidence.none(m, n),
        weight=net.linear,
        anchor_columns=np.arange(n - m, n),
        silence=SILENCE * net.silence,
        silence_base=SILENCE * net.silence_base,
        half_length=np.array([HALF_LENGTH]),
        company=net.company,
    )
    return JointModel(noisyor, evidence)
