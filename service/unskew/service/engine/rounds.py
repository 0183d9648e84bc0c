"""The rounds of cooperative learning: reports are taken, rounds sealed, merged and answered (DESIGN, section 6).

Each replica that agents of a stream talk to has a driver for it. It looks at the round in the store, and does what the
rules say is due (``core.rounds.rules``): seal it, merge it, or wait. Any other replica may do the same at the same
time, or in its place: the store lets each step happen once, and merging gives everybody the same.

A driver looks when its own agents have reported, when news comes, when the rules say that something will be due, and
every ``poll`` seconds. A replica that finds a round sealed by another waits a little before it merges it as well.
"""

from __future__ import annotations

import time

from unskew.core.dalton.qtable import QTable
from unskew.core.errors import ConfigError, UnskewError
from unskew.core.rounds.messages import Report
from unskew.core.rounds.rules import RoundRules, check_report, seal_at
from unskew.service.api.verbs import Synced
from unskew.service.engine.base import Base, Waiters, apart, finish, monotonic
from unskew.service.engine.reducer import (
    MergedRound,
    MergeJob,
    RoundCarryover,
    RoundResult,
    as_if_merged,
    reduce_round,
    rules_of,
    told,
)
from unskew.service.engine.streams import CachedStream, Streams
from unskew.service.errors import ConflictError, NotFoundError, UnavailableError
from unskew.service.events.events import AgentsSeen, RoundMerged, Skipped
from unskew.service.stores.ports import Commit, ReportKey, ReportOutcome, RoundView
from unskew.wire.refusals import refusal
from unskew.wire.round_messages import report_to_bytes

__all__ = ["Rounds"]

_GLANCE, _MOST_GLANCE = 0.01, 0.05
"""A look that is not urgent waits for so much of a DSYNC, and at most so many seconds, for more reports to come."""
_BIG = 1 << 14  # cells of a table that is packed off the loop
_MOST_HERE = 64 << 20  # bytes of reports that are kept as they came, until they are merged
_BRIEF = 1 << 20
"""Bytes of reports that are merged on the loop, in a millisecond or two. A thread would keep the loop from the
interpreter's lock for as long, and hand it over and back at each of some hundred short steps, which costs more."""
_IDLE = 30.0
_REFUSED = (UnskewError, ArithmeticError, LookupError, TypeError, ValueError)


