"""The plans that a client has fetched: the latest of each stream, and plans by version, which never change.

A digest identifies how a plan routes, not its version: two versions may route alike. So "not modified" means the plan
that was the latest here when its digest was sent, and a version is only answered from here if it was fetched itself.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from unskew.client.forks import register_after_fork
from unskew.core.plan.plan import Plan, Version

__all__ = ["PlanCache"]


class PlanCache:
    """At most ``most`` plans by version; the least recently used is dropped first. Thread-safe."""

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self.after_fork()
        register_after_fork(self)

    def after_fork(self) -> None:
        """Start empty: a thread of the parent may have been changing the plans."""
        self._lock, self._latest = threading.Lock(), dict[str, Plan]()
        self._plans: OrderedDict[tuple[str, Version], Plan] = OrderedDict()

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
        """Keep it as the latest, unless a newer one is here: a service may be behind for a while."""
        self.keep(stream, plan)
        with self._lock:
            latest = self._latest.get(stream)
            if latest is None or latest.version <= plan.version:
                self._latest[stream] = plan

    def forget(self, stream: str) -> None:
        with self._lock:
            self._latest.pop(stream, None)
            for key in [key for key in self._plans if key[0] == stream]:
                del self._plans[key]
