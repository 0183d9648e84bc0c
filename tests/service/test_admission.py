"""Who is let in, over both faces: calls a second of an identity, refusals that are held back, watches, turns."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest
from google.rpc import error_details_pb2, status_pb2

from tests.service.faces import FakeVerbs, Served, channel, digest_of, histogram, served, web
from unskew.client import Client, LimitReachedError
from unskew.client.reporter import Reporter
from unskew.core.stream_spec import BatchWork, Part, StreamSpec, Work
from unskew.service.api.admission import Admission, address_of
from unskew.service.auth.credentials import Allowance, Identity
from unskew.service.caller import set_caller
from unskew.service.engine.base import Base, Tuning
from unskew.service.engine.turns import SMALL_KEYS, Turns
from unskew.service.errors import LimitError, UnauthenticatedError
from unskew.service.events.events import ignore
from unskew.service.grpc.watchers import Watchers
from unskew.service.stores.memory import MemoryStore
from unskew.v1 import partitioner_pb2 as pb

TOKENS = (
    f"{digest_of('slow')} slow admin * max_calls_per_second=2\n"
    f"{digest_of('other')} other admin *\n{digest_of('third')} third admin *\n"
)


@pytest.fixture
def running() -> Iterator[Served]:
    verbs = FakeVerbs(streams={"clicks": StreamSpec(4)})
    with served(verbs, tokens=TOKENS, max_watchers=7) as found:
        yield found


def get_stream(running: Served, open_channel: grpc.Channel, token: str) -> Any:
    metadata = (("authorization", f"Bearer {token}"),)
    return running.stub(open_channel).GetStream(pb.GetStreamRequest(stream="clicks"), metadata=metadata)


def test_over_its_limit_an_identity_is_told_when_to_come_again(running: Served) -> None:
    """Four at once are two seconds' worth; the others notice nothing; the metrics say why."""
    with channel(running) as open_channel:
        for _ in range(4):
            get_stream(running, open_channel, "slow")
        with pytest.raises(grpc.RpcError, match="slow calls more than 2 times a second") as why:
            get_stream(running, open_channel, "slow")
        trailers = dict(why.value.trailing_metadata())
        assert why.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert 0.0 < float(trailers["retry-after"]) <= 0.5
        details = status_pb2.Status.FromString(trailers["grpc-status-details-bin"]).details
        delay = error_details_pb2.RetryInfo()
        assert any(detail.Unpack(delay) for detail in details)
        assert 0 < delay.retry_delay.ToMilliseconds() <= 500
        get_stream(running, open_channel, "other")
    with web(running, authorization="Bearer slow") as http:
        refused = http.get("/v1/streams/clicks")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    page = httpx.get(running.metrics, headers={"authorization": "Bearer other"}, trust_env=False).text
    assert 'unskew_shed_total{reason="rate"} 2.0' in page
    assert 'unskew_rejected_total{reason="limit"} 2.0' in page


def test_the_client_waits_as_long_as_it_is_told_within_its_timeout(running: Served) -> None:
    with Client(f"grpc://{running.target}", token="slow", timeout=10.0) as client:
        began = time.monotonic()
        for _ in range(6):
            client.get_stream("clicks")
        assert 0.4 < time.monotonic() - began < 8.0
        client.report_histogram("clicks", Part("app", 1), histogram(), timeout=5.0)
        refusals: list[LimitReachedError] = []
        while not refusals:
            try:
                client.get_stream("clicks", timeout=0.2)
            except LimitReachedError as why:
                refusals.append(why)
    assert refusals[0].retry_after >= 0.25


def test_a_report_that_comes_too_soon_is_sent_again(running: Served) -> None:
    with Client(f"grpc://{running.target}", token="slow") as client:
        with Reporter("clicks", client, source="app", timeout=0.2) as reporter:
            for batch in range(6):
                reporter.tell(batch, BatchWork((Work(0, 1, 1, 1, 1.0),)))
            assert reporter.close(10.0)
        assert reporter.status.sent == 6