class _Driver:
    """One stream's rounds, as this replica sees them."""

    def __init__(self, base: Base, known: CachedStream) -> None:
        self._base, self.stream = base, known.record.name
        self._store = base.store
        self._rules = rules_of(known.spec, base.tuning)
        self._spec = known.spec
        self.told: MergedRound | None = None
        self.bell, self._poke = Waiters(), Waiters()  # of answers, and of reasons to look
        self._poked = self._urgent = False
        self._missing: set[str] = set()
        self._value = self._rules.dsync
        self._ahead = 0.0  # of the store's clock, to the loop's
        self._at = (0, 0)  # the open epoch and the last merged one, as far as is known here
        self._found: tuple[int, float] = (0, 0.0)  # the sealed epoch of another replica, and when it was seen first
        self._used = monotonic()
        self._looked = False
        self._here: dict[ReportKey, tuple[bytes, Report]] = {}
        self._before: dict[ReportKey, tuple[bytes, Report]] = {}  # from before the last answer
        self._weight = 0
        self._raw: tuple[Commit | None, RoundRules] = (None, self._rules)
        self._keep = RoundCarryover.of(b"", self._rules)
        self._kept: tuple[bytes, RoundRules] = (b"", self._rules)
        self.gone: NotFoundError | None = None
        self._life = 0  # the stream's incarnation
        self.lives = 0  # how often it began anew: what was reported before is not there
        self._pause = base.tuning.retry
        self.task = apart(self._run())

    # -- what verbs ask

    def use(self, known: CachedStream) -> None:
        """An agent is here: go on."""
        self._used = monotonic()
        if known.spec is not self._spec:
            self._spec, self._rules = known.spec, rules_of(known.spec, self._base.tuning)
        if self.task.done():
            self.gone = None
            self.task = apart(self._run())

    @property
    def lease(self) -> float:
        return self._rules.lease * self._value

    def age(self, of: MergedRound) -> float:
        """Seconds since that round was complete."""
        return max(monotonic() + self._ahead - of.keep.complete, 0.0) if self._looked else 0.0

    def reported(self, key: ReportKey, data: bytes, report: Report) -> None:
        """A report was stored. The last one that was missing is looked at now."""
        if self._weight + len(data) <= _MOST_HERE:
            self._here[key] = data, report
            self._weight += len(data)
        self._missing.discard(key.agent)
        self.poke(urgent=not self._missing)

    def heard(self, rounds: tuple[int, int] | None) -> None:
        """News of the rounds. Most are of what was done here, and known."""
        if rounds is None or rounds[0] > self._at[0] or rounds[1] > self._at[1]:
            self.poke(urgent=len(self.bell) > 0)

    def poke(self, *, urgent: bool = True) -> None:
        """Who waits for company is not woken by each who comes."""
        news = not self._poked or (urgent and not self._urgent)
        self._poked, self._urgent = True, self._urgent or urgent
        if news:
            self._poke.ring()

    async def newest(self, *, fresh: bool = False) -> MergedRound | None:
        """The answer of the last merged round."""
        if self.told is None or fresh:
            await self._fetch()
        return self.told

    # -- the driver

    async def _run(self) -> None:
        while not self._base.closing and not self._idle():
            try:
                pause = await self._turn()
                self._pause = self._base.tuning.retry
            except NotFoundError as why:
                self.gone = why
                self._begin_anew()
                self.bell.ring()
                return
            except _REFUSED as why:
                # The store is away, or another release left what cannot be read here: neither is for ever.
                self._base.observer(Skipped(self.stream, "round", f"{type(why).__name__}: {why}"))
                pause, self._pause = self._pause, min(2 * self._pause, self._base.tuning.poll)
            await self._wait(pause)

    def _idle(self) -> bool:
        return not len(self.bell) and monotonic() - self._used > max(
            _IDLE, (self._rules.lease + self._rules.patience) * self._value
        )

    async def _wait(self, pause: float) -> None:
        """For so long, or until something has to be looked at; a look that is not urgent waits for company."""
        end = monotonic() + min(pause, self._base.tuning.poll)
        while not self._poked and not self._base.closing and (left := end - monotonic()) > 0:
            await self._poke.wait(left)
        company = monotonic() + min(_GLANCE * self._value, _MOST_GLANCE)
        while not self._urgent and not self._base.closing and (left := min(company, end) - monotonic()) > 0:
            await self._poke.wait(left)
        self._poked = self._urgent = False

    async def _turn(self) -> float:
        """Look, do what is due; how long nothing will be."""
        had = self.told
        view = await self._store.round(self.stream)
        keep = self._see(view, had)
        if view.merged and (self.told is None or self.told.version < (view.incarnation, view.merged)):
            await self._fetch()
        if view.open > view.merged + 1:
            return await self._take_over(view, keep)
        if view.opened is None or not view.reported:
            return self._base.tuning.poll
        leases = [member.lease for member in view.members if member.agent in self._missing]
        deadline = view.opened + self._rules.patience * self._value
        at = seal_at(view.now, deadline, leases)
        if at > view.now:
            return at - view.now
        self._missing = _live(view)  # of the next round, as soon as this one is sealed
        if not await self._store.seal(self.stream, view.open):
            return self._base.tuning.retry
        return await self._merge(view, keep, view.open, view.now, "deadline" if leases else "complete")

    def _see(self, view: RoundView, had: MergedRound | None) -> RoundCarryover:
        """What a look at the round says of agents and times. A store that knows less than what we ``had`` before we
        looked lost it in a failover: its rounds go on from there, and ours are no more."""
        keep = self._read_keep(view.keep)
        live = _live(view)
        self._missing, self._at = live - view.reported.keys(), (view.open, view.merged)
        self._value, self._ahead, self._looked = keep.pace.interval.value, view.now - monotonic(), True
        other = self.told is not None and self.told.version[0] != view.incarnation
        back = had is not None and had.version > (view.incarnation, view.merged)
        if other or back or self._life not in (0, view.incarnation):
            self.lives += 1
            self._begin_anew()
            self.bell.ring()
        self._life = view.incarnation
        self._base.observer(AgentsSeen(self.stream, len(live), self._value))
        return keep

    def _read_keep(self, data: bytes) -> RoundCarryover:
        """What the last commit left, read once."""
        if self._kept != (data, self._rules):
            self._keep, self._kept = RoundCarryover.of(data, self._rules), (data, self._rules)
        return self._keep

    async def _take_over(self, view: RoundView, keep: RoundCarryover) -> float:
        """A round that was sealed and is not merged: by whoever sealed it, or by us if that takes long."""
        epoch = view.merged + 1
        if self._found[0] != epoch:
            self._found = epoch, monotonic()
        left = self._found[1] + self._base.tuning.takeover + 4.0 * keep.pace.work - monotonic()
        if left > 0:
            return left
        self._found = epoch, monotonic()  # if this fails, in a while again
        return await self._merge(view, keep, epoch, None, "taken over")

    async def _merge(
        self, view: RoundView, keep: RoundCarryover, epoch: int, complete: float | None, outcome: str
    ) -> float:
        """Merge a sealed round; how long nothing will be due then."""
        began = time.monotonic()
        reports = await self._store.sealed(self.stream, epoch)
        latest = max((stored.arrived for stored in reports), default=view.now)
        previous = await self.newest() if view.merged else None
        if previous is not None and previous.answer.epoch > view.merged:
            return 0.0  # another was faster
        job = MergeJob(
            epoch=epoch,
            incarnation=view.incarnation,
            reports=reports,
            previous=previous.answer if previous and previous.answer.epoch == view.merged else None,
            keep=keep,
            members=frozenset(member.agent for member in view.members),
            complete=max(latest, keep.pace.merged_at or 0.0) if complete is None else complete,
            now=view.now,
            rules=self._rules,
            elapsed=lambda: time.monotonic() - began,
            here={**self._before, **self._here},
        )
        brief = sum(len(stored.data) for stored in reports) <= _BRIEF
        made = reduce_round(job) if brief else await self._base.run(reduce_round, job)
        for why in made.dropped:
            self._base.observer(Skipped(self.stream, "report", why, round=epoch))
        stands = await self._store.commit(self.stream, made.commit)
        ours = stands == made.commit
        if stands is not None:
            await self._take(stands, made if ours else None)
        first = min((stored.arrived for stored in reports), default=view.now)
        seconds = max(view.now - first, 0.0) + time.monotonic() - began
        merged = RoundMerged(self.stream, epoch, len(reports), outcome if ours else "repeated", seconds, self._value)
        self._base.observer(merged)
        if not ours or epoch + 1 < view.open:
            return 0.0
        self._at = epoch + 1, epoch
        return self._base.tuning.poll

    async def _fetch(self) -> None:
        """The last commit."""
        commit = await self._store.answer(self.stream)
        if commit is not None and self._raw != (commit, self._rules):
            await self._take(commit, None)

    async def _take(self, commit: Commit, made: RoundResult | None) -> None:
        """The last commit, read if it is not the one that was ``made`` here."""
        rules = self._rules
        ours = made is not None and made.rules == rules
        self.told = made.told if made is not None and ours else await self._base.run(told, commit, rules)
        self._raw = commit, rules
        self._before, self._here, self._weight = self._here, {}, 0
        self._value = self.told.keep.pace.interval.value
        self.bell.ring()

    def _begin_anew(self) -> None:
        """The stream is another one of the same name, or gone."""
        self.told, self._raw = None, (None, self._rules)
        self._before, self._here, self._weight = {}, {}, 0


