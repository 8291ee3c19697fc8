"""Write the parts of docs/knowledge.md that the shipped model answers: ten notes, and five entries as shown.

    python scripts/knowledge_page.py

The text between the two marks is replaced. Run it after a change of the knowledge base.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from typer.testing import CliRunner

from whatelse.cli import app
from whatelse.io.files import write_whole
from whatelse.tagger import Tagger
from whatelse.visits import Visit

PAGE = Path(__file__).parents[1] / "docs" / "knowledge.md"
BEGIN, END = "<!-- scripts/knowledge_page.py begins -->", "<!-- scripts/knowledge_page.py ends -->"
NOTES = (
    (72, "M", "72M on coumadin fell from standing, hit head, now headache and vomiting, confused, GCS 14"),
    (81, "F", "81F fever 39, confusion, foul urine, BP 85/50 HR 120"),
    (34, "F", "34F worst headache of life, sudden onset, neck stiffness"),
    (55, "M", "55M crushing chest pain radiating to left arm, diaphoretic, smoker, HTN"),
    (6, "M", "6M fell from monkey bars, elbow swollen and deformed, cannot extend"),
    (25, "F", "25F RLQ pain since yesterday, nausea, LMP 7 weeks ago, spotting"),
    (3, "F", "3yo F barking cough, stridor, low fever since last night"),
    (60, "M", "60M back pain, pulsatile abdominal mass, syncope, BP 80/50"),
    (16, "M", "16 YOM FELL RIDING SKATEBOARD, WRIST PAIN"),
    (68, "F", "68F slurred speech, right arm weakness since 1 hour, HTN, afib"),
)
ENTRIES = ("ectopic_pregnancy", "pulmonary_embolism", "appendicitis", "croup", "wrist_fracture")


def ten_notes() -> list[str]:
    """A table: each note, the first three conditions, what must not be missed, the first three questions."""
    tagger = Tagger.load("emergency")
    lines = ["| note | first candidates | must not be missed | asks |", "|---|---|---|---|"]
    for age, sex, note in NOTES:
        reading = tagger.read(Visit("note", age=age, sex=sex, triage_note=note))
        found = reading.suggest()
        likely = "; ".join(f"{tag.title} {tag.probability:.0%}" for tag in found.candidates[:3])
        alerts = "; ".join(f"{tag.title} {tag.probability:.0%}" for tag in found.must_not_miss) or "-"
        asks = "; ".join(f"{tagger.titles_[q.finding]}?" for q in reading.ask()[:3])
        lines.append(f"| {note} | {likely} | {alerts} | {asks} |")
    return lines


def entries() -> list[str]:
    """What `whatelse conditions show NAME --review` prints."""
    lines = []
    for name in ENTRIES:
        shown = CliRunner().invoke(app, ["conditions", "show", name, "--review"]).output
        wrapped = [
            part for line in shown.splitlines() for part in textwrap.wrap(line, 140, subsequent_indent="    ") or [""]
        ]
        lines += [f"`whatelse conditions show {name} --review`:", "", "```text", *wrapped, "```", ""]
    return lines


def main() -> None:
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    said = (
        "The first three candidates with probability, what must not be missed, and questions, as `whatelse ask NOTE` "
        "has them."
    )
    parts = ["", "## Ten notes", said, "", *ten_notes(), "", "## Five entries", *entries()]
    write_whole(PAGE, (before + BEGIN + "\n".join(parts) + END + after).encode())


if __name__ == "__main__":
    main()
