"""The plans that a client has seen: the latest of each stream, and those by version, which never change.

A digest says how a plan routes, not its version: two versions may route alike. So what "you have it" leads to is the
plan that was latest when its digest was sent, and a version is only answered from here if it was fetched as such.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from unskew.client.forks import tell_after_fork
from unskew.core.plan.plan import Plan, Version

__all__ = ["PlanCache"]

_Key = tuple[str, Version]


class PlanCache:
    """At most ``most`` plans by version, the one used longest ago goes first. Thread-safe."""

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._begin(OrderedDict(), {})
        tell_after_fork(self)

    def _begin(self, plans: OrderedDict[_Key, Plan], latest: dict[str, Plan]) -> None:
        self._lock, self._plans, self._latest = threading.Lock(), plans, latest

    def after_fork(self) -> None:
        # A thread of the parent may have been changing them.
        self._begin(OrderedDict(), {})

    def version(self, stream: str, version: Version) -> Plan | None:
        with self._lock:
            plan = self._plans.get((stream, version))
            if plan is not None:
                self._plans.move_to_end((stream, version))
            return plan

    def latest(self, stream: str) -> Plan | None:
        with self._lock:
            return self._latest.get(stream)

    def keep(self, stream: str, plan: Plan) -> None:
        with self._lock:
            self._plans[stream, plan.version] = plan
            self._plans.move_to_end((stream, plan.version))
            while len(self._plans) > self._most:
                self._plans.popitem(last=False)

    def keep_latest(self, stream: str, plan: Plan) -> None:
        """Older than what is known is not kept as the latest: a service may be behind for a while."""
        self.keep(stream, plan)
        with self._lock:
            known = self._latest.get(stream)
            if known is None or known.version <= plan.version:
                self._latest[stream] = plan

    def forget(self, stream: str) -> None:
        with self._lock:
            self._latest.pop(stream, None)
            for key in [key for key in self._plans if key[0] == stream]:
                del self._plans[key]
