"""Everything that touches pyspark. ``session`` is what a job writes: ``Unskew`` and its verbs.

- ``service_link``: ask the service within the deadline, else decide alone; ``planning`` and ``session_stream``: what
  else all verbs of a session share;
- ``frame``: what is read from a frame before anything is placed; ``place``: how rows get to their partitions;
- ``operators``: groups, aggregates, joins and advice on placed rows;
- ``streaming`` and ``stateful``: micro-batches bound to their plans, and state of our own; ``demo``: ``unskew demo``.

Begin with ``session``. A new verb is a method there and a module in one of these folders. Which plan a job's rows
go by is decided in ``planning``; which one a micro-batch is bound to, in ``unskew.core.freshness``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unskew.core.operators.advice import Advice
    from unskew.core.operators.join_plan import Bounds, JoinPlan
    from unskew.core.scaling.elastic import Elastic
    from unskew.spark.frame.histogram import Sampling
    from unskew.spark.frame.physical import dropped_exchange
    from unskew.spark.operators.groups import GroupMemoryWarning
    from unskew.spark.operators.joins import JoinWarning
    from unskew.spark.service_link import ServiceWarning
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
    "Advice": "unskew.core.operators.advice",
    "Bounds": "unskew.core.operators.join_plan",
    "Elastic": "unskew.core.scaling.elastic",
    "GroupMemoryWarning": "unskew.spark.operators.groups",
    "JoinPlan": "unskew.core.operators.join_plan",
    "JoinWarning": "unskew.spark.operators.joins",
    "Sampling": "unskew.spark.frame.histogram",
    "ServiceWarning": "unskew.spark.service_link",
    "Unskew": "unskew.spark.session",
    "dropped_exchange": "unskew.spark.frame.physical",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
