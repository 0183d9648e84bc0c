"""Where a store is, read from its URL: ``memory``, or one of three kinds of Redis.

- ``redis://[user:password@]host[:port][/db]``
- ``redis+sentinel://[user:password@]host[:port],host[:port].../service[/db]``: the Sentinels, not the servers
- ``redis+cluster://[user:password@]host[:port],host[:port]...``: any of its nodes

``rediss`` for ``redis`` is TLS. After ``?`` come all other settings of the store (``OPTIONS``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from unskew.core.errors import ConfigError

__all__ = ["OPTIONS", "Address", "RedisTls", "read_address"]

_FORMS = "memory, redis://host:port/db, redis+sentinel://host:port,host:port/service, redis+cluster://host:port"
_KINDS = {"redis": "single", "redis+sentinel": "sentinel", "redis+cluster": "cluster"}
_PORTS = {"single": 6379, "sentinel": 26379, "cluster": 6379}
OPTIONS = {
    "prefix": "of every key and channel, without { or } (unskew)",
    "ttl": "seconds that a stream nobody uses is kept, at least 60 (2592000)",
    "timeout": "seconds for one attempt (0.5)",
    "deadline": "seconds for an operation with its repeats (1.5)",
    "connections": "at most so many at once (64)",
    "ca": "file of the authorities that may sign the server's certificate (the system's)",
    "cert": "file of the client's certificate",
    "key": "file of its private key",
    "check_host": "no: do not compare the certificate's name with the host",
    "sentinel_username": "where the Sentinels have another user than the servers",
    "sentinel_password": "and their password",
}


@dataclass(frozen=True)
class RedisTls:
    """Files in PEM."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    check_host: bool = True


@dataclass(frozen=True)
class Address:
    """``kind``: "memory", "single", "sentinel", "cluster"."""

    kind: str
    hosts: tuple[tuple[str, int], ...] = ()
    service: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: RedisTls | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


def read_address(url: str) -> Address:
    """The address, or a ``ConfigError`` that does not repeat the password."""
    if url in ("", "memory", "memory://"):
        return Address("memory")
    scheme, _, rest = url.partition("://")
    secure = scheme == "rediss" or scheme.startswith("rediss+")
    kind = _KINDS.get(scheme.replace("rediss", "redis", 1))
    if kind is None or not rest:
        raise ConfigError("store", f"{scheme}://..." if rest else "***", _FORMS)
    # urlsplit takes one host only: the list is split here.
    parts = urlsplit(f"//{rest}")
    user, at, hosts = parts.netloc.rpartition("@")
    name, colon, password = user.partition(":")
    service, db = _path(kind, parts.path)
    options = _options(parts.query)
    return Address(
        kind=kind,
        hosts=tuple(_host(text, _PORTS[kind]) for text in hosts.split(",")),
        service=service,
        db=db,
        username=unquote(name) if at and name else None,
        password=unquote(password) if colon else None,
        tls=_tls(options) if secure else None,
        options=options,
    )


def _host(text: str, port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, given = parts.hostname, parts.port
    except ValueError:
        host, given = None, None
    if not host or given == 0:
        raise ConfigError("store", text, f"host:port; {_FORMS}")
    return host, port if given is None else given


def _path(kind: str, path: str) -> tuple[str, int]:
    """The name of the service that Sentinels watch, and the database."""
    steps = [unquote(step) for step in path.strip("/").split("/") if step]
    service = steps.pop(0) if kind == "sentinel" and steps else ""
    if kind == "sentinel" and not service:
        raise ConfigError("store", path, "redis+sentinel://host:port,host:port/service")
    db = steps.pop(0) if steps and kind != "cluster" else "0"
    if steps or not (db.isascii() and db.isdecimal()):
        raise ConfigError("store", path, _FORMS)
    return service, int(db)


def _options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in OPTIONS:
            raise ConfigError("store option", name, sorted(OPTIONS))
    return options


def _tls(options: Mapping[str, str]) -> RedisTls:
    check = options.get("check_host", "yes")
    if check not in ("yes", "no"):
        raise ConfigError("check_host", check, ("yes", "no"))
    return RedisTls(options.get("ca"), options.get("cert"), options.get("key"), check == "yes")
