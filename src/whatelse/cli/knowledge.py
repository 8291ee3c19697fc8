"""`ask` and `read`: a note typed on the command line. `conditions`: the knowledge base, read and checked."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import whatelse
from whatelse.cli.options import JSON
from whatelse.cli.tables import print_json, print_table, say_when_compiling
from whatelse.errors import ConditionError, InputError
from whatelse.visits import Known, Visit

if TYPE_CHECKING:
    from whatelse.explanations import Tag
    from whatelse.knowledge import Condition

OVERLAY: Any = typer.Option([], "--knowledge", help="Knowledge file of your own (YAML); may be repeated.")
FREQUENCY = ((0.9, "nearly always"), (0.65, "usually"), (0.35, "often"), (0.12, "sometimes"), (0.0, "rarely"))
ALSO = 4  # conditions printed as also possible, at most
REASONS = 4  # findings printed for each condition, at most


def ask(
    note: str = typer.Argument(..., help="The note, in quotes; age and sex are read from it ('72M …')."),
    model: str = typer.Option(
        "emergency", "--model", help="A model file, or a shipped model: emergency, emergency-23."
    ),
    confirmed: list[str] = typer.Option([], "--confirmed", help="A condition that is confirmed; may be repeated."),
    rejected: list[str] = typer.Option([], "--rejected", help="A condition that is ruled out; may be repeated."),
    age: float | None = typer.Option(None, "--age", help="Age in years."),
    sex: str | None = typer.Option(None, "--sex", help="F or M."),
    as_json: bool = JSON,
) -> None:
    """What else might this patient have? Answers from a note typed here, without any data.

    Example: whatelse ask "72M on coumadin fell, hit head, vomiting" --confirmed fall
    """
    from whatelse.explanations import in_words, title

    say_when_compiling()
    tagger = whatelse.Tagger.load(model)
    reading = tagger.read(_visit(note, age, sex))
    known = Known(tuple(_named(tagger, confirmed)), tuple(_named(tagger, rejected)))
    found = reading.suggest(known)
    questions = reading.ask(known)
    if as_json:
        return print_json(_answer(tagger, reading, known, found, questions))
    names = [title(name, tagger) for name in known.confirmed]
    names += [tag.title or tag.condition for tag in found.known]
    if names:
        typer.echo("known: " + ", ".join(names))

    def cells(tag: Any) -> tuple[str, str, str, str]:
        """Title with wider and narrower forms that are likely too, probability, times the usual, reasons."""
        forms = ", ".join(form.title for form in found.forms(tag)[:3])
        named = (tag.title or tag.condition) + (f"\n  or: {forms}" if forms else "")
        times = f"{tag.times:.0f}" if tag.times >= 10 else f"{tag.times:.1f}"
        return named, f"{tag.probability:.0%}", times, _because(reading, known, tag.condition)

    head = ("probability", "times the usual", "because")
    if found.likely:
        print_table(("likely", *head), [cells(tag) for tag in found.likely])
    if found.must_not_miss:
        settle = {name: profile.settle for name, profile in tagger.profiles_.items()}
        rows = [(*cells(tag), settle.get(tag.condition, "")) for tag in found.must_not_miss]
        print_table(("must not be missed", *head, "would settle it"), rows)
    possible = _also_possible(found)[:ALSO]
    if not (found.likely or found.must_not_miss or possible):
        typer.echo("nothing stands out; 'whatelse read' shows what is understood of a note")
    if possible:
        print_table(("also possible", *head), [cells(tag) for tag in possible])
    if questions:
        asked = []
        for q in questions[:5]:
            chances = (f"{p:.0%}" for p in (q.now, q.if_yes, q.if_no))
            finding = in_words(q.finding, tagger)
            asked.append((f"{finding[:1].upper()}{finding[1:]}?", title(q.about, tagger), *chances))
        print_table(("worth asking", "moves", "now", "if yes", "if no"), asked)
    typer.echo(f"{found.accuracy}; it supports judgement and does not replace it")


def _visit(note: str, age: float | None, sex: str | None) -> Visit:
    from whatelse.text.measurements import read_numbers

    if sex not in (None, "F", "M"):
        raise InputError(f"--sex is {sex!r}, needs F or M")
    ages = read_numbers(note).ages
    read_age = next((a.years for a in ages), None)
    read_sex = next((a.sex for a in ages if a.sex), None)
    return Visit("asked", age=age if age is not None else read_age, sex=sex or read_sex, triage_note=note)  # type: ignore[arg-type]


def _named(tagger: whatelse.Tagger, names: list[str]) -> list[str]:
    """Conditions as people write them: `Kidney stone` is `kidney_stone`."""
    from whatelse.knowledge.entries import plain

    known = {plain(name): name for name in tagger.conditions_}
    known |= {plain(profile.title): name for name, profile in tagger.profiles_.items()}
    out = []
    for name in names:
        if plain(name) not in known:
            raise ConditionError(f"{name!r} is not a condition of this model; see 'whatelse conditions list {name}'")
        out.append(known[plain(name)])
    return out


def _also_possible(found: whatelse.Suggestions) -> list[Tag]:
    """Candidates that are not shown as likely or as not to be missed, nor a form of such a condition."""
    shown = (*found.known, *found.likely, *found.must_not_miss)
    return [t for t in found.candidates if not any(t.condition == s.condition or t.is_form_of(s) for s in shown)]


def _because(reading: Any, known: Any, condition: str) -> str:
    """The strongest findings for a condition. A finding that a narrower one implies counts for the narrower one:
    "left arm pain", not "arm pain, limb pain, pain"."""
    reasons = [r for r in reading.why(known, condition, most=40).reasons if r.present]
    brought = {r.finding: r.log_odds for r in reasons if not r.finding.startswith(("age:", "sex:", "anchor:"))}
    wider = {name: reading.tagger.wider_.get(name, ()) for name in brought}
    narrowest = [name for name in brought if not any(name in up for up in wider.values())]
    total = {name: brought[name] for name in narrowest}
    for name in brought.keys() - total.keys():
        total[max((n for n in narrowest if name in wider[n]), key=lambda n: brought[n])] += brought[name]
    texts = {r.finding: r.text for r in reasons}
    shown = sorted((name for name in total if total[name] > 0.1), key=lambda name: -total[name])
    return ", ".join(dict.fromkeys(texts[name] for name in shown[:REASONS]))


def _answer(tagger: whatelse.Tagger, reading: Any, known: Any, found: Any, questions: Any) -> dict[str, Any]:
    from whatelse.explanations import in_words

    def tag(t: Any) -> dict[str, Any]:
        return {
            "condition": t.condition,
            "title": t.title or t.condition,
            "probability": round(t.probability, 5),
            "usual": t.usual if t.usual is not None else t.baseline,
            "forms": [form.condition for form in found.forms(t)],
            "because": _because(reading, known, t.condition),
        }

    return {
        "likely": [tag(t) for t in found.likely],
        "must_not_miss": [tag(t) for t in found.must_not_miss],
        "also_possible": [tag(t) for t in _also_possible(found)[:10]],
        "stated": [t.condition for t in found.known],
        "questions": [{"title": in_words(q.finding, tagger), **asdict(q)} for q in questions],
        "certified": found.certified,
        "error_bound": found.error_bound,
    }  # fmt: skip


def read(
    note: str = typer.Argument(..., help="The note, in quotes; a text file; or - for standard input."),
    age: float | None = typer.Option(None, "--age", help="Age in years, for what values mean."),
    lexicon: str = typer.Option("default", "--lexicon", help="Concepts: default, or a knowledge file of your own."),
    rules: str = typer.Option("default", "--rules", help="Assertion rules: default, paper or a YAML file."),
    as_json: bool = JSON,
) -> None:
    """Print a note as it is understood: concepts, assertion, values, and words that were not understood.

    Example: whatelse read "72M on coumadin fell, hit head, no LOC, BP 85/50, h/o afib"
    """
    from whatelse.text import NoteReader, load_lexicon

    text = note
    try:
        if note == "-":
            text = sys.stdin.read()
        elif len(note) < 1000 and "\n" not in note and Path(note).is_file():
            text = Path(note).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        raise InputError("cannot be read as text in UTF-8", file=Path(note)) from None
    found = NoteReader(load_lexicon(lexicon), rules).note(text, age=age)
    if as_json:
        return print_json(found.to_json())
    typer.echo(str(found))


def list_conditions(
    words: list[str] = typer.Argument(
        [], help="Words of a name or title, or the beginning of an ICD code. [all conditions]"
    ),
    as_json: bool = JSON,
    knowledge: list[Path] = OVERLAY,
) -> None:
    """Conditions of the knowledge base: all, or those with these words in their names or with this code.

    Example: whatelse conditions list lung clot
    """
    base = whatelse.load_knowledge(*knowledge)
    found = base.find(" ".join(words)) if words else list(base.conditions.values())
    if not found:
        raise ConditionError(f"no condition has {' '.join(words)!r} among its names or codes; try fewer words")
    if as_json:
        names = ("name", "title", "kind", "codes", "must_not_miss")
        return print_json([{name: getattr(c, name) for name in names} for c in found])
    rows = []
    for c in found:
        codes = ", ".join(c.codes.get("icd10", ())[:6])
        rows.append((c.name, c.title, c.kind, f"{1000 * c.share:.3g}", "yes" if c.must_not_miss else "", codes))
    print_table(("name", "title", "kind", "in 1,000 visits", "must not be missed", "ICD-10-CM"), rows)


def show(
    name: str = typer.Argument(..., help="Name of a condition, as 'conditions list' prints it."),
    review: bool = typer.Option(False, "--review", help="Print what a reviewing clinician should check first."),
    cohort: Path | None = typer.Option(
        None, "--cohort", help="Cohort folder ('build --vocabulary-from emergency'): what its cases have, beside."
    ),
    knowledge: list[Path] = OVERLAY,
) -> None:
    """One entry, as a clinician reads it; with a cohort, what local records say beside what is written.

    Example: whatelse conditions show pulmonary_embolism
    """
    base = whatelse.load_knowledge(*knowledge)
    condition = base.conditions.get(name) or base.conditions.get(name.lower().replace(" ", "_").replace("-", "_"))
    if condition is None:
        raise ConditionError(f"there is no condition {name!r}; look with 'whatelse conditions list {name}'")
    danger = ("harmless", "unpleasant", "serious", "must not be missed")[condition.danger]
    records, cases = _records(cohort, condition)
    typer.echo(f"{condition.title} ({condition.name}): {condition.kind}, {danger}")
    factors = [f"{factor:g} times that in age band {band}" for band, factor in condition.age.items()]
    factors += [f"{factor:g} times in sex {sex}" for sex, factor in condition.sex.items()]
    typer.echo(f"{1000 * condition.share:.3g} in 1,000 emergency visits" + "; " * bool(factors) + ", ".join(factors))
    typer.echo("called: " + ", ".join(condition.names or base.concepts[condition.name].same))
    for system, codes in condition.codes.items():
        if codes:
            typer.echo(f"{system}: {', '.join(codes)}")
    parts = {"findings": "cases have", "risk": "at risk", "home_drugs": "takes at home", "given": "is given"}
    for part, title in (parts | {"proof": "nearly proves it"}).items():
        if entries := getattr(condition, part):
            _frequencies(base, title, entries, records)
    if condition.against:
        typer.echo("speaks against it: " + ", ".join(base.title(f).lower() for f in condition.against))
    if condition.goes_with:
        pairs = sorted(condition.goes_with.items(), key=lambda pair: -pair[1])
        typer.echo("goes with: " + ", ".join(f"{base.title(other)} ({times:g} times)" for other, times in pairs))
    if condition.mistaken_for:
        typer.echo("mistaken for: " + ", ".join(base.title(other) for other in condition.mistaken_for))
    if condition.settle:
        typer.echo(f"would settle it: {condition.settle}")
    if cohort is not None:
        typer.echo(f"here: {cases:,} cases in {cohort}")
    if review:
        from whatelse.knowledge.review import review as lines_to_check

        typer.echo("\nto check first:")
        for line in lines_to_check(base, condition, records, cases):
            typer.echo(f"- {line}")


def _frequencies(base: whatelse.Knowledge, title: str, entries: Any, records: Mapping[str, float]) -> None:
    """Findings by how often cases have them, each with how many times as often as all visits."""
    for low, words in FREQUENCY:
        high = next((limit for limit, _ in reversed(FREQUENCY) if limit > low), 2.0)
        some = [(name, p) for name, p in entries.items() if low <= p < high]
        if some:
            shown = ", ".join(_cell(base, name, p, records) for name, p in some)
            typer.echo(f"{title}, {words}: {shown}")


def _cell(base: whatelse.Knowledge, name: str, p: float, records: Mapping[str, float]) -> str:
    """A finding with how often cases have it, how many times the usual that is, and what local records say."""
    from whatelse.knowledge.review import times_as_often

    times = times_as_often(base, name, p)
    usual = f", {times:,.0f} times the usual" if times >= 2 else f", {times:.1f} times the usual" if times else ""
    here = f"; here {records[name]:.0%}" if name in records else ""
    return f"{base.title(name)} ({p:.0%}{usual}{here})"


def _records(cohort: Path | None, condition: Condition) -> tuple[dict[str, float], int]:
    """Finding -> share of a cohort's cases that have it; cases are labelled, or named where no label is known."""
    import numpy as np

    if cohort is None:
        return {}, 0
    opened = whatelse.Cohort.open(cohort)
    if condition.name not in opened.conditions:
        raise ConditionError(f"{cohort} is not about {condition.name!r}: build it with '--vocabulary-from emergency'")
    i = opened.conditions.index(condition.name)
    labelled = opened.Y is not None and bool(opened.known[:, i].any())
    cases = np.flatnonzero(opened.Y[:, i] if labelled and opened.Y is not None else opened.A[:, i])
    if not cases.size:
        return {}, 0
    means = np.asarray(opened.X[cases].mean(0)).ravel()
    return dict(zip(opened.vocabulary.names, means.tolist(), strict=True)), int(cases.size)


