"""What an EHR sends: calls and feedback, as lenient models. What is optional may be missing, null or nonsense."""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import (
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    WrapValidator,
)

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
Short = Annotated[str, StringConstraints(max_length=500, pattern=r"^[^\x00]*$")]  # what every database keeps
Address = Annotated[str, StringConstraints(max_length=4_000)]  # a sandbox's has a whole launch in it
Token = Annotated[str, StringConstraints(max_length=20_000)]


def _bare(value: Any) -> Any:
    """An id, also where an EHR sends a reference or a whole number."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value.partition("/")[2] if isinstance(value, str) and value.startswith(("Patient/", "Encounter/")) else value


def _or_none(value: Any, check: Any) -> Any:
    try:
        return check(value)
    except (ValidationError, ValueError):
        return None


Id = Annotated[Short, BeforeValidator(_bare)]
Maybe = Annotated[T | None, WrapValidator(_or_none)]  # None where it is anything else


class Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)


class Call(Lenient):
    """A call of a hook. The prefetch is looked into entry by entry, later.

    user   who called, as Practitioner/7; "" where nobody says
    token  of the FHIR server
    """

    hook: Short
    hookInstance: Short
    patient: Id = Field(validation_alias=AliasPath("context", "patientId"))
    encounter: Annotated[Id | None, BeforeValidator(_bare)] = Field(
        None, validation_alias=AliasPath("context", "encounterId")
    )
    user: Annotated[Short, WrapValidator(lambda value, check: _or_none(value, check) or "")] = Field(
        "", validation_alias=AliasPath("context", "userId")
    )
    prefetch: dict[str, Any] | None = None
    fhirServer: Maybe[Address] = None
    token: Maybe[Token] = Field(None, validation_alias=AliasPath("fhirAuthorization", "access_token"))


class Outcome(Lenient):
    """What came of a card. A comment of the user's is not read: it may hold anything."""

    card: Short
    outcome: Short
    outcomeTimestamp: Maybe[Short] = None
    reason: Maybe[Short] = Field(None, validation_alias=AliasPath("overrideReason", "reason", "code"))


class Feedback(Lenient):
    feedback: Annotated[list[Maybe[Outcome]], Field(max_length=1_000)]


def parse(model: type[M], body: bytes) -> M:
    """A body as a model; RequestValidationError, which names fields and no values, if it cannot be one.

    Called in a thread: some megabytes of JSON take as long as some tens of calls.
    """
    try:
        return model.model_validate(json.loads(body))
    except ValidationError as wrong:
        said = wrong.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError([{**e, "loc": ("body", *e["loc"])} for e in said]) from None
    except (ValueError, RecursionError):  # also a number of more digits than Python reads
        raise RequestValidationError([{"loc": ("body",), "type": "json_invalid"}]) from None
