"""What a call is about, told to whoever traces it: nobody, unless ``telemetry`` is on. Knows of no tracing library."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["Span", "called", "ids", "note", "within"]

Value = str | int | float | bool


class Span(Protocol):
    """A traced call. What is said after its end is lost."""

    def note(self, name: str, value: Value) -> None: ...

    def called(self, verb: str, route: str) -> None:
        """What it turned out to be a call of."""

    def ids(self) -> tuple[str, str] | None:
        """The trace's id and its own, in hexadecimal digits; None when it has ended."""


_span: contextvars.ContextVar[Span | None] = contextvars.ContextVar("unskew_span", default=None)


def note(name: str, value: Value) -> None:
    """Say something of the present call: ``note("stream", "clicks")``."""
    span = _span.get()
    if span is not None:
        span.note(name, value)


def called(verb: str, route: str) -> None:
    """Say which verb the present call is of, where its path has to be looked at first."""
    span = _span.get()
    if span is not None:
        span.called(verb, route)


def ids() -> tuple[str, str] | None:
    """Trace and span of the present call."""
    span = _span.get()
    return None if span is None else span.ids()


@contextmanager
def within(span: Span) -> Iterator[None]:
    """What is done in here is of this call."""
    token = _span.set(span)
    try:
        yield
    finally:
        _span.reset(token)
