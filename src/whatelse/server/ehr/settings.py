"""Settings of the connection to an EHR: CDS Hooks and SMART launch. docs/integration.md shows how to combine them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings


def _address(url: str) -> str:
    if url and (_normal(url.removesuffix("*")) is None or ("*" in url and not url.endswith("/*"))):
        raise ValueError(f"{url!r} is not an address such as https://ehr.example.org/fhir")
    return url


def _origin(text: str) -> str:
    parts = urlsplit(text)
    unsafe = set(text) & set(" ;,'\"*") or parts.path or parts.query or parts.fragment or parts.username
    if parts.scheme not in ("http", "https") or not parts.netloc or unsafe:
        raise ValueError(f"{text!r} is not an origin such as https://ehr.example.org")
    return text


Address = Annotated[str, AfterValidator(_address)]


def _ancestor(text: str) -> str:
    _origin(text.replace("*", "1"))  # the policy of frames allows * for a part of the name or for the port
    return text


Origin = Annotated[str, AfterValidator(_origin)]
Ancestor = Annotated[str, AfterValidator(_ancestor)]


class EhrSettings(BaseSettings):
    """Part of `Settings`."""

    public_url: Address = Field(default="", description="address of this service for EHRs and clinicians, with https")
    fhir_servers: list[Address] = Field(
        default=[],
        description="FHIR servers that may be read and may launch this app; https://host/x/* stands for all below it",
    )
    fhir_seconds: float = Field(default=3, gt=0, le=60, description="seconds for FHIR reads of one hook call")
    codings: Path | None = Field(default=None, description="YAML file of the hospital's own codes")
    cds_hooks: bool = Field(default=False, description="answer CDS Hooks calls at /cds-services")
    cds_mode: Literal["show", "silent"] = Field(default="show", description="silent: cards are logged and not shown")
    cds_threshold: float = Field(default=0.5, gt=0, lt=1, description="least probability of a card")
    cds_burden: float = Field(
        default=0, ge=0, le=300, description="cards per 100 visits, by which the threshold is set; 0: cds_threshold"
    )
    cds_issuers: dict[str, str] = Field(
        default={}, description="issuers whose tokens may call hooks, each with the URL or file of its key set"
    )
    cds_audiences: list[str] = Field(
        default=[], description="audiences that a token may name, beside the address that is called"
    )
    cds_origins: list[Origin] = Field(default=[], description="origins of EHRs that call from a browser (CORS)")
    cds_users: list[str] = Field(default=[], description="show cards to these users only, as Practitioner/7")
    cds_days: int = Field(default=0, ge=0, description="days that cards and looks are kept; 0 for ever")
    smart_client_id: str = Field(default="", description="client id that the EHR gave this app; turns the launch on")
    smart_client_secret: str = Field(default="", repr=False, description="client secret, if the EHR gave one")
    smart_client_key: Path | None = Field(
        default=None, description="private key (PEM) of the client, instead of a secret; its JWKS is at /smart/keys"
    )
    smart_users: list[str] = Field(
        default=["Practitioner"], description="kinds of FHIR user that a launch lets in (fhirUser of the id_token)"
    )
    smart_role: Literal["viewer", "clinician"] = Field(
        default="clinician", description="role of a person who came by a launch, for the visit launched"
    )

    @property
    def public(self) -> str:
        """The public address without its last slash."""
        return self.public_url.rstrip("/")

    def ehr_problem(self, loopback: bool) -> str | None:
        """A combination that cannot work or would let strangers in, with what to do; None if there is none."""
        if self.cds_hooks and not loopback and not (self.cds_issuers and (self.public_url or self.cds_audiences)):
            return "CDS Hooks could be called by anybody: set cds_issuers, and public_url or cds_audiences"
        if self.smart_client_id and not self.fhir_servers:
            return "smart_client_id is set but no fhir_servers: no EHR could launch this app"
        if self.smart_client_id and not self.public_url and not loopback:
            return "a launch needs public_url: the EHR sends people back to it"
        if self.smart_client_secret and self.smart_client_key:
            return "smart_client_secret and smart_client_key are both set: the EHR registered one of them"
        return None


def allowed_server(servers: list[str], url: str) -> bool:
    """Whether an address is one of those configured, or below one that ends in /*.

    Scheme, host and port are compared in their normal form. An address with anything else than letters, digits and
    -._~=,+ between its slashes is refused, and so is a dot segment: an escape, a query, a fragment or a user name can
    lead out of a pattern, and programs differ in how they read it.
    """
    found = _normal(url)
    if found is None:
        return False
    for server in servers:
        place = _normal(server.removesuffix("*"))
        if place == found and not server.endswith("*"):
            return True
        if server.endswith("*") and place is not None and place[0] == found[0] and found[1].startswith(place[1] + "/"):
            return True
    return False


def _normal(url: str) -> tuple[tuple[str, str, int], str] | None:
    """((scheme, host, port), path without its last slash) of a plain http address; None for any other text."""
    form = r"(https?)://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?((?:/[A-Za-z0-9._~=,+-]+)*)/?"
    found = re.fullmatch(form, url, re.IGNORECASE | re.ASCII)
    if found is None or {".", ".."} & set(found[4].split("/")):
        return None
    scheme = found[1].lower()
    return (scheme, found[2].lower(), int(found[3] or {"http": 80, "https": 443}[scheme])), found[4]
