"""DStreams: their RDDs placed by a plan, through ``DStream.transform``.

Spark calls what it transforms by in the driver, with the batch time: that is where a batch is bound to its plan. One
plan for a time, whichever of the streams that are placed by one function asks. With a checkpoint the plan is kept under
it before the batch's first task starts, and a driver that comes back takes the same. DStreams are deprecated in Spark
itself, and classic only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from unskew.core.errors import ConfigError
from unskew.core.plan.plan import Plan
from unskew.spark.folders import Folder
from unskew.spark.place.rdd import partition_by, router_of
from unskew.spark.streaming.settings import check_given
from unskew.wire import plan_from_bytes, plan_to_bytes

if TYPE_CHECKING:
    from pyspark import RDD

__all__ = ["PlanAt", "partition_dstream"]

T = TypeVar("T")

PlanAt: TypeAlias = Callable[[datetime], Plan]

_SUFFIX = ".pb"
_KEPT = 100  # batch times: Spark asks in their order, and once again for what it had begun when its driver died


@dataclass(eq=False)
class _Plans:
    """The plan of each batch time, settled when it is first asked for."""

    plan: Plan | PlanAt
    folder: Folder | None
    _bound: dict[datetime, Plan] = field(default_factory=dict, init=False)

    def at(self, time: datetime) -> Plan:
        if isinstance(self.plan, Plan):
            return self.plan
        if time not in self._bound:
            self._bound[time] = self._settled(time, self.plan)
            for old in sorted(self._bound)[:-_KEPT]:
                del self._bound[old]
        return self._bound[time]

    def _settled(self, time: datetime, plan_at: PlanAt) -> Plan:
        """What an earlier life of the driver has chosen for this time, or what is chosen now."""
        if self.folder is None:
            return plan_at(time)
        name = f"{round(time.timestamp() * 1000)}{_SUFFIX}"
        if data := self.folder.read(name):
            return plan_from_bytes(data)
        plan = plan_at(time)
        if not self.folder.create(name, plan_to_bytes(plan)):
            return self._settled(time, plan_at)
        times = sorted(self.folder.names(), key=lambda one: int(one.removesuffix(_SUFFIX)))
        self.folder.delete(*times[:-_KEPT])
        return plan


def partition_dstream(
    key: Callable[[T], Any],
    plan: Plan | PlanAt,
    spread: Callable[[T], Any] | None = None,
    types: Sequence[str] = (),
    *,
    checkpoint: str | None = None,
    name: str | None = None,
) -> Callable[[datetime, RDD[T]], RDD[T]]:
    """``dstream.transform(partition_dstream(key, plan))``: each batch's records placed as ``partition_by`` places them.

    Parameters
    ----------
    key, spread, types : As for ``partition_by``.
    plan : A plan, or a function of the batch time that gives one, called once for each time.
    checkpoint, name : The StreamingContext's checkpoint and a name in it: what ``plan`` gave is kept there, so that a
        driver that starts again goes by the same.

    Returns
    -------
    Callable : A function of batch time and RDD, for ``transform``.

    Raises
    ------
    ConfigError, PlanError : The plan does not fit the key, or a setting is wrong.

    Examples
    --------
    >>> place = sk.partition_dstream(lambda row: row.user, sk.last, lambda row: row.id)
    >>> place(None, clicks.rdd).getNumPartitions()  # Spark calls it
    4
    """
    if isinstance(plan, Plan):
        router_of(key, plan, spread, types)
    elif not callable(plan):
        raise ConfigError("plan", plan, "a plan, or a function of the batch time that gives one")
    folder = None
    if checkpoint is not None or name is not None:
        path, name = check_given(checkpoint, name)
        folder = Folder(path).sub(f"unskew/{name}/times")
    plans = _Plans(plan, folder)

    def placed(time: datetime, rdd: RDD[T]) -> RDD[T]:  # a plain function: pyspark counts its arguments
        return partition_by(rdd, key, plans.at(time), spread, types)

    return placed
