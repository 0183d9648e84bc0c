"""The errors of the service's verbs. ``api.problems`` turns each into a status with details.

``code`` is the name of a gRPC status; the HTTP status follows from it. A message says what was wrong,
what is allowed, and what to do.
"""

from __future__ import annotations

from unskew.core.errors import UnskewError

__all__ = [
    "ConflictError", "DamagedError", "DeniedError", "FieldError", "LimitError", "NotFoundError", "QuotaError",
    "ServiceError", "UnauthenticatedError", "UnavailableError", "WritesRefusedError",
]  # fmt: skip


class ServiceError(UnskewError):
    """The root. Where one of these is raised nothing was changed, but for an ``UnavailableError``."""

    code = "INTERNAL"

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class FieldError(ServiceError):
    """A field of the request is not allowed."""

    code = "INVALID_ARGUMENT"

    def __init__(self, field: str, value: object, allowed: object) -> None:
        shown = repr(value)
        shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
        super().__init__(f"{field}: {shown} is not allowed; use {allowed}", field=field)


class NotFoundError(ServiceError):
    """There is no such stream, batch or version."""

    code = "NOT_FOUND"


class ConflictError(ServiceError):
    """The request is right by itself, but not for what is there: another number of partitions, another key type."""

    code = "FAILED_PRECONDITION"


class LimitError(ServiceError):
    """Too much: try later or send less. ``reason``: which limit, in a word, for the metrics; ``retry``: the seconds
    after which there may be room again, where waiting helps."""

    code = "RESOURCE_EXHAUSTED"

    def __init__(self, message: str, *, field: str = "", reason: str = "limit", retry: float | None = None) -> None:
        super().__init__(message, field=field)
        self.reason, self.retry = reason, retry


class QuotaError(LimitError):
    """More would be kept than may be. ``quota`` names the bound, for metrics."""

    def __init__(self, quota: str, message: str, *, field: str = "") -> None:
        super().__init__(message, field=field)
        self.quota = quota


class UnauthenticatedError(ServiceError):
    """No credential, or an unknown one."""

    code = "UNAUTHENTICATED"


class DeniedError(ServiceError):
    """The credential is valid and does not allow this."""

    code = "PERMISSION_DENIED"


class UnavailableError(ServiceError):
    """The store does not answer: the same request may be sent again."""

    code = "UNAVAILABLE"


class DamagedError(UnavailableError):
    """The store answers, and what it has of a stream cannot be read."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"store: what it has of this stream's {what} is damaged; restore the store from a copy, or delete the "
            "stream: a job then puts it again"
        )


class WritesRefusedError(UnavailableError):
    """The store answers, and takes no write: it is full, or a replica. Nothing was changed."""
