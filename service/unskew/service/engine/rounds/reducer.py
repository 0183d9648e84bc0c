"""From the bytes of a sealed round to the bytes of its answer: read the reports, reduce them (``core.rounds``), write.

All of it is pure: the time that the work takes comes from the function that is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from unskew.core.errors import UnskewError
from unskew.core.rounds.carryover import MergedRound, RoundCarryover
from unskew.core.rounds.messages import Answer, Report
from unskew.core.rounds.reduce_round import SealedRound, finish_round, merge_reports, resized_report
from unskew.core.rounds.round_digests import digest_of
from unskew.core.rounds.round_log import Commit, ReportKey, RoundView, StoredReport
from unskew.core.rounds.rules import RoundRules
from unskew.core.stream_spec import StreamSpec
from unskew.service.engine.base import Tuning
from unskew.service.errors import DamagedError
from unskew.wire.round_messages import answer_from_bytes, answer_to_bytes, report_from_bytes

__all__ = ["MergeJob", "RecentReports", "RoundResult", "merged_round", "reduce_round", "rules_of", "stored_carryover"]

_MOST_BYTES = 64 << 20
_WAY_OUT = "upgrade this replica where others are newer, else delete the stream and put it again"


def rules_of(spec: StreamSpec, tuning: Tuning) -> RoundRules:
    return RoundRules(
        workers=spec.partitions,
        dsync=spec.dsync,
        dsync_min=spec.dsync_min,
        dsync_max=spec.dsync_max,
        patience=tuning.patience,
        lease=tuning.lease,
    )


def stored_carryover(keep: bytes, rules: RoundRules) -> RoundCarryover:
    """What a round left, as the store has it; a ``DamagedError`` where it cannot be read."""
    try:
        return RoundCarryover.of(keep, rules)
    except (UnskewError, ValueError, TypeError, LookupError, AttributeError) as why:
        raise DamagedError(f"store: what the last round left is unreadable ({type(why).__name__}); {_WAY_OUT}") from why


def merged_round(commit: Commit, rules: RoundRules) -> MergedRound:
    """Read the answer of a round; a ``DamagedError`` where that cannot be."""
    carryover = stored_carryover(commit.keep, rules)
    try:
        answer = answer_from_bytes(commit.answer, commit.names)
    except UnskewError as why:
        raise DamagedError(f"store: the answer of round {commit.epoch} cannot be read ({why}); {_WAY_OUT}") from why
    digest = digest_of(commit.digests, commit.epoch)
    answer = replace(answer, epoch=commit.epoch, incarnation=carryover.incarnation, digest=digest)
    return MergedRound(answer, frozenset(commit.names), carryover, commit.digests)


class RecentReports:
    """Reports that came to this replica, with their bytes, until the round after theirs has its answer: they need not
    be decoded again when the round is merged here."""

    def __init__(self) -> None:
        self._before: dict[ReportKey, tuple[bytes, Report]] = {}
        self._now: dict[ReportKey, tuple[bytes, Report]] = {}
        self._size = 0

    def add(self, key: ReportKey, data: bytes, report: Report) -> None:
        """Keep it, if it is not too much."""
        if self._size + len(data) <= _MOST_BYTES:
            self._now[key] = data, report
            self._size += len(data)

    def next_round(self) -> None:
        """A round has its answer."""
        self._before, self._now, self._size = self._now, {}, 0

    def read(self, stored: StoredReport) -> Report:
        """The report, decoded if it did not come to this replica as it is stored."""
        data, report = self._now.get(stored.key) or self._before.get(stored.key) or (b"", None)
        return report if report is not None and data == stored.data else report_from_bytes(stored.data)


@dataclass(frozen=True, eq=False)
class MergeJob:
    """A sealed round as the store has it. ``complete``: when it was sealed, None where another replica sealed it.
    ``elapsed`` gives the seconds since the work began, which was when the store was at ``view``."""

    epoch: int
    view: RoundView
    reports: Sequence[StoredReport]
    previous: Answer | None
    carryover: RoundCarryover
    complete: float | None
    rules: RoundRules
    read: Callable[[StoredReport], Report]
    elapsed: Callable[[], float]


@dataclass(frozen=True, eq=False)
class RoundResult:
    """The commit of a round, what ``merged_round`` would read in it under ``rules``, and why reports were left out."""

    commit: Commit
    merged: MergedRound
    rules: RoundRules
    dropped: tuple[str, ...]


def reduce_round(job: MergeJob) -> RoundResult:
    reports, dropped = _read(job)
    view = job.view
    sealed = SealedRound(
        epoch=job.epoch,
        incarnation=view.incarnation,
        arrivals={stored.key: stored.arrived for stored in job.reports},
        reports=reports,
        previous=job.previous,
        carryover=job.carryover,
        members=frozenset(member.agent for member in view.members),
        complete=job.complete,
        now=view.now,
        rules=job.rules,
        digests=view.digests,
    )
    pool = merge_reports(sealed)
    merged = finish_round(sealed, pool, job.elapsed())
    answer = merged.answer
    names = tuple(ReportKey(*name) for name in answer.merged)
    keep = merged.carryover.to_bytes()
    commit = Commit(job.epoch, answer_to_bytes(answer), names, keep, merged.digests, view.digests)
    return RoundResult(commit, merged, job.rules, dropped)


def _read(job: MergeJob) -> tuple[list[Report], tuple[str, ...]]:
    """A report that cannot be read (of another release) is left out, and its agent is answered like all others."""
    reports, dropped = [], []
    for stored in job.reports:
        try:
            reports.append(resized_report(job.read(stored), job.rules.workers))
        except UnskewError as why:
            dropped.append(f"{stored.key.agent}: {why}")
    return reports, tuple(dropped)
