"""Every error that whatelse raises on purpose.

WhatelseError
├── InputError         a file or a field of it is not what was expected: names file, row, column, what to do
│   └── FhirError      a FHIR server that cannot be read, or must not be (`sources/fhir/`)
├── OutputError        a file or folder that cannot be written
├── ConditionError     a conditions or anchors file is wrong, or names something unknown
├── CohortError        a cohort folder is damaged, or two cohorts do not belong together
├── ModelError         numbers that are not a noisy-or model: names the condition or finding
├── ModelFileError     a model file is damaged, of another version, or not a model file at all
│   └── SignatureError a file is not signed by a key that is trusted (`model_file/`)
├── QueryError         a question the model cannot be asked (an index out of range, a tag both confirmed and rejected)
├── NotFittedError     a Tagger was used before fit or load
├── StoreError         the decisions' database cannot be opened or written (`store/`)
├── Conflict, Reused   somebody else decided first; a decision that cannot be taken as it was sent (`store/`)
├── EndpointError      a language model's server that must not or cannot be asked (`annotators/language_model/`)
├── LaunchError        a SMART launch that cannot go on (`server/ehr/smart/`)
└── SettingsError      the service is configured in a way it must not run with (`server/`)

Messages say what was found, what is needed and what to do next. They may name files, rows, columns,
conditions and findings; they never quote the content of a record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


class WhatelseError(Exception):
    """The base of all of them: catch this to catch everything raised on purpose."""


class InputError(WhatelseError):
    """Input that cannot be read as it stands: where it is, what was expected, what to do."""

    def __init__(self, problem: str, *, file: object = None, row: int | None = None, column: str | None = None) -> None:
        self.problem, self.file, self.row, self.column = problem, file, row, column
        where = [str(file)] if file is not None else []
        where += [f"row {row}"] if row is not None else []
        where += [f"column {column!r}"] if column is not None else []
        super().__init__(", ".join(where) + ": " + problem if where else problem)


class OutputError(WhatelseError):
    """A file or folder that cannot be written: which, why, what to check. What was there before is still there."""


class ConditionError(WhatelseError, ValueError):
    """A condition or anchor definition that cannot be used."""


class CohortError(WhatelseError, ValueError):
    """A cohort that is damaged or does not fit what it is used with."""


class ModelError(WhatelseError, ValueError):
    """Parameters that are not those of a noisy-or model."""


class ModelFileError(WhatelseError):
    """A model file that cannot be opened safely."""


class QueryError(WhatelseError, ValueError):
    """A question that the model cannot be asked."""


if TYPE_CHECKING:

    class NotFittedError(WhatelseError, ValueError, AttributeError):
        """An estimator used before fit or load; also a `sklearn.exceptions.NotFittedError`."""


def __getattr__(name: str) -> Any:
    """NotFittedError, made when it is first asked for: scikit-learn takes long to load."""
    if name != "NotFittedError":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sklearn.exceptions import NotFittedError as Base

    text = "An estimator used before fit or load; also a `sklearn.exceptions.NotFittedError`."
    made = type(name, (WhatelseError, Base), {"__module__": __name__, "__doc__": text})
    return globals().setdefault(name, made)
