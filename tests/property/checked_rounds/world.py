"""Two replicas as they are in production (``Rounds``, ``RoundDriver``, ``RecoveringStore``), a store that fails over, a
network that loses, doubles and reorders, and agents; all of it moves only when it is told to.

What can happen next is a list of ``Move``s, the first of which is what happens where nothing goes wrong. Each call of
a replica to the store waits until a move lets it happen, refuses it, or lets it happen and loses the answer, so that
the caller asks again. A replica that dies is never heard of again, whatever it was doing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tests.property.checked_rounds.clockwork import StillLoop
from tests.property.checked_rounds.replicated_store import EPOCH, STREAM, BrokenError, ReplicatedStore
from unskew.core.dalton.qtable import QTable
from unskew.core.rounds.messages import Answer, Report
from unskew.core.rounds.next_step import Seal, Step
from unskew.core.rounds.replica import ReplicaState
from unskew.core.rounds.round_digests import NOTHING_SEEN, SeenRound
from unskew.core.rounds.round_log import ReportKey, RoundView
from unskew.core.sketches.frequent import FrequentItems
from unskew.core.stream_spec import StreamSpec
from unskew.service.api.verbs import Synced
from unskew.service.engine.base import Base, Tuning
from unskew.service.engine.rounds.rounds import Rounds
from unskew.service.engine.streams import Incarnations, Streams
from unskew.service.errors import ServiceError, UnavailableError
from unskew.service.events.events import ignore
from unskew.service.stores.records import News
from unskew.service.stores.recovering import recovering
from unskew.wire.round_messages import report_to_bytes
from unskew.wire.streams import spec_to_bytes

__all__ = ["Move", "Shape", "World"]

WORKERS, DSYNC = 2, 10.0
SPEC = StreamSpec(WORKERS, "dalton", dsync=DSYNC, dsync_min=2.5, dsync_max=40.0)
TUNING = Tuning(patience=2.0, lease=2.5, takeover=1.0)
NONE: frozenset[int] = frozenset()
_PATIENCE = 4_000  # moves until every agent has to have its answer, once all goes well


@dataclass(frozen=True)
class Shape:
    """How big a world is."""

    agents: tuple[str, ...] = ("ann", "bob", "cyd")
    replicas: int = 2


class Move(NamedTuple):
    """Something that can happen. ``fault``: what it takes of the faults that a run may have, "" for none."""

    name: str
    do: Callable[[], None]
    fault: str = ""


@dataclass(eq=False)
class Call:
    """A call to the store, or work off the loop, that has not happened yet."""

    at: Process
    op: str
    args: tuple[Any, ...]
    answer: asyncio.Future[Any]
    lost: bool = False
    hangs: bool = False


class _Gate:
    """The store as one replica has it: every call waits for its move."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def __getattr__(self, op: str) -> Any:
        async def call(*args: Any) -> Any:
            return await self._process.call(op, args)

        setattr(self, op, call)
        return call


class _Inline(Base):
    """Threads are moves, too."""

    process: Process

    async def run(self, work: Any, *args: Any, **named: Any) -> Any:
        await self.process.call("thread", ())
        return work(*args, **named)


@dataclass(eq=False)
class Process:
    """A replica of the service."""

    world: World
    number: int
    alive: bool = True

    def __post_init__(self) -> None:
        clock = partial(_clock, self.world)
        incarnations = Incarnations(clock)
        store = recovering(_Gate(self), incarnations.floor, lambda stream: None)  # type: ignore[arg-type]
        base = _Inline(store, clock, ignore, TUNING)
        base.process = self
        self.rounds = Rounds(base, Streams(base, incarnations))
        self.rounds.recorder = _decided

    async def call(self, op: str, args: tuple[Any, ...]) -> Any:
        answer = self.world.loop.create_future()
        if self.alive:
            self.world.calls.append(Call(self, op, args, answer))
        return await answer


def _decided(_: str, view: RoundView, state: ReplicaState, now: float, step: Step) -> None:
    """No round is sealed while it waits for somebody, by what the replica saw; but where the store's clock went back,
    nobody knows how long the round has waited."""
    if isinstance(step, Seal):
        assert view.opened is not None
        if view.opened > view.now:
            return
        missing = view.live() - view.reported.keys()
        if missing and view.now < view.opened + state.rules.patience * state.dsync:
            _broken.append(f"round {step.epoch} is sealed without {sorted(missing)}")


_broken: list[str] = []  # a driver survives an error in a step, so it is kept for the next check


def _clock(world: World) -> float:
    return EPOCH + world.loop.now


