"""Resources: FHIR resources of one patient by type and id, each validated, and the types that were searched for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import ValidationError

from whatelse.io.limits import shipped_yaml
from whatelse.sources.fhir.models import MODELS, Coding, Concept, Reference, Resource
from whatelse.sources.report import BadValue
from whatelse.visits import Code

if TYPE_CHECKING:
    from whatelse.sources.fhir.models import Drug

R = TypeVar("R", bound=Resource)
WORDS: dict[str, dict[str, str]] = shipped_yaml("whatelse.sources.fhir", "words.yaml")
_LOCAL = re.compile(r"(?:^|/)([A-Z][A-Za-z]{2,40})/([A-Za-z0-9\-.]{1,64})(?:/_history/[A-Za-z0-9\-.]{1,64})?$")


class Broken(BadValue):
    """A resource that does not fit its model."""


class Resources:
    """Resources by type and id.

    asked    types that were searched for: no resource of such a type means that there is none
    partial  types that were read only in part
    broken   number of resources left out, by kind of problem
    patient  id; resources of another patient are left out
    """

    def __init__(self, asked: Iterable[str] = (), patient: str | None = None) -> None:
        self.asked, self.partial = set(asked), set[str]()
        self._patient = patient and f"Patient/{patient}"
        self.broken: Counter[str] = Counter()
        self._by_type: dict[str, dict[str, Resource]] = {}

    def add(self, raw: Any, *, strict: bool = False) -> None:
        """Add one resource as JSON has it; types that are not read are passed over. Broken if `strict`, or counted."""
        try:
            checked = check(raw)
            if self._patient is not None and checked is not None and patient_of(raw) not in (None, self._patient):
                raise Broken(f"{type(checked).__name__} is of another patient")
        except Broken as broken:
            if strict:
                raise
            self.broken[broken.kind] += 1
            return
        if checked is not None:
            kept = self._by_type.setdefault(type(checked).__name__, {})
            kept[checked.id or f"#{len(kept)}"] = checked

    def add_bundle(self, raw: Any) -> None:
        """Add the entries of a Bundle, or a single resource: a prefetch may hold either."""
        for resource in entries(raw):
            self.add(resource)

    def all(self, kind: type[R]) -> list[R]:
        """Every resource of a type, in the order they came."""
        return cast(list[R], list(self._by_type.get(kind.__name__, {}).values()))

    def find(self, kind: type[R], reference: Reference | str | None) -> R | None:
        """The resource that a reference names."""
        name = local(reference)
        if name is None or not name.startswith(kind.__name__ + "/"):
            return None
        return cast("R | None", self._by_type.get(kind.__name__, {}).get(name.partition("/")[2]))


def patient_of(raw: dict[str, Any]) -> str | None:
    """The patient that a resource is of, "Patient/7"; None if it names none."""
    if raw.get("resourceType") == "Patient":
        return f"Patient/{raw.get('id')}"
    subject = raw.get("subject") or raw.get("patient")
    text = subject.get("reference") if isinstance(subject, dict) else None
    whose = local(text) if isinstance(text, str) else None
    return whose if whose and whose.startswith("Patient/") else None


def check(raw: Any) -> Resource | None:
    """A resource as its model; None for a type that is not read; Broken if it does not fit."""
    kind = raw.get("resourceType") if isinstance(raw, dict) else None
    if not isinstance(kind, str):
        raise Broken("entry is not a resource")
    model = MODELS.get(kind)
    if model is None:
        return None
    try:
        return model.model_validate(raw)
    except (ValidationError, RecursionError):
        raise Broken(f"{kind} is not valid") from None


def entries(raw: Any) -> Iterator[Any]:
    """The resources of a Bundle, or the one resource itself; OperationOutcomes of a search are left out."""
    if not isinstance(raw, dict):
        return
    if raw.get("resourceType") != "Bundle":
        yield raw
        return
    found = raw.get("entry")
    for entry in found if isinstance(found, list) else ():
        resource = entry.get("resource") if isinstance(entry, dict) else None
        if isinstance(resource, dict) and resource.get("resourceType") == "OperationOutcome":
            continue
        yield resource


def next_page(raw: Any) -> str | None:
    """The address of the page after this one."""
    links = raw.get("link") if isinstance(raw, dict) else None
    for link in links if isinstance(links, list) else ():
        if isinstance(link, dict) and link.get("relation") == "next" and isinstance(link.get("url"), str):
            url: str = link["url"]
            return url
    return None


# ---- reading elements


def local(reference: Reference | str | None) -> str | None:
    """A reference in its shortest form, "Patient/7", whether relative, absolute or versioned; None if it is none."""
    text = reference.reference if isinstance(reference, Reference) else reference
    found = _LOCAL.search(text) if text else None
    return f"{found[1]}/{found[2]}" if found else None


def codes(concept: Concept | None) -> list[Code]:
    """The codes of a concept in systems that are known here."""
    found = []
    for coding in concept.coding if concept else ():
        system = WORDS["systems"].get((coding.system or "").rstrip("/"))
        if system and coding.code and coding.code.strip():
            found.append(Code(system, coding.code.strip(), coding.display))
    return found


def has_code(concepts: Concept | Iterable[Concept] | None, *wanted: str) -> bool:
    """Whether a concept, or any of several, has one of these codes, in any code system."""
    several = [concepts] if isinstance(concepts, Concept) else list(concepts or ())
    found: Iterator[Coding] = (coding for concept in several for coding in concept.coding)
    return any(coding.code in wanted for coding in found)


def when(text: str | None) -> datetime | None:
    """A FHIR date or time, with its zone (UTC where it has none); of a partial date, its first moment."""
    if not text or len(text) > 40:
        return None
    text = text.strip()
    if re.fullmatch(r"\d{4}(-\d{2})?", text):
        text = (text + "-01-01")[:10]
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def medication(drug: Drug, resources: Resources) -> Concept | None:
    """What a medication entry is about: its own concept, or the Medication that it refers to."""
    from whatelse.sources.fhir.models import Medication

    if drug.medicationCodeableConcept is not None:
        return drug.medicationCodeableConcept
    reference = drug.medicationReference.reference if drug.medicationReference else None
    if reference and reference.startswith("#"):
        for raw in drug.contained:
            if raw.get("id") == reference[1:] and raw.get("resourceType") == "Medication":
                try:
                    return Medication.model_validate(raw).code
                except ValidationError:
                    return None
        return None
    found = resources.find(Medication, drug.medicationReference)
    return found.code if found else None
