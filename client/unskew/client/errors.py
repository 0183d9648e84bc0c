"""The errors of calls to the service. The rest of the tree, and its root, is in ``unskew.core.errors``.

::

    UnskewError
    ├── ClientClosedError        used after close()
    └── ServiceCallError         a call failed                      (verb, stream, code, detail)
        ├── NoAnswerError        not reached, too late, or it is going down: the same call may be made again
        ├── FaultError           a fault of the service, or of a proxy before it
        ├── NotThereError        no such stream, batch or version
        ├── RefusedError         a field is not allowed, or does not fit the stream
        ├── NoAccessError        no credential, or one that does not allow this
        └── LimitReachedError    a limit: send less, or later

Arguments that are refused before anything is sent raise ``ConfigError``, ``WireError`` or another of core's errors.
"""

from __future__ import annotations

from unskew.core.errors import UnskewError

__all__ = [
    "UNSERVED", "ClientClosedError", "FaultError", "LimitReachedError", "NoAccessError", "NoAnswerError",
    "NotThereError", "RefusedError", "ServiceCallError", "call_error",
]  # fmt: skip

_LONGEST = 600  # characters of a detail


class ClientClosedError(UnskewError):
    """The client, agent or reporter is closed; make a new one."""


class ServiceCallError(UnskewError):
    """A call failed; its subclasses say why, and the message what to do.

    Parameters
    ----------
    verb, stream, target : the RPC, the stream that it was about (empty for none), and the service's address
    code : the name of the gRPC status
    detail : what the service or gRPC said
    retry_after : seconds after which the service may take the same call; 0.0: it did not say

    Examples
    --------
    >>> error = NotThereError("GetPlan", "clicks", "localhost:8081", "NOT_FOUND", "no stream 'clicks'")
    >>> isinstance(error, ServiceCallError), error.code
    (True, 'NOT_FOUND')
    >>> print(error)  # doctest: +ELLIPSIS
    GetPlan of stream 'clicks' at localhost:8081: no stream 'clicks' (NOT_FOUND); put_stream makes a stream...
    """

    advice = ""

    def __init__(self, verb: str, stream: str, target: str, code: str, detail: str, retry_after: float = 0.0) -> None:
        of = f"{verb} of stream {stream!r}" if stream else verb
        super().__init__(f"{of} at {target}: {detail or 'no reason was given'} ({code}); {self.advice}")
        self.verb, self.stream, self.target, self.code, self.detail = verb, stream, target, code, detail
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.verb, self.stream, self.target, self.code, self.detail, self.retry_after)


class NoAnswerError(ServiceCallError):
    """The service was not reached, not in time, or is going down. The same call may be made again."""

    advice = "is `unskew serve` running there? The call may be made again as it is, or with a longer timeout"


class FaultError(ServiceCallError):
    """A fault of the service, or of a proxy before it."""

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
    """A limit of the service was reached: of message size, keys, streams or watches."""

    advice = "send less, or try later"


UNSERVED = (NoAnswerError, FaultError, NoAccessError, LimitReachedError)
"""Errors after which a job can go on without the service: the job's own settings and rows are not their cause."""

_CODES: dict[type[ServiceCallError], str] = {
    NoAnswerError: "UNAVAILABLE DEADLINE_EXCEEDED CANCELLED ABORTED",
    NotThereError: "NOT_FOUND",
    RefusedError: "INVALID_ARGUMENT FAILED_PRECONDITION ALREADY_EXISTS OUT_OF_RANGE UNIMPLEMENTED",
    NoAccessError: "UNAUTHENTICATED PERMISSION_DENIED",
    LimitReachedError: "RESOURCE_EXHAUSTED",
}
_KINDS = {code: kind for kind, codes in _CODES.items() for code in codes.split()}


def call_error(
    verb: str, stream: str, target: str, code: str, detail: str, retry_after: float = 0.0
) -> ServiceCallError:
    """The error for a gRPC status."""
    detail = " ".join(detail.split())
    short = detail if len(detail) <= _LONGEST else f"{detail[: _LONGEST - 3]}..."
    return _KINDS.get(code, FaultError)(verb, stream, target, code, short, retry_after)
