"""``TaskPin``: what the tasks of one batch are bound to before the first one starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from unskew.core.dalton.qtable import QTable
from unskew.core.plan.plan import Plan
from unskew.core.rounds.partition_agent import RoutingChoice
from unskew.core.stream_spec import UNKNOWN_PARTS

__all__ = ["PATIENCE", "TaskPin"]

PATIENCE = 1.0  # seconds


@dataclass(frozen=True, eq=False)
class TaskPin:
    """What a batch is bound to before its first task starts. Immutable; pickles to what it holds.

    With a ``plan`` rows go by it, with a router by that; else each task learns from the Q-table in ``bound``.
    ``service`` is where reports go (None: nowhere), ``access`` how a client shows who it is. ``sync``: whether tasks
    report what they learned. ``session`` numbers the driver's lives and ``run`` the pins of one batch: what the newest
    reports takes the place of the rest. ``parts`` are the tasks of the batch, where that is known. Reports number
    batches from ``began`` on. A task waits at most ``patience`` seconds for the service. One pin that reports is for
    one frame: a second one's reports would take the place of the first one's.
    """

    stream: str
    bound: RoutingChoice
    source: str
    service: str | None = None
    access: Mapping[str, Any] = field(default_factory=dict, repr=False)
    sync: bool = False
    session: int = 1
    dsync: float = 20.0
    run: int = 0
    parts: int = UNKNOWN_PARTS
    began: int = 0
    patience: float = PATIENCE

    def __repr__(self) -> str:
        by = f"plan {self.plan.version}" if self.plan is not None else f"Q-table {self.version[0]}.{self.version[1]}"
        by = by if self.bound.router is None else f"router {self.bound.router}"
        to = f", service={self.service!r}" if self.service else ""
        return f"Pin({self.stream!r}, batch={self.batch}, partitions={self.partitions}, {by}{to})"

    @property
    def plan(self) -> Plan | None:
        return self.bound.plan

    @property
    def table(self) -> QTable | None:
        return self.bound.table

    @property
    def version(self) -> tuple[int, int]:
        """Of the round whose Q-table this is: (incarnation, epoch)."""
        return self.bound.version

    @property
    def learn(self) -> bool:
        return self.bound.plan is None and self.bound.router is None

    @property
    def partitions(self) -> int:
        return self.bound.partitions

    @property
    def batch(self) -> int:
        return self.bound.batch

    @property
    def number(self) -> int:
        """Of the batch, in reports: queries on one stream have numbers of their own."""
        return self.began + self.batch
