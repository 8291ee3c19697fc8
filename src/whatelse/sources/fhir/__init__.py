"""FHIR R4 -> visits: files, a live server, and (in `server/`) the prefetch of a CDS Hooks call, all by `visit_of`.

pydantic and httpx come with the extra `serve`; without it reading FHIR says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from whatelse.errors import InputError
from whatelse.sources.codings import load_codings
from whatelse.sources.description import Description
from whatelse.sources.report import Report
from whatelse.visits import Visit

TOKEN = "WHATELSE_FHIR_TOKEN"


def read_fhir(place: str | Path, report: Report, how: Description) -> Iterator[tuple[int, Visit]]:
    """(number, visit) of the emergency encounters of a file, a folder or a server's address.

    The access token of a server is taken from the environment variable WHATELSE_FHIR_TOKEN.
    """
    try:
        from whatelse.sources.fhir.client import FhirServer
        from whatelse.sources.fhir.files import read_files
        from whatelse.sources.fhir.gather import read_server
    except ImportError as missing:
        raise InputError(f"reading FHIR needs {missing.name}: pip install 'whatelse[serve]'") from None
    known, text = load_codings(how.options.get("codings")), str(place)
    patients, since, until = (how.options.get(name) for name in ("patients", "since", "until"))
    if not text.startswith(("http://", "https://")):
        if patients is not None or since is not None or until is not None:
            raise InputError("patients, since and until are for a FHIR server; files are read whole", file=place)
        yield from read_files(Path(place), report, known)
        return
    names = None if patients is None else _patients(Path(patients))
    with FhirServer(text, os.environ.get(TOKEN)) as server:
        yield from read_server(server, report, known, names, since, until)


def _patients(file: Path) -> list[str]:
    try:
        lines = file.read_text("utf-8").split()
    except (OSError, UnicodeDecodeError):
        raise InputError("the list of patients cannot be read", file=file) from None
    return list(dict.fromkeys(lines))
