"""Gathers the events of one application: tasks by stage, plans by query, slots by executor.

A stage is judged when it ends, and its tasks are kept only where it lost time; a query's plan is kept until the query
ends. So memory grows with what runs at a time and with what is wrong, not with the log.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import DecodeError

from unskew.cli.events import messages
from unskew.cli.events.messages import NodeInfo, PlanUpdate, QueryStart, StageInfo, TaskEnd
from unskew.core.arrays.types import F64
from unskew.core.diagnosis.findings import (
    LEAST_SECONDS,
    Application,
    Finding,
    Query,
    SkewedStage,
    findings,
    operator_for,
    worth_keeping,
)
from unskew.core.diagnosis.lost_time import LostTime
from unskew.core.diagnosis.spark_operator import PlanNode
from unskew.core.diagnosis.stage_run import StageRun, TaskColumns

__all__ = ["ApplicationLog"]

_COLUMNS = ("seconds", "gc", "fetch", "records", "bytes", "written", "spilled", "host", "index", "launched")
_SHOWN = 400  # characters of a name or of a node's text that are kept
_NODE = 4000
_RECORDS_READ = "records read"  # counted where an Exchange is read, not where it is written


@dataclass
class _StageTasks:
    """The tasks of a stage that is not over."""

    slots: int
    columns: dict[str, array[float]] = field(default_factory=lambda: {name: array("d") for name in _COLUMNS})
    failed: int = 0
    first: bytes = b""


@dataclass
class _Lossy:
    """A stage that lost time, until the plan of its query is final."""

    run: StageRun
    lost: LostTime
    accumulators: frozenset[int]


class ApplicationLog:
    """Give it the events of one application in the order of the log, then ask for ``findings``."""

    def __init__(self) -> None:
        self._name = self._id = self._spark = ""
        self._began = self._ended = self._first = self._last = 0
        self._task_cpus = 1
        self._cores: dict[str, int] = {}
        self._hosts: dict[str, int] = {}
        self._open: dict[tuple[int, int], _StageTasks] = {}
        self._infos: dict[tuple[int, int], StageInfo] = {}
        self._over: set[tuple[int, int]] = set()
        self._names: dict[int, str] = {}
        self._query_of: dict[int, int] = {}
        self._queries: dict[int, Query] = {}
        self._plans: dict[int, bytes] = {}  # the newest line with the query's plan
        self._lossy: dict[int | None, list[_Lossy]] = {}
        self._judged: list[SkewedStage] = []
        self._intervals = (array("d"), array("d"))
        self.events = 0
        self.tasks = 0

    # -- events -----------------------------------------------------------------------------------------------

    def add(self, event: Any, line: bytes) -> None:
        """One event, and the line that it was read from."""
        self.events += 1
        if isinstance(event, TaskEnd):
            self._task_ended(event, line)
        elif isinstance(event, QueryStart | PlanUpdate):
            self._planned(event, line)
        else:
            _HANDLERS[type(event)](self, event)

    def _log_started(self, event: messages.LogStart) -> None:
        self._spark = _text(event.version)

    def _application_started(self, event: messages.ApplicationStart) -> None:
        self._name, self._id = _text(event.name), _text(event.id or "")
        self._began = event.time

    def _application_ended(self, event: messages.ApplicationEnd) -> None:
        self._ended = event.time

    def _environment(self, event: messages.Environment) -> None:
        cpus = event.properties.task_cpus
        self._task_cpus = max(int(cpus[:4]), 1) if cpus.isascii() and cpus.isdigit() else 1

    def _executor_added(self, event: messages.ExecutorAdded) -> None:
        self._cores[event.executor] = max(event.info.cores, 0)
        for tasks in self._open.values():
            tasks.slots = max(tasks.slots, self._slots)

    def _executor_removed(self, event: messages.ExecutorRemoved) -> None:
        self._cores.pop(event.executor, None)

    @property
    def _slots(self) -> int:
        return sum(self._cores.values()) // self._task_cpus

    def _job_started(self, event: messages.JobStart) -> None:
        query = event.properties.query if event.properties else None
        if query is not None and query.isascii() and query.isdigit():
            self._query_of.update(dict.fromkeys(event.stages, int(query[:18])))

    def _planned(self, event: QueryStart | PlanUpdate, line: bytes) -> None:
        self._plans[event.number] = line
        if isinstance(event, QueryStart):
            self._queries[event.number] = Query(event.number, _text(event.description))

    def _query_ended(self, event: messages.QueryEnd) -> None:
        self._judge(event.number)
        self._plans.pop(event.number, None)
        self._queries.pop(event.number, None)

    def _task_ended(self, event: TaskEnd, line: bytes) -> None:
        key, info, metrics = (event.stage, event.attempt), event.info, event.metrics
        self._last = max(self._last, info.finished)
        self._first = min(self._first or info.launched, info.launched)
        if key in self._over:
            return
        tasks = self._open.get(key)
        if tasks is None:
            tasks = self._open[key] = _StageTasks(self._slots)
        if event.reason.reason != "Success" or metrics is None:
            tasks.failed += 1
            return
        self.tasks += 1
        tasks.first = tasks.first or line
        read, host = metrics.read, self._hosts.setdefault(info.host[:_SHOWN], len(self._hosts))
        values = (
            metrics.run / 1e3, metrics.gc / 1e3, read.wait / 1e3, read.records + metrics.input.records,
            read.remote + read.local + metrics.input.bytes, metrics.write.records + metrics.output.records,
            metrics.spilled, host, info.index, info.launched / 1e3,
        )  # fmt: skip
        for column, value in zip(tasks.columns.values(), values, strict=True):
            column.append(value if value > 0 else 0.0)

    def _stage(self, event: messages.StageEvent) -> None:
        """Submitted or completed; both events say what is known of the stage."""
        info = event.info
        key = info.id, info.attempt
        self._names[info.id] = _text(info.name)
        if info.completed is None:
            self._infos[key] = info
        elif key not in self._over:
            self._end(key, info)

    def _end(self, key: tuple[int, int], info: StageInfo) -> None:
        self._over.add(key)
        self._infos.pop(key, None)
        tasks = self._open.pop(key, None)
        if tasks is None or not tasks.columns["index"]:
            return
        columns = tasks.columns
        submitted = (info.submitted or 0) / 1e3 or min(columns["launched"])
        self._intervals[0].append(submitted)
        self._intervals[1].append((info.completed or self._last) / 1e3)
        if max(columns["seconds"]) < LEAST_SECONDS:  # list scheduling never loses more than its longest task
            return
        run = self._run(info, tasks, submitted)
        lost = worth_keeping(run)
        if lost is None:
            return
        moved = info.accumulables or messages.FIRST_TASK.decode(tasks.first).info.accumulables
        query = self._query_of.get(run.stage)
        stage = _Lossy(run, lost, frozenset(one.id for one in moved))
        self._lossy.setdefault(query, []).append(stage)

    def _run(self, info: StageInfo, tasks: _StageTasks, submitted: float) -> StageRun:
        columns = {name: np.array(column) for name, column in tasks.columns.items()}
        index, order = np.unique(columns.pop("index"), return_index=True)  # the first success of a task counts
        launched = columns.pop("launched")
        parts = {name: column[order] for name, column in columns.items()}
        verbs = tuple(self._names[parent] for parent in info.parents if parent in self._names)
        completed = None if info.completed is None else info.completed / 1e3
        return StageRun(
            info.id, info.attempt, _text(info.name), max(info.count, len(index)), TaskColumns.of(**parts),
            tasks.slots or _at_once(launched, launched + columns["seconds"]), submitted, completed,
            tasks.failed + len(launched) - len(index), verbs, bool(info.parents),
        )  # fmt: skip

    # -- results ----------------------------------------------------------------------------------------------

    def _judge(self, query: int | None) -> None:
        stages = self._lossy.pop(query, ())
        plan = _plan(self._plans[query]) if stages and query in self._plans else None
        for stage in stages:
            about = None if query is None else self._queries.get(query) or Query(query, "")
            operator = operator_for(stage.run, about, plan, stage.accumulators)
            self._judged.append(SkewedStage(stage.run, stage.lost, operator, about))

    def application(self) -> Application:
        """What the log says of the application."""
        began = self._began or self._first
        ended = self._ended or None
        seconds = max((self._ended or self._last) - began, 0) / 1e3
        return Application(
            self._id, self._name, self._spark, began / 1e3, None if ended is None else ended / 1e3, seconds
        )

    def findings(self) -> tuple[Finding, ...]:
        """The stages that lost time, also of what had not ended when the log did."""
        for key in list(self._open):
            self._end(key, self._infos.get(key) or StageInfo(id=key[0], attempt=key[1]))
        for query in list(self._lossy):
            self._judge(query)
        intervals = list(zip(*self._intervals, strict=True))
        return findings(self.application(), self._judged, intervals)


def _plan(line: bytes) -> PlanNode | None:
    """The plan in a line; None where it cannot be read."""
    try:
        return _node(messages.QUERY_PLAN.decode(line).plan)
    except (DecodeError, RecursionError):
        return None


def _text(text: str) -> str:
    return text[:_SHOWN]


def _node(info: NodeInfo) -> PlanNode:
    metrics = frozenset(metric.id for metric in info.metrics)
    reads = frozenset(metric.id for metric in info.metrics if metric.name == _RECORDS_READ)
    children = tuple(_node(child) for child in info.children)
    return PlanNode(info.name[:_SHOWN], info.text[:_NODE], metrics, reads, children)


def _at_once(launched: F64, ended: F64) -> int:
    """How many tasks ran at a time, where no executor says how many could. ``ended`` is by run time: Spark's own finish
    is when the driver heard of it, and by then the slot may have its next task."""
    times = np.concatenate([launched, ended])
    steps = np.concatenate([np.ones(len(launched)), -np.ones(len(ended))])
    order = np.lexsort((steps, times))
    return max(int(steps[order].cumsum().max(initial=1)), 1)


_HANDLERS: dict[type, Callable[[ApplicationLog, Any], None]] = {
    messages.LogStart: ApplicationLog._log_started,
    messages.ApplicationStart: ApplicationLog._application_started,
    messages.ApplicationEnd: ApplicationLog._application_ended,
    messages.Environment: ApplicationLog._environment,
    messages.ExecutorAdded: ApplicationLog._executor_added,
    messages.ExecutorRemoved: ApplicationLog._executor_removed,
    messages.JobStart: ApplicationLog._job_started,
    messages.StageEvent: ApplicationLog._stage,
    messages.QueryEnd: ApplicationLog._query_ended,
}
