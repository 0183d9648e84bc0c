"""A Redis that is slow, silent, dead, full, a replica or wiped, behind a whole service: what callers of both faces get,
how soon, what is said of it, and how all is well again without a restart."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.chaos.proxy import Delay, HalfOpen, ProxyLoop, Reset
from tests.servers import Server, free_ports, single
from tests.service.faces import SERVICE, Served, histogram, report, served
from unskew.core.stream_spec import Part
from unskew.v1 import partitioner_pb2 as pb
from unskew.v1.partitioner_pb2_grpc import PartitionerServiceStub
from unskew.wire import histograms, plan_from_bytes, round_messages

SHORT = 0.2  # a caller's deadline
HUNG = 10.0  # a call that has not ended by then waits for something
SOON = 60.0
LONG = 60.0  # the deadline of a call that has to be answered
AGED = 0.15  # seconds after which a plan that was read is not taken for present any more
READ = {"accept": "application/x-protobuf"}


@dataclass
class Caller:
    """One who asks a replica over both faces."""

    service: Served
    stub: PartitionerServiceStub
    health: health_pb2_grpc.HealthStub
    web: httpx.Client

    def get_plan(self, timeout: float = SHORT) -> pb.GetPlanResponse:
        return self.stub.GetPlan(pb.GetPlanRequest(stream="clicks"), timeout=timeout)

    def fetch(self) -> httpx.Response:
        return self.web.get("/v1/streams/clicks/plans/latest", headers=READ)

    def sync(self, agent: str, seq: int, timeout: float = SHORT, wait: float = 0.0) -> pb.SyncResponse:
        one = report(3, agent)
        one = type(one)(**{**one.__dict__, "seq": seq})
        asked = pb.SyncRequest(stream="clicks", report=round_messages.report_to_message(one), wait_seconds=wait)
        return self.stub.Sync(asked, timeout=timeout)

    def serving(self) -> bool:
        found = self.health.Check(health_pb2.HealthCheckRequest(service=SERVICE), timeout=LONG)
        return bool(found.status == health_pb2.HealthCheckResponse.SERVING)

    def ready(self) -> int:
        return self.web.get("/readyz").status_code

    def errors(self, op: str) -> float:
        page = httpx.get(self.service.metrics, trust_env=False, timeout=60).text
        found = [line for line in page.splitlines() if line.startswith(f'unskew_store_errors_total{{op="{op}"}}')]
        return float(found[0].split()[-1]) if found else 0.0


VERBS: dict[str, Callable[[Caller], Any]] = {
    "PutStream": lambda one: one.stub.PutStream(
        pb.PutStreamRequest(stream="new", spec=pb.StreamSpec(partitions=3)), timeout=SHORT
    ),
    "GetStream": lambda one: one.stub.GetStream(pb.GetStreamRequest(stream="clicks"), timeout=SHORT),
    "ListStreams": lambda one: one.stub.ListStreams(pb.ListStreamsRequest(), timeout=SHORT),
    "DeleteStream": lambda one: one.stub.DeleteStream(pb.DeleteStreamRequest(stream="gone"), timeout=SHORT),
    "ReportHistogram": lambda one: one.stub.ReportHistogram(
        histograms.chunks(histogram(), "clicks", Part("q", 7)), timeout=SHORT
    ),
    "BuildPlan": lambda one: one.stub.BuildPlan(pb.BuildPlanRequest(stream="clicks", batch=9), timeout=SHORT),
    "Sync": lambda one: one.sync("late", 1),
    "ReportBatch": lambda one: one.stub.ReportBatch(
        pb.ReportBatchRequest(stream="clicks", part=pb.Part(source="q", batch=7, parts=1)), timeout=SHORT
    ),
    "GetScale": lambda one: one.stub.GetScale(pb.GetScaleRequest(stream="clicks"), timeout=SHORT),
}
TYPED = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}


@contextmanager
def a_caller(store: str) -> Iterator[Caller]:
    with ExitStack() as stack:
        service = stack.enter_context(served("engine", store=store))
        channel = stack.enter_context(grpc.insecure_channel(service.target, options=[("grpc.enable_retries", 0)]))
        web = stack.enter_context(httpx.Client(base_url=service.base, trust_env=False, timeout=LONG))
        yield Caller(service, PartitionerServiceStub(channel), health_pb2_grpc.HealthStub(channel), web)


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[Server]:
    """One that has on disk what it says yes to: it may be killed and started again."""
    with single(tmp_path, "appendonly yes", "appendfsync always") as server:
        yield server


@pytest.fixture
def caller(redis_server: Server) -> Iterator[Caller]:
    with a_caller(redis_server.url) as one:
        prepare(one)
        yield one


def prepare(one: Caller) -> None:
    """A stream with a plan and an agent; every verb has been used."""
    spec = pb.StreamSpec(partitions=3, policy="balanced", dsync_seconds=0.5, dsync_min_seconds=0.5)
    one.stub.PutStream(pb.PutStreamRequest(stream="clicks", spec=spec), timeout=LONG)
    one.stub.ReportHistogram(histograms.chunks(histogram(), "clicks", Part("q", 1)), timeout=LONG)
    one.stub.BuildPlan(pb.BuildPlanRequest(stream="clicks", batch=2), timeout=LONG)
    assert one.sync("a1", 1, LONG, 30.0).answer.merged
    in_time("ready", lambda: one.ready() == 200 and one.serving())


def in_time(what: str, true: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def timed(ask: Callable[[], Any]) -> tuple[Any, float]:
    """The answer or the status, and how long it took."""
    began = time.monotonic()
    try:
        found = ask()
    except grpc.RpcError as why:
        found = why.code()  # type: ignore[attr-defined]  # it is a call as well
    return found, time.monotonic() - began


def early(seconds: Iterable[float]) -> float:
    """What the fastest third took at most: who waits for the store does so in each call, who waits for a turn on a busy
    machine does not."""
    took = sorted(seconds)
    return took[len(took) // 3]


def away(one: Caller, latest: bytes) -> None:
    """All that holds while the store does not answer."""
    time.sleep(AGED)
    _everybody_hears_in_time(one, latest)
    in_time("not ready", lambda: one.ready() == 503 and not one.serving())
    told = one.web.get("/readyz").json()
    assert told["status"] == 503
    assert "store" in told["detail"]
    assert one.web.get("/healthz").status_code == 200
    assert one.health.Check(health_pb2.HealthCheckRequest(service=""), timeout=LONG).status == 1
    assert one.errors("plan") > 0
    assert one.errors("ping") > 0
    # By now the breaker is open: nobody waits.
    assert early(timed(lambda: one.sync("late", 2, LONG))[1] for _ in range(7)) < SHORT
    refused = one.web.put("/v1/streams/new", json={"partitions": 3})
    assert (refused.status_code, refused.headers["content-type"]) == (503, "application/problem+json")


def _everybody_hears_in_time(one: Caller, latest: bytes) -> None:
    """The plan that is known comes within the short deadline, whatever else is asked; every verb is answered in time,
    with an error that has a name."""
    took = []
    for name, ask in VERBS.items():
        found, seconds = timed(lambda ask=ask: ask(one))
        if name == "BuildPlan":
            assert (found.plan, found.stale) == (latest, True)
        else:
            assert found in TYPED, name
        assert seconds < HUNG, name
        plan, seconds = timed(lambda: one.get_plan(LONG))
        assert isinstance(plan, pb.GetPlanResponse), (name, plan)
        assert (plan.plan, plan.stale) == (latest, True)
        took.append(seconds)
    assert early(took) < SHORT, took
    fetched = one.fetch()
    assert (fetched.status_code, fetched.headers.get("x-unskew-stale")) == (200, "true")
    assert fetched.content == latest


def well_again(one: Caller, latest: bytes) -> None:
    in_time("ready", lambda: one.ready() == 200 and one.serving())
    in_time("fresh", lambda: not one.get_plan(LONG).stale)
    assert one.get_plan(LONG).plan == latest
    assert "x-unskew-stale" not in one.fetch().headers
    before = one.errors("report")
    assert one.sync("a1", 2, LONG, 30.0).answer.merged
    assert one.errors("report") == before
    built = one.stub.BuildPlan(pb.BuildPlanRequest(stream="clicks", batch=3), timeout=LONG)
    assert plan_from_bytes(built.plan).version > plan_from_bytes(latest).version


def test_a_redis_that_is_killed_is_made_up_for_and_found_again(caller: Caller, redis_server: Server) -> None:
    """Connections are refused until it is back on its port."""
    latest = caller.get_plan(LONG).plan
    redis_server.kill()
    away(caller, latest)
    redis_server.start()
    well_again(caller, latest)


@pytest.mark.long
def test_a_redis_that_is_connected_and_silent_costs_callers_no_more_than_they_give(
    caller: Caller, redis_server: Server
) -> None:
    """Stopped by a signal: no answer and no error."""
    latest = caller.get_plan(LONG).plan
    redis_server.pause()
    try:
        away(caller, latest)
    finally:
        redis_server.resume()
    well_again(caller, latest)


@pytest.mark.long
@pytest.mark.parametrize("mode", [Delay(0.8), HalfOpen(), Reset()], ids=["slow", "half open", "reset"])
def test_a_network_that_fails_between_replica_and_redis_is_made_up_for(redis_server: Server, mode: Any) -> None:
    """Each byte later than any timeout; bytes that vanish; connections that are cut."""
    with closing(ProxyLoop()) as loop:
        proxy = loop.proxy(redis_server.port)
        with a_caller(f"redis://127.0.0.1:{proxy.port}") as one:
            prepare(one)
            latest = one.get_plan(LONG).plan
            with loop.fault(mode, proxy):
                away(one, latest)
            well_again(one, latest)


def test_a_redis_that_is_slow_delays_nobody_who_wants_a_plan(redis_server: Server) -> None:
    """A quarter of a second there and back, within every timeout: writes are done, plans come at once, maybe stale."""
    with closing(ProxyLoop()) as loop:
        proxy = loop.proxy(redis_server.port)
        with a_caller(f"redis://127.0.0.1:{proxy.port}") as one:
            prepare(one)
            loop.call(lambda: proxy.set(Delay(0.12)))
            time.sleep(AGED)
            took = []
            for _ in range(5):
                plan, seconds = timed(lambda: one.get_plan(LONG))
                assert plan.stale
                took.append(seconds)
                time.sleep(0.4)
            assert early(took) < SHORT, took
            assert one.sync("a1", 2, LONG, 30.0).answer.merged
            assert one.ready() == 200
            assert one.errors("report") == 0


def test_a_redis_that_became_a_replica_or_is_full_or_forgot_its_scripts_is_lived_with(
    caller: Caller, redis_server: Server
) -> None:
    """A replica refuses what would write and is asked again later; a full one still tells what there is; scripts are
    sent again before anybody hears of it."""
    latest = caller.get_plan(LONG).plan
    redis_server.ask("SCRIPT", "FLUSH")
    assert caller.sync("a1", 2, LONG, 30.0).answer.merged
    assert caller.errors("report") == 0

    redis_server.ask("CONFIG", "SET", "maxmemory", "1mb")
    with pytest.raises(grpc.RpcError) as raised:
        caller.sync("a1", 3, LONG)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE  # type: ignore[attr-defined]
    assert "full" in raised.value.details()  # type: ignore[attr-defined]
    in_time("what is there", lambda: not caller.get_plan(LONG).stale)
    assert caller.errors("report") > 0
    redis_server.ask("CONFIG", "SET", "maxmemory", "0")
    in_time("room", lambda: not isinstance(timed(lambda: caller.sync("a1", 3, LONG, 30.0))[0], grpc.StatusCode))

    redis_server.ask("REPLICAOF", "127.0.0.1", free_ports(1)[0])
    in_time("stale", lambda: caller.get_plan(LONG).stale)
    assert caller.get_plan(LONG).plan == latest
    found, _ = timed(lambda: caller.sync("a1", 4, LONG))
    assert found is grpc.StatusCode.UNAVAILABLE
    redis_server.ask("REPLICAOF", "NO", "ONE")
    in_time("a master", lambda: not caller.get_plan(LONG).stale)
    assert caller.get_plan(LONG).plan == latest


def test_a_redis_that_was_wiped_costs_a_new_incarnation_and_nothing_else(redis_server: Server) -> None:
    """Two replicas: the stream, its routes and its agents go on over both faces; nobody has to put it again."""
    with a_caller(redis_server.url) as one, a_caller(redis_server.url) as other, ThreadPoolExecutor(2) as pool:
        prepare(one)
        old, first = plan_from_bytes(other.get_plan(LONG).plan), other.sync("a1", 2, LONG, 30.0).answer
        redis_server.ask("FLUSHALL")
        syncs = [pool.submit(who.sync, name, 3, LONG, 30.0) for who, name in ((one, "a1"), (other, "a2"))]
        answers = [sync.result().answer for sync in syncs]
        assert all(answer.merged for answer in answers)
        assert len({answer.incarnation for answer in answers}) == 1
        assert answers[0].incarnation > first.incarnation
        for who in (one, other):
            in_time("the plan of the new life", lambda who=who: _version(who)[0] == answers[0].incarnation)
            plan = plan_from_bytes(who.get_plan(LONG).plan)
            assert (plan.digest, plan.info.previous) == (old.digest, old.version)
            assert plan.version > old.version
            assert who.web.get("/v1/streams/clicks").json()["spec"]["partitions"] == 3
        built = other.stub.BuildPlan(pb.BuildPlanRequest(stream="clicks", batch=9), timeout=LONG)
        assert plan_from_bytes(built.plan).version.incarnation == answers[0].incarnation


def _version(who: Caller) -> tuple[int, int]:
    version = plan_from_bytes(who.get_plan(LONG).plan).version
    return version.incarnation, version.number
