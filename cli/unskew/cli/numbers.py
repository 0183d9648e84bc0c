"""Parses numbers of options. Only ASCII digits are allowed: ``int`` would also take ``1_6`` and other digits."""

from __future__ import annotations

import re
from math import isfinite

from unskew.core.errors import ConfigError

__all__ = ["above", "bits", "fractions", "share", "whole"]

_DIGITS = re.compile(r"[0-9]{1,20}")
_DECIMAL = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?")
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]{1,16}")


def whole(option: str, text: str, least: int, most: int) -> int:
    """A whole number within bounds, both allowed."""
    number = int(text) if _DIGITS.fullmatch(text) else least - 1
    if not least <= number <= most:
        raise ConfigError(option, text, f"a whole number, {least} to {most}")
    return number


def above(option: str, text: str, most: float) -> float:
    """A number above 0, with or without a point."""
    number = float(text) if _DECIMAL.fullmatch(text) else 0.0
    if not 0 < number <= most:
        raise ConfigError(option, text, f"a number above 0, up to {most:g}, such as 60 or 0.5")
    return number


def share(option: str, text: str, most: float) -> float:
    """A number from 0 on, with or without a point."""
    number = float(text) if _DECIMAL.fullmatch(text) else -1.0
    if not 0 <= number <= most:
        raise ConfigError(option, text, f"a number, 0 to {most:g}, such as 0.1")
    return number


def bits(text: str) -> int | None:
    """64 bits, in hexadecimal or decimal; None for anything else."""
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    number = int(text) if _DIGITS.fullmatch(text) else 2**64
    return number if number < 2**64 else None


def fractions(option: str, text: str, count: int) -> tuple[float, ...]:
    """As many numbers above 0 as ``count``, with commas between them."""
    try:
        if "_" in text or not text.isascii():
            raise ValueError
        numbers = tuple(float(part) for part in text.split(","))
        if len(numbers) != count or not all(isfinite(number) and number > 0 for number in numbers):
            raise ValueError
    except ValueError:
        raise ConfigError(option, text, f"{count} numbers above 0 with commas between them, one a partition") from None
    return numbers
