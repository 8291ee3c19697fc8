"""Speed from note to tokens, as ratios in one run: `python -m benchmarks.tokenizing`.

Notes of about 50 words in the shorthand of triage, no two alike (phrases drawn at random from a short list), on one
core. Beside `tokenize`: a bare token loop (a regular expression with offsets, one lower-case tuple a word, no
negation) and, where it is installed, negspacy (spaCy's blank English tokenizer with a sentence splitter and an entity
ruler over 40 findings: what negspacy needs to say anything). Rounds alternate and each figure is the best of them,
because other work on the machine only ever slows a round down. Time is CPU time of this process.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import time
from collections.abc import Callable

import numpy as np

from whatelse.text import tokenize

# Semicolons between phrases.
FINDINGS = """fever; chills; cough; nausea; vomiting; diarrhea; headache; chest pain; shortness of breath; back pain;
abdominal pain; dysuria; hematuria; dizziness; syncope; weakness; numbness; rash; palpitations; sore throat; neck pain;
leg swelling; blurred vision; confusion; seizure; fall; head strike; neck stiffness; wheezing; hemoptysis; melena;
constipation; flank pain; diaphoresis; anxiety; suicidal ideation; laceration; bruising; loc; edema"""
HISTORY = (
    "htn; dm2; cad; chf; copd; asthma; afib; cva; mi; ckd; esrd; etoh abuse; depression; gerd; migraines; hep c; hld"
)
DRUGS = "coumadin; aspirin; lisinopril; metformin; insulin; tylenol; motrin; plavix; lasix; albuterol; zofran; morphine"
PLACES = "home; work; nursing home; pcp office; clinic; group home; dialysis; school; street"
TIMES = "this am; yesterday; last night; since {d} days ago; x{d} days; x {d} hrs; for the past week; at {d}:30"


def _split(phrases: str) -> list[str]:
    return [phrase.strip() for phrase in phrases.split(";")]


def make_notes(n: int, rng: np.random.Generator) -> list[str]:
    """n notes of 46 to 60 words."""

    def pick(phrases: str) -> str:
        options = _split(phrases)
        return options[rng.integers(len(options))].replace("{d}", str(rng.integers(1, 12)))

    sentences: list[Callable[[], str]] = [
        lambda: f"pt c/o {pick(FINDINGS)} and {pick(FINDINGS)} {pick(TIMES)}",
        lambda: f"denies {pick(FINDINGS)}, {pick(FINDINGS)}, or {pick(FINDINGS)}",
        lambda: f"brought in by ems from {pick(PLACES)} after {pick(FINDINGS)} {pick(TIMES)}",
        lambda: f"hx of {pick(HISTORY)}, {pick(HISTORY)} and {pick(HISTORY)}, takes {pick(DRUGS)} daily",
        lambda: f"no {pick(FINDINGS)} but has {pick(FINDINGS)}, worse with movement",
        lambda: f"BP {rng.integers(90, 200)}/{rng.integers(50, 110)}, HR {rng.integers(50, 150)}, awake and alert",
        lambda: f"given {pick(DRUGS)} {rng.integers(1, 100)}mg with good relief, states feels better",
        lambda: f"-{pick(FINDINGS)}, +{pick(FINDINGS)}, s/p {pick(FINDINGS)} {pick(TIMES)}",
        lambda: f"{pick(FINDINGS)} ruled out at outside hospital, transferred for further evaluation",
        lambda: f"pain is {rng.integers(1, 11)}/10, sharp, radiating to the left side, unable to sleep",
    ]
    notes = []
    for _ in range(n):
        note = f"{rng.integers(18, 95)} yo {'MF'[rng.integers(2)]}"
        while len(note.split()) < 46:
            note += ". " + sentences[rng.integers(len(sentences))]()
        notes.append(note.replace(". ", " ", 1) + ".")
    return notes


def bare_loop(note: str) -> list[tuple[str, int, int]]:
    return [(m.group().lower(), m.start(), m.end()) for m in re.finditer(r"\w+", note)]


def negspacy() -> Callable[[str], object]:
    """A spaCy pipeline that marks which of FINDINGS are negated."""
    import spacy
    from negspacy.negation import Negex  # noqa: F401 (registers the component)

    pipeline = spacy.blank("en")
    pipeline.add_pipe("sentencizer")
    ruler = pipeline.add_pipe("entity_ruler", config={"phrase_matcher_attr": "LOWER"})
    ruler.add_patterns([{"label": "FINDING", "pattern": finding} for finding in _split(FINDINGS)])
    pipeline.add_pipe("negex", config={"ent_types": ["FINDING"]})
    return pipeline


def rates(notes: list[str], contestants: dict[str, Callable[[str], object]], rounds: int) -> dict[str, float]:
    """Notes per second of each, the best of `rounds` alternating rounds."""
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(rounds):
        for name, run in contestants.items():
            start = time.process_time()
            for note in notes:
                run(note)
            best[name] = min(best[name], time.process_time() - start)
    return {name: len(notes) / seconds for name, seconds in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--notes", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    notes = make_notes(args.notes, np.random.default_rng(1))
    contestants: dict[str, Callable[[str], object]] = {
        "tokenize, default": tokenize,
        "tokenize, paper": lambda note: tokenize(note, "paper"),
        "bare token loop": bare_loop,
    }
    if importlib.util.find_spec("negspacy"):
        contestants["negspacy"] = negspacy()
    else:
        print("negspacy is not installed (pip install 'whatelse[bench]'): left out")
    print(f"{len(notes)} notes of {np.mean([len(note.split()) for note in notes]):.0f} words on average")
    result = rates(notes, contestants, args.rounds)
    for name, rate in result.items():
        print(f"{name:22} {rate:8,.0f} notes/s   default is {result['tokenize, default'] / rate:5.2f} times as fast")


if __name__ == "__main__":
    main()
