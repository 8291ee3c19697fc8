"""Every setting, declared once: name, default, limits and meaning. docs/serving.md has the table; a test compares.

A setting comes from the command line, else from the environment (WHATELSE_PORT=8001), else from the file given with
--config (YAML), else it is the default here.
"""

from __future__ import annotations

import ipaddress
import logging
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as UnreadableSetting

from whatelse.errors import WhatelseError
from whatelse.io.limits import read_yaml, yaml_problem
from whatelse.server.ehr.settings import Ancestor, EhrSettings

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


class Settings(EhrSettings, BaseSettings):
    """Settings of a service. In the environment a list is JSON: WHATELSE_ALLOWED_HOSTS='["tags.example.org"]'."""

    model_config = SettingsConfigDict(env_prefix="WHATELSE_", extra="forbid", frozen=True)

    model: Path = Field(description="model file that 'whatelse fit' saved")
    visits: list[Path] = Field(default=[], description="files of visits for the worklist; without, visits are typed in")
    visits_options: VisitsOptions = Field(
        default=VisitsOptions(),
        description="how the files are read, if not as the model's own: source, columns, delimiter, encoding, labels",
    )
    host: str = Field(default="127.0.0.1", description="address to listen on; other than loopback needs 'auth'")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    database: str = Field(default="sqlite:///whatelse.db", description="database of decisions, sqlite or postgresql")
    auth: Literal["none", "token", "oidc"] = Field(
        default="none",
        description="who may come in: anybody on this machine, holders of a token, users of an OIDC issuer",
    )
    allowed_hosts: list[str] = Field(
        default=[], description="names that the service is reached by, beside this machine's and that of public_url"
    )
    frame_ancestors: list[Ancestor] = Field(
        default=[], description="origins that may show the page in a frame; over HTTPS cookies are then SameSite=None"
    )
    session_hours: float = Field(default=12, gt=0, le=168, description="hours that a sign-in lasts")
    oidc_issuer: str = Field(default="", description="OIDC issuer, as https://login.example.org/realm")
    oidc_audience: str = Field(default="", description="audience that the issuer's tokens must name")
    oidc_keys: str = Field(default="", description="URL or file of the issuer's JWKS; found by discovery if empty")
    oidc_role_claim: str = Field(
        default="roles", description="claim with viewer, clinician, curator or admin; a.b looks inside a"
    )
    oidc_name_claim: str = Field(default="sub", description="claim that names the person in the history")
    trusted_proxies: list[Annotated[str, AfterValidator(_network)]] = Field(
        default=[], description="addresses or networks of proxies whose X-Forwarded-For is used, as 10.0.0.7"
    )
    trusted_keys: list[Path] = Field(
        default=[], description="public keys (PEM); with any, only models signed by one of them are loaded"
    )
    audit_days: int = Field(default=0, ge=0, description="days that audit lines are kept; 0 for ever")
    max_words: int = Field(
        default=12_000, ge=100, description="words and signs in the notes of one visit; characters: five times as many"
    )
    max_wait: float = Field(
        default=0.12, gt=0, description="seconds that a request may wait for its turn; refused if it would wait longer"
    )
    max_body: int = Field(default=1_000_000, ge=1_000, description="bytes of a request body; five times for hook calls")
    workers: int = Field(default=1, ge=1, le=64, description="processes that serve; more than one needs PostgreSQL")
    rate_limit: float = Field(
        default=50, ge=0, description="requests a second of one person, four times as many at once; 0 for no limit"
    )
    failures_per_minute: int = Field(default=20, ge=1, description="wrong tokens of one address before it has to wait")
    client_seconds: float = Field(default=10, gt=0, description="seconds for a client to send a request")
    max_connections: int = Field(
        default=1000, ge=10, description="connections at once; then the one that was idle longest is closed"
    )
    connections_per_address: int = Field(
        default=250, ge=1, description="connections of one address; behind a trusted proxy, requests at once"
    )
    workbench: Path | None = Field(
        default=None, description="folder of a workbench for curators: anchors, labels, learning; needs workers 1"
    )
    watch_model: float = Field(
        default=0, ge=0, description="seconds between checks for a new model file, which is then loaded; 0 for none"
    )
    log_format: Literal["text", "json"] = Field(default="text", description="json: one JSON object for each log line")

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
        if self.auth == "none" and not self.loopback:
            raise SettingsError(
                f"{self._outside} can be reached from elsewhere, and nobody would have to sign in. Make a token with "
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
        if problem := self.ehr_problem(self.loopback):
            raise SettingsError(problem)
        if self.workers > 1 and self.cds_hooks:
            raise SettingsError("used tokens of hook calls are in one process's memory: cds_hooks needs workers 1")

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

    @property
    def max_characters(self) -> int:
        """Characters in the notes of one visit."""
        return 5 * self.max_words


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

    class Layered(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, InitSettingsSource(settings_cls, from_file)

    try:
        settings = Layered(**{name: value for name, value in given.items() if value is not None})
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
        given["visits_options"] = {**given.get("visits_options", {}), **moved}
    for name in sorted(RETIRED.keys() & given.keys()):
        log.warning("the setting %r is no longer used: %s", name, RETIRED[name])
    return {name: value for name, value in given.items() if name not in RETIRED}


def documentation() -> list[str]:
    """The rows of the table of settings in docs/serving.md; a test compares. Print them to renew the table."""
    rows = []
    for name, one in Settings.model_fields.items():
        default = "needed" if one.is_required() else str(one.get_default())
        shown = "" if default in ("", "None", "[]", "{}") else default if default == "needed" else f"`{default}`"
        rows.append(f"| `{name}` | {shown} | {one.description} |")
    return rows


def _read(config: Path) -> dict[str, Any]:
    """Settings by name from a YAML file."""
    try:
        from_file = read_yaml(config) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as problem:
        raise SettingsError(f"{config}: {yaml_problem(problem)}") from None
    if not isinstance(from_file, dict) or not all(isinstance(name, str) for name in from_file):
        raise SettingsError(f"{config}: needs lines of the form 'name: value'")
    return from_file
