"""The parts of FHIR R4 resources that are read, as lenient models: unknown elements are passed over, and no element is
needed but the id of a patient and of an encounter. A resource that does not fit costs itself and nothing else."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

T = TypeVar("T")
ID = r"^[A-Za-z0-9\-.]{1,64}$"
Id = Annotated[str, StringConstraints(pattern=ID)]


def _several(value: Any) -> Any:
    """null is no element; one element without its list is a list of one."""
    return [] if value is None else value if isinstance(value, list) else [value]


Many = Annotated[list[T], BeforeValidator(_several)]


class Part(BaseModel):
    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True, populate_by_name=True)


class Coding(Part):
    system: str | None = None
    code: str | None = None
    display: str | None = None


class Extension(Part):
    valueCode: str | None = None
    valueString: str | None = None
    valueCoding: Coding | None = None
    valueCodeableConcept: Concept | None = None


class Concept(Part):
    coding: Many[Coding] = []
    text: str | None = None
    extension: Many[Extension] = []

    @property
    def name(self) -> str | None:
        """What a person reads."""
        return self.text or next((c.display for c in self.coding if c.display), None)


class Reference(Part):
    reference: str | None = None


class Period(Part):
    start: str | None = None
    end: str | None = None


class Quantity(Part):
    value: float | None = None


class Attachment(Part):
    contentType: str | None = None
    data: str | None = None
    url: str | None = None


class Resource(Part):
    id: Id | None = None


class Timed(Resource):
    """What was at a time or in a period."""

    effectiveDateTime: str | None = None
    effectivePeriod: Period | None = None


class HumanName(Part):
    use: str | None = None
    family: str | None = None
    given: Many[str] = []
    text: str | None = None


class Patient(Resource):
    id: Id
    birthDate: str | None = None
    gender: str | None = None
    name: Many[HumanName] = []


class Diagnosis(Part):
    condition: Reference | None = None


class Encounter(Resource):
    id: Id
    status: str | None = None
    class_: Coding | None = Field(default=None, alias="class")
    subject: Reference | None = None
    period: Period | None = None
    reasonCode: Many[Concept] = []
    diagnosis: Many[Diagnosis] = []


class Condition(Resource):
    clinicalStatus: Concept | None = None
    verificationStatus: Concept | None = None
    category: Many[Concept] = []
    code: Concept | None = None
    encounter: Reference | None = None
    onsetDateTime: str | None = None
    recordedDate: str | None = None
    abatementDateTime: str | None = None


class Component(Part):
    code: Concept | None = None
    valueQuantity: Quantity | None = None


class Observation(Component, Timed):
    status: str | None = None
    encounter: Reference | None = None
    effectiveInstant: str | None = None
    issued: str | None = None
    valueString: str | None = None
    valueInteger: int | None = None
    valueCodeableConcept: Concept | None = None
    component: Many[Component] = []


class Medication(Resource):
    code: Concept | None = None


class Drug(Resource):
    """What the three kinds of medication entry have in common."""

    status: str | None = None
    medicationCodeableConcept: Concept | None = None
    medicationReference: Reference | None = None
    contained: Many[dict[str, Any]] = []


class MedicationRequest(Drug):
    intent: str | None = None
    reportedBoolean: bool | None = None
    category: Many[Concept] = []
    encounter: Reference | None = None
    authoredOn: str | None = None


class MedicationStatement(Drug, Timed):
    pass


class MedicationAdministration(Drug, Timed):
    context: Reference | None = None


class Content(Part):
    attachment: Attachment | None = None


class Context(Part):
    encounter: Many[Reference] = []


class DocumentReference(Resource):
    status: str | None = None
    docStatus: str | None = None
    type: Concept | None = None
    date: str | None = None
    content: Many[Content] = []
    context: Context | None = None


class Binary(Resource):
    contentType: str | None = None
    data: str | None = None


Extension.model_rebuild()  # it and Concept hold each other

MODELS: dict[str, type[Resource]] = {
    model.__name__: model
    for model in (
        *(Patient, Encounter, Condition, Observation, Medication, MedicationRequest, MedicationStatement),
        *(MedicationAdministration, DocumentReference, Binary),
    )
}
