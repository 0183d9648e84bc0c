"""Everything that touches pyspark: plans for DataFrames, both routing faces, operators."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unskew.spark.physical import dropped_exchange
    from unskew.spark.session import Unskew

__all__ = ["Unskew", "dropped_exchange"]

# Loaded when first named: a task that imports one helper of this package needs no session.
_HOMES = {"Unskew": "session", "dropped_exchange": "physical"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
