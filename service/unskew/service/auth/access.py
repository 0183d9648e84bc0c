"""Who may do what, for gRPC, REST, documents and metrics alike: callers are identified by their credentials and refused
by one rule; changes are written to the audit log.

Where no credentials are configured everybody is an admin; ``app.settings`` allows that on loopback only, or by a flag.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from unskew.core.errors import ConfigError, UnskewError
from unskew.service.auth.credentials import ANYBODY, CallerTable, Identity, read_credentials
from unskew.service.auth.roles import ROLE_OF
from unskew.service.auth.tokens_file import read_tokens_file, unreadable
from unskew.service.errors import DeniedError, ServiceError, UnauthenticatedError

__all__ = ["Access", "audit", "audited_change"]

_log = logging.getLogger("unskew.access")
_audit = logging.getLogger("unskew.audit")
_CHECK_INTERVAL = 1.0  # seconds between two checks whether the file changed
_UNKNOWN = "the credential is not known here, or has expired; ask for a new one"
_LONGEST_NAME = 200  # a name that is longer is refused, and cut in the log
_CHANGES = {"PutStream", "DeleteStream"}


class Access:
    """Says who a caller is and whether it may. The file is read again when it has changed; one that is not whole, has
    no entry or cannot be read leaves the credentials as they were, and an error in the log."""

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
        self._stamp: object = None
        self._complaint = ""
        self._next = 0.0
        self._callers = CallerTable(self._fixed)
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
                raise self._rejection("unknown scheme", "the Authorization header must be: Bearer <token>")
            caller = self._callers.of(token.strip())
        else:
            caller = next((self._callers.by_san[san] for san in sans if san in self._callers.by_san), None)
            if caller is None:
                raise self._rejection("no credential", "send the header Authorization: Bearer <token>")
        if caller is None or (caller.expires is not None and self._clock() >= caller.expires):
            raise self._rejection("unknown credential", _UNKNOWN)
        return caller

    def bytes_of(self, name: str) -> int | None:
        """How many bytes the streams of this identity may have, if not as many as the settings say."""
        return self._callers.bytes_of.get(name)

    def require(self, who: Identity, verb: str, stream: str | None = None) -> None:
        """Raises a ``DeniedError``, the same whether the stream exists or not. A verb without a stream needs its role
        on any stream; metrics need it on all."""
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
            if verb in _CHANGES:
                audit(who, verb, stream or "", f"refused: {DeniedError.code}")
            raise DeniedError(f"{who.name} may not call {verb} on {on}: it needs the role {need} there")

    def _rejection(self, reason: str, message: str) -> UnauthenticatedError:
        self._rejected(reason)
        return UnauthenticatedError(message)

    def _reread(self, path: Path, *, first: bool = False) -> None:
        self._next = self._timer() + _CHECK_INTERVAL
        try:
            stat = path.stat()
            stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if stamp == self._stamp:
                return
            entries = read_tokens_file(path)
            self._callers, self._stamp = CallerTable((*self._fixed, *entries)), stamp
        except (OSError, ConfigError) as why:
            if first:
                raise why if isinstance(why, ConfigError) else unreadable(path, why) from None
            if str(why) != self._complaint:  # once, not at every check
                self._complaint = str(why)
                _log.error("tokens file not taken, the credentials before stay: %s", why)
        else:
            self._complaint = ""
            _log.info("tokens file read", extra={"credentials": len(entries)})


def audit(who: Identity, verb: str, stream: str, outcome: str, **more: Any) -> None:
    """A line of the audit log about a change, made or refused."""
    fields = {"identity": who.name, "stream": stream[:_LONGEST_NAME], "verb": verb, **more}
    _audit.info("%s %s", verb, outcome, extra=fields)


class audited_change:  # noqa: N801 - used as a statement
    """Around a change: writes how it ended to the audit log, if it was refused or an ``outcome`` was set."""

    def __init__(self, who: Identity, verb: str, stream: str, **more: object) -> None:
        self._who, self._verb, self._stream = who, verb, stream
        self.outcome, self.more = "", more

    def __enter__(self) -> audited_change:
        return self

    def __exit__(self, _kind: object, why: BaseException | None, _trace: TracebackType | None) -> None:
        outcome = self.outcome if why is None else _refused(why)
        if outcome:
            audit(self._who, self._verb, self._stream, outcome, **self.more)


def _refused(why: BaseException) -> str:
    """A denied call has its line already (``Access.require``). An abandoned one may have changed something."""
    if isinstance(why, DeniedError):
        return ""
    if isinstance(why, ServiceError):
        return f"refused: {why.code}"
    if isinstance(why, UnskewError):
        return "refused: INVALID_ARGUMENT"
    fault = getattr(why, "fault", None)  # of REST (``problems``)
    return f"refused: {fault.code}" if fault is not None else "failed" if isinstance(why, Exception) else "abandoned"
