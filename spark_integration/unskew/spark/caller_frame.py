"""Where a warning is to point: at the line of the user's that led to it."""

from __future__ import annotations

import sys

__all__ = ["caller_level"]


def caller_level() -> int:
    """The stack level, for whoever warns, of the first caller that is not of this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("unskew.spark."):
        frame, level = frame.f_back, level + 1
    return level
