"""The stages of an application that wait for their longest task: what each lost, why, how sure that is, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.types import F64
from unskew.core.diagnosis import spark_operator as kinds
from unskew.core.diagnosis.cause import COSTLY, FEW, ROWS, Cause, cause_of
from unskew.core.diagnosis.lost_time import LostTime, lost_time
from unskew.core.diagnosis.remedy import Remedy, remedy_of
from unskew.core.diagnosis.spark_operator import NO_OPERATOR, Operator, PlanNode, operator_of
from unskew.core.diagnosis.stage_run import StageRun

__all__ = ["LEAST_SECONDS", "Application", "Finding", "Query", "SkewedStage", "findings", "worth_keeping"]

LEAST_SECONDS, LEAST_SHARE = 0.5, 0.1  # a stage that lost less, alone or of its own time, is not spoken of
LEAST_REFUSED = 0.01  # of the application: what lost less to something else than skew is not spoken of
_CROWDED = 0.25  # of a stage's time in which other stages ran, from which its idle slots may have been used
_PICTURED = 200  # task times that a picture shows


@dataclass(frozen=True)
class Query:
    """One execution of SQL: its number, and what Spark says that it is."""

    number: int
    description: str


@dataclass(frozen=True, eq=False)
class SkewedStage:
    """A stage that lost time, with the operator that it ran. ``query`` is None for a job without SQL."""

    run: StageRun
    lost: LostTime
    operator: Operator
    query: Query | None


@dataclass(frozen=True)
class Application:
    """``ended`` is None where the log says no end: the application runs, or its log is cut. ``seconds``: how long it
    took, as far as the log goes."""

    id: str
    name: str
    spark: str
    started: float
    ended: float | None
    seconds: float


@dataclass(frozen=True, eq=False)
class Finding:
    """One stage: seconds that its tasks took on their slots, would take if they were even, and lost at most; the
    share of the application; the cause with the reasons; the remedy. ``times``: task times, longest first."""

    stage: int
    attempt: int
    name: str
    query: Query | None
    operator: Operator
    tasks: int
    count: int
    slots: int
    taken: float
    ideal: float
    lost: float
    share: float
    cause: Cause
    remedy: Remedy
    notes: tuple[str, ...]
    times: F64

    @property
    def is_skew(self) -> bool:
        """Whether rows that are unevenly placed are the cause; else it is a refusal, with the reason."""
        return self.cause.kind == ROWS


def worth_keeping(run: StageRun) -> LostTime | None:
    """What the stage lost, None where that is too little to speak of."""
    lost = lost_time(run)
    enough = lost.total >= max(LEAST_SECONDS, LEAST_SHARE * lost.taken)
    return lost if enough else None


def operator_for(run: StageRun, query: Query | None, plan: PlanNode | None, accumulators: frozenset[int]) -> Operator:
    """The operator of a stage: from the plan of its query, else from the call site of the shuffle it read."""
    operator = NO_OPERATOR if plan is None else operator_of(plan, accumulators)
    if query is not None:
        return NO_OPERATOR if run.reads_shuffle and operator.kind == kinds.SCAN else operator
    if run.reads_shuffle and run.verbs:
        return Operator(kinds.RDD, run.verbs[0], partitions=run.count)
    return NO_OPERATOR if run.reads_shuffle else Operator(kinds.SCAN, run.name)


def findings(
    application: Application, stages: Iterable[SkewedStage], intervals: Sequence[tuple[float, float]]
) -> tuple[Finding, ...]:
    """The findings of an application, the most seconds first. ``intervals``: when each of its stages ran."""
    busy = _Busy.of(intervals)
    made = (_finding(application, stage, busy) for stage in stages)
    told = (one for one in made if one.is_skew or one.share >= LEAST_REFUSED)
    return tuple(sorted(told, key=lambda one: (not one.is_skew, -one.lost, one.stage, one.attempt)))


def _finding(application: Application, stage: SkewedStage, busy: _Busy) -> Finding:
    run, lost, operator = stage.run, stage.lost, stage.operator
    cause = cause_of(run, lost)
    seconds = lost.gain if cause.kind == ROWS else lost.total
    if cause.kind == ROWS and busy.crowded(run):
        cause = cause.doubted("other stages ran at the same time and may have used the idle slots")
    if run.completed is None:
        cause = cause.doubted("the stage had not ended when the log did")
    if run.attempt:
        cause = cause.doubted(f"attempt {run.attempt} of a stage that failed before")
    return Finding(
        run.stage, run.attempt, run.name, stage.query, operator, len(run.tasks), run.count, run.slots,
        lost.taken, lost.ideal, seconds, min(seconds / application.seconds, 1.0) if application.seconds > 0 else 0.0,
        cause, _remedy(cause, operator), _notes(run, operator), np.sort(run.tasks.seconds)[::-1][:_PICTURED],
    )  # fmt: skip


def _remedy(cause: Cause, operator: Operator) -> Remedy:
    if cause.kind == ROWS:
        return remedy_of(operator)
    if cause.kind == FEW:
        return Remedy(words=_MORE_TASKS.get(operator.kind, _FEWER_MERGED))
    return Remedy(words=_WEIGH if cause.kind == COSTLY else _NOTHING)


def _notes(run: StageRun, operator: Operator) -> tuple[str, ...]:
    notes = []
    if operator.aqe_split:
        notes.append("AQE has split large partitions here already; this is what was left")
    if run.failed:
        notes.append(f"{run.failed:,} attempts of tasks failed or were stopped; they are not in these times")
    return tuple(notes)


@dataclass(frozen=True, eq=False)
class _Busy:
    """When stages ran: their beginnings and ends, each sorted, with the sums of those before."""

    began: F64
    ended: F64
    began_sums: F64
    ended_sums: F64
    start: float

    @classmethod
    def of(cls, intervals: Sequence[tuple[float, float]]) -> _Busy:
        times = np.array(intervals, np.float64).reshape(-1, 2)
        start = float(times.min()) if len(times) else 0.0
        began, ended = np.sort(times[:, 0] - start), np.sort(times[:, 1] - start)
        return cls(began, ended, np.append(0.0, began.cumsum()), np.append(0.0, ended.cumsum()), start)

    def until(self, time: float) -> float:
        """Seconds of stages before that time."""
        since = time - self.start
        n, m = int(self.began.searchsorted(since)), int(self.ended.searchsorted(since))
        return float((n - m) * since - self.began_sums[n] + self.ended_sums[m])

    def crowded(self, run: StageRun) -> bool:
        """Whether other stages ran for a good part of this one's time."""
        end = run.completed if run.completed is not None else run.submitted
        span = end - run.submitted
        return span > 0 and self.until(end) - self.until(run.submitted) > (1 + _CROWDED) * span


_FEWER_MERGED = "more tasks help: spark.sql.adaptive.coalescePartitions.enabled=false, or more shuffle partitions"
_MORE_TASKS = {
    kinds.SCAN: "more tasks help: smaller splits (spark.sql.files.maxPartitionBytes), or more slices of the input",
    kinds.RDD: "more tasks help: numPartitions of the call that shuffles",
    kinds.SINGLE: "more tasks help, and need a key: without one all rows go to one task",
}
_WEIGH = "if some rows cost more than others, count them by what they cost: sk.advise(..., weight=...)"
_NOTHING = "no rows are unevenly placed: a plan of unskew would change nothing"
