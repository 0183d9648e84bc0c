"""Errors for callers: each is a gRPC status with google.rpc details, or an RFC 9457 problem document.

An error that was not raised on purpose is a bug of the service: the caller gets a number to look for in the log.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import code_pb2, error_details_pb2, status_pb2

from unskew.core.errors import UnskewError
from unskew.service.errors import LimitError, ServiceError, UnauthenticatedError

__all__ = ["DOMAIN", "MEDIA_TYPE", "BodyError", "Fault", "FaultError", "TooLargeError"]

DOMAIN = "unskew"
MEDIA_TYPE = "application/problem+json"
_MAX_TEXT = 1200  # bytes: in the worst case six times as many in the trailers of a call, which may have 8 kB
_log = logging.getLogger("unskew.service")

_HTTP = {
    "INVALID_ARGUMENT": 422,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "FAILED_PRECONDITION": 409,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
    "CANCELLED": 499,
    "INTERNAL": 500,
    "DATA_LOSS": 500,
}


class TooLargeError(LimitError):
    """More than is accepted in one message: sending it again does not help."""

    http = 413


class BodyError(ServiceError):
    """Bytes that are not what their content type says."""

    code = "INVALID_ARGUMENT"
    http = 400


class FaultError(Exception):
    """Carries a fault to where it becomes an answer."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


@dataclass(frozen=True)
class Fault:
    """``fields`` are (field, what is wrong with it). ``http`` is 0 where the status follows from the code. ``retry``:
    the seconds after which the same request may be taken, where that is known."""

    code: str
    message: str
    fields: tuple[tuple[str, str], ...] = ()
    http: int = 0
    retry: float | None = None

    def __post_init__(self) -> None:
        """A text that is too long would arrive as another error: gRPC refuses large trailers."""
        object.__setattr__(self, "message", _clipped(self.message))
        fields = tuple((name, _clipped(text)) for name, text in self.fields)
        object.__setattr__(self, "fields", fields)

    @classmethod
    def of(cls, why: Exception) -> Fault:
        """The fault behind an error; one that was not raised on purpose is logged."""
        if isinstance(why, FaultError):
            return why.fault
        if isinstance(why, ServiceError):
            retry = why.retry if isinstance(why, LimitError) else None
            return cls(why.code, why.message, _fields(why.field, why.message), getattr(why, "http", 0), retry)
        if isinstance(why, UnskewError):
            name = str(getattr(why, "field", "") or getattr(why, "parameter", ""))
            if getattr(why, "too_much", False):
                return cls("RESOURCE_EXHAUSTED", str(why), _fields(name, str(why)), TooLargeError.http)
            return cls("INVALID_ARGUMENT", str(why), _fields(name, str(why)))
        if isinstance(why, asyncio.TimeoutError | TimeoutError):
            return cls("DEADLINE_EXCEEDED", "it took too long; the same request may be sent again")
        number = secrets.token_hex(4)
        _log.error("unexpected error %s", number, exc_info=why, extra={"error_id": number})
        return cls("INTERNAL", f"an error of the service itself; its log has it under {number}")

    @property
    def status(self) -> int:
        return self.http or _HTTP[self.code]

    @property
    def grpc_code(self) -> grpc.StatusCode:
        return grpc.StatusCode[self.code]

    def trailers(self) -> tuple[tuple[str, str | bytes], ...]:
        """The google.rpc.Status with its details, as gRPC carries it; ``retry-after`` in seconds for clients that do
        not read those."""
        status = status_pb2.Status(code=code_pb2.Code.Value(self.code), message=self.message)
        status.details.add().Pack(error_details_pb2.ErrorInfo(reason=self.code, domain=DOMAIN))
        if self.fields:
            violations = [{"field": name, "description": text} for name, text in self.fields]
            status.details.add().Pack(error_details_pb2.BadRequest(field_violations=violations))
        if self.retry is None:
            return (("grpc-status-details-bin", status.SerializeToString()),)
        delay = Duration()
        delay.FromNanoseconds(int(self.retry * 1e9))
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
        return (("grpc-status-details-bin", status.SerializeToString()), ("retry-after", f"{self.retry:.3f}"))

    def problem(self) -> dict[str, Any]:
        """The problem document (RFC 9457)."""
        document: dict[str, Any] = {
            "type": f"urn:unskew:problem:{self.code.lower().replace('_', '-')}",
            "title": "Client Closed Request" if self.status == 499 else HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.message,
            "code": self.code,
        }
        if self.fields:
            document["errors"] = [{"field": name, "detail": text} for name, text in self.fields]
        return document

    def headers(self) -> dict[str, str]:
        if self.code == UnauthenticatedError.code:
            return {"www-authenticate": 'Bearer realm="unskew"'}
        retry = self.status == 503 or (self.status == 429 and not self.fields)  # a wrong field stays wrong
        return {"retry-after": str(math.ceil(self.retry or 1.0))} if retry else {}


def _fields(name: str, message: str) -> tuple[tuple[str, str], ...]:
    return ((name, message),) if name else ()


def _clipped(text: str) -> str:
    data = text.encode("utf-8", "backslashreplace")
    return text if len(data) <= _MAX_TEXT else f"{data[: _MAX_TEXT - 3].decode('utf-8', 'ignore')}..."
