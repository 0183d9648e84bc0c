"""The command's own errors: files that cannot be read or written, packages that are missing."""

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
    """A package is needed that the base install does not contain."""


def choices(name: str, allowed: Iterable[str]) -> str:
    """The allowed names, and the one that was probably meant by ``name``."""
    names = list(allowed)
    near = get_close_matches(name, names, n=1)
    return f"one of {', '.join(names)}" + (f" (did you mean {near[0]}?)" if near else "")


def first_line(why: BaseException) -> str:
    """The first line of a library's error message."""
    text = str(why).strip().splitlines()
    return text[0].rstrip(".") if text else type(why).__name__
