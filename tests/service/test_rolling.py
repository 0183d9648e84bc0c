"""Three replicas are replaced one after the other under a client that knows all three: no call fails."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.cli.command import environment
from tests.planning import some_histogram
from tests.servers import free_ports, single
from tests.service.faces import report
from unskew.client import Client
from unskew.core.plan.plan import Plan

STREAM = "clicks"


@dataclass
class Replica:
    """A service at a port of its own, that may be started anew there."""

    port: int
    folder: Path
    flags: tuple[str, ...]
    run: subprocess.Popen[bytes] | None = None
    starts: Iterator[int] = field(default_factory=itertools.count)

    def start(self) -> None:
        ports = self.folder / f"{self.port}-{next(self.starts)}.json"
        flags = ["--http-port", "0", "--metrics-port", "0", "--grpc-port", str(self.port), "--ports-file", str(ports)]
        env = {name: value for name, value in environment().items() if not name.startswith("UNSKEW_")}
        with (self.folder / f"{self.port}.log").open("ab") as log:
            self.run = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "unskew.service", *flags, *self.flags],
                env=env,
                stdout=log,
                stderr=log,
            )
        self._told = ports

    def up(self) -> None:
        assert self.run is not None
        end = time.monotonic() + 60
        while not self._told.exists():
            assert self.run.poll() is None, self.log
            assert time.monotonic() < end, self.log
            time.sleep(0.02)
        assert json.loads(self._told.read_text())["grpc"] == self.port

    def replace(self) -> None:
        """As an orchestrator does: SIGTERM, wait for the end, the next one in its place."""
        assert self.run is not None
        self.run.send_signal(signal.SIGTERM)
        assert self.run.wait(90) == 0, self.log
        self.start()
        self.up()

    def kill(self) -> None:
        if self.run is not None and self.run.poll() is None:
            os.kill(self.run.pid, signal.SIGKILL)
            self.run.wait()

    @property
    def log(self) -> str:
        return (self.folder / f"{self.port}.log").read_text()[-3000:]


@contextlib.contextmanager
def replicas(folder: Path, count: int) -> Iterator[list[Replica]]:
    with single(folder) as redis, contextlib.ExitStack() as stack:
        found = [Replica(port, folder, ("--store", redis.url, "--drain", "5")) for port in free_ports(count)]
        for one in found:
            stack.callback(one.kill)
            one.start()
        for one in found:
            one.up()
        yield found


class Load:
    """Callers that go on until the end, and what became of their calls."""

    def __init__(self, client: Client) -> None:
        self._client, self._ended = client, threading.Event()
        self.calls: Counter[str] = Counter()
        self.failed: list[str] = []
        self.seen: list[list[str]] = []
        self.threads: list[threading.Thread] = []

    def begin(self, name: str, call: Callable[[], object]) -> None:
        def go_on() -> None:
            while not self._ended.is_set():
                try:
                    call()
                except Exception as why:  # noqa: BLE001 - every one is told, and fails the test
                    self.failed.append(f"{name}: {type(why).__name__}: {why}")
                self.calls[name] += 1

        self.threads.append(threading.Thread(target=go_on, name=name))
        self.threads[-1].start()

    def sync(self, agent: str) -> Callable[[], None]:
        """An agent's reports, each repeated until it is answered."""
        numbers, known = itertools.count(2), [(0, 0)]
        waiting = [report(4, agent)]

        def call() -> None:
            answer = self._client.sync(STREAM, waiting[0], wait=0.2, known=known[0]).answer
            if answer is not None:
                known[0] = (answer.incarnation, answer.epoch)
                waiting[0] = type(waiting[0])(**{**vars(waiting[0]), "seq": next(numbers)})
                self.calls["answers"] += 1
                self._ended.wait(0.02)

        return call

    def watch(self) -> None:
        mine: list[str] = []
        self.seen.append(mine)

        def came(plan: Plan) -> None:
            mine.append(plan.digest)

        self._client.watch(STREAM, came, on_end=lambda why: self.failed.append(f"watch: {why}"))

    def build(self, seeds: Iterator[int]) -> Callable[[], None]:
        def call() -> None:
            self._client.build_plan(STREAM, histogram=some_histogram(2000, 50, seed=next(seeds)))
            self._ended.wait(0.1)

        return call

    def end(self) -> None:
        self._ended.set()
        for thread in self.threads:
            thread.join(90)


def rolled(folder: Path, rounds: int, callers: int, *options: tuple[str, str]) -> Load:
    """The load of a rolling restart, after it."""
    with replicas(folder, 3) as three:
        target = "ipv4:" + ",".join(f"127.0.0.1:{one.port}" for one in three)
        with Client(target, timeout=60.0, options=options) as client:
            client.put_stream(STREAM, partitions=4, policy="balanced", dsync=0.5, dsync_min=0.5)
            client.build_plan(STREAM, histogram=some_histogram(2000, 50, seed=10**6 + 1))
            load = Load(client)
            try:
                load.begin("BuildPlan", load.build(itertools.count()))
                for number in range(callers):
                    load.watch()
                    load.begin("Sync", load.sync(f"a{number}"))
                    load.begin("GetPlan", lambda: client.get_plan(STREAM) and time.sleep(0.005))
                for one in three * rounds:
                    one.replace()
            finally:
                load.end()
            last = client.build_plan(STREAM, histogram=some_histogram(2000, 50, seed=10**6)).plan.digest
            end = time.monotonic() + 60
            while not all(last in mine for mine in load.seen):
                assert time.monotonic() < end, "a watch has not come back"
                time.sleep(0.02)
    return load


def check(load: Load) -> None:
    assert not load.failed, load.failed[:5]
    assert min(load.calls[name] for name in ("GetPlan", "Sync", "BuildPlan", "answers")) > 5
    for mine in load.seen:  # none twice
        assert max(Counter(mine).values()) == 1


def test_no_call_fails_while_three_replicas_are_replaced(tmp_path: Path) -> None:
    """Reads, rounds, builds and watches go on all the while, spread over the replicas; watches come back by themselves
    and get no plan twice."""
    check(rolled(tmp_path, 1, 2, ("grpc.lb_policy_name", "round_robin")))


def test_a_drain_does_not_wait_for_calls_that_no_handler_of_ours_has(tmp_path: Path) -> None:
    """A watch of the health service has no end, and held the drain up for all of its time."""
    one = Replica(free_ports(1)[0], tmp_path, ("--drain", "60"))
    try:
        one.start()
        one.up()
        with grpc.insecure_channel(f"127.0.0.1:{one.port}") as channel:
            states = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            assert next(states).status == health_pb2.HealthCheckResponse.SERVING
            began = time.monotonic()
            assert one.run is not None
            one.run.send_signal(signal.SIGTERM)
            assert one.run.wait(90) == 0, one.log
            assert time.monotonic() - began < 40
            with contextlib.suppress(grpc.RpcError):
                assert [state.status for state in states] == [health_pb2.HealthCheckResponse.NOT_SERVING]
    finally:
        one.kill()


@pytest.mark.long
@pytest.mark.parametrize("policy", ["round_robin", "pick_first"])
def test_no_call_fails_in_several_rolling_restarts(tmp_path: Path, policy: str) -> None:
    """More callers, each replica replaced three times; also where all calls go to the first replica that answers."""
    check(rolled(tmp_path, 3, 8, ("grpc.lb_policy_name", policy)))
