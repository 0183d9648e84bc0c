"""Many watches on one replica: all are told, soon; a server that is full or goes away loses none of them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from tests.planning import some_histogram
from tests.servers import free_ports, single
from tests.service.test_rolling import Replica
from unskew.client import Client
from unskew.client.watch import Watch
from unskew.core.plan.plan import Plan
from unskew.v1 import partitioner_pb2 as pb
from unskew.v1.partitioner_pb2_grpc import PartitionerServiceStub

STREAM = "clicks"
ASKED = pb.GetPlanRequest(stream=STREAM)


def until(what: str, done: Callable[[], object], seconds: float = 90.0) -> None:
    """Wait for something that has to come; fail if it does not."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, what
        time.sleep(0.02)


@contextlib.contextmanager
def replica(folder: Path, *flags: str) -> Iterator[Replica]:
    one = Replica(free_ports(1)[0], folder, flags)
    try:
        one.start()
        one.up()
        yield one
    finally:
        one.kill()


class Watchers:
    """Watches by the real client, several on each channel; what each of them got."""

    def __init__(self, stack: contextlib.ExitStack, port: int, channels: int, each: int) -> None:
        self.seen: list[list[str]] = []
        self.ended: list[Exception] = []
        self.clients = [stack.enter_context(Client(f"127.0.0.1:{port}", timeout=60)) for _ in range(channels)]
        self.watches = [self._watch(client) for client in self.clients for _ in range(each)]

    def _watch(self, client: Client) -> Watch:
        mine: list[str] = []
        self.seen.append(mine)

        def came(plan: Plan) -> None:
            mine.append(plan.digest)

        return client.watch(STREAM, came, on_end=self.ended.append)

    def all_have(self, digest: str) -> None:
        until("not all watches have the plan", lambda: all(digest in mine for mine in self.seen))

    def check(self) -> None:
        """None has ended, none got a plan twice."""
        assert not self.ended
        assert {max(Counter(mine).values()) for mine in self.seen} == {1}


def built(client: Client, seed: int) -> str:
    return client.build_plan(STREAM, histogram=some_histogram(2000, 50, seed=seed), timeout=60).plan.digest


def test_no_watch_is_lost_when_the_replica_is_killed(tmp_path: Path) -> None:
    """SIGKILL cuts all channels at once; they come back to the replica that takes its place, and to its next plan."""
    _restart(tmp_path, 4, 10)


@pytest.mark.long
def test_no_watch_of_a_thousand_is_lost_when_the_replica_is_killed(tmp_path: Path) -> None:
    """All come back in a burst."""
    _restart(tmp_path, 100, 10)


def _restart(folder: Path, channels: int, each: int) -> None:
    threading.stack_size(512 << 10)
    with (
        single(folder) as redis,
        replica(folder, "--store", redis.url) as one,
        contextlib.ExitStack() as stack,
        Client(f"127.0.0.1:{one.port}", timeout=60) as client,
    ):
        client.put_stream(STREAM, partitions=4, policy="balanced")
        first = built(client, 1)
        crowd = Watchers(stack, one.port, channels, each)
        crowd.all_have(first)
        one.kill()
        one.start()
        one.up()
        until("it answers", lambda: client.get_plan(STREAM).plan.digest == first)
        crowd.all_have(built(client, 2))
        crowd.check()


def test_a_server_that_is_full_is_asked_again(tmp_path: Path) -> None:
    """With fewer places than watches some are turned away (RESOURCE_EXHAUSTED) again and again, and none ends: it gets
    its place when another has gone."""
    with (
        replica(tmp_path, "--max-watchers", "10") as one,
        contextlib.ExitStack() as stack,
        Client(f"127.0.0.1:{one.port}", timeout=60) as client,
    ):
        client.put_stream(STREAM, partitions=4, policy="balanced")
        plan = built(client, 1)
        crowd = Watchers(stack, one.port, 2, 10)
        until("half are in", lambda: sum(map(bool, crowd.seen)) == 10)
        for watch, mine in zip(crowd.watches, crowd.seen, strict=True):
            if mine:
                watch.close()
        crowd.all_have(plan)
        crowd.check()


def test_a_burst_beyond_what_may_wait_is_turned_away_to_come_again(tmp_path: Path) -> None:
    """Of 400 calls at once, where 20 may wait to be taken up, gRPC turns some away as CANCELLED. The client's retries
    make that no failure of anybody: 200 callers on two channels each get their answer."""
    with replica(tmp_path, "--max-pending-requests", "20") as one, contextlib.ExitStack() as stack:
        target = f"127.0.0.1:{one.port}"
        clients = [stack.enter_context(Client(target, timeout=60)) for _ in range(2)]
        clients[0].put_stream(STREAM, partitions=4, policy="balanced")
        plan = built(clients[0], 1)
        with grpc.insecure_channel(target, [("grpc.enable_retries", 0)]) as channel:
            stub = PartitionerServiceStub(channel)
            codes = Counter(call.code() for call in [stub.GetPlan.future(ASKED, timeout=60) for _ in range(400)])
        assert codes[grpc.StatusCode.CANCELLED] > 0, "the limit was not reached: send more"
        assert set(codes) == {grpc.StatusCode.OK, grpc.StatusCode.CANCELLED}
        with ThreadPoolExecutor(200) as pool:
            got = [pool.submit(client.get_plan, STREAM) for client in clients * 100]
            assert {one.result(90).plan.digest for one in got} == {plan}
