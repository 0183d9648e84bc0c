"""Where the store does not answer: GetPlan and BuildPlan answer at once from what is known, the first caller waits for
a moment and the others do not, the store is asked behind their backs, and a store that is only slow is not away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.proxy import FaultProxy, HalfOpen, ProxyLoop
from tests.servers import Server, single
from tests.service.engines import Cuttable, Log, engines, run, skewed
from tests.service.test_outages import AGED, LONG, Caller, a_caller, in_time, prepare
from unskew.core.stream_spec import StreamSpec
from unskew.service.engine.base import Tuning
from unskew.service.engine.engine import Engine
from unskew.service.engine.store_silence import StoreSilence
from unskew.service.errors import UnavailableError, WritesRefusedError
from unskew.service.events.events import PlanServed, Skipped
from unskew.v1 import partitioner_pb2 as pb

BALANCED = StreamSpec(8, "balanced")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with single(tmp_path) as one:
        yield one


# -- the machine


def test_the_first_waits_the_others_wait_for_what_is_left_and_an_answer_ends_it() -> None:
    silence = StoreSilence()
    assert silence.left(0.04, 5.0) == 0.04
    silence.asked(5.0)
    silence.asked(5.03)  # does not begin anew
    assert silence.left(0.04, 5.03) == pytest.approx(0.01)
    assert silence.left(0.075, 5.05) == pytest.approx(0.025)  # who is patient is not told by who is not
    assert silence.left(0.04, 99.0) == 0.0
    silence.answered()
    assert silence.left(0.04, 99.0) == 0.04
    silence.asked(99.0)
    assert silence.left(0.04, 99.01) == pytest.approx(0.03)


# -- the engine, over a store that hangs


class Hanging(Cuttable):
    """While ``hung`` it takes questions and answers none; ``slow`` seconds later it answers."""

    hung = False
    slow = 0.0

    def __getattr__(self, op: str) -> Any:
        found = super().__getattr__(op)
        if op in ("news", "news_state", "close"):
            return found

        async def asked(*args: Any) -> Any:
            if self.hung:
                self.asked.append(op)
                await asyncio.sleep(0.7)
                raise UnavailableError("store: no answer")
            await asyncio.sleep(self.slow)
            return await found(*args)

        return asked


async def timed(ask: Awaitable[Any]) -> tuple[Any, float]:
    began = time.monotonic()
    return await ask, time.monotonic() - began


async def until_fresh(ask: Callable[[], Awaitable[Any]]) -> None:
    """A question that was under way when the store came back may be without an answer still."""
    end = time.monotonic() + 60.0
    while (await ask()).stale:
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


def with_plan(check: Callable[[Hanging, Engine, Any, Log], Awaitable[None]], **tuning: float) -> None:
    async def main() -> None:
        store, log = Hanging(), Log()
        async with engines(store, tuning=Tuning(fresh=0.0, **tuning), observer=log) as (engine,):
            await engine.put_stream("clicks", BALANCED)
            built = await engine.build_plan("clicks", histogram=skewed())
            await engine.get_plan("clicks")
            await check(store, engine, built, log)
            store.hung = False

    run(main())


def test_get_plan_waits_once_for_a_store_that_hangs_and_then_not_at_all() -> None:
    async def check(store: Hanging, engine: Engine, built: Any, log: Log) -> None:
        store.hung = True
        found = [await timed(engine.get_plan("clicks")) for _ in range(40)]
        assert all((plan.plan, plan.stale) == (built.plan, True) for plan, _ in found)
        assert sorted(seconds for _, seconds in found)[30] < 0.02
        assert sum(seconds for _, seconds in found) < 1.0  # 40 waits of 0.04 s are 1.6 s
        assert store.asked.count("plan") < 10, "behind the callers' backs, one question at a time"
        store.hung = False
        await until_fresh(lambda: engine.get_plan("clicks"))

    with_plan(check)


def test_build_plan_answers_with_the_last_plan_and_says_so() -> None:
    """With its advice, for a batch, and for a histogram in the request too; nothing is counted as built."""

    async def check(store: Hanging, engine: Engine, built: Any, log: Log) -> None:
        store.hung = True
        log.clear()
        asks = [lambda n=n: engine.build_plan("clicks", n) for n in range(20)]
        asks.append(lambda: engine.build_plan("clicks", histogram=skewed(seed=3)))
        asks.append(lambda: engine.build_plan("clicks"))
        found = [await timed(ask()) for ask in asks]
        assert all((one.plan, one.stale, one.outcome) == (built.plan, True, "kept") for one, _ in found)
        assert all("the last one known here" in one.reason for one, _ in found)
        assert sorted(seconds for _, seconds in found)[16] < 0.05
        assert {event.stale for event in log.of(PlanServed)} == {True}
        assert any("the last one is the answer" in event.reason for event in log.of(Skipped))
        store.hung = False
        await until_fresh(lambda: engine.build_plan("clicks", 99))

    with_plan(check)


def test_where_nothing_is_known_or_the_plan_does_not_fit_the_caller_is_told() -> None:
    async def check(store: Hanging, engine: Engine, built: Any, log: Log) -> None:
        await engine.put_stream("other", BALANCED)
        await engine.put_stream("clicks", StreamSpec(5, "balanced"))
        await engine.get_stream("clicks")
        store.hung = True
        for stream in ("other", "clicks", "nobody"):
            with pytest.raises(UnavailableError):
                await engine.build_plan(stream, 1)

    with_plan(check)


def test_a_store_that_refuses_writes_is_answered_for_with_the_last_plan() -> None:
    async def check(store: Hanging, engine: Engine, built: Any, log: Log) -> None:
        async def full(*_args: Any) -> Any:
            raise WritesRefusedError("store: Redis is full")

        store.store.put_plan = full
        one = await engine.build_plan("clicks", 7, histogram=skewed(seed=9))
        assert (one.plan, one.stale) == (built.plan, True)
        assert "full" in one.reason

    with_plan(check)


def test_a_store_that_is_slow_makes_plans_all_the_same() -> None:
    """Slower than who wants a plan waits, quicker than who wants one made: that is no outage for him."""

    async def check(store: Hanging, engine: Engine, built: Any, log: Log) -> None:
        store.slow = 0.1
        assert (await engine.get_plan("clicks")).stale
        for number in range(3):
            asked = asyncio.create_task(engine.get_plan("clicks"))
            assert not (await engine.build_plan("clicks", number)).stale
            await asked

    with_plan(check, build_wait=5.0)


# -- a real Redis, through the whole service


def quick(took: list[float], most: float) -> None:
    """All but the slowest in ten: those wait for their turn on a machine with other work."""
    assert sorted(took)[int(0.9 * len(took))] < most, sorted(took)


def measured(ask: Callable[[], Any], pause: float = 0.02) -> tuple[Any, float]:
    time.sleep(pause)
    began = time.monotonic()
    return ask(), time.monotonic() - began


def build(one: Caller, batch: int) -> pb.BuildPlanResponse:
    return one.stub.BuildPlan(pb.BuildPlanRequest(stream="clicks", batch=batch), timeout=LONG)


@contextmanager
def faulty(fault: str, server: Server, loop: ProxyLoop, proxy: FaultProxy) -> Iterator[None]:
    if fault == "black hole":
        with loop.fault(HalfOpen(), proxy):
            yield
        return
    begin, end = (server.pause, server.resume) if fault == "stopped" else (server.kill, server.start)
    begin()
    try:
        yield
    finally:
        end()


@pytest.mark.parametrize("fault", ["stopped", "killed", "black hole"])
def test_both_verbs_answer_at_once_while_redis_is_stopped_killed_or_out_of_reach(server: Server, fault: str) -> None:
    """Over gRPC and REST, marked stale; and fresh again when it is back."""
    with closing(ProxyLoop()) as loop:
        proxy = loop.proxy(server.port)
        with a_caller(f"redis://127.0.0.1:{proxy.port}") as one:
            prepare(one)
            latest = one.get_plan(LONG).plan
            with faulty(fault, server, loop, proxy):
                time.sleep(AGED)
                plans = [measured(lambda: one.get_plan(LONG)) for _ in range(100)]
                builds = [measured(lambda n=n: build(one, n)) for n in range(50, 100)]
                page = one.web.post("/v1/streams/clicks/plans", json={"batch": 200})
            assert all((plan.plan, plan.stale) == (latest, True) for plan, _ in plans)
            quick([seconds for _, seconds in plans], 0.05)
            assert all((built.plan, built.stale) == (latest, True) for built, _ in builds)
            quick([seconds for _, seconds in builds], 0.1)
            assert (page.status_code, page.json()["stale"], page.headers["x-unskew-stale"]) == (200, True, "true")
            in_time("ready", lambda: one.ready() == 200)
            in_time("fresh", lambda: not one.get_plan(LONG).stale)
