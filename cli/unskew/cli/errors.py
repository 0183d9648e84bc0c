"""Errors that only the command can meet: files that cannot be read or written."""

from __future__ import annotations

from unskew.core.errors import UnskewError

__all__ = ["InputError", "MissingExtraError", "OutputError", "first_line"]


class InputError(UnskewError):
    """A file that cannot be read as keys or as a plan."""


class OutputError(UnskewError):
    """A file that cannot be written."""


class MissingExtraError(UnskewError):
    """A package that the base install does not carry."""


def first_line(why: BaseException) -> str:
    """What a library had to say, on one short line."""
    text = str(why).strip().splitlines()
    return text[0].rstrip(".") if text else type(why).__name__
