"""What tasks say to the service: before their first row they ask for their plan, after the last one they report.

A plan is asked for by the version that the pin names, once a worker process, and taken where its digest is the pin's.
Otherwise, and where nobody answers, the copy that came with the task is used: both route every row alike, so it does
not matter which tasks have which.

A task that fails on the way, or is not read to its end, has reported nothing; one that runs again reports the same part
again, which counts once. Reports are best effort. A service that is down or hangs costs a worker process one wait of
the pin's ``patience``, then a breaker keeps it from asking for minutes. A row's place never depends on it.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from unskew.core.errors import UnskewError
from unskew.core.rounds.partition_agent import PartitionRouting, bounded, report_of
from unskew.core.stream_spec import Part

if TYPE_CHECKING:
    from unskew.client import Breaker, Client
    from unskew.core.plan.plan import Plan, Version
    from unskew.spark.place.executor import TaskPin

__all__ = ["PATIENCE", "plan_for", "tell"]

_log = logging.getLogger("unskew.spark")

PATIENCE = 1.0
_COOLDOWN, _LONGEST = 60.0, 900.0
_MOST_LINES, _IDLE = 4, 120.0


@dataclass(eq=False)
class _Line:
    """A client of one service and whether it is worth asking. One a process and target: workers are used again."""

    client: Client
    breaker: Breaker
    used: float
    lacks: set[tuple[str, Version]] = field(default_factory=set)  # plans that are not to be had there


_LINES: dict[tuple[int, str, str], _Line] = {}


def plan_for(pin: TaskPin) -> Plan | None:
    """The pin's plan, by the service if it has the same. Never fails, and never waits longer than ``patience``."""
    mine = pin.plan
    if mine is None or pin.service is None or not mine.version.incarnation:
        return mine  # the driver made it: no service knows its version
    try:
        return _fetched(pin, mine, _line(pin))
    except Exception as why:  # noqa: BLE001 - the copy at hand is as good
        _log.warning("stream %s: a task goes by its own copy of the plan. %s: %s", pin.stream, type(why).__name__, why)
        return mine


def _fetched(pin: TaskPin, mine: Plan, line: _Line) -> Plan:
    what = pin.stream, mine.version
    if what in line.lacks or not line.breaker.allow(time.monotonic()):
        return mine
    try:
        found = line.client.get_plan(*what, timeout=pin.patience).plan
    except UnskewError as why:
        _failed(line, why, "the batch goes by its own copy of the plan")
        line.lacks.add(what)
        return mine
    line.breaker.success()
    if found.digest == mine.digest:
        return found
    line.lacks.add(what)
    _log.warning(
        "stream %s: the service's plan %s is not the one that this batch is bound to (digest %s, not %s): it may have "
        "lost its state. The batch goes by its own copy",
        *what,
        found.digest,
        mine.digest,
    )
    return mine


def tell(pin: TaskPin, partition: int, decided: PartitionRouting) -> None:
    """Report this partition, once: the histogram as a part of the batch, and what was learned where that is due.
    Never fails, and never waits longer than the pin's ``patience``."""
    try:
        line = _line(pin)
        if not line.breaker.allow(time.monotonic()):
            return
        try:
            _send(pin, partition, decided, line.client, time.monotonic() + pin.patience)
        except UnskewError as why:
            _failed(line, why, "a report did not get through; the batch goes on")
        else:
            line.breaker.success()
    except Exception as why:  # noqa: BLE001 - rows are routed already: no report may fail a task
        _log.warning("stream %s: no report of batch %s. %s: %s", pin.stream, pin.batch, type(why).__name__, why)


def _failed(line: _Line, why: UnskewError, instead: str) -> None:
    """A service that says no has answered; it is asked again by the next task."""
    from unskew.client import NoAnswerError

    if isinstance(why, NoAnswerError):
        line.breaker.failure(time.monotonic())
    else:
        line.breaker.success()
    _log.warning("%s. %s", instead, why)


def _send(pin: TaskPin, partition: int, decided: PartitionRouting, client: Client, until: float) -> None:
    if partition < pin.parts:
        part = Part(pin.source, pin.number, pin.run, partition, pin.parts)
        client.report_histogram(pin.stream, part, bounded(decided.histogram, pin.partitions), timeout=_left(until))
    if pin.sync and decided.table is not None:
        agent = f"{pin.source}/{partition}"
        seq = pin.number + 1
        report = report_of(pin.bound, decided, agent=agent, session=pin.session, seq=seq, dsync=pin.dsync, guest=True)
        client.sync(pin.stream, report, timeout=_left(until))


def _left(until: float) -> float:
    return max(until - time.monotonic(), 0.05)


def _line(pin: TaskPin) -> _Line:
    from unskew.client import Breaker, Client

    now, key = time.monotonic(), (os.getpid(), pin.service or "", repr(sorted(pin.access.items())))
    line = _LINES.get(key)
    if line is None:
        _let_go(now)
        client = Client(pin.service or "", **{"timeout": PATIENCE, **pin.access})
        line = _LINES[key] = _Line(client, Breaker(failures=1, cooldown=_COOLDOWN, longest=_LONGEST), now)
    line.used = now
    return line


def _let_go(now: float) -> None:
    """Close what was not used for long, and the oldest where there are many; what came over a fork is the parent's."""
    mine = os.getpid()
    for key in [key for key in _LINES if key[0] != mine]:
        del _LINES[key]
    by_age = sorted(_LINES, key=lambda key: _LINES[key].used)
    for at, key in enumerate(by_age):
        if _LINES[key].used < now - _IDLE or at <= len(by_age) - _MOST_LINES:
            _LINES.pop(key).client.close()
