"""Every error of unskew, in one tree.

::

    UnskewError
    ├── ConfigError          a name or a parameter is not allowed          (parameter, value, allowed)
    ├── KeyTypeError         a key column cannot be hashed as Spark would  (the column's type, what to do)
    ├── HistogramError       counts that cannot be a histogram
    ├── WireError            a message with a field that is not allowed                (field, why, too_much)
    ├── StateError           stored state that is missing, damaged, or another query's
    └── PlanError            a plan that cannot be built, or may not be used here
        └── PlanFormatError  bytes that are no plan of unskew, or are damaged

A message says what was wrong, the value, what is allowed, and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable

_SHOWN = 200  # characters of a value: an error must not contain a megabyte of input

__all__ = [
    "ConfigError",
    "HistogramError",
    "KeyTypeError",
    "PlanError",
    "PlanFormatError",
    "StateError",
    "UnskewError",
    "WireError",
]


class UnskewError(Exception):
    """Base of all errors that unskew raises on purpose."""


class ConfigError(UnskewError, ValueError):
    """A name or parameter is not allowed; names the parameter and the allowed range."""

    def __init__(self, parameter: str, value: object, allowed: str | Iterable[str]) -> None:
        text = allowed if isinstance(allowed, str) else "one of " + ", ".join(allowed)
        shown = repr(value)
        shown = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."
        super().__init__(f"{parameter}: {shown} is not allowed; use {text}")
        self.parameter = parameter
        self.value = value
        self.allowed = text


class KeyTypeError(UnskewError, TypeError):
    """A key column has a type that cannot be hashed exactly as Spark hashes it."""


class HistogramError(UnskewError, ValueError):
    """Counts that cannot be a histogram: wrong length, negative, or beyond a signed 64-bit total."""


class WireError(UnskewError, ValueError):
    """A message that cannot be accepted or sent; names the field by its path in the message."""

    def __init__(self, field: str, why: str, *, too_much: bool = False) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field
        self.why = why
        self.too_much = too_much  # well-formed, but larger than the limits allow

    def __reduce__(self) -> tuple[type, tuple[str, str], dict[str, bool]]:
        """Pickle all fields, because decoding may run in another process."""
        return type(self), (self.field, self.why), {"too_much": self.too_much}


class StateError(UnskewError, RuntimeError):
    """State stored between batches is missing, damaged, or another query's."""


class PlanError(UnskewError, ValueError):
    """A plan cannot be built with these settings, or does not fit the data it is used on."""


class PlanFormatError(PlanError):
    """Bytes that are not a plan of unskew, are damaged, or are in a newer format."""