def check(
    file: Path | None = typer.Argument(None, help="Knowledge file of your own (YAML); none: the shipped base."),
) -> None:
    """Check the shipped base, or what a knowledge file of your own adds to it.

    Example: whatelse conditions check own.yaml
    """
    from whatelse.knowledge.check import problems

    base = whatelse.load_knowledge() if file is None else whatelse.load_knowledge(file)
    found = problems(base)
    if file is not None and found:
        shipped = set(problems(whatelse.load_knowledge()))
        found = [line for line in found if line not in shipped]
    for line in found:
        typer.echo(line)
    if found:
        raise typer.Exit(1)
    typer.echo(f"{file or 'shipped base'}: nothing is inconsistent")


def new(
    name: str = typer.Argument(..., help="Name of the new condition, in snake case."),
    out: Path = typer.Option(..., "--out", help="File to write the entry to."),
) -> None:
    """Begin an entry of your own: a file with every field and what it means.

    Example: whatelse conditions new cholesterol_emboli --out own.yaml
    """
    from whatelse.io.files import write_whole

    if out.exists():
        raise InputError("is there already; give another file, or add the entry to it by hand", file=out)
    text = (files("whatelse.cli") / "new_condition.yaml").read_text("utf-8")
    phrase = name.replace("_", " ")
    for mark, value in (("NAME", name), ("TITLE", phrase.capitalize()), ("PHRASE", phrase), ("FILE", out.name)):
        text = text.replace(mark, value)
    write_whole(out, text.encode())
    typer.echo(f"saved as {out}\nnext: whatelse conditions check {out}")