@dataclass(eq=False)
class Partner:
    """An agent as it should be: one report under way at a time, sent again until an answer names it."""

    name: str
    session: int = 1
    seq: int = 0
    waiting: Report | None = None
    data: bytes = b""
    seen: SeenRound = NOTHING_SEEN
    due: float = 0.0
    home: int = 0
    acked: list[tuple[ReportKey, tuple[int, int]]] = field(default_factory=list)
    taken: dict[tuple[int, int], Any] = field(default_factory=dict)

    def report(self, rows: int) -> Report:
        self.seq += 1
        frequent = FrequentItems(8, np.array([7], np.uint64), np.array([rows], np.int64), 0, rows)
        table = QTable.of([7], [[0.1] * WORKERS], [rows], np.ones((1, WORKERS), np.bool_))
        loads = np.full(WORKERS, rows)
        self.waiting = Report(self.name, self.session, self.seq, table, rows, frequent, loads, DSYNC, longer=False)
        self.data = report_to_bytes(self.waiting)
        return self.waiting

    def takes(self, answer: Answer) -> None:
        if self.waiting is not None and self.waiting.name in answer.merged:
            self.acked.append((ReportKey(*self.waiting.name), answer.version))
            self.waiting = None
        if answer.version > self.seen[:2]:
            table = answer.table
            said = table.hashes.tobytes(), table.rows.tobytes(), table.values.tobytes(), tuple(sorted(answer.unsure))
            self.seen, self.taken[answer.version] = answer.seen, said


@dataclass(eq=False)
class Request:
    """A report under way."""

    report: Report
    data: bytes
    seen: SeenRound
    home: int


@dataclass(eq=False)
class Reply:
    """An answer under way; None where the call failed."""

    agent: str
    session: int
    answer: Answer | None


