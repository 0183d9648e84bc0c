"""Credentials: who a caller is, what it may do and how much, and the list that says so.

A credential is a bearer token, kept as its SHA-256 only, or a name in a client's certificate. It has an identity for
the log and grants: a role on the streams whose names match a pattern. Roles include each other: an admin reports, a
reporter reads. How much an identity may have is bounded by the settings, or by limits of its own.

The list is JSON, ``{"tokens": [{"sha256": .., "identity": .., "role": .., "streams": [..], "expires": ..}]}`` (``san``
instead of ``sha256`` for a certificate; limits by their names), or lines of ``sha256 identity role pattern,pattern
[expires] [max_streams=50 ...]``, ``#`` begins a comment. A credential may have several entries: then it has all their
grants, and the limits of each.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone

from unskew.core.errors import ConfigError
from unskew.service.auth.roles import ROLE_OF, Grant, Role

__all__ = ["ANYBODY", "Allowance", "CallerTable", "Entry", "Identity", "is_json", "read_credentials"]

_DIGEST = re.compile(r"[0-9a-f]{64}")
_FORM = "sha256 identity role streams [expires] [max_streams=..]"


@dataclass(frozen=True)
class Allowance:
    """How much an identity may have; None: as much as the settings say. ``max_message_bytes`` can only be less."""

    max_streams: int | None = None
    max_histogram_keys: int | None = None
    max_message_bytes: int | None = None
    max_calls_per_second: int | None = None
    max_identity_bytes: int | None = None
    max_identity_bytes_in_flight: int | None = None
    max_watchers: int | None = None


@dataclass(frozen=True)
class Identity:
    """Who a caller is, what it may do, and how much. ``expires`` in seconds since 1970."""

    name: str
    grants: tuple[Grant, ...]
    expires: float | None = None
    allowance: Allowance = Allowance()

    def may(self, verb: str, stream: str) -> bool:
        return any(grant.covers(ROLE_OF[verb], stream) for grant in self.grants)

    def may_everywhere(self, verb: str) -> bool:
        return any(grant.role >= ROLE_OF[verb] and grant.pattern == "*" for grant in self.grants)


_LIMITS = tuple(field.name for field in fields(Allowance))
_MOST = 2**40

ANYBODY = Identity("anybody", (Grant(Role.ADMIN, "*"),))


@dataclass(frozen=True)
class Entry:
    digest: str  # of a token; empty for a certificate
    san: str
    identity: Identity


def read_credentials(text: str, where: str) -> tuple[Entry, ...]:
    """The entries of such a file; a ``ConfigError`` names the one that is wrong, without its secret."""
    if is_json(text):
        try:
            listed = json.loads(text)["tokens"]
            assert isinstance(listed, list)
        except (ValueError, KeyError, AssertionError):
            raise ConfigError(where, "this JSON", '{"tokens": [{"sha256": .., "identity": .., ...}]}') from None
        rows = [(f"{where}, token {number}", row) for number, row in enumerate(listed, 1)]
    else:
        lines = ((number, line.partition("#")[0].split()) for number, line in enumerate(text.splitlines(), 1))
        rows = [(f"{where}, line {number}", _of_line(words)) for number, words in lines if words]
    merged: dict[tuple[str, str], Entry] = {}
    for at, row in rows:
        entry = _entry(at, row)
        earlier = merged.get((entry.digest, entry.san))
        merged[entry.digest, entry.san] = entry if earlier is None else _merge(at, earlier, entry)
    return tuple(merged.values())


def is_json(text: str) -> bool:
    return text.lstrip().startswith("{")


def _of_line(words: list[str]) -> object:
    limits = [word for word in words[4:] if "=" in word]
    rest = [word for word in words[4:] if "=" not in word]
    if len(words) < 4 or len(rest) > 1:
        return None
    name = {"san": words[0][4:]} if words[0].startswith("san=") else {"sha256": words[0]}
    row: dict[str, object] = {**name, "identity": words[1], "role": words[2], "streams": words[3].split(",")}
    for word in limits:
        limit, _, number = word.partition("=")
        row[limit] = int(number) if number.isdecimal() else number
    return {**row, "expires": rest[0]} if rest else row


def _entry(at: str, row: object) -> Entry:
    if not isinstance(row, dict):
        raise ConfigError(at, "its form", _FORM)
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
    unknown = set(row) - {"sha256", "san", "identity", "role", "streams", "expires", *_LIMITS}
    if unknown:
        raise ConfigError(
            at, sorted(unknown)[0], f"sha256 or san, identity, role, streams, expires, {', '.join(_LIMITS)}"
        )
    grants = tuple(Grant(Role[role], pattern) for pattern in streams)
    return Entry(digest, san, Identity(name, grants, _expiry(at, row.get("expires")), _allowance(at, row)))


def _allowance(at: str, row: Mapping[str, object]) -> Allowance:
    limits: dict[str, int] = {}
    for limit in _LIMITS:
        value = row.get(limit)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
            raise ConfigError(
                f"{at}, {limit}", value, f"a whole number, 1 to {_MOST}; leave it out for the settings' own"
            )
        limits[limit] = value
    return Allowance(**limits)


def _expiry(at: str, value: object) -> float | None:
    if value is None:
        return None
    try:
        when = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        raise ConfigError(at, value, "expires as 2027-01-31 or 2027-01-31T12:00:00Z") from None
    return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()


def _merge(at: str, one: Entry, other: Entry) -> Entry:
    a, b = one.identity, other.identity
    if (a.name, a.expires) != (b.name, b.expires):
        raise ConfigError(at, b.name, f"the identity and expiry that the same credential has above: {a.name}")
    return Entry(one.digest, one.san, Identity(a.name, a.grants + b.grants, a.expires, _merge_limits(at, a, b)))


def _merge_limits(at: str, one: Identity, other: Identity) -> Allowance:
    """The limits of both. A limit that differs is refused: it is not clear which of the two is meant."""
    limits = asdict(one.allowance)
    for limit, value in asdict(other.allowance).items():
        if None not in (value, limits[limit]) and value != limits[limit]:
            raise ConfigError(
                f"{at}, {limit}", value, f"what the same credential has above, {limits[limit]}, or leave it out"
            )
        limits[limit] = limits[limit] if value is None else value
    return Allowance(**limits)


class CallerTable:
    """Credentials by a keyed digest, so that the time of a look-up says nothing about the others."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._key = secrets.token_bytes(32)
        self._by_token: dict[bytes, tuple[str, Identity]] = {}
        self.by_san: dict[str, Identity] = {}
        self.bytes_of: dict[str, int] = {}
        """``max_identity_bytes`` by identity: the most that one of its credentials says."""
        for entry in entries:
            name, own = entry.identity.name, entry.identity.allowance.max_identity_bytes
            if own is not None:
                self.bytes_of[name] = max(own, self.bytes_of.get(name, 0))
            if entry.san:
                self.by_san[entry.san] = entry.identity
            else:
                self._by_token[self._blind(entry.digest)] = (entry.digest, entry.identity)

    def _blind(self, digest: str) -> bytes:
        return hashlib.blake2b(digest.encode(), key=self._key).digest()

    def of(self, token: str) -> Identity | None:
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
        entry = self._by_token.get(self._blind(digest))
        if entry is None or not hmac.compare_digest(entry[0], digest):
            return None
        return entry[1]
