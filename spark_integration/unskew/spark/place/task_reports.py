"""What tasks ask of the service and report to it: their plan before their first row, a report after the last one.

A plan is asked for by the version that the pin names, once a worker process, and taken where its digest is the pin's.
Otherwise the copy that came with the task is used: both route every row alike, so it does not matter which tasks have
which.

A task that fails on the way has reported nothing; one that runs again reports the same part again, which counts once.
A service that is down or hangs costs a worker process one wait of the pin's ``patience``, then it is not asked for
minutes (``ServiceLink``). A row's place never depends on it.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from unskew.core.rounds.partition_agent import PartitionRouting, bounded, report_of
from unskew.core.stream_spec import Part
from unskew.spark.place.task_pin import PATIENCE, TaskPin

if TYPE_CHECKING:
    from unskew.client import Client
    from unskew.core.plan.plan import Plan, Version
    from unskew.spark.service_link import Left, ServiceLink

__all__ = ["plan_for", "report"]

_log = logging.getLogger("unskew.spark")

_COOLDOWN, _LONGEST = 60.0, 900.0
_MOST_LINKS, _IDLE = 4, 120.0


@dataclass(eq=False)
class _CachedLink:
    """One a process and service: worker processes are used again."""

    link: ServiceLink
    used: float
    lacks: set[tuple[str, Version]] = field(default_factory=set)  # plans that are not to be had there


_LINKS: dict[tuple[int, str, str], _CachedLink] = {}


def plan_for(pin: TaskPin) -> Plan | None:
    """The pin's plan, by the service if it has the same. Never fails, and never waits longer than ``patience``."""
    copy = pin.plan
    if copy is None or pin.service is None or not copy.version.incarnation:
        return copy  # the driver made it: no service has its version
    try:
        return _fetched(pin, copy, _link_for(pin))
    except Exception as error:  # noqa: BLE001 - the copy at hand is as good
        _log.warning("stream %s: a task goes by its own copy of the plan. %r", pin.stream, error)
        return copy


def _fetched(pin: TaskPin, copy: Plan, cached: _CachedLink) -> Plan:
    named = pin.stream, copy.version
    if named in cached.lacks:
        return copy

    def get(client: Client, left: Left) -> Plan | None:
        from unskew.client import NotThereError

        try:
            return client.get_plan(*named, timeout=left()).plan
        except NotThereError:
            return None

    if not cached.link.may_ask():
        return copy
    alone = f"stream {pin.stream}: the batch goes by its own copy of the plan"
    plan = cached.link.ask_in_background(get, alone, within=pin.patience, allowed=True)
    if plan is not None and plan.digest == copy.digest:
        return plan
    cached.lacks.add(named)
    if plan is not None:
        _log.warning(
            "stream %s: the service's plan %s is not the one that this batch is bound to (digest %s, not %s): it may "
            "have lost its state. The batch goes by its own copy",
            *named,
            plan.digest,
            copy.digest,
        )
    return copy


def report(pin: TaskPin, partition: int, routing: PartitionRouting) -> None:
    """Report this partition, once: the histogram as a part of the batch, and what was learned where that is due.
    Never fails, and never waits longer than the pin's ``patience``."""

    def send(client: Client, left: Left) -> None:
        if partition < pin.parts:
            part = Part(pin.source, pin.number, pin.run, partition, pin.parts)
            client.report_histogram(pin.stream, part, bounded(routing.histogram, pin.partitions), timeout=left())
        if pin.sync and routing.table is not None:
            agent, seq = f"{pin.source}/{partition}", pin.number + 1
            learned = report_of(
                pin.bound, routing, agent=agent, session=pin.session, seq=seq, dsync=pin.dsync, guest=True
            )
            client.sync(pin.stream, learned, timeout=left())

    try:
        alone = f"stream {pin.stream}: a report did not get through; the batch goes on"
        _link_for(pin).link.ask_in_background(send, alone, within=pin.patience)
    except Exception as error:  # noqa: BLE001 - rows are routed already: no report may fail a task
        _log.warning("stream %s: no report of batch %s. %r", pin.stream, pin.batch, error)


def _link_for(pin: TaskPin) -> _CachedLink:
    from unskew.client import Client, NoAnswerError
    from unskew.spark.service_link import ServiceLink

    now, key = time.monotonic(), (os.getpid(), pin.service or "", repr(sorted(pin.access.items())))
    cached = _LINKS.get(key)
    if cached is None:
        _drop_old(now)
        client = Client(pin.service or "", **{"timeout": PATIENCE, **pin.access})
        link = ServiceLink(client, cooldown=_COOLDOWN, longest=_LONGEST, trips=(NoAnswerError,))
        cached = _LINKS[key] = _CachedLink(link, now)
    cached.used = now
    return cached


def _drop_old(now: float) -> None:
    """Close what was not used for long, and the oldest where there are many; what came over a fork is the parent's."""
    mine = os.getpid()
    for key in [key for key in _LINKS if key[0] != mine]:
        del _LINKS[key]
    by_age = sorted(_LINKS, key=lambda key: _LINKS[key].used)
    for at, key in enumerate(by_age):
        if _LINKS[key].used < now - _IDLE or at <= len(by_age) - _MOST_LINKS:
            _LINKS.pop(key).link.close()
