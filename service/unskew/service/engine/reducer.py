"""The reducer of a round whose reports are in the store: merge, time, answer. Pure but for the clock of its own work.

``RoundCarryover`` is what one commit leaves for the next. Who merges is of no account: the answer but for its DSYNC is
the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from unskew.core.dalton.qtable import QTable
from unskew.core.errors import UnskewError
from unskew.core.rounds.dsync import Bar, Interval
from unskew.core.rounds.merge import Pool, merge
from unskew.core.rounds.messages import Answer, Report
from unskew.core.rounds.rules import LastReport, Pace, RoundRules, pressed
from unskew.core.stream_spec import StreamSpec
from unskew.service.engine.base import Tuning
from unskew.service.stores.ports import Commit, ReportKey, StoredReport
from unskew.wire.round_messages import answer_from_bytes, answer_to_bytes, report_from_bytes

__all__ = [
    "MergeJob",
    "MergedRound",
    "RoundCarryover",
    "RoundResult",
    "as_if_merged",
    "reduce_round",
    "rules_of",
    "told",
]


def rules_of(spec: StreamSpec, tuning: Tuning) -> RoundRules:
    """The rules of this stream's rounds."""
    return RoundRules(
        workers=spec.partitions,
        dsync=spec.dsync,
        dsync_min=spec.dsync_min,
        dsync_max=spec.dsync_max,
        patience=tuning.patience,
        lease=tuning.lease,
        forget=max(86_400.0, tuning.lease * spec.dsync_max, tuning.patience * spec.dsync_max),
    )


@dataclass(frozen=True)
class RoundCarryover:
    """What the next round has to know: how often agents report, and of each agent its last merged report. ``complete``
    is when the round was, by the store's clock."""

    pace: Pace
    incarnation: int = 0
    complete: float = 0.0
    heard: dict[str, LastReport] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        heard = {agent: [of.session, of.dsync, of.kept] for agent, of in self.heard.items()}
        return json.dumps({**asdict(replace(self, heard={})), "heard": heard}, separators=(",", ":")).encode()

    @classmethod
    def of(cls, data: bytes, rules: RoundRules) -> RoundCarryover:
        """What these bytes say, within bounds that may have changed; a beginning where there are none."""
        if not data:
            return cls(Pace(Interval(rules.dsync)))
        plain = json.loads(data)
        pace = plain["pace"]
        interval = pace["interval"]
        bars = tuple(Bar(**bar) for bar in interval["bars"])
        interval = Interval(**{**interval, "bars": bars, "value": rules.clamp(interval["value"])})
        heard = {agent: LastReport(*of) for agent, of in plain["heard"].items()}
        return cls(Pace(**{**pace, "interval": interval}), plain["incarnation"], plain["complete"], heard)


@dataclass(frozen=True, eq=False)
class MergedRound:
    """The answer of a merged round, read."""

    answer: Answer
    names: frozenset[ReportKey]
    keep: RoundCarryover

    @property
    def version(self) -> tuple[int, int]:
        return self.keep.incarnation, self.answer.epoch


def told(commit: Commit, rules: RoundRules) -> MergedRound:
    """What this commit says."""
    keep = RoundCarryover.of(commit.keep, rules)
    answer = replace(answer_from_bytes(commit.answer, commit.names), epoch=commit.epoch, incarnation=keep.incarnation)
    return MergedRound(answer, frozenset(commit.names), keep)


def as_if_merged(answer: Answer, report: Report) -> Answer:
    """The answer of a later round than this report's, for its agent, which waits for one that names it. Its own tuples
    are added to what all have: the agent takes off what it knows to be its own."""
    merged = tuple(sorted({*answer.merged, report.name}))
    if len(report.loads) != len(answer.loads):
        return replace(answer, merged=merged)
    return replace(answer, merged=merged, loads=answer.loads + report.loads, records=answer.records + report.records)


