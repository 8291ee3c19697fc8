"""Reads the records of a cohort again, and builds the cohort again with other anchors."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from whatelse.annotators import AnchorSet
from whatelse.cohort.build import build_cohort
from whatelse.cohort.cohort import Cohort
from whatelse.errors import CohortError
from whatelse.sources import VisitReader, read_visits
from whatelse.visits import Visit


def places_of(cohort: Cohort, files: list[Path] | None = None) -> list[Path]:
    """Where the records of a cohort lie: in `files`, else where it was built from."""
    places = files or [Path(file) for file in cohort.about.get("files") or ()]
    if not places:
        raise CohortError("the cohort does not say where its visits came from: give their files with --visits")
    return places


def records_of(cohort: Cohort, files: list[Path] | None = None) -> VisitReader:
    """Read the records of a cohort again with the same settings. Rows that cannot be used are left out."""
    about = cohort.about
    reading = about.get("reading")
    options: dict[str, Any] = {}
    if reading is None:  # built by version 0.1.0, which kept the options one by one
        options = {key: about[key] for key in ("source", "delimiter", "encoding") if about.get(key)}
        options["columns"] = Path(about["columns"]) if about.get("columns") else None
    labels = Path(about["labels"]) if about.get("labels") else None
    return read_visits(places_of(cohort, files), labels=labels, on_error="skip", like=reading, **options).quietly()


def rebuild(cohort: Cohort, visits: Iterable[Visit], anchors: AnchorSet) -> Cohort:
    """A cohort of these visits as `cohort` was built, with other conditions and anchors; findings are chosen anew."""
    return build_cohort(
        visits,
        anchors.anchored(),
        rules=cohort.vocabulary.rules,
        lexicon=cohort.vocabulary.lexicon,
        about=cohort.about,
        source=cohort.vocabulary.source,
        **(cohort.about.get("choice") or {}),
    )
