"""Attributes of the present call for its trace, where ``app.telemetry`` is on. Imports no tracing library."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["Span", "called", "ids", "note", "within"]

Value = str | int | float | bool


class Span(Protocol):
    """A traced call. Attributes that are set after its end are lost."""

    def note(self, name: str, value: Value) -> None: ...

    def called(self, verb: str, route: str) -> None:
        """Set the verb and the route once they are resolved."""

    def ids(self) -> tuple[str, str] | None:
        """The trace's id and its own, in hexadecimal digits; None when it has ended."""


_span: contextvars.ContextVar[Span | None] = contextvars.ContextVar("unskew_span", default=None)


def note(name: str, value: Value) -> None:
    """Set an attribute of the present call: ``note("stream", "clicks")``."""
    span = _span.get()
    if span is not None:
        span.note(name, value)


def called(verb: str, route: str) -> None:
    """Set the verb of the present call, where its path has to be resolved first."""
    span = _span.get()
    if span is not None:
        span.called(verb, route)


def ids() -> tuple[str, str] | None:
    """Trace and span of the present call."""
    span = _span.get()
    return None if span is None else span.ids()


@contextmanager
def within(span: Span) -> Iterator[None]:
    """What is done in here belongs to this call."""
    token = _span.set(span)
    try:
        yield
    finally:
        _span.reset(token)
