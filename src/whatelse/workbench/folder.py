"""BenchFolder: where the files of a workbench are. All of them are files that commands write and a person could have.

conditions.yaml   conditions and anchors                              kept under version control
refused.yaml      phrases that are no anchors                         kept under version control
labels.csv        the sheet of 'anchors label-next', being filled in  kept under version control, where ids may be
judged.csv        visits looked at to judge a phrase                  kept under version control, where ids may be
cohort/           built by 'whatelse build --conditions FOLDER/conditions.yaml --out FOLDER/cohort'
cohort.candidate/ the same visits with the edited conditions, made by 'refit --workbench'
candidate.json    the comparison of 'refit --workbench'; the new model is MODEL.candidate
"""

from __future__ import annotations

import csv
import io
from importlib.resources import files
from pathlib import Path

from whatelse.annotators import AnchorSet
from whatelse.annotators.discovery.edit import read_conditions, read_refused, save_conditions
from whatelse.annotators.discovery.yaml_edit import write_text
from whatelse.cohort import Cohort
from whatelse.errors import InputError
from whatelse.io.files import write_whole

COLUMNS = ("condition", "phrase", "key", "system", "visit", "label")
Subject = tuple[str, str, str, str]  # condition, phrase, key, system or ""


class BenchFolder:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.conditions, self.refused = root / "conditions.yaml", root / "refused.yaml"
        self.labels, self.judged = root / "labels.csv", root / "judged.csv"
        self.cohort, self.new_cohort = root / "cohort", root / "cohort.candidate"
        self.outcome = root / "candidate.json"

    def open(self) -> Cohort:
        """The cohort; conditions.yaml is written from it if there is none yet."""
        if not (self.cohort / "cohort.json").is_file():
            raise InputError(
                "has no cohort: make it with 'whatelse build VISITS --conditions CONDITIONS --out "
                f"{self.cohort}', or copy a cohort folder there",
                file=self.root,
            )
        cohort = Cohort.open(self.cohort)
        if not self.conditions.exists():
            if cohort.vocabulary.anchors == AnchorSet.shipped():  # with its remarks
                write_text(self.conditions, (files("whatelse.annotators") / "emergency.yaml").read_text("utf-8"))
            else:
                save_conditions(self.conditions, cohort.vocabulary.anchors)
        return cohort

    def anchors(self) -> AnchorSet:
        return read_conditions(self.conditions)

    def refusals(self) -> dict[str, tuple[str, ...]]:
        return read_refused(self.refused) if self.refused.exists() else {}


# ---- judged.csv: visits drawn among those that have a phrase, so they tell its precision and nothing of other visits


def read_judged(path: Path) -> dict[Subject, dict[str, bool]]:
    """By condition and phrase, the visits judged."""
    out: dict[Subject, dict[str, bool]] = {}
    if not path.exists():
        return out
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text("utf-8-sig"))))
    except UnicodeDecodeError:
        raise InputError("is not text in UTF-8", file=path) from None
    for number, row in enumerate(rows, start=1):
        if set(row) != set(COLUMNS) or row["label"] not in ("0", "1"):
            raise InputError(f"needs columns {', '.join(COLUMNS)}, and 1 or 0 as label", file=path, row=number)
        subject = row["condition"], row["phrase"], row["key"], row["system"]
        out.setdefault(subject, {})[row["visit"]] = row["label"] == "1"
    return out


def judge_visit(path: Path, subject: Subject, visit: str, label: bool | None) -> dict[str, bool]:
    """Note what a person said of one visit with a phrase; None takes it back. Returns all that is judged of it."""
    judged = read_judged(path)
    mine = judged.setdefault(subject, {})
    mine.pop(visit, None)
    if label is not None:
        mine[visit] = label
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(COLUMNS)
    for one, visits in judged.items():
        table.writerows([*one, id, int(label)] for id, label in visits.items())
    write_whole(path, out.getvalue().encode())
    return mine
