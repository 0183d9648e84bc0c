"""The client of the service, for Spark executors and any other Python process. It imports no server and no Spark.

``Client`` has the service's RPCs as methods, ``Agent`` routes rows and learns with other agents, ``PlanAgent`` routes
rows by plans, ``Reporter`` reports a worker's load, ``Watch`` gets new plans. The last four have a thread each, a
``Background``. Nothing is decided here but which plan a ``PlanAgent`` routes by (``plan_choice``). Classes are imported
when they are first used: ``Agent`` imports the routers' kernels, and numba if it is installed.

Begin with ``client`` for a single call, with ``agent`` or ``plan_agent`` for what runs beside a job.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unskew.client.agent import Agent, Status
    from unskew.client.client import Client
    from unskew.client.errors import (
        ClientClosedError,
        FaultError,
        LimitReachedError,
        NoAccessError,
        NoAnswerError,
        NotThereError,
        RefusedError,
        ServiceCallError,
    )
    from unskew.client.plan_agent import PlanAgent, PlanStatus
    from unskew.client.reporter import Reporter, SendCounts
    from unskew.client.results import Built, Explained, Fetched, Reported, Scale, StreamInfo, Synced
    from unskew.client.watch import Watch
    from unskew.core.breaker import Breaker

    Told = SendCounts

_MODULES = {
    "unskew.client.agent": "Agent Status",
    "unskew.client.client": "Client",
    "unskew.client.errors": "ClientClosedError FaultError LimitReachedError NoAccessError NoAnswerError NotThereError "
    "RefusedError ServiceCallError",
    "unskew.client.plan_agent": "PlanAgent PlanStatus",
    "unskew.client.reporter": "Reporter SendCounts",
    "unskew.client.results": "Built Explained Fetched Reported Scale StreamInfo Synced",
    "unskew.client.watch": "Watch",
    "unskew.core.breaker": "Breaker",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}
_FORMER = {"Told": "SendCounts"}  # names of earlier releases

__all__ = [
    "Agent", "Breaker", "Built", "Client", "ClientClosedError", "Explained", "FaultError", "Fetched",
    "LimitReachedError", "NoAccessError", "NoAnswerError", "NotThereError", "PlanAgent", "PlanStatus", "RefusedError",
    "Reported", "Reporter", "Scale", "SendCounts", "ServiceCallError", "Status", "StreamInfo", "Synced", "Told",
    "Watch",
]  # fmt: skip


def __getattr__(name: str) -> object:
    current = _FORMER.get(name, name)
    if current not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULE_OF[current]), current)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
