"""The settings of the connection to an EHR: CDS Hooks and SMART launch. docs/integration.md says how they go
together."""

from __future__ import annotations

from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field
from pydantic_settings import BaseSettings

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class EhrSettings(BaseSettings):
    """Part of `Settings`."""

    public_url: str = Field(default="", description="address that EHR and clinicians reach this service by, with https")
    fhir_servers: list[str] = Field(
        default=[], description="FHIR servers that may be read and launch this app; 'https://host/x/*' is all below it"
    )
    fhir_seconds: float = Field(default=3, gt=0, le=60, description="time to read what a hook's prefetch lacks")
    codings: Path | None = Field(default=None, description="YAML file of the hospital's own codes, beside the shipped")
    cds_hooks: bool = Field(default=False, description="answer CDS Hooks calls at /cds-services")
    cds_mode: Literal["show", "silent"] = Field(
        default="show", description="silent: cards are computed and logged, never shown"
    )
    cds_threshold: float = Field(default=0.5, gt=0, lt=1, description="a tag at least this likely is worth a card")
    cds_burden: float = Field(
        default=0, ge=0, le=300, description="cards per 100 visits, which the threshold is then chosen by; 0: it is not"
    )
    cds_issuers: dict[str, str] = Field(
        default={}, description="who may call: issuer of the token -> URL or file of its keys"
    )
    cds_audiences: list[str] = Field(
        default=[], description="audiences that a token may name, beside the address that is called"
    )
    cds_origins: list[str] = Field(default=[], description="origins of EHRs that call from a browser (CORS)")
    cds_max_body: int = Field(default=5_000_000, ge=1_000, description="bytes of a hook call, at most")
    cds_users: list[str] = Field(default=[], description="show cards to these only, as Practitioner/7; others silently")
    cds_weekdays: list[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]] = Field(
        default=[], description="show cards on these days only; silent on others"
    )
    cds_days: int = Field(default=0, ge=0, description="days that cards and looks are kept; 0 for ever")
    smart_client_id: str = Field(default="", description="the id that the EHR gave this app; switches the launch on")
    smart_client_secret: str = Field(default="", repr=False, description="its secret, if it has one")
    smart_role: Literal["viewer", "clinician"] = Field(
        default="clinician", description="what somebody who comes by a launch may do, with the one visit"
    )

    @property
    def public(self) -> str:
        """The public address without its last slash."""
        return self.public_url.rstrip("/")

    def ehr_problems(self, loopback: bool) -> list[str]:
        """What cannot work, or would let strangers in; each with what to do."""
        found = []
        for name, url in (("public_url", self.public_url), *(("fhir_servers", u) for u in self.fhir_servers)):
            parts = urlsplit(url.removesuffix("*"))
            if url and (parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username):
                found.append(f"{name}: {url!r} is not an address such as https://ehr.example.org/fhir")
        for origin in self.cds_origins:
            parts = urlsplit(origin)
            if parts.scheme not in ("http", "https") or not parts.netloc or parts.path or "*" in origin:
                found.append(f"cds_origins: {origin!r} is not an origin such as https://ehr.example.org")
        if self.cds_hooks and not loopback and not (self.cds_issuers and (self.public_url or self.cds_audiences)):
            found.append(
                "CDS Hooks can be called from elsewhere, by anybody: set cds_issuers, and public_url or cds_audiences"
            )
        if self.smart_client_id and not self.fhir_servers:
            found.append("smart_client_id is set but no fhir_servers: no EHR could launch this app")
        if self.smart_client_id and not self.public_url and not loopback:
            found.append("a launch needs public_url: the EHR sends people back to it")
        return found


def allowed_server(servers: list[str], url: str) -> bool:
    """Whether an address is one of those configured, or below one that ends in /*."""
    plain = url.rstrip("/")
    if any(part in ("..", ".") for part in urlsplit(plain).path.split("/")) or "\\" in plain or "@" in plain:
        return False
    for server in servers:
        if server.endswith("/*"):
            if plain.startswith(server[:-1]):
                return True
        elif plain == server.rstrip("/"):
            return True
    return False
