"""The light client: what a Spark executor carries. It brings no server, no Spark and no compiler.

``Client`` has the service's verbs as methods, ``Agent`` routes and learns with others, ``PlanAgent`` routes by plans,
``Reporter`` tells the service how loaded a worker is. Each is loaded when it is first named: ``Agent`` loads the
routers' kernels, and numba where it is installed, which a task that only routes by a plan never needs.

Begin with ``client`` for one call and one answer, with ``agent`` or ``plan_agent`` for what runs beside a job.
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
    from unskew.client.ladder import Chosen, Ladder
    from unskew.client.plan_agent import PlanAgent, PlanStatus
    from unskew.client.reporter import Reporter, SendCounts
    from unskew.client.results import Built, Explained, Fetched, Reported, Scale, StreamInfo, Synced
    from unskew.client.watch import Watch
    from unskew.core.breaker import Breaker

    Told = SendCounts

_ERRORS = (
    "ClientClosedError",
    "FaultError",
    "LimitReachedError",
    "NoAccessError",
    "NoAnswerError",
    "NotThereError",
    "RefusedError",
    "ServiceCallError",
)
_RESULTS = ("Built", "Explained", "Fetched", "Reported", "Scale", "StreamInfo", "Synced")
_HOMES = {
    "unskew.client.agent": ("Agent", "Status"),
    "unskew.client.client": ("Client",),
    "unskew.client.errors": _ERRORS,
    "unskew.client.ladder": ("Chosen", "Ladder"),
    "unskew.client.plan_agent": ("PlanAgent", "PlanStatus"),
    "unskew.client.reporter": ("Reporter", "SendCounts"),
    "unskew.client.results": _RESULTS,
    "unskew.client.watch": ("Watch",),
    "unskew.core.breaker": ("Breaker",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_FORMER = {"Told": "SendCounts"}  # names of earlier releases

__all__ = [
    "Agent",
    "Breaker",
    "Built",
    "Chosen",
    "Client",
    "ClientClosedError",
    "Explained",
    "FaultError",
    "Fetched",
    "Ladder",
    "LimitReachedError",
    "NoAccessError",
    "NoAnswerError",
    "NotThereError",
    "PlanAgent",
    "PlanStatus",
    "RefusedError",
    "Reported",
    "Reporter",
    "Scale",
    "SendCounts",
    "ServiceCallError",
    "Status",
    "StreamInfo",
    "Synced",
    "Told",
    "Watch",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF and name not in _FORMER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    current = _FORMER.get(name, name)
    value: object = getattr(import_module(_HOME_OF[current]), current)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
