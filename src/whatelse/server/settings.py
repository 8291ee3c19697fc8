"""Every setting, declared once: name, default, limits and meaning. docs/serving.md has the table; a test compares.

A setting comes from the command line, else from the environment (WHATELSE_PORT=8001), else from the file given with
--config (YAML), else it is the default here.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict
from pydantic_settings import SettingsError as UnreadableSetting

from whatelse.errors import WhatelseError
from whatelse.io.limits import read_yaml, yaml_problem

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
RETIRED = {  # settings of version 0.2 -> what became of them
    "audit": "the audit is always on",
    "secure_cookie": "set public_url to the https address",
    "cookie_samesite": "follows from frame_ancestors",
    "cds_max_body": "five times max_body",
    "cds_weekdays": "use cds_users, or 'whatelse cards mode silent'",
    "max_characters": "five times max_words",
    "rate_burst": "four times rate_limit",
    **dict.fromkeys(("max_head", "max_headers", "max_exports", "keep_alive_seconds", "threads"), "is fixed"),
}
log = logging.getLogger("whatelse.server")


class SettingsError(WhatelseError):
    """A setting that cannot be used, or a combination that would let strangers in."""


def _network(text: str) -> str:
    ipaddress.ip_network(text, strict=False)  # its ValueError says what is wrong
    return text


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


def _ancestor(text: str) -> str:
    _origin(text.replace("*", "1"))  # the policy of frames allows * for a part of the name or for the port
    return text


Address = Annotated[str, AfterValidator(_address)]
Origin = Annotated[str, AfterValidator(_origin)]
Ancestor = Annotated[str, AfterValidator(_ancestor)]
Network = Annotated[str, AfterValidator(_network)]


class VisitsOptions(BaseModel):
    """How files of visits are read. What is not given is as the model's own records were."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str | None = None
    columns: Path | None = None
    delimiter: str | None = None
    encoding: str | None = None
    labels: Path | None = None

    def __str__(self) -> str:
        return ""


def setting(default: Any, meaning: str, **limits: Any) -> Any:
    """One row of the table of settings; `...` for a default where one must be given."""
    return Field(default, description=meaning, **limits)