def test_wrong_tokens_are_answered_late_and_right_ones_at_once(running: Served) -> None:
    """From the same address: after a hundred refusals the next ones wait, and nobody with a right token does."""
    seconds: list[float] = []

    def wrong(open_channel: grpc.Channel) -> None:
        for _ in range(20):
            began = time.monotonic()
            with pytest.raises(grpc.RpcError, match="is not known here"):
                get_stream(running, open_channel, "wrong")
            seconds.append(time.monotonic() - began)

    with channel(running) as open_channel:
        threads = [threading.Thread(target=wrong, args=(open_channel,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        while len(seconds) < 105:
            time.sleep(0.01)
        began = time.monotonic()
        get_stream(running, open_channel, "other")
        right = time.monotonic() - began
        for thread in threads:
            thread.join()
    assert max(seconds) > 0.1
    assert right < max(seconds)
    assert running.running._grpc_handlers.admission.held == 0


async def refused(admission: Admission, many: int) -> float:
    began = time.monotonic()
    wrong = UnauthenticatedError("no")
    await asyncio.gather(*(admission.before_refusal(wrong, "", lambda: "10.0.0.7") for _ in range(many)))
    return time.monotonic() - began


def test_no_more_refusals_are_held_than_a_bound_and_none_for_long() -> None:
    shed: list[str] = []
    admission = Admission(0.0, shed.append)
    assert asyncio.run(refused(admission, 5000)) < 4.0
    assert shed == ["held"] * 500


def test_an_identity_without_any_limit_and_one_with_its_own() -> None:
    free, own = Identity("free", ()), Identity("own", (), allowance=Allowance(max_calls_per_second=1))
    open_to_all = Admission(0.0)
    for _ in range(10_000):
        open_to_all.admit(free)
    open_to_all.admit(own)
    open_to_all.admit(own)
    with pytest.raises(LimitError, match="own calls more than 1 times"):
        open_to_all.admit(own)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.7:4711", "10.0.0.7"),
        ("ipv6:%5B2001:db8:1:2:3::9%5D:4711", "2001:db8:1:2::/64"),
        ("ipv6:[::1]:4711", "::/64"),
        ("unix:", "unix:"),
        ("", ""),
    ],
)
def test_an_address_is_one_of_ipv4_or_a_network_of_ipv6(peer: str, address: str) -> None:
    assert address_of(peer) == address


def test_no_identity_takes_all_watches() -> None:
    """Each has no more than is left; with the watch its place comes back."""
    watchers = Watchers(8, fair=True)
    with contextlib.ExitStack() as stack:
        for name, most in (("one", 4), ("two", 2), ("three", 1)):
            for _ in range(most):
                stack.enter_context(watchers.one_more(name))
            with pytest.raises(LimitError, match="may not have more than there is room left"):
                stack.enter_context(watchers.one_more(name))
        stack.enter_context(watchers.one_more("four"))
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(watchers.one_more("two"))
        with contextlib.ExitStack() as own:
            own.enter_context(watchers.one_more("three", 1))
            with pytest.raises(LimitError, match="may not have more than 1;"):
                own.enter_context(watchers.one_more("three", 1))
            own.enter_context(watchers.one_more("two", 6))


def test_a_small_computation_does_not_wait_for_large_ones_of_another_identity() -> None:
    """Nor for those whose callers have left: their threads are busy still, and they get no others meanwhile."""
    over = threading.Event()

    async def run() -> None:
        turns = Turns(1)
        set_caller("large")
        large = [asyncio.ensure_future(turns.take(SMALL_KEYS + 1, over.wait, 30)) for _ in range(10)]
        await asyncio.sleep(0.05)
        for one in large[:5]:
            one.cancel()
        set_caller("small")
        assert await asyncio.wait_for(turns.take(20, lambda: 7), 5) == 7
        assert await asyncio.wait_for(turns.run(lambda: 8), 5) == 8
        assert not any(one.done() for one in large[5:])
        over.set()
        assert all(await asyncio.gather(*large[5:]))
        turns.shut()

    asyncio.run(run())


def test_large_plans_come_into_memory_by_identity() -> None:
    """Of the memory for one large plan at a time the second tenant has the second turn, however many are ahead of it;
    and whoever leaves while it waits, or while it has its turn, holds up nobody."""
    large, begun = 9 << 20, list[str]()

    async def plan(base: Base, name: str, over: asyncio.Event) -> None:
        set_caller(name)
        async with base.room(large):
            begun.append(name)
            await over.wait()

    async def run() -> None:
        base, over = Base(MemoryStore(time.time), time.time, ignore, Tuning()), asyncio.Event()
        plans = [asyncio.ensure_future(plan(base, "greedy", over)) for _ in range(6)]
        await asyncio.sleep(0)
        plans.append(asyncio.ensure_future(plan(base, "other", over)))
        for _ in range(3):
            await asyncio.sleep(0)
        async with base.room(1 << 20):  # smaller work has room beside it
            assert begun == ["greedy"]
        plans[1].cancel()
        plans[0].cancel()
        over.set()
        await asyncio.gather(*plans, return_exceptions=True)
        base.shut()

    asyncio.run(run())
    assert begun == ["greedy", "other", "greedy", "greedy", "greedy", "greedy"]


def test_too_many_waiting_computations_are_refused_with_a_time() -> None:
    over = threading.Event()

    async def run() -> None:
        turns = Turns(1)
        set_caller("greedy")
        waiting = [asyncio.ensure_future(turns.take(SMALL_KEYS + 1, over.wait, 30)) for _ in range(520)]
        await asyncio.sleep(0.05)
        refusals = [one.exception() for one in waiting if one.done()]
        assert len(refusals) > 10
        assert all(isinstance(why, LimitError) and why.retry for why in refusals)
        set_caller("other")
        other = asyncio.ensure_future(turns.take(SMALL_KEYS + 1, lambda: 9))
        over.set()
        assert await asyncio.wait_for(other, 10) == 9
        await asyncio.gather(*waiting, return_exceptions=True)
        turns.shut()

    asyncio.run(run())


def test_the_engine_plans_by_turns(running: Served) -> None:
    """From end to end: the identity of the call is that of its computations."""
    seen: list[str] = []
    with served("engine", tokens=TOKENS) as service:
        turns = service.running._grpc_handlers.calls.verbs._base._turns
        put = turns._places._queue.put
        turns._places._queue.put = lambda name, cost, job: seen.append(name) or put(name, cost, job)
        with Client(f"grpc://{service.target}", token="third") as client:
            client.put_stream("clicks", partitions=4)
            client.report_histogram("clicks", Part("app", 1), histogram())
            client.build_plan("clicks", 2)
    assert seen
    assert set(seen) == {"third"}
