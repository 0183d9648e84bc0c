"""Everything that touches pyspark: plans for DataFrames, both routing faces, operators."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unskew.core.advice import Advice
    from unskew.core.elastic import Elastic
    from unskew.core.join_plan import Bounds, JoinPlan
    from unskew.spark.histogram import Sampling
    from unskew.spark.joins import JoinWarning
    from unskew.spark.memory import GroupMemoryWarning
    from unskew.spark.physical import dropped_exchange
    from unskew.spark.planning import ServiceWarning
    from unskew.spark.session import Unskew

__all__ = [
    "Advice",
    "Bounds",
    "Elastic",
    "GroupMemoryWarning",
    "JoinPlan",
    "JoinWarning",
    "Sampling",
    "ServiceWarning",
    "Unskew",
    "dropped_exchange",
]

# Loaded when first named: a task that imports one helper of this package needs no session.
_HOMES = {
    "Advice": "unskew.core.advice",
    "Bounds": "unskew.core.join_plan",
    "Elastic": "unskew.core.elastic",
    "GroupMemoryWarning": "unskew.spark.memory",
    "JoinPlan": "unskew.core.join_plan",
    "JoinWarning": "unskew.spark.joins",
    "Sampling": "unskew.spark.histogram",
    "ServiceWarning": "unskew.spark.planning",
    "Unskew": "unskew.spark.session",
    "dropped_exchange": "unskew.spark.physical",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