class Rounds:
    """The drivers of all streams that agents talk to this replica about."""

    def __init__(self, base: Base, streams: Streams) -> None:
        self._base, self._streams = base, streams
        self._drivers: dict[str, _Driver] = {}

    # -- verbs

    async def sync(self, stream: str, report: Report, wait: float, known: tuple[int, int], data: bytes = b"") -> Synced:
        """Take the report, wait for its round. What is answered is the newest round's, and only if it is news; but an
        agent that waits for its report to be merged is always told that it is."""
        found = await self._streams.get(stream)
        _check_counts(report)
        _check_workers(report, found)
        self._streams.note(stream, known[0])
        driver = self._driver(found)
        key = ReportKey(*report.name)
        if not data:
            big = report.table.values.size > _BIG
            data = await self._base.run(report_to_bytes, report) if big else report_to_bytes(report)
        end = monotonic() + max(0.0, min(wait, self._base.tuning.most_wait))
        while True:
            lives = driver.lives
            outcome = await self._base.store.report(stream, key, data, 0.0 if report.guest else driver.lease)
            if outcome is ReportOutcome.MERGED:
                return await self._merged(driver, key, report)
            if outcome is ReportOutcome.OLDER:
                self._base.observer(Skipped(stream, "report", "older than one of the same agent that has come"))
                return _news(driver, await driver.newest(), known)
            if outcome is ReportOutcome.STORED:
                driver.reported(key, data, report)
            if not await self._until(driver, key, end, lives):
                continue  # more than one round went by unseen, or the stream began anew: the store knows
            newest = await driver.newest()
            if newest is not None and key in newest.names:
                return Synced(newest.answer, newest.version[0], merged=True, age=driver.age(newest))
            return _news(driver, newest, known)

    async def _until(self, driver: _Driver, key: ReportKey, end: float, lives: int) -> bool:
        """Wait for the round of this report, or for the end; False: it may have been missed."""
        before = driver.told
        while not (self._base.closing or self._base.draining) and (left := end - monotonic()) > 0:
            now = driver.told
            if driver.lives != lives:
                return False
            if now is not None and key in now.names:
                return True
            if before is not None and now is not None and now.version > (before.version[0], before.version[1] + 1):
                return False
            before = now
            await driver.bell.wait(left)
            if driver.gone is not None:
                raise driver.gone
        return True

    async def _merged(self, driver: _Driver, key: ReportKey, report: Report) -> Synced:
        """The report is in a merged round: its answer, or that of a later round as if it were in that."""
        newest = await driver.newest()
        if newest is None or key not in newest.names:
            newest = await driver.newest(fresh=True)
        if newest is None:
            raise UnavailableError("the round of this report is merged, and its answer is gone; send the next report")
        answer = newest.answer if key in newest.names else as_if_merged(newest.answer, report)
        return Synced(answer, newest.version[0], merged=True, age=driver.age(newest))

    # -- for the other parts

    def _driver(self, known: CachedStream) -> _Driver:
        driver = self._drivers.get(known.record.name)
        if driver is None:
            self._drivers = {name: had for name, had in self._drivers.items() if not had.task.done() or len(had.bell)}
            driver = self._drivers[known.record.name] = _Driver(self._base, known)
        driver.use(known)
        return driver

    async def standing(self, known: CachedStream) -> tuple[int, int, float]:
        """The last merged epoch, the agents with a lease, and the interval."""
        view = await self._base.store.round(known.record.name)
        keep = RoundCarryover.of(view.keep, rules_of(known.spec, self._base.tuning))
        live = sum(member.lease > view.now for member in view.members)
        return view.merged, live, keep.pace.interval.value

    async def table(self, known: CachedStream) -> QTable | None:
        """What the agents have learned together: the Q-table of the last merged round, for the present partitions."""
        commit = await self._base.store.answer(known.record.name)
        if commit is None:
            return None
        last = await self._base.run(told, commit, rules_of(known.spec, self._base.tuning))
        return last.answer.table.resized(known.spec.partitions)

    def heard(self, stream: str, rounds: tuple[int, int] | None = None) -> None:
        driver = self._drivers.get(stream)
        if driver is not None:
            driver.heard(rounds)

    def heard_all(self) -> None:
        for stream in list(self._drivers):
            self.heard(stream)

    def wake(self) -> None:
        """``closing`` or ``draining`` is set: everybody who waits is to see it."""
        for driver in self._drivers.values():
            driver.bell.ring()
            driver.poke()

    async def close(self) -> None:
        await finish(*(driver.task for driver in self._drivers.values()))


def _live(view: RoundView) -> set[str]:
    """The agents with a lease."""
    return {member.agent for member in view.members if member.lease > view.now}


def _check_counts(report: Report) -> None:
    try:
        check_report(report)
    except ConfigError as why:
        raise refusal("report", why, {"rows": "table.rows"}) from None


def _check_workers(report: Report, known: CachedStream) -> None:
    found, partitions = report.table.workers, known.spec.partitions
    if found != partitions:
        raise ConflictError(
            f"report.table.workers: the report is for {found} workers, stream {known.record.name!r} has {partitions} "
            "partitions; start the agent anew with that number",
            field="report.table.workers",
        )


def _news(driver: _Driver, newest: MergedRound | None, known: tuple[int, int]) -> Synced:
    if newest is None or newest.version <= known:
        return Synced(None, 0 if newest is None else newest.version[0])
    return Synced(newest.answer, newest.version[0], merged=False, age=driver.age(newest))
