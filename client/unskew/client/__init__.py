"""The light client: agent, plan cache, transport, reporter. It carries no server, no Spark and no compiler.

``Client`` has the service's verbs, ``Agent`` routes and learns with others, ``PlanAgent`` routes by plans, ``Reporter``
tells how loaded a worker is, ``Ladder`` says which plan to bind a batch to. Each is loaded when it is first named:
``Agent`` loads the routers' kernels, and numba where it is installed, which a task that only routes by a plan never
needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unskew.client.agent import Agent, Status
    from unskew.client.answers import Built, Explained, Fetched, Reported, Scale, StreamInfo, Synced
    from unskew.client.breaker import Breaker
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
    from unskew.client.planagent import PlanAgent, PlanStatus
    from unskew.client.reporter import Reporter, Told
    from unskew.client.watch import Watch

_HOMES = {
    "agent": ("Agent", "Status"),
    "answers": ("Built", "Explained", "Fetched", "Reported", "Scale", "StreamInfo", "Synced"),
    "breaker": ("Breaker",),
    "client": ("Client",),
    "errors": (
        "ClientClosedError",
        "FaultError",
        "LimitReachedError",
        "NoAccessError",
        "NoAnswerError",
        "NotThereError",
        "RefusedError",
        "ServiceCallError",
    ),
    "ladder": ("Chosen", "Ladder"),
    "planagent": ("PlanAgent", "PlanStatus"),
    "reporter": ("Reporter", "Told"),
    "watch": ("Watch",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

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
    "ServiceCallError",
    "Status",
    "StreamInfo",
    "Synced",
    "Told",
    "Watch",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
