"""How a message is refused: one ``WireError`` that names the field by its path, also where core found the fault.

Core's checks are not repeated; their errors get the name that the field has in the message. Values are cut short: an
error must not contain a megabyte of input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar

from google.protobuf.message import DecodeError, EncodeError, Message

from unskew.core.errors import ConfigError, UnskewError, WireError

__all__ = ["encoder", "parsed", "refusal", "serialized", "shown", "text"]

_SHOWN = 80
M = TypeVar("M", bound=Message)
P = ParamSpec("P")


def shown(value: object) -> str:
    """A value as an error shows it."""
    if isinstance(value, (str, list, tuple)):
        value = value[:_SHOWN]
    whole = repr(value)
    return whole if len(whole) <= _SHOWN else f"{whole[: _SHOWN - 3]}..."


def refusal(field: str, why: UnskewError, names: Mapping[str, str] | None = None) -> WireError:
    """Core's error by the field's path in the message; ``names`` maps the parameters that have another name there."""
    if isinstance(why, WireError):
        return why
    if isinstance(why, ConfigError):
        name = (names or {}).get(why.parameter, why.parameter)
        return WireError(f"{field}.{name}".removeprefix("."), f"{shown(why.value)} is not allowed; use {why.allowed}")
    message = str(why)
    return WireError(field, message if len(message) <= 4 * _SHOWN else f"{message[: 4 * _SHOWN]}...")


def parsed(message: type[M], data: bytes, field: str) -> M:
    """The message in these bytes."""
    try:
        return message.FromString(data)
    except (DecodeError, TypeError):
        name = message.__name__
        raise WireError(field, f"these bytes are no {name} of unskew; give a serialized {name} message") from None


def serialized(message: Message) -> bytes:
    """The one encoding of a message: equal messages give equal bytes."""
    return message.SerializeToString(deterministic=True)


def encoder(field: str) -> Callable[[Callable[P, M]], Callable[P, M]]:
    """For a function that fills a message: it raises a ``WireError`` where a value does not fit its field."""

    def decorate(fill: Callable[P, M]) -> Callable[P, M]:
        @wraps(fill)
        def encoded(*args: P.args, **kwargs: P.kwargs) -> M:
            try:
                return fill(*args, **kwargs)
            except WireError:
                raise
            except (ValueError, TypeError, OverflowError, EncodeError) as why:
                raise WireError(field, f"cannot be written: {shown(str(why))}") from None

        return encoded

    return decorate


def text(value: str, field: str, most: int) -> str:
    """A text of at most so many characters."""
    if len(value) > most:
        raise WireError(field, f"{len(value):,} characters, {shown(value)}; at most {most} are allowed")
    return value
