"""The line of the user's code that a warning points to."""

from __future__ import annotations

import sys

__all__ = ["caller_level"]


def caller_level() -> int:
    """The stack level, for ``warnings.warn``, of the first caller outside of this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("unskew.spark."):
        frame, level = frame.f_back, level + 1
    return level
