"""From the reports of a sealed round to its answer: merge, move DSYNC, name what is in it.

Who merges does not matter: the answer is the same for everybody, except for its DSYNC, which depends on how long the
merge took. That time is passed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from unskew.core.arrays.types import I64
from unskew.core.dalton.qtable import QTable
from unskew.core.rounds.carryover import MergedRound, RoundCarryover
from unskew.core.rounds.merge import Pool, merge
from unskew.core.rounds.messages import Answer, Report
from unskew.core.rounds.round_digests import digest_of, digests_after
from unskew.core.rounds.round_log import ReportKey
from unskew.core.rounds.rules import LastReport, RoundRules, pressed

__all__ = ["SealedRound", "as_if_merged", "finish_round", "merge_reports", "resized_report"]


@dataclass(frozen=True, eq=False)
class SealedRound:
    """A round to merge. ``arrivals`` has all the reports in it, and when each came; ``reports`` those that could be
    read. ``members`` are the agents that the store remembers. ``complete``: when the round was sealed; None where
    another replica sealed it. ``now`` is the store's clock when the work began, ``digests`` are those of the rounds
    before."""

    epoch: int
    incarnation: int
    arrivals: dict[ReportKey, float]
    reports: Sequence[Report]
    previous: Answer | None
    carryover: RoundCarryover
    members: frozenset[str]
    complete: float | None
    now: float
    rules: RoundRules
    digests: bytes = b""

    @property
    def completed(self) -> float:
        """When the round took its last report, as far as is known."""
        if self.complete is not None:
            return self.complete
        return max(max(self.arrivals.values(), default=self.now), self.carryover.pace.merged_at or 0.0)


def merge_reports(job: SealedRound) -> Pool:
    """What the reports say together. Without a report that could be read all stays as it was."""
    workers = job.rules.workers
    previous = None if job.previous is None else _resized_answer(job.previous, workers)
    if job.reports:
        return merge(job.reports, previous)
    if previous is None:
        none = np.zeros(0, np.uint64)
        return Pool(QTable.empty(workers), 0, frozenset(), np.zeros(workers, np.int64), none)
    return Pool(previous.table, previous.records, previous.unsure, previous.loads, previous.split)


def finish_round(job: SealedRound, pool: Pool, work: float) -> MergedRound:
    """The answer of the round, whose merge took ``work`` seconds, and what it leaves for the next."""
    before, complete = job.carryover, job.completed
    asked = any(
        report.dsync == before.dsync and pressed(report, before.last_reports.get(report.agent))
        for report in job.reports
    )
    opened = min(job.arrivals.values(), default=complete)
    pace = before.pace.after(job.rules, asked=asked, opened=opened, work=work, now=job.now + work)
    carryover = RoundCarryover(pace, job.incarnation, complete, _last_reports(job, complete))
    names = tuple(sorted(job.arrivals))
    digests = digests_after(job.digests, job.epoch, names)
    answer = Answer(
        job.epoch, names, pool.table, pool.records, pool.unsure, pool.loads, pace.interval.value, pool.split,
        job.incarnation, digest_of(digests, job.epoch),
    )  # fmt: skip
    return MergedRound(answer, frozenset(names), carryover, digests)


def _last_reports(job: SealedRound, complete: float) -> dict[str, LastReport]:
    """Of this round's agents, and of others that the store remembers."""
    old = {agent: last for agent, last in job.carryover.last_reports.items() if agent in job.members}
    new = {
        report.agent: LastReport(
            report.session, report.dsync, round(max(complete - job.arrivals[ReportKey(*report.name)], 0.0), 6)
        )
        for report in job.reports
    }
    return {**old, **new}


def as_if_merged(answer: Answer, report: Report) -> Answer:
    """The answer of a later round than this report's, for its agent, which waits for one that names it. Its own tuples
    are added to the sums: the agent takes off what it reported itself."""
    merged = tuple(sorted({*answer.merged, report.name}))
    if len(report.loads) != len(answer.loads):
        return replace(answer, merged=merged)
    return replace(answer, merged=merged, loads=answer.loads + report.loads, records=answer.records + report.records)


def resized_report(report: Report, workers: int) -> Report:
    """A report from before the stream was put with another number of partitions."""
    if report.table.workers == workers:
        return report
    return replace(report, table=report.table.resized(workers), loads=_fit(report.loads, workers))


def _resized_answer(answer: Answer, workers: int) -> Answer:
    if answer.table.workers == workers:
        return answer
    return replace(answer, table=answer.table.resized(workers), loads=_fit(answer.loads, workers))


def _fit(loads: I64, workers: int) -> I64:
    out = np.zeros(workers, np.int64)
    both = min(workers, len(loads))
    out[:both] = loads[:both]
    return out
