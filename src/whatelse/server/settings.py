"""Every setting: its name, default and meaning. docs/serving.md lists them all; a test compares.

A setting comes from the command line, else from the environment (WHATELSE_PORT=8001), else from the file given with
--config (YAML), else it is the default here.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as UnreadableSetting

from whatelse.errors import WhatelseError
from whatelse.limits import read_yaml
from whatelse.server.ehr_settings import EhrSettings

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class SettingsError(WhatelseError):
    """A setting that cannot be used, or a combination that would let strangers in."""


class Settings(EhrSettings, BaseSettings):
    """Settings of a service. In the environment a list is JSON: WHATELSE_ALLOWED_HOSTS='["tags.example.org"]'."""

    model_config = SettingsConfigDict(env_prefix="WHATELSE_", extra="forbid", frozen=True)

    model: Path = Field(description="the model file that 'whatelse fit' saved")
    visits: list[Path] = Field(
        default=[], description="files of visits for the worklist; without any, visits are typed in"
    )
    source: str | None = Field(
        default=None, description="what the files are: table, mimic-ed, nhamcs …; as learned from if not given"
    )
    columns: Path | None = Field(
        default=None, description="YAML file, which column is which field; as learned from if not given"
    )
    delimiter: str | None = Field(default=None, description="the column separator of a table, if not found out")
    encoding: str | None = Field(default=None, description="the encoding of a table, if not found out")
    labels: Path | None = Field(default=None, description="the folder of label tables, for nhamcs")
    host: str = Field(default="127.0.0.1", description="address to listen on; other than loopback needs 'auth'")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    database: str = Field(
        default="sqlite:///whatelse.db", description="where decisions are kept: sqlite or postgresql URL"
    )
    auth: Literal["none", "token", "oidc"] = Field(
        default="none",
        description="who is let in: anybody on this machine, holders of a token, users of an OIDC issuer",
    )
    allowed_hosts: list[str] = Field(
        default=[], description="names that the service is reached by, beside this machine's"
    )
    frame_ancestors: list[str] = Field(
        default=[], description="origins that may show the page in a frame, as https://emr.example.org"
    )
    secure_cookie: bool | None = Field(
        default=None, description="send the session cookie over HTTPS only; by default if not on loopback"
    )
    cookie_samesite: Literal["strict", "lax", "none"] = Field(
        default="strict", description="none is needed in a frame of another site, and needs HTTPS"
    )
    session_hours: float = Field(default=12, gt=0, le=168, description="how long a sign-in lasts")
    oidc_issuer: str = Field(default="", description="issuer of JSON Web Tokens, as https://login.example.org/realm")
    oidc_audience: str = Field(default="", description="the audience that those tokens must name")
    oidc_keys: str = Field(default="", description="URL or file of the issuer's JWKS; found by discovery if empty")
    oidc_role_claim: str = Field(
        default="roles", description="claim with viewer, clinician, curator or admin; a.b looks inside a"
    )
    oidc_name_claim: str = Field(default="sub", description="claim that names the person in the history")
    trusted_proxies: list[str] = Field(
        default=[], description="addresses or networks of proxies whose X-Forwarded-For is believed, as 10.0.0.7"
    )
    trusted_keys: list[Path] = Field(
        default=[], description="public keys (PEM); with any, only models signed by one of them are loaded"
    )
    audit: bool = Field(default=True, description="note who signed in, read, decided, exported or was refused")
    audit_days: int = Field(default=0, ge=0, description="days that audit lines are kept; 0 for ever")
    max_head: int = Field(default=32_768, ge=1_000, description="bytes of a request's line and headers, at most")
    max_headers: int = Field(default=100, ge=10, description="headers of a request, at most")
    max_characters: int = Field(default=60_000, ge=100, description="characters in the notes of a posted visit")
    max_words: int = Field(default=12_000, ge=100, description="words and signs in the notes of a posted visit")
    max_wait: float = Field(
        default=0.12,
        gt=0,
        description="seconds that a request may wait for its turn; it is refused if it would be longer",
    )
    max_exports: int = Field(default=2, ge=1, description="exports at once")
    workers: int = Field(default=1, ge=1, le=64, description="processes that serve; more than one needs PostgreSQL")
    max_body: int = Field(default=1_000_000, ge=1_000, description="bytes of a request's body, at most")
    rate_limit: float = Field(
        default=50, ge=0, description="requests a second of one person, lastingly; 0 for no limit"
    )
    rate_burst: int = Field(default=200, ge=1, description="requests of one person at once")
    failures_per_minute: int = Field(
        default=20, ge=1, description="wrong tokens from one address, or the same one again, before it is told to wait"
    )
    client_seconds: float = Field(default=10, gt=0, description="time a client has to send a request")
    keep_alive_seconds: int = Field(default=30, ge=1, description="time a connection may be idle")
    max_connections: int = Field(default=1000, ge=10, description="connections at once; then the most silent goes")
    connections_per_address: int = Field(
        default=250, ge=1, description="connections of one address; of those behind a trusted proxy, requests at once"
    )
    threads: int = Field(
        default=1,
        ge=1,
        le=64,
        description="threads that ask the model; more than one only helps where queries are long",
    )
    workbench: Path | None = Field(
        default=None,
        description="folder of a workbench, in which curators find anchors, label visits and learn; needs workers 1",
    )
    watch_model: float = Field(
        default=0, ge=0, description="seconds between looks at the model file; a new one is loaded. 0: only when told"
    )

    @property
    def loopback(self) -> bool:
        """Whether nobody but this machine can connect, and by no other name."""
        return is_loopback(self.host) and all(is_loopback(name) for name in self.allowed_hosts)

    def check(self) -> None:
        """SettingsError if it cannot work, or is open to strangers."""
        if self.auth == "none" and not self.loopback:
            raise SettingsError(
                f"{self.host} can be reached from elsewhere, and nobody would have to sign in. Make a token with "
                "'whatelse token create NAME --role clinician' and start with --auth token, or set oidc_issuer and "
                "oidc_audience and start with --auth oidc; or listen on 127.0.0.1"
            )
        if self.auth == "oidc" and not (self.oidc_issuer and self.oidc_audience):
            raise SettingsError("--auth oidc needs the settings oidc_issuer and oidc_audience")
        if self.cookie_samesite == "none" and not self.cookie_secure:
            raise SettingsError("cookie_samesite none works over HTTPS only: set secure_cookie to true")
        for proxy in self.trusted_proxies:
            try:
                ipaddress.ip_network(proxy, strict=False)
            except ValueError:
                raise SettingsError(f"trusted_proxies: {proxy!r} is not an address or a network") from None
        if self.workers > 1 and not self.database.startswith("postgres"):
            raise SettingsError("more than one worker needs PostgreSQL: --database postgresql://user@host/name")
        if self.workers > 1 and self.workbench is not None:
            raise SettingsError("the workbench is in one process's memory: it needs workers 1; serve it apart")
        for origin in self.frame_ancestors:
            scheme, _, rest = origin.partition("://")
            if scheme not in ("http", "https") or not rest or set(rest) & set(" ;,'\"/"):
                raise SettingsError(f"frame_ancestors: {origin!r} is not an origin such as https://emr.example.org")

        if problems := self.ehr_problems(self.loopback):
            raise SettingsError(problems[0])
        if self.workers > 1 and (self.smart_client_id or self.cds_hooks):
            raise SettingsError("launches and tokens used by an EHR are in one process's memory: it needs workers 1")

    @property
    def cookie_secure(self) -> bool:
        """Whether the cookie is for HTTPS only."""
        return not self.loopback if self.secure_cookie is None else self.secure_cookie


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
    from_file = {} if config is None else _read(config)

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


def _read(config: Path) -> dict[str, Any]:
    """Settings by name from a YAML file."""
    try:
        from_file = read_yaml(config) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError):
        raise SettingsError(f"{config}: cannot be read as YAML") from None
    if not isinstance(from_file, dict) or not all(isinstance(name, str) for name in from_file):
        raise SettingsError(f"{config}: needs lines of the form 'name: value'")
    return from_file