class World:
    """``steps`` counts the moves that were made."""

    def __init__(self, loop: StillLoop, shape: Shape) -> None:
        self.loop, self.store, self.steps = loop, ReplicatedStore(), 0
        self.calls: list[Call] = []
        self.requests: list[Request] = []
        self.replies: list[Reply] = []
        self.news: list[tuple[int, News]] = []
        self.agents = {name: Partner(name, home=at % shape.replicas) for at, name in enumerate(shape.agents)}
        self._rows = 0
        self.replicas = [Process(self, number) for number in range(shape.replicas)]
        self.store.ask("put_stream", (STREAM, spec_to_bytes(SPEC)))

    # -- what can happen

    def moves(self) -> list[Move]:
        """The first is what happens where nothing goes wrong."""
        calls = [Move(f"{call.op} at {call.at.number}", partial(self._happen, call)) for call in self.calls]
        found = [move for move, call in zip(calls, self.calls, strict=True) if not call.hangs]
        found += [Move(f"report of {one.report.name}", partial(self._arrive, one, one.home)) for one in self.requests]
        found += [Move(f"answer to {one.agent}", partial(self._answer, one)) for one in self.replies]
        found += [Move(f"news to {at}", partial(self._hear, at, news)) for at, news in self.news]
        late = [move for move, call in zip(calls, self.calls, strict=True) if call.hangs]
        return [*found, Move("time", self._pass), *late]

    def faults(self) -> list[Move]:
        """What may go wrong."""
        found = [
            Move(f"{call.op} at {call.at.number}: refused", partial(self._refuse, call), "call") for call in self.calls
        ]
        found += [
            Move(f"{call.op} at {call.at.number}: hangs", partial(self._hang, call), "call")
            for call in self.calls
            if not call.hangs
        ]
        found += [
            Move(f"{call.op} at {call.at.number}: answer lost", partial(self._lose_answer, call), "call")
            for call in self.calls
            if not call.lost and call.op != "thread"
        ]
        for one in self.requests:
            found += [
                Move(f"report of {one.report.name}: elsewhere", partial(self._arrive, one, one.home + 1)),
                Move(f"report of {one.report.name}: twice", partial(self._double, one), "network"),
                Move(f"report of {one.report.name}: lost", partial(self.requests.remove, one), "network"),
            ]
        found += [
            Move(f"answer to {one.agent}: lost", partial(self.replies.remove, one), "network") for one in self.replies
        ]
        found += [
            Move(f"news to {at}: lost", partial(self.news.remove, (at, news)), "network") for at, news in self.news
        ]
        found += [
            Move(f"replica {at} dies", partial(self._replica_dies, at), "death") for at in range(len(self.replicas))
        ]
        found += [Move(f"{name} dies", partial(self._agent_dies, name), "death") for name in self.agents]
        found += [Move("a long time", partial(self._pass, 40.0), "network")]
        if self.store.follower is None:
            return [*found, Move("the follower lags", self.store.lag, "failover")]
        return [
            *found,
            *(Move(f"failover, clock {by:+}", partial(self.store.fail_over, by)) for by in (0.0, -3.0, 30.0)),
        ]

    def make(self, move: Move) -> None:
        self.steps += 1
        move.do()
        self.loop.settle()
        if _broken:
            raise BrokenError(_broken.pop())

    # -- the store

    def _happen(self, call: Call) -> None:
        self.calls.remove(call)
        try:
            answer = self._ask(call)
        except ServiceError as why:
            call.answer.set_exception(why)
        else:
            call.answer.set_result(answer)

    def _ask(self, call: Call) -> Any:
        if call.op == "thread":
            return None
        self.store.now = self.loop.now
        answer, news = self.store.ask(call.op, call.args)
        self.news += [(at, one) for one in news for at in range(len(self.replicas))]
        return answer

    def _refuse(self, call: Call) -> None:
        self.calls.remove(call)
        call.answer.set_exception(UnavailableError("store: it does not answer"))

    def _hang(self, call: Call) -> None:
        """For as long as chance has it."""
        call.hangs = True

    def _lose_answer(self, call: Call) -> None:
        """It is done, and the caller asks once more."""
        call.lost = True
        with contextlib.suppress(ServiceError):
            self._ask(call)

    # -- the network

    def _arrive(self, one: Request, at: int) -> None:
        self.requests.remove(one)
        process = self.replicas[at % len(self.replicas)]
        asked = process.rounds.sync(STREAM, one.report, 2.0 * DSYNC, one.seen, one.data)
        task = self.loop.create_task(asked)
        task.add_done_callback(partial(self._replied, process, one.report))

    def _replied(self, process: Process, report: Report, task: asyncio.Task[Synced]) -> None:
        if task.cancelled():
            return
        failed = task.exception()
        if failed is not None and not isinstance(failed, ServiceError):
            raise failed
        if process.alive:
            answer = None if failed is not None else task.result().answer
            self.replies.append(Reply(report.agent, report.session, answer))

    def _double(self, one: Request) -> None:
        self.requests.append(Request(one.report, one.data, one.seen, one.home))

    def _answer(self, one: Reply) -> None:
        self.replies.remove(one)
        agent = self.agents[one.agent]
        if agent.session == one.session and one.answer is not None:
            agent.takes(one.answer)

    def _hear(self, at: int, news: News) -> None:
        self.news.remove((at, news))
        self.replicas[at].rounds.heard(news.stream, news.rounds)

    # -- time, and who goes on by it

    def _pass(self, seconds: float = 0.0) -> None:
        """To the next moment at which somebody has something to do, or so far."""
        if not seconds:
            times = [agent.due for agent in self.agents.values()]
            times += [] if (timer := self.loop.next_timer()) is None else [timer]
            seconds = max(min(times) - self.loop.now, 0.0)
        self.loop.now += seconds
        for agent in self.agents.values():
            if agent.due <= self.loop.now:
                self._send(agent)

    def _send(self, agent: Partner) -> None:
        """A new report, or the last one again, to the next replica."""
        agent.due = self.loop.now + DSYNC
        if agent.waiting is None:
            self._rows = self._rows + 1 + self._rows // 3
            self._rows %= 1 << 30
            agent.report(self._rows + 1)
        else:
            agent.home += 1
        assert agent.waiting is not None
        self.requests.append(Request(agent.waiting, agent.data, agent.seen, agent.home))

    # -- deaths

    def _replica_dies(self, at: int) -> None:
        """Another one takes its place, which knows nothing."""
        old = self.replicas[at]
        old.alive = False
        self.calls = [call for call in self.calls if call.at is not old]
        self.news = [(to, news) for to, news in self.news if to != at]
        self.replicas[at] = Process(self, at)

    def _agent_dies(self, name: str) -> None:
        """And begins anew, without what it had under way or knew."""
        old = self.agents[name]
        self.agents[name] = Partner(name, old.session + 1, due=old.due, home=old.home)

    # -- what has to be true

    def check(self) -> None:
        """Let all go well from now on: every agent that waits is answered, and so is its next report, with which it
        shows what it was told; then the books are right."""
        self._settle()
        self._settle()
        self._check_acknowledged()
        self._check_answers()

    def _settle(self) -> None:
        for call in self.calls:
            call.hangs = False
        for agent in self.agents.values():
            if agent.waiting is None:
                self._send(agent)
        waiting = {name: agent.waiting for name, agent in self.agents.items()}
        for _ in range(_PATIENCE):
            if all(self.agents[name].waiting is not report for name, report in waiting.items()):
                break
            self.make(self.moves()[0])
        else:
            raise BrokenError(f"waits for ever: {[n for n, r in waiting.items() if self.agents[n].waiting is r]}")

    def _check_acknowledged(self) -> None:
        """Each acknowledged report is in one round, or there is a newer incarnation than that of its answer. Where the
        agent has died, and the replica, and the store lost the round, nobody is left who could tell."""
        books = self.store.books
        for agent in self.agents.values():
            for name, (incarnation, epoch) in agent.acked:
                if incarnation > books.incarnation:
                    raise BrokenError(f"{name} was answered in {incarnation}, and the stream is at {books.incarnation}")
                if incarnation == books.incarnation and books.count(name) != 1:
                    raise BrokenError(f"{name}, answered in round {epoch}, is in {books.count(name)} rounds")

    def _check_answers(self) -> None:
        """No two agents that live were told different things of one round, unless a newer incarnation says so."""
        now = self.store.books.incarnation
        for version in {version for agent in self.agents.values() for version in agent.taken if version[0] >= now}:
            said = {agent.taken[version] for agent in self.agents.values() if version in agent.taken}
            if len(said) > 1 or version[0] > now:
                raise BrokenError(f"{len(said)} answers for round {version}, and the stream is at {now}")
