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

from importlib.resources import files
from pathlib import Path

from whatelse.annotators import AnchorSet
from whatelse.annotators.discovery.edit import read_conditions, read_refused, save_conditions
from whatelse.annotators.discovery.yaml_edit import write_text
from whatelse.cohort import Cohort
from whatelse.errors import InputError


class BenchFolder:
    """The paths of a workbench at `root`."""

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
            shipped = AnchorSet.shipped()
            if cohort.vocabulary.anchors == shipped:  # with its remarks
                write_text(self.conditions, (files("whatelse.annotators") / "emergency.yaml").read_text("utf-8"))
            else:
                save_conditions(self.conditions, cohort.vocabulary.anchors)
        return cohort

    def anchors(self) -> AnchorSet:
        """The conditions as the file has them now."""
        return read_conditions(self.conditions)

    def refusals(self) -> dict[str, tuple[str, ...]]:
        """By condition, the phrases refused."""
        return read_refused(self.refused) if self.refused.exists() else {}
