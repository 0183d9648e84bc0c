"""Who may do what: one table of verbs, one of credentials, for gRPC, REST, documents and metrics alike.

A credential is a bearer token, kept as its SHA-256 only, or a name in a client's certificate. It has an identity for
the log and grants: a role on the streams whose names match a pattern. Roles include each other: an admin reports, a
reporter reads. Where nothing is configured everybody is an admin; ``settings`` sees to it that this is loopback only,
or meant.

The file is JSON, ``{"tokens": [{"sha256": .., "identity": .., "role": .., "streams": [..], "expires": ..}]}`` (``san``
instead of ``sha256`` for a certificate), or lines of ``sha256 identity role pattern,pattern [expires]``, ``#`` begins a
comment. A credential may have several entries: then it has all their grants.
"""

from __future__ import annotations

import fnmatch
import hashlib
import hmac
import json
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import IntEnum
from pathlib import Path
from typing import Any

from unskew.core.errors import ConfigError
from unskew.service.errors import DeniedError, UnauthenticatedError

__all__ = ["ANYBODY", "ROLE_OF", "Access", "Grant", "Identity", "Role", "audit", "read_credentials"]

_log = logging.getLogger("unskew.access")
_audit = logging.getLogger("unskew.audit")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LOOK_AGAIN = 1.0  # seconds between two looks at the file
_UNKNOWN = "the credential is not known here, or has expired; ask for a new one"


class Role(IntEnum):
    """What may be done, each more than the one before it."""

    READER = 1
    REPORTER = 2
    ADMIN = 3


ROLE_OF: Mapping[str, Role] = {
    "PutStream": Role.ADMIN,
    "DeleteStream": Role.ADMIN,
    "ReportHistogram": Role.REPORTER,
    "BuildPlan": Role.REPORTER,
    "Sync": Role.REPORTER,
    "ReportBatch": Role.REPORTER,
    "GetStream": Role.READER,
    "ListStreams": Role.READER,
    "GetPlan": Role.READER,
    "WatchPlans": Role.READER,
    "GetScale": Role.READER,
    "Explain": Role.READER,
    "Metrics": Role.READER,  # of all streams: their names are in it
    "Describe": Role.READER,  # of any: the OpenAPI document, reflection
}


@dataclass(frozen=True)
class Grant:
    """A role on the streams whose names match. ``*`` matches any run of characters, ``/`` included."""

    role: Role
    pattern: str

    def covers(self, role: Role, stream: str) -> bool:
        return self.role >= role and fnmatch.fnmatchcase(stream, self.pattern)


@dataclass(frozen=True)
class Identity:
    """Who a caller is, and what it may do. ``expires`` in seconds since 1970."""

    name: str
    grants: tuple[Grant, ...]
    expires: float | None = None

    def may(self, verb: str, stream: str) -> bool:
        return any(grant.covers(ROLE_OF[verb], stream) for grant in self.grants)

    def may_everywhere(self, verb: str) -> bool:
        return any(grant.role >= ROLE_OF[verb] and grant.pattern == "*" for grant in self.grants)


ANYBODY = Identity("anybody", (Grant(Role.ADMIN, "*"),))


# -- the list of credentials ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Entry:
    digest: str  # of a token; empty for a certificate
    san: str
    identity: Identity


def read_credentials(text: str, where: str) -> tuple[_Entry, ...]:
    """The entries of such a file; a ``ConfigError`` says which one is wrong. Secrets are not repeated."""
    if text.lstrip().startswith("{"):
        try:
            listed = json.loads(text)["tokens"]
            assert isinstance(listed, list)
        except (ValueError, KeyError, AssertionError):
            raise ConfigError(where, "this JSON", '{"tokens": [{"sha256": .., "identity": .., ...}]}') from None
        rows = [(f"{where}, token {number}", row) for number, row in enumerate(listed, 1)]
    else:
        lines = ((number, line.partition("#")[0].split()) for number, line in enumerate(text.splitlines(), 1))
        rows = [(f"{where}, line {number}", _of_line(words)) for number, words in lines if words]
    merged: dict[tuple[str, str], _Entry] = {}
    for at, row in rows:
        entry = _entry(at, row)
        known = merged.get((entry.digest, entry.san))
        merged[entry.digest, entry.san] = entry if known is None else _joined(at, known, entry)
    return tuple(merged.values())


def _of_line(words: list[str]) -> object:
    if not 4 <= len(words) <= 5:
        return None
    name = {"san": words[0][4:]} if words[0].startswith("san=") else {"sha256": words[0]}
    row = {**name, "identity": words[1], "role": words[2], "streams": words[3].split(",")}
    return row if len(words) == 4 else {**row, "expires": words[4]}


def _entry(at: str, row: object) -> _Entry:
    if not isinstance(row, dict):
        raise ConfigError(at, "its form", "sha256 identity role streams [expires]")
    digest, san = str(row.get("sha256", "")).lower(), str(row.get("san", ""))
    if bool(digest) == bool(san) or (digest and not _DIGEST.fullmatch(digest)):
        raise ConfigError(at, "sha256", "the 64 hexadecimal digits of the token's SHA-256, or san with a name")
    name = row.get("identity")
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(at, name, "an identity: a name for the log")
    role, streams = str(row.get("role", "")).upper(), row.get("streams")
    if role not in Role.__members__:
        raise ConfigError(at, row.get("role"), "role reader, reporter or admin")
    if not isinstance(streams, list) or not streams or not all(isinstance(s, str) and s for s in streams):
        raise ConfigError(at, streams, "streams: one or more patterns, such as clicks or eu/*")
    unknown = set(row) - {"sha256", "san", "identity", "role", "streams", "expires"}
    if unknown:
        raise ConfigError(at, sorted(unknown)[0], "sha256 or san, identity, role, streams, expires")
    grants = tuple(Grant(Role[role], pattern) for pattern in streams)
    return _Entry(digest, san, Identity(name, grants, _expiry(at, row.get("expires"))))


