"""Which requests a browser may have been made to send by another site. Where no credential is needed, on loopback, all
that keeps such a site out is here; a service with credentials does not ask.

- A name that is made to mean 127.0.0.1 (DNS rebinding) makes the site's own pages ours: so the Host has to be known.
- What a form or a simple request can carry changes nothing: a POST has to have a content type or a header that a
  browser sends to another site only after asking (CORS), and that is never allowed here. It asks before each PUT and
  DELETE by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from unskew.service.api.problems import Fault
from unskew.service.rest.negotiation import JSON, PROTOBUF

__all__ = ["OWN_HEADER", "CrossSiteRules"]

OWN_HEADER = "x-unskew-request"
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[^:@/\[\]]+)(:\d{0,5})?")
_SAFE = {"GET", "HEAD", "OPTIONS"}
_NOT_ASKED_FOR = (
    f"where no credential is needed a POST has to have content-type {JSON} or {PROTOBUF}, or a header {OWN_HEADER}: a "
    "page of another site cannot send these"
)
Headers = Iterable[tuple[bytes, bytes]]


@dataclass(frozen=True)
class CrossSiteRules:
    """``hosts``: names that the Host may have, without ports; None: any."""

    hosts: frozenset[str] | None

    def refusal(self, method: str, headers: Headers) -> Fault | None:
        """Why this request is refused; None where it is not."""
        named = [(name, value.decode("latin-1").strip().lower()) for name, value in headers]
        hosts = [value for name, value in named if name == b"host"]
        if self.hosts is not None and (not hosts or not all(_host(one) in self.hosts for one in hosts)):
            return Fault("PERMISSION_DENIED", _foreign_host(hosts, self.hosts))
        if method in _SAFE:
            return None
        origins = [value for name, value in named if name == b"origin"]
        if any(origin.partition("://")[2] not in hosts for origin in origins):
            return Fault("PERMISSION_DENIED", f"a page of {origins[0][:100]!r} may not change anything here")
        if method == "POST" and not _asked_for(dict(named)):
            return Fault("INVALID_ARGUMENT", _NOT_ASKED_FOR, (), 415)
        return None


def _host(authority: str) -> str:
    """The name in a Host header, or nothing that is a name."""
    read = _AUTHORITY.fullmatch(authority)
    return "" if read is None else read[1].strip("[]").rstrip(".")


def _asked_for(headers: dict[bytes, str]) -> bool:
    kind = headers.get(b"content-type", "").partition(";")[0].strip()
    return kind in (JSON, PROTOBUF) or OWN_HEADER.encode() in headers


def _foreign_host(hosts: list[str], allowed: frozenset[str]) -> str:
    shown, names = hosts[0][:100] if hosts else "", ", ".join(sorted(allowed))
    return f"host: {shown!r} is not allowed; use {names}, or start the service with --allowed-hosts"
