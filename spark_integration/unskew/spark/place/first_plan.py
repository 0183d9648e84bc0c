"""The plan that a query began with, kept under its checkpoint: for operators whose state must not change its place.

Spark freezes the number of partitions in the same way, with the first batch; what a plan is for is compared with that
number, or, before there is any batch, with the session's.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unskew.core.errors import ConfigError, PlanError
from unskew.core.plan.plan import Plan
from unskew.spark.folders import Folder
from unskew.spark.frame.jvm import SHUFFLE_PARTITIONS, shuffle_partitions
from unskew.spark.streaming.settings import check_given, check_scheme
from unskew.wire import plan_from_bytes, plan_to_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Shuffle", "check_partitions", "first_plan", "shuffle_of"]

_LOG = logging.getLogger(__name__)
_FILE = "salt.pin"  # a line of JSON, what the plan is used for; then the plan


@dataclass(frozen=True)
class Shuffle:
    """Into how many partitions the query shuffles, and whether that is settled: it is once a batch has been begun, and
    Spark takes it from its log then, whatever the session says."""

    partitions: int
    settled: bool


def shuffle_of(df: DataFrame, checkpoint: str | None) -> Shuffle:
    """What the query's log says, where it has a batch, else what the session does."""
    if checkpoint is not None:
        check_scheme(df, checkpoint)
    logged = None if checkpoint is None else _logged(Folder(checkpoint).sub("offsets"))
    if logged is not None:
        return Shuffle(logged, settled=True)
    return Shuffle(shuffle_partitions(df.sparkSession), settled=False)


def _logged(log: Folder) -> int | None:
    """From the last batch in Spark's log: a line with the format's version, one with settings, one for each source."""
    begun = [name for name in log.names() if name.isdecimal()]
    if not begun:
        return None
    lines = (log.read(max(begun, key=int)) or b"").decode().splitlines()
    partitions = json.loads(lines[1]).get("conf", {}).get(SHUFFLE_PARTITIONS) if len(lines) > 1 else None
    return None if partitions is None else int(partitions)


def check_partitions(plan: Plan, shuffle: Shuffle) -> None:
    """A salt leads to a partition of the plan only where the query has as many."""
    if plan.partitions == shuffle.partitions:
        return
    what = (
        f"{shuffle.partitions} since its first batch, which Spark keeps: plan for {shuffle.partitions} partitions"
        if shuffle.settled
        else f"{shuffle.partitions} ({SHUFFLE_PARTITIONS}): set that to {plan.partitions} before the query starts"
    )
    raise PlanError(f"the plan is for {plan.partitions} partitions and the query shuffles into {what}")


def first_plan(df: DataFrame, plan: Plan, checkpoint: str | None, name: str | None, what: Mapping[str, object]) -> Plan:
    """The plan that the query began with: this one, if it is the first. ``what`` it is for must be the same."""
    path, name = check_given(checkpoint, name)
    folder, head = Folder(path).sub(f"unskew/{name}"), json.dumps(what, sort_keys=True).encode()
    shuffle = shuffle_of(df, path)
    kept = folder.read(_FILE)
    if kept is None and shuffle.settled:
        raise ConfigError(
            "name",
            name,
            f"the name of a salt that the query began with: it has run without {folder.path(_FILE)}, and its state is "
            "not where this plan would look for it. Put that file back, or begin the query anew, with a checkpoint of "
            "its own",
        )
    if kept is None:
        check_partitions(plan, shuffle)
        if folder.create(_FILE, head + b"\n" + plan_to_bytes(plan)):
            return plan
        kept = folder.read(_FILE) or b""  # another driver was first
    first = _opened(kept, head, folder.path(_FILE), name)
    if not shuffle.settled:
        check_partitions(first, shuffle)
    if first.digest != plan.digest:
        _LOG.info("salt %s keeps the query's first plan, %s: its state is placed by that", name, first.digest)
    return first


def _opened(kept: bytes, head: bytes, path: str, name: str) -> Plan:
    begun, _, plan = kept.partition(b"\n")
    if begun != head:
        raise ConfigError(
            "name",
            name,
            f"a name that no other salt of the query has, and the salt that it began with: {path} has "
            f"{begun.decode(errors='replace')[:300]}",
        )
    return plan_from_bytes(plan)
