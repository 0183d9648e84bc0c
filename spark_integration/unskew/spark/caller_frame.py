"""Warnings that point to the line of the user's code."""

from __future__ import annotations

import sys
import warnings

__all__ = ["warn"]


def warn(text: str, kind: type[Warning]) -> None:
    """Warn at the first caller outside of this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("unskew.spark."):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, kind, stacklevel=level)