@dataclass(frozen=True, eq=False)
class MergeJob:
    """A sealed round: what is in it, when it was complete, and what the round before left. ``now`` is the store's clock
    when the work began, ``elapsed`` how long it has taken since. ``here`` are reports that came to this replica, with
    their bytes: they need not be read again."""

    epoch: int
    incarnation: int
    reports: Sequence[StoredReport]
    previous: Answer | None
    keep: RoundCarryover
    members: frozenset[str]
    complete: float
    now: float
    rules: RoundRules
    elapsed: Callable[[], float]
    here: Mapping[ReportKey, tuple[bytes, Report]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class RoundResult:
    """The commit of a round, what ``told`` would read in it under these rules, and why reports were left out."""

    commit: Commit
    told: MergedRound
    rules: RoundRules
    dropped: tuple[str, ...]


def reduce_round(job: MergeJob) -> RoundResult:
    """Merge the round."""
    reports, dropped = _read(job)
    previous = None if job.previous is None else _resized_answer(job.previous, job.rules.workers)
    pool = merge((report for report, _ in reports), previous) if reports else _nothing(previous, job.rules.workers)
    value = job.keep.pace.interval.value
    asked = any(report.dsync == value and pressed(report, job.keep.heard.get(report.agent)) for report, _ in reports)
    work = job.elapsed()
    opened = min((stored.arrived for stored in job.reports), default=job.complete)
    pace = job.keep.pace.after(job.rules, asked=asked, opened=opened, work=work, now=job.now + work)
    keep = RoundCarryover(pace, job.incarnation, job.complete, _heard(job, reports))
    names = tuple(sorted(stored.key for stored in job.reports))
    answer = Answer(
        job.epoch, names, pool.table, pool.records, pool.unsure, pool.loads, pace.interval.value, pool.split,
        job.incarnation,
    )  # fmt: skip
    commit = Commit(job.epoch, answer_to_bytes(answer), names, keep.to_bytes())
    return RoundResult(commit, MergedRound(answer, frozenset(names), keep), job.rules, dropped)


def _read(job: MergeJob) -> tuple[list[tuple[Report, float]], tuple[str, ...]]:
    """The reports and when they came. What cannot be read (another release wrote it) is left out and answered: it must
    not hold up everybody else."""
    reports, dropped = [], []
    for stored in job.reports:
        data, report = job.here.get(stored.key, (b"", None))
        try:
            if report is None or data != stored.data:
                report = report_from_bytes(stored.data)
            report = _resized(report, job.rules.workers)
        except UnskewError as why:
            dropped.append(f"{stored.key.agent}: {why}")
        else:
            reports.append((report, stored.arrived))
    return reports, tuple(dropped)


def _heard(job: MergeJob, reports: list[tuple[Report, float]]) -> dict[str, LastReport]:
    """Of this round's agents, and of others that have a lease."""
    old = {agent: of for agent, of in job.keep.heard.items() if agent in job.members}
    new = {
        report.agent: LastReport(report.session, report.dsync, round(max(job.complete - arrived, 0.0), 6))
        for report, arrived in reports
    }
    return {**old, **new}


def _nothing(previous: Answer | None, workers: int) -> Pool:
    """A round without a report that can be read: all stays as it was."""
    none = np.zeros(0, np.uint64)
    if previous is None:
        return Pool(QTable.empty(workers), 0, frozenset(), np.zeros(workers, np.int64), none)
    return Pool(previous.table, previous.records, previous.unsure, previous.loads, previous.split)


def _resized(report: Report, workers: int) -> Report:
    """A report from before the stream was put with another number of partitions."""
    if report.table.workers == workers:
        return report
    return replace(report, table=report.table.resized(workers), loads=_fit(report.loads, workers))


def _resized_answer(answer: Answer, workers: int) -> Answer:
    if answer.table.workers == workers:
        return answer
    return replace(answer, table=answer.table.resized(workers), loads=_fit(answer.loads, workers))


def _fit(loads: NDArray[np.int64], workers: int) -> NDArray[np.int64]:
    out = np.zeros(workers, np.int64)
    both = min(workers, len(loads))
    out[:both] = loads[:both]
    return out
