"""Write docs/answers.md, what `whatelse ask` says to ten notes, and the five entries of docs/knowledge.md.

    python scripts/knowledge_page.py

In docs/knowledge.md the text between the two marks is replaced. Run it after a change of the knowledge base.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from typer.testing import CliRunner

from whatelse.cli import app
from whatelse.io.files import write_whole

PAGE = Path(__file__).parents[1] / "docs" / "knowledge.md"
ANSWERS = PAGE.with_name("answers.md")
HEAD = """# Ten notes, answered

What the shipped model says to ten notes of emergency visits, nothing learned; written by `scripts/knowledge_page.py`.
The [model card](model-card.md) says what the probabilities are worth.
"""
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


def answers() -> str:
    """What `whatelse ask NOTE` prints, note by note."""
    shown = []
    for age, sex, note in NOTES:
        words = ["ask", note, "--age", str(age), "--sex", sex]
        said = CliRunner(env={"COLUMNS": "120"}).invoke(app, words).output
        shown += [
            "```text",
            f'$ whatelse ask "{note}" --age {age} --sex {sex}',
            *map(str.rstrip, said.splitlines()),
            "```",
            "",
        ]
    return "\n".join([HEAD, *shown])


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
    write_whole(PAGE, (before + BEGIN + "\n".join(["", "## Five entries", *entries()]) + END + after).encode())
    write_whole(ANSWERS, answers().encode())


if __name__ == "__main__":
    main()