class Settings(BaseSettings):
    """Settings of a service. In the environment a list is JSON: WHATELSE_ALLOWED_HOSTS='["tags.example.org"]'."""

    model_config = SettingsConfigDict(env_prefix="WHATELSE_", extra="forbid", frozen=True)

    public_url: Address = setting("", "address of this service for EHRs and clinicians, with https")
    fhir_servers: list[Address] = setting(
        [], "FHIR servers that may be read and may launch this app; https://host/x/*: all below it"
    )
    fhir_seconds: float = setting(3, "seconds for FHIR reads of one hook call", gt=0, le=60)
    codings: Path | None = setting(None, "YAML file of the hospital's own codes")
    cds_hooks: bool = setting(False, "answer CDS Hooks calls at /cds-services")
    cds_mode: Literal["show", "silent"] = setting("show", "silent: cards are logged and not shown")
    cds_threshold: float = setting(0.5, "least probability of a card", gt=0, lt=1)
    cds_burden: float = setting(0, "cards per 100 visits that set the threshold; 0: cds_threshold", ge=0, le=300)
    cds_issuers: dict[str, str] = setting({}, "issuers whose tokens may call hooks: URL or file of the key set of each")
    cds_audiences: list[str] = setting([], "audiences that a token may name, beside the address that is called")
    cds_origins: list[Origin] = setting([], "origins of EHRs that call from a browser (CORS)")
    cds_users: list[str] = setting([], "show cards to these users only, as Practitioner/7")
    cds_days: int = setting(0, "days that cards and looks are kept; 0 for ever", ge=0)
    smart_client_id: str = setting("", "client id that the EHR gave this app; turns the launch on")
    smart_client_secret: str = setting("", "client secret, if the EHR gave one", repr=False)
    smart_client_key: Path | None = setting(None, "private key (PEM), instead of a secret; its JWKS is at /smart/keys")
    smart_users: list[str] = setting(["Practitioner"], "kinds of fhirUser in an id_token that a launch lets in")
    smart_role: Literal["viewer", "clinician"] = setting("clinician", "role of a person who came by a launch")
    model: Path = setting(..., "model file that 'whatelse fit' saved")
    visits: list[Path] = setting([], "files of visits for the worklist; without, visits are typed in")
    visits_options: VisitsOptions = setting(
        VisitsOptions(),
        "how the files are read, if not as the model's own: source, columns, delimiter, encoding, labels",
    )
    host: str = setting("127.0.0.1", "address to listen on; other than loopback needs 'auth'")
    port: int = setting(8000, "port to listen on; 0 takes a free one", ge=0, le=65535)
    database: str = setting("sqlite:///whatelse.db", "database of decisions, sqlite or postgresql")
    auth: Literal["none", "token", "oidc"] = setting(
        "none", "who may come in: anybody on this machine, holders of a token, users of an OIDC issuer"
    )
    allowed_hosts: list[str] = setting([], "names of the service, beside this machine's and that of public_url")
    frame_ancestors: list[Ancestor] = setting(
        [], "origins that may frame the page; over HTTPS cookies are then SameSite=None"
    )
    session_hours: float = setting(12, "hours that a sign-in lasts", gt=0, le=168)
    oidc_issuer: str = setting("", "OIDC issuer, as https://login.example.org/realm")
    oidc_audience: str = setting("", "audience that the issuer's tokens must name")
    oidc_keys: str = setting("", "URL or file of the issuer's JWKS; found by discovery if empty")
    oidc_role_claim: str = setting("roles", "claim with viewer, clinician, curator or admin; a.b looks inside a")
    oidc_name_claim: str = setting("sub", "claim that names the person in the history")
    trusted_proxies: list[Network] = setting([], "addresses or networks of proxies whose X-Forwarded-For is used")
    trusted_keys: list[Path] = setting([], "public keys (PEM); with any, only models signed by one of them are loaded")
    audit_days: int = setting(0, "days that audit lines are kept; 0 for ever", ge=0)
    max_words: int = setting(12_000, "words and signs in the notes of a visit; characters: five times as many", ge=100)
    max_wait: float = setting(0.12, "seconds that a request may wait for its turn, or it is refused", gt=0)
    max_body: int = setting(1_000_000, "bytes of a request body; five times for hook calls", ge=1_000)
    workers: int = setting(1, "processes that serve; more than one needs PostgreSQL", ge=1, le=64)
    rate_limit: float = setting(50, "requests a second of one person, four times as many at once; 0 for no limit", ge=0)
    failures_per_minute: int = setting(20, "wrong tokens of one address before it has to wait", ge=1)
    client_seconds: float = setting(10, "seconds for a client to send a request", gt=0)
    max_connections: int = setting(1000, "connections at once; then the one that was idle longest is closed", ge=10)
    connections_per_address: int = setting(250, "connections of one address; behind a proxy, requests at once", ge=1)
    workbench: Path | None = setting(None, "folder of a workbench for curators; needs workers 1")
    watch_model: float = setting(0, "seconds between checks for a new model file; 0 for none", ge=0)
    log_format: Literal["text", "json"] = setting("text", "json: one JSON object for each log line")

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect, and by no other name."""
        return self._outside is None

    @property
    def _outside(self) -> str | None:
        """A name that others than this machine reach the service by."""
        public = [urlsplit(self.public_url).hostname or ""] if self.public_url else []
        return next((name for name in (self.host, *self.allowed_hosts, *public) if not is_loopback(name)), None)

    def check(self) -> None:
        """SettingsError if it cannot work, or is open to strangers."""
        if self.auth == "none" and (outside := self._outside) is not None:
            raise SettingsError(
                f"{outside} can be reached from elsewhere, and nobody would have to sign in. Make a token with "
                "'whatelse token create NAME --role clinician' and start with --auth token, or set oidc_issuer and "
                "oidc_audience and start with --auth oidc; or listen on 127.0.0.1"
            )
        if self.auth == "none" and self.trusted_proxies:
            raise SettingsError("trusted_proxies is set and nobody would have to sign in: set auth to token or oidc")
        if self.auth == "oidc" and not (self.oidc_issuer and self.oidc_audience):
            raise SettingsError("--auth oidc needs the settings oidc_issuer and oidc_audience")
        if self.workers > 1 and not self.database.startswith("postgres"):
            raise SettingsError("more than one worker needs PostgreSQL: --database postgresql://user@host/name")
        if self.workers > 1 and self.workbench is not None:
            raise SettingsError("the workbench is in one process's memory: it needs workers 1; serve it apart")
        if self.cds_hooks and not self.loopback and not (self.cds_issuers and (self.public_url or self.cds_audiences)):
            raise SettingsError(
                "CDS Hooks could be called by anybody: set cds_issuers, and public_url or cds_audiences"
            )
        if self.smart_client_id and not self.fhir_servers:
            raise SettingsError("smart_client_id is set but no fhir_servers: no EHR could launch this app")
        if self.smart_client_id and not self.public_url and not self.loopback:
            raise SettingsError("a launch needs public_url: the EHR sends people back to it")
        if self.smart_client_secret and self.smart_client_key:
            raise SettingsError("smart_client_secret and smart_client_key are both set: the EHR registered one of them")
        if self.workers > 1 and self.cds_hooks:
            raise SettingsError("used tokens of hook calls are in one process's memory: cds_hooks needs workers 1")

    @property
    def public(self) -> str:
        return self.public_url.rstrip("/")

    @property
    def cookie_secure(self) -> bool:
        """Whether cookies are for HTTPS only."""
        return self.public.startswith("https://") or not self.loopback

    @property
    def cookie_samesite(self) -> Literal["none", "strict"]:
        """SameSite of the session cookie: none in a frame of another site, which browsers accept over HTTPS only."""
        return "none" if self.frame_ancestors and self.cookie_secure else "strict"

    @property
    def cookie(self) -> dict[str, Any]:
        """Attributes of cookies, to set them and to take them back: browsers ignore a removal that lacks them."""
        return {"httponly": True, "secure": self.cookie_secure, "samesite": self.cookie_samesite}


def is_loopback(host: str) -> bool:
    """Whether a name or address is this machine's own."""
    if host in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def load_settings(config: Path | None, **given: Any) -> Settings:
    """Settings from the command line (`given`, None for not given), the environment and a YAML file, checked."""
    from_file = {} if config is None else _current(_read(config))
    named = {name.lower() for name in os.environ}
    chosen = {name: value for name, value in from_file.items() if f"whatelse_{name}" not in named}
    for name, value in given.items():
        if value is not None and value != {}:
            chosen[name] = _mapping(chosen, name) | value if isinstance(value, dict) else value
    try:
        settings = Settings(**chosen)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise SettingsError(f"settings: {problems}; 'whatelse serve --settings' lists them") from None
    except UnreadableSetting as error:
        raise SettingsError(f"settings: {error}; a list is written as JSON: '[\"tags.example.org\"]'") from None
    settings.check()
    return settings


def _current(given: dict[str, Any]) -> dict[str, Any]:
    """Settings of version 0.2 under the names of today; a retired one is left out, and the log says so."""
    moved = {name: given.pop(name) for name in VisitsOptions.model_fields if name in given}
    if moved:
        given["visits_options"] = _mapping(given, "visits_options") | moved
    for name in sorted(RETIRED.keys() & given.keys()):
        log.warning("the setting %r is no longer used: %s", name, RETIRED[name])
    return {name: value for name, value in given.items() if name not in RETIRED}


def _mapping(settings: dict[str, Any], name: str) -> dict[str, Any]:
    """The value of a setting that is a mapping, empty if it is not set."""
    found = settings.get(name) or {}
    if not isinstance(found, dict):
        raise SettingsError(f"settings: {name}: needs lines of the form 'name: value' below it")
    return found


def _read(config: Path) -> dict[str, Any]:
    """Settings by name from a YAML file."""
    try:
        from_file = read_yaml(config) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as problem:
        raise SettingsError(f"{config}: {yaml_problem(problem)}") from None
    if not isinstance(from_file, dict) or not all(isinstance(name, str) for name in from_file):
        raise SettingsError(f"{config}: needs lines of the form 'name: value'")
    return from_file


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
