"""The identity whose call this is, for those who share by it: set by the transports, inherited by tasks."""

from __future__ import annotations

import contextvars

__all__ = ["caller", "set_caller"]

_caller: contextvars.ContextVar[str] = contextvars.ContextVar("unskew_caller", default="")


def set_caller(name: str) -> None:
    _caller.set(name)


def caller() -> str:
    """Its name; empty outside of a call."""
    return _caller.get()
