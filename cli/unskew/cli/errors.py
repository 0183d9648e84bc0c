"""Errors that only the command can meet: files that cannot be read or written."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from unskew.core.errors import UnskewError

__all__ = ["InputError", "MissingExtraError", "OutputError", "choices", "first_line"]


class InputError(UnskewError):
    """A file that cannot be read as keys or as a plan."""


class OutputError(UnskewError):
    """A file that cannot be written."""


class MissingExtraError(UnskewError):
    """A package that the base install does not carry."""


def choices(name: str, allowed: Iterable[str]) -> str:
    """What could have been given instead of this name, and which of it was probably meant."""
    there = list(allowed)
    near = get_close_matches(name, there, n=1)
    return f"one of {', '.join(there)}" + (f" (did you mean {near[0]}?)" if near else "")


def first_line(why: BaseException) -> str:
    """What a library had to say, on one short line."""
    text = str(why).strip().splitlines()
    return text[0].rstrip(".") if text else type(why).__name__
