"""What an EHR sends: calls and feedback, as lenient models. What is optional may be missing, null or nonsense."""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError, WrapValidator

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
Short = Annotated[str, StringConstraints(max_length=500, pattern=r"^[^\x00]*$")]  # what every database keeps
Address = Annotated[str, StringConstraints(max_length=4_000)]  # a sandbox's has a whole launch in it


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


class Context(Lenient):
    patientId: Id
    encounterId: Annotated[Id | None, BeforeValidator(_bare)] = None
    userId: Maybe[Short] = None


class Authorization(Lenient):
    access_token: Annotated[str, StringConstraints(max_length=20_000)]


class Call(Lenient):
    """A call of a hook. The prefetch is looked into entry by entry, later."""

    hook: Short
    hookInstance: Short
    context: Context
    prefetch: dict[str, Any] | None = None
    fhirServer: Maybe[Address] = None
    fhirAuthorization: Maybe[Authorization] = None

    @property
    def user(self) -> str:
        """Who called, as Practitioner/7; "" where nobody says."""
        return self.context.userId or ""


class Reason(Lenient):
    code: Maybe[Short] = None


class OverrideReason(Lenient):
    reason: Maybe[Reason] = None


class Outcome(Lenient):
    """What came of a card. A comment of the user's is not read: it may hold anything."""

    card: Short
    outcome: Short
    outcomeTimestamp: Maybe[Short] = None
    overrideReason: Maybe[OverrideReason] = None

    @property
    def reason(self) -> str | None:
        """The code of the reason that was chosen."""
        return self.overrideReason.reason.code if self.overrideReason and self.overrideReason.reason else None


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
