"""The service's settings, by environment (``UNSKEW_HTTP_PORT``) or by flag (``--http-port``); a flag wins.

Without credentials the service answers anybody who can reach it, so it binds to loopback only, unless ``insecure``.
"""

from __future__ import annotations

import argparse
import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NoReturn

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from unskew.core.errors import ConfigError

__all__ = ["MAX_JSON_KEYS", "Settings", "described", "load", "parse"]

MAX_JSON_KEYS = 50_000  # of a histogram in JSON: beyond it parsing costs more than the planning
_PREFIX = "UNSKEW_"
_PASSWORD = re.compile(r"(?<=password=)[^&]+")
Port = Annotated[int, Field(ge=0, le=65535)]


class Settings(BaseSettings):
    """Each field is an option; times are in seconds, sizes in bytes."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, extra="forbid", frozen=True, env_ignore_empty=True)

    host: str = Field("127.0.0.1", min_length=1, description="address that all ports listen on")
    http_port: Port = Field(8080, description="port of REST; 0: any free one")
    grpc_port: Port = Field(8081, description="port of gRPC; 0: any free one")
    metrics_port: Port = Field(8082, description="port of Prometheus metrics; 0: any free one")
    ports_file: str = Field("", description="file to write the ports to, as JSON, once they are open")

    store: str = Field("memory", min_length=1, description="where the shared state is: memory, or a redis URL")

    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level that is logged")
    log_format: Literal["json", "text"] = Field("json", description="one JSON document a line, or plain text")

    max_message_bytes: int = Field(16 << 20, ge=1 << 16, le=1 << 30, description="largest gRPC message taken")
    max_body_bytes: int = Field(64 << 20, ge=1 << 16, le=1 << 30, description="largest HTTP body taken (protobuf)")
    max_json_bytes: int = Field(8 << 20, ge=1 << 16, le=1 << 30, description="largest HTTP body taken as JSON")
    max_histogram_keys: int = Field(
        4_000_000,
        ge=1,
        le=1 << 26,
        description="listed keys of one histogram; a credential may have a limit of its own",
    )
    max_streams: int = Field(
        1000, ge=1, description="streams that an identity may have created at once; a credential may have its own"
    )
    max_stream_bytes: int = Field(
        128 << 20,
        ge=1 << 20,
        le=1 << 40,
        description="bytes of reports kept of a stream; the batches longest silent make room",
    )
    max_identity_bytes: int = Field(
        256 << 20, ge=1 << 20, le=1 << 40, description="bytes of reports and plans of all streams of an identity"
    )
    max_store_bytes: int = Field(
        512 << 20, ge=1 << 20, le=1 << 40, description="the same of the whole memory store; Redis has its maxmemory"
    )
    max_plan_bytes: int = Field(
        128 << 20, ge=1 << 20, le=1 << 40, description="bytes of histograms that one plan is made from"
    )
    max_parts: int = Field(20_000, ge=1, description="parts of the reports of one batch, of all sources")
    max_sources: int = Field(1000, ge=1, description="sources of the reports of one batch")
    max_agents: int = Field(5000, ge=1, description="agents of a stream, those of the last day counted")
    max_plans: int = Field(64, ge=1, description="plans kept of a stream")
    max_watchers: int = Field(
        10_000,
        ge=1,
        description="watches of plans at once, and of one identity no more than there is room left: alone it has half",
    )
    max_calls_per_second: int = Field(
        500,
        ge=0,
        description="calls a second of one identity at this replica, those of two seconds at once; a credential may "
        "have its own; 0: as many as come. It is not looked at where there are no credentials",
    )
    max_bytes_in_flight: int = Field(
        256 << 20,
        ge=1 << 20,
        le=1 << 40,
        description="bytes of requests that are read or answered, of all callers; and as many of answers that are sent",
    )
    max_identity_bytes_in_flight: int = Field(
        160 << 20,
        ge=1 << 20,
        le=1 << 40,
        description="the same of one identity, or of all where there are no credentials",
    )
    max_calls: int = Field(12_000, ge=1, description="gRPC calls at once, watches among them; more are refused")
    max_grpc_connections: int = Field(4000, ge=1, description="gRPC connections at once; more are closed at once")
    max_http_connections: int = Field(
        1000,
        ge=1,
        description="HTTP connections at once; beyond it the one that has waited longest for a whole request is closed",
    )
    max_streams_per_connection: int = Field(1000, ge=1, description="calls at once on one gRPC connection")
    max_pending_requests: int = Field(4000, ge=1, description="gRPC calls that may wait to be taken up")
    header_timeout: float = Field(
        10.0, gt=0.0, description="time for an HTTP request's headers, and for the handshake of a connection"
    )
    body_timeout: float = Field(
        30.0, gt=0.0, description="time for a request's body, all messages of a gRPC call, or taking an HTTP answer"
    )

    keepalive: float = Field(60.0, ge=1.0, description="silence after which a gRPC connection is pinged")
    keepalive_timeout: float = Field(20.0, ge=1.0, description="silence after the ping that ends the connection")
    min_ping_interval: float = Field(10.0, ge=0.0, description="clients that ping more often are turned away")
    max_connection_age: float = Field(
        1800.0, ge=0.0, description="age, +-10 % at random, at which a gRPC connection is asked to reconnect; 0: never"
    )
    max_watch: float = Field(
        600.0, gt=0.0, description="age, +-10 % at random, at which a watch ends well, to be begun anew"
    )
    grpc_idle: float = Field(300.0, ge=1.0, description="time without a call after which a gRPC connection is closed")
    http_idle: float = Field(75.0, ge=1.0, description="silence after which an HTTP connection is closed")
    drain_delay: float = Field(0.0, ge=0.0, description="time to go on after SIGTERM while being taken out of rotation")
    drain: float = Field(20.0, ge=0.0, description="time that calls in flight are given after that")

    tokens_file: str = Field(
        "", description="file of bearer tokens (docs/quickstart-service.md); reread when it changes"
    )
    tokens: SecretStr = Field(SecretStr(""), description="the content of such a file")
    tls_cert: str = Field("", description="PEM file of the certificate chain, for all ports; reread when it changes")
    tls_key: str = Field("", description="PEM file of its key")
    tls_client_ca: str = Field("", description="PEM file: clients must show a certificate signed by one of these")
    allowed_hosts: str = Field(
        "",
        description="more names, by commas, that the Host header may have where there are no credentials; on loopback "
        "it may name localhost, 127.0.0.1, [::1] and --host",
    )
    insecure: bool = Field(default=False, description="allow to bind to other than loopback without any credentials")

    @property
    def guarded(self) -> bool:
        """Whether callers need a credential."""
        return bool(self.tokens_file or self.tokens.get_secret_value() or self.tls_client_ca)

    @property
    def loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    @property
    def known_hosts(self) -> frozenset[str] | None:
        """What a request without a credential may call this service; None: whatever it likes, beyond loopback."""
        more = {name.strip().strip("[]").lower() for name in self.allowed_hosts.split(",")} - {""}
        if not (self.loopback or more):
            return None
        return frozenset({"localhost", "127.0.0.1", "::1", self.host.strip("[]").lower()} | more)


def load(given: Mapping[str, object] | None = None) -> Settings:
    """The settings from the environment, those ``given`` first; or a ``ConfigError`` for the first that is wrong."""
    try:
        settings = Settings(**dict(given or {}))  # type: ignore[arg-type]  # checked by pydantic
    except ValidationError as why:
        raise _first_error(why) from None
    _check(settings)
    return settings


def _first_error(why: ValidationError) -> ConfigError:
    """The first wrong value, by its option. Secrets are masked."""
    error = why.errors(include_url=False, include_context=False)[0]
    name = str(error["loc"][0]) if error["loc"] else "settings"
    value = "***" if name in ("tokens", "store") else error["input"]
    rest = "" if why.error_count() == 1 else f" (and {why.error_count() - 1} more)"
    allowed = error["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    return ConfigError(f"{_flag(name)} ({_PREFIX}{name.upper()})", value, f"{allowed}{rest}")


def _check(settings: Settings) -> None:
    most = settings.max_identity_bytes_in_flight
    if most > settings.max_bytes_in_flight:
        allowed = f"at most --max-bytes-in-flight, {settings.max_bytes_in_flight}"
        raise ConfigError("--max-identity-bytes-in-flight", most, allowed)
    for name in ("max_message_bytes", "max_body_bytes"):
        if getattr(settings, name) > most:
            allowed = f"at most --max-identity-bytes-in-flight, {most}: such a request would never have room"
            raise ConfigError(_flag(name), getattr(settings, name), allowed)
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise ConfigError("--tls-cert, --tls-key", settings.tls_cert or settings.tls_key, "both or neither")
    if settings.tls_client_ca and not settings.tls_cert:
        raise ConfigError("--tls-client-ca", settings.tls_client_ca, "--tls-cert and --tls-key as well")
    if not (settings.loopback or settings.guarded or settings.insecure):
        raise ConfigError(
            "--host",
            settings.host,
            "a loopback address, or set --tokens-file, UNSKEW_TOKENS or --tls-client-ca: without credentials anybody "
            "who reaches this address could change every stream; if that is meant, add --insecure",
        )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        name, _, text = message.rpartition(": ")
        raise ConfigError(name or "arguments", text, f"the options of {self.prog} --help")


def parse(arguments: Sequence[str], program: str = "unskew serve") -> Settings:
    """The settings from these flags and the environment. ``--help`` prints and exits."""
    parser = _Parser(
        prog=program,
        description="Serve plans over gRPC and REST until SIGTERM.",
        epilog=f"Each option can be given as an environment variable too: {_PREFIX}HTTP_PORT for --http-port. Traces "
        "are sent where OTEL_EXPORTER_OTLP_ENDPOINT says.",
        allow_abbrev=False,
    )
    for name, field in Settings.model_fields.items():
        if name == "tokens":  # a secret must not be in the list of processes
            continue
        shown = field.get_default()
        text = f"{field.description} [{'none' if shown == '' else shown}]".replace("%", "%%")
        if field.annotation is bool:
            parser.add_argument(_flag(name), action="store_true", default=None, help=text)
        else:
            parser.add_argument(_flag(name), metavar=name.rpartition("_")[2].upper(), help=text)
    given = vars(parser.parse_args(list(arguments)))
    return load({name: value for name, value in given.items() if value is not None})


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def described(settings: Settings) -> dict[str, Any]:
    """Every setting by name, for display: secrets and passwords in URLs are masked."""
    shown: dict[str, Any] = settings.model_dump(mode="json")
    shown["tokens"] = "***" if settings.tokens.get_secret_value() else ""
    shown["store"] = _masked(settings.store)
    return shown


def _masked(url: str) -> str:
    start, at, rest = url.rpartition("@")
    scheme, slashes, user = start.partition("://")
    name, colon, _ = user.partition(":")
    shown = f"{scheme}{slashes}{name}:***@{rest}" if at and colon else url
    return _PASSWORD.sub("***", shown)
