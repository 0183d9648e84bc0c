"""Replicas that are replaced one after the other, under callers whose every call is counted."""

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.cli.command import environment
from tests.planning import some_histogram
from tests.servers import free_ports, single
from tests.service.faces import report
from unskew.client import Client
from unskew.core.plan.plan import Plan

__all__ = ["Load", "Replica", "of_release", "replicas", "rolled"]

STREAM = "clicks"


@dataclass
class Replica:
    """A service at a port of its own, that may be started anew there; ``path`` is the PYTHONPATH of another release."""

    port: int
    folder: Path
    flags: tuple[str, ...]
    path: str = ""
    run: subprocess.Popen[bytes] | None = None
    starts: Iterator[int] = field(default_factory=itertools.count)

    def start(self) -> None:
        ports = self.folder / f"{self.port}-{next(self.starts)}.json"
        flags = ["--http-port", "0", "--metrics-port", "0", "--grpc-port", str(self.port), "--ports-file", str(ports)]
        env = {name: value for name, value in environment().items() if not name.startswith("UNSKEW_")}
        env |= {"PYTHONPATH": self.path} if self.path else {}
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
def replicas(folder: Path, count: int, path: str = "") -> Iterator[list[Replica]]:
    with single(folder) as redis, contextlib.ExitStack() as stack:
        found = [Replica(port, folder, ("--store", redis.url, "--drain", "5"), path) for port in free_ports(count)]
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


def of_release(path: str) -> Callable[[Replica], None]:
    """The replica of this release in its place."""

    def replace(one: Replica) -> None:
        one.path = path
        one.replace()

    return replace


def rolled(
    folder: Path,
    steps: Sequence[Callable[[Replica], None]],
    callers: int,
    *options: tuple[str, str],
    first: str = "",
) -> Load:
    """The load of rolling restarts, after them: each step is done to each replica, one after the other. ``first``: the
    PYTHONPATH of the release that they begin with."""
    with replicas(folder, 3, first) as three:
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
                for step in steps:
                    for one in three:
                        step(one)
            finally:
                load.end()
            last = client.build_plan(STREAM, histogram=some_histogram(2000, 50, seed=10**6)).plan.digest
            end = time.monotonic() + 60
            while not all(last in mine for mine in load.seen):
                assert time.monotonic() < end, "a watch has not come back"
                time.sleep(0.02)
    return load
