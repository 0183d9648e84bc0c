"""The rounds of cooperative learning, as the verbs need them: an agent's report goes in, its answer comes out (DESIGN,
section 6). Each stream that agents talk to this replica about has a driver, which seals and merges its rounds.
"""

from __future__ import annotations

from unskew.core.dalton.qtable import QTable
from unskew.core.errors import ConfigError
from unskew.core.rounds.carryover import MergedRound
from unskew.core.rounds.messages import Report
from unskew.core.rounds.reduce_round import as_if_merged
from unskew.core.rounds.round_digests import SeenRound
from unskew.core.rounds.round_log import ReportKey, ReportOutcome
from unskew.core.rounds.rules import check_report
from unskew.service.api.verbs import Synced
from unskew.service.concurrency import finish, monotonic
from unskew.service.engine.base import Base
from unskew.service.engine.rounds.reducer import merged_round, rules_of, stored_carryover
from unskew.service.engine.rounds.round_driver import Recorder, RoundDriver, not_recorded
from unskew.service.engine.streams import CachedStream, Streams
from unskew.service.errors import ConflictError, UnavailableError
from unskew.service.events.events import Skipped
from unskew.wire.refusals import refusal
from unskew.wire.round_messages import report_to_bytes

__all__ = ["Rounds"]

_BIG = 1 << 14  # cells of a table that is packed off the loop


class Rounds:
    """``recorder`` is called with each decision of a driver that is made after it was set."""

    def __init__(self, base: Base, streams: Streams) -> None:
        self._base, self._streams = base, streams
        self._drivers: dict[str, RoundDriver] = {}
        self.recorder: Recorder = not_recorded

    # -- verbs

    async def sync(self, stream: str, report: Report, wait: float, seen: SeenRound, data: bytes = b"") -> Synced:
        """Take the report, wait for its round. What is answered is the newest round, and only if it is newer than
        ``seen``, the one that the agent has; but an agent whose report is merged is always told so."""
        record = await self._streams.get(stream)
        _check_counts(report)
        _check_workers(report, record)
        driver = self._driver(record)
        if self._streams.note(stream, seen.incarnation):
            driver.shown(seen)
        key = ReportKey(*report.name)
        data = data or await self._encoded(report)
        end = monotonic() + max(0.0, min(wait, self._base.tuning.most_wait))
        while True:
            restarts = driver.state.restarts
            lease = 0.0 if report.guest else driver.state.lease
            outcome = await self._base.store.report(stream, key, data, lease)
            if outcome is ReportOutcome.MERGED:
                merged = await self._newest(driver, key)
                # A store that has failed over since may not have that round, nor the report.
                if key in merged.names or await self._base.store.report(stream, key, data, lease) is outcome:
                    return _told(driver, merged, key, report)
                continue
            if outcome is ReportOutcome.OLDER:
                self._base.observer(Skipped(stream, "report", "older than one of the same agent that has come"))
                return _newer(driver, await driver.newest(), seen)
            if outcome is ReportOutcome.STORED:
                driver.reported(key, data, report)
            if not await self._until(driver, key, end, restarts):
                continue  # more than one round may have been missed, or the stream began anew: the store knows
            newest = await driver.newest()
            if newest is not None and key in newest.names:
                return Synced(newest.answer, newest.version[0], merged=True, age=driver.age(newest))
            return _newer(driver, newest, seen)

    async def _encoded(self, report: Report) -> bytes:
        if report.table.values.size > _BIG:
            return await self._base.run(report_to_bytes, report)
        return report_to_bytes(report)

    async def _until(self, driver: RoundDriver, key: ReportKey, end: float, restarts: int) -> bool:
        """Wait for the round of this report, or for the end; False: it may have been missed."""
        before = driver.state.answer
        while not (self._base.closing or self._base.draining) and (left := end - monotonic()) > 0:
            state = driver.state
            if state.restarts != restarts:
                return False
            answer = state.answer
            if answer is not None and key in answer.names:
                return True
            if answer is not None and before is not None and answer is not before and not answer.follows(before):
                return False
            before = answer
            await driver.answered.wait(left)
            if driver.error is not None:
                raise driver.error
        return True

    async def _newest(self, driver: RoundDriver, key: ReportKey) -> MergedRound:
        """The round of this report, which is merged, or a later one."""
        newest = await driver.newest()
        if newest is None or key not in newest.names:
            newest = await driver.newest(fresh=True)
        if newest is None:
            raise UnavailableError("the round of this report is merged, and its answer is gone; send the next report")
        return newest

    # -- for the other parts

    def _driver(self, record: CachedStream) -> RoundDriver:
        name = record.record.name
        driver = self._drivers.get(name)
        if driver is None:
            self._drivers = {
                stream: one for stream, one in self._drivers.items() if not one.task.done() or len(one.answered)
            }
            driver = self._drivers[name] = RoundDriver(self._base, record, self.recorder)
        driver.use(record)
        return driver

    async def standing(self, record: CachedStream) -> tuple[int, int, float]:
        """The last merged epoch, the agents with a lease, and the interval."""
        view = await self._base.store.round(record.record.name)
        carryover = stored_carryover(view.keep, rules_of(record.spec, self._base.tuning))
        return view.merged, len(view.live()), carryover.dsync

    async def table(self, record: CachedStream) -> QTable | None:
        """What the agents have learned together: the Q-table of the last merged round, for the present partitions."""
        commit = await self._base.store.answer(record.record.name)
        if commit is None:
            return None
        last = await self._base.run(merged_round, commit, rules_of(record.spec, self._base.tuning))
        return last.answer.table.resized(record.spec.partitions)

    def heard(self, stream: str, rounds: tuple[int, int] | None = None) -> None:
        driver = self._drivers.get(stream)
        if driver is not None:
            driver.news(rounds)

    def heard_all(self) -> None:
        for driver in self._drivers.values():
            driver.news(None)

    def wake(self) -> None:
        """``closing`` or ``draining`` is set: everybody who waits is to see it."""
        for driver in self._drivers.values():
            driver.wake()

    async def close(self) -> None:
        await finish(*(driver.task for driver in self._drivers.values()))


def _check_counts(report: Report) -> None:
    try:
        check_report(report)
    except ConfigError as why:
        raise refusal("report", why, {"rows": "table.rows"}) from None


def _check_workers(report: Report, record: CachedStream) -> None:
    workers, partitions = report.table.workers, record.spec.partitions
    if workers != partitions:
        raise ConflictError(
            f"report.table.workers: the report is for {workers} workers, stream {record.record.name!r} has "
            f"{partitions} partitions; start the agent anew with that number",
            field="report.table.workers",
        )


def _told(driver: RoundDriver, newest: MergedRound, key: ReportKey, report: Report) -> Synced:
    """The answer of the report's round, or that of a later round as if it were in that."""
    answer = newest.answer if key in newest.names else as_if_merged(newest.answer, report)
    return Synced(answer, newest.version[0], merged=True, age=driver.age(newest))


def _newer(driver: RoundDriver, newest: MergedRound | None, seen: SeenRound) -> Synced:
    if newest is None or newest.version <= seen[:2]:
        return Synced(None, 0 if newest is None else newest.version[0])
    return Synced(newest.answer, newest.version[0], merged=False, age=driver.age(newest))
