"""What a call to the service can end with. The rest of the tree, and its root, is in ``unskew.core.errors``.

::

    UnskewError
    ├── ClientClosedError        used after close()
    └── ServiceCallError         the service said no, or nothing    (verb, stream, code, detail)
        ├── NoAnswerError        not reached, too late, or it is going down: the same call may be made again
        ├── FaultError           a fault of the service, or of a proxy before it
        ├── NotThereError        no such stream, batch or version
        ├── RefusedError         a field is not allowed, or does not fit the stream
        ├── NoAccessError        no credential, or one that does not allow this
        └── LimitReachedError    a limit: send less, or later

What is refused before anything is sent is a ``ConfigError``, a ``WireError`` or another of core's errors.
"""

from __future__ import annotations

from unskew.core.errors import UnskewError

__all__ = [
    "UNSERVED",
    "ClientClosedError",
    "FaultError",
    "LimitReachedError",
    "NoAccessError",
    "NoAnswerError",
    "NotThereError",
    "RefusedError",
    "ServiceCallError",
    "call_error",
]

_LONGEST = 600


class ClientClosedError(UnskewError):
    """The client was closed before."""


class ServiceCallError(UnskewError):
    """A call failed. ``code`` is the name of the gRPC status, ``detail`` what the service or the transport said."""

    advice = ""

    def __init__(self, verb: str, stream: str, target: str, code: str, detail: str) -> None:
        of = f"{verb} of stream {stream!r}" if stream else verb
        super().__init__(f"{of} at {target}: {detail or 'no reason was given'} ({code}); {self.advice}")
        self.verb = verb
        self.stream = stream
        self.target = target
        self.code = code
        self.detail = detail

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.verb, self.stream, self.target, self.code, self.detail)


class NoAnswerError(ServiceCallError):
    """The service was not reached, or not in time. Nothing is known of the call; it may be made again as it was."""

    advice = "is `unskew serve` running there? The call may be made again as it is, or with a longer timeout"


class FaultError(ServiceCallError):
    """Something broke, in the service or on the way to it."""

    advice = "look into the service's log for this call, and that of a proxy before it"


class NotThereError(ServiceCallError):
    """There is no such stream, batch or version."""

    advice = "put_stream makes a stream, list_streams tells which there are"


class RefusedError(ServiceCallError):
    """A field is not allowed, or does not fit what is there. Nothing was changed."""

    advice = "change what is named; the same call will be refused again"


class NoAccessError(ServiceCallError):
    """No credential, or one that does not allow this verb on this stream."""

    advice = "give a token (token=, token_file=, UNSKEW_TOKEN or UNSKEW_TOKEN_FILE) whose role allows it"


class LimitReachedError(ServiceCallError):
    """A limit of the service."""

    advice = "send less, or try later"


UNSERVED = (NoAnswerError, FaultError, NoAccessError, LimitReachedError)
"""What a job that can do without the service goes on after: it is no fault of the job's own settings or rows."""

_KINDS: dict[str, type[ServiceCallError]] = {
    "UNAVAILABLE": NoAnswerError,
    "DEADLINE_EXCEEDED": NoAnswerError,
    "CANCELLED": NoAnswerError,
    "ABORTED": NoAnswerError,
    "NOT_FOUND": NotThereError,
    "INVALID_ARGUMENT": RefusedError,
    "FAILED_PRECONDITION": RefusedError,
    "ALREADY_EXISTS": RefusedError,
    "OUT_OF_RANGE": RefusedError,
    "UNIMPLEMENTED": RefusedError,
    "UNAUTHENTICATED": NoAccessError,
    "PERMISSION_DENIED": NoAccessError,
    "RESOURCE_EXHAUSTED": LimitReachedError,
}


def call_error(verb: str, stream: str, target: str, code: str, detail: str) -> ServiceCallError:
    """The error for a gRPC status."""
    detail = " ".join(detail.split())
    short = detail if len(detail) <= _LONGEST else f"{detail[: _LONGEST - 3]}..."
    return _KINDS.get(code, FaultError)(verb, stream, target, code, short)