def _expiry(at: str, value: object) -> float | None:
    if value is None:
        return None
    try:
        when = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        raise ConfigError(at, value, "expires as 2027-01-31 or 2027-01-31T12:00:00Z") from None
    return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()


def _joined(at: str, one: _Entry, other: _Entry) -> _Entry:
    a, b = one.identity, other.identity
    if (a.name, a.expires) != (b.name, b.expires):
        raise ConfigError(at, b.name, f"the identity and expiry that the same credential has above: {a.name}")
    return _Entry(one.digest, one.san, Identity(a.name, a.grants + b.grants, a.expires))


class _Known:
    """Credentials by a keyed digest, so that looking one up tells nothing of the others by its time."""

    def __init__(self, entries: Iterable[_Entry]) -> None:
        self._key = secrets.token_bytes(32)
        self._by_token: dict[bytes, tuple[str, Identity]] = {}
        self.by_san: dict[str, Identity] = {}
        for entry in entries:
            if entry.san:
                self.by_san[entry.san] = entry.identity
            else:
                self._by_token[self._blind(entry.digest)] = (entry.digest, entry.identity)

    def _blind(self, digest: str) -> bytes:
        return hashlib.blake2b(digest.encode(), key=self._key).digest()

    def of(self, token: str) -> Identity | None:
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
        found = self._by_token.get(self._blind(digest))
        if found is None or not hmac.compare_digest(found[0], digest):
            return None
        return found[1]


# -- asking ---------------------------------------------------------------------------------------------------


class Access:
    """Answers who a caller is and whether it may. The file is looked at again when it has changed; one that cannot be
    read then leaves the credentials as they were, and says so in the log."""

    def __init__(
        self,
        tokens_file: str = "",
        tokens: str = "",
        *,
        certificates: bool = False,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
        rejected: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self.open = not (tokens_file or tokens or certificates)
        self._path = Path(tokens_file) if tokens_file else None
        self._clock, self._timer, self._rejected = clock, timer, rejected
        self._fixed = read_credentials(tokens, "UNSKEW_TOKENS") if tokens else ()
        self._seen: object = None
        self._complaint = ""
        self._next = 0.0
        self._known = _Known(self._fixed)
        if self._path is not None:
            self._reread(self._path, first=True)

    def identify(self, authorization: str | None, sans: Iterable[str] = ()) -> Identity:
        """Who shows this ``Authorization`` header, or these names in a certificate; or an ``UnauthenticatedError``."""
        if self.open:
            return ANYBODY
        if self._path is not None and self._timer() >= self._next:
            self._reread(self._path)
        if authorization:
            scheme, _, token = authorization.partition(" ")
            if scheme.lower() != "bearer":
                raise self._turned_away("unknown scheme", "the Authorization header must be: Bearer <token>")
            found = self._known.of(token.strip())
        else:
            found = next((self._known.by_san[san] for san in sans if san in self._known.by_san), None)
            if found is None:
                raise self._turned_away("no credential", "send the header Authorization: Bearer <token>")
        if found is None or (found.expires is not None and self._clock() >= found.expires):
            raise self._turned_away("unknown credential", _UNKNOWN)
        return found

    def require(self, who: Identity, verb: str, stream: str | None = None) -> None:
        """Or a ``DeniedError``, the same whether the stream exists or not. A verb without a stream: on any of them,
        for metrics on all."""
        if stream is not None:
            allowed = who.may(verb, stream)
        elif verb == "Metrics":
            allowed = who.may_everywhere(verb)
        else:
            allowed = any(grant.role >= ROLE_OF[verb] for grant in who.grants)
        if not allowed:
            self._rejected("denied")
            on = "every stream" if verb == "Metrics" else f"stream {stream!r}" if stream is not None else "any stream"
            need = ROLE_OF[verb].name.lower()
            raise DeniedError(f"{who.name} may not call {verb} on {on}: it needs the role {need} there")

    def _turned_away(self, reason: str, message: str) -> UnauthenticatedError:
        self._rejected(reason)
        return UnauthenticatedError(message)

    def _reread(self, path: Path, *, first: bool = False) -> None:
        self._next = self._timer() + _LOOK_AGAIN
        try:
            stat = path.stat()
            seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if seen == self._seen:
                return
            entries = read_credentials(path.read_text("utf-8"), str(path))
            self._known, self._seen = _Known((*self._fixed, *entries)), seen
        except (OSError, UnicodeDecodeError, ConfigError) as why:
            if first:
                raise why if isinstance(why, ConfigError) else _unreadable(path, why) from None
            if str(why) != self._complaint:  # once, not at every look
                self._complaint = str(why)
                _log.error("tokens file not taken, the credentials before stay: %s", why)
        else:
            self._complaint = ""
            _log.info("tokens file read", extra={"credentials": len(entries)})


def _unreadable(path: Path, why: OSError | UnicodeDecodeError) -> ConfigError:
    return ConfigError("--tokens-file", str(path), f"a file in UTF-8 that can be read ({why})")


def audit(who: Identity, verb: str, stream: str, outcome: str, **more: Any) -> None:
    """A line of the log about a change, whether it was made or refused."""
    _audit.info("%s %s", verb, outcome, extra={"identity": who.name, "stream": stream, "verb": verb, **more})
