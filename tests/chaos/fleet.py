"""A live fleet: replicas of the service over one Redis, agents in processes of their own, and faults between them.

Each replica has a proxy towards the agents and one towards Redis. Every agent knows all replicas, each begins with
another one, and gRPC takes the next where one does not answer. ``Fleet.settled`` brings all agents to a halt at one
version; only then nothing is under way, and the books can be compared (``ledger``).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.chaos.agents import Wanted
from tests.chaos.inputs import Shape
from tests.chaos.ledger import Diary, Round, commands, read_diary, rounds_of
from tests.chaos.proxy import FaultProxy, ProxyLoop
from tests.cli.command import environment
from tests.servers import Server, wait_for
from unskew.client import Client

__all__ = ["AOF", "Fleet", "Replica", "Replicas", "loads", "wipe"]

AOF = ("appendonly yes", "appendfsync no", "auto-aof-rewrite-percentage 0")
"""What the test's Redis keeps: every change, written (if not synced) before it is answered."""
_START = 120.0


def _quiet_environment() -> dict[str, str]:
    env = {name: value for name, value in environment().items() if not name.startswith("UNSKEW_")}
    return {**env, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@dataclass(eq=False)
class Replica:
    """One service process. It comes back on other ports, behind the same proxy."""

    folder: Path
    store: str
    front: FaultProxy
    back: FaultProxy | None
    process: subprocess.Popen[bytes] | None = None
    metrics: int = 0

    def begin(self) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "ports.json").unlink(missing_ok=True)
        free = [word for port in ("http", "grpc", "metrics") for word in (f"--{port}-port", "0")]
        more = ["--store", self.store, "--min-ping-interval", "0", "--ports-file", str(self.folder / "ports.json")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "unskew.service", *free, *more],
                env=_quiet_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def ready(self) -> None:
        ports = self.folder / "ports.json"

        def up() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
            return ports.exists()

        wait_for("a replica", up, _START)
        told = json.loads(ports.read_text())
        self.front.target, self.metrics = ("127.0.0.1", told["grpc"]), told["metrics"]

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def rounds(self, stream: str) -> dict[str, float]:
        """``unskew_sync_rounds_total`` of this stream by outcome."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self.metrics}/metrics", timeout=60.0) as page:
            text = page.read().decode()
        found = re.findall(r'^unskew_sync_rounds_total\{outcome="([a-z ]+)",stream="([^"]+)"\} (\S+)$', text, re.M)
        return {outcome: float(count) for outcome, of, count in found if of == stream}


class Replicas:
    """The service: ``count`` replicas over this Redis, each by a proxy of its own, or over the store of ``url``."""

    def __init__(self, folder: Path, loop: ProxyLoop, count: int, redis: Server | None, url: str = "") -> None:
        self.loop, self.all = loop, []
        self.gone: dict[str, dict[str, float]] = {}
        for number in range(count):
            back = None if redis is None else loop.proxy(redis.port)
            store = url if back is None else f"redis://127.0.0.1:{back.port}"
            self.all.append(Replica(folder / f"replica-{number}", store, loop.proxy(1), back))

    def start(self) -> Replicas:
        """Those that do not run, all at once."""
        down = [replica for replica in self.all if not replica.alive]
        for replica in down:
            replica.begin()
        for replica in down:
            replica.ready()
        return self

    def close(self) -> None:
        for replica in self.all:
            replica.kill()

    @property
    def fronts(self) -> list[FaultProxy]:
        return [replica.front for replica in self.all]

    @property
    def backs(self) -> list[FaultProxy]:
        return [replica.back for replica in self.all if replica.back is not None]

    def target(self, first: int) -> str:
        ports = [proxy.port for proxy in self.fronts]
        turned = ports[first % len(ports) :] + ports[: first % len(ports)]
        return "ipv4:" + ",".join(f"127.0.0.1:{port}" for port in turned)

    def kill(self, replica: Replica, stream: str) -> None:
        """SIGKILL; what it had counted of this stream is remembered."""
        had = self.gone.setdefault(stream, {})
        for outcome, count in replica.rounds(stream).items():
            had[outcome] = had.get(outcome, 0.0) + count
        replica.kill()

    def rounds(self, stream: str) -> dict[str, float]:
        """``unskew_sync_rounds_total`` by outcome, over all that run and those that were killed."""
        total = dict(self.gone.get(stream, {}))
        for replica in self.all:
            if replica.alive:
                for outcome, count in replica.rounds(stream).items():
                    total[outcome] = total.get(outcome, 0.0) + count
        return total


@dataclass(eq=False)
class _Member:
    """An agent's process, and the line to it."""

    number: int
    name: str
    pid: int
    wire: socket.socket
    lines: Any
    diary: Path

    def send(self, **words: Any) -> None:
        self.wire.sendall(json.dumps(words).encode() + b"\n")

    def heard(self) -> dict[str, Any]:
        line = self.lines.readline()
        assert line, f"{self.name} is gone"
        told: dict[str, Any] = json.loads(line)
        return told

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.lines.close()
        self.wire.close()


@dataclass(eq=False)
class Fleet:
    """``with fleet.running():`` all agents of one stream. ``live`` are those that were not killed."""

    folder: Path
    stream: str
    shape: Shape
    replicas: Replicas
    live: dict[int, _Member] = field(default_factory=dict)
    diaries: list[Path] = field(default_factory=list)

    @contextlib.contextmanager
    def running(self) -> Iterator[Fleet]:
        self.folder.mkdir(exist_ok=True)
        with contextlib.ExitStack() as stack:
            self._control = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=256))
            self._control.settimeout(_START)
            errors = stack.enter_context((self.folder / "agents.log").open("ab"))
            self._nest = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.agents"],
                cwd=Path(__file__).resolve().parents[2],
                env=_quiet_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
            stack.callback(self._close)
            self.put_stream()
            self.add(range(self.shape.agents))
            yield self

    def _close(self) -> None:
        for member in list(self.live.values()):
            member.kill()
        self.live = {}
        assert self._nest.stdin is not None
        self._nest.stdin.close()
        try:
            self._nest.wait(10.0)
        finally:
            self._nest.kill()
            self._nest.wait()

    def put_stream(self) -> None:
        """DSYNC stands still: what rounds cost here says nothing of the fault."""
        d = self.shape.dsync
        with Client(self.replicas.target(0)) as client:
            client.put_stream(
                self.stream, partitions=self.shape.workers, policy="hash", dsync=d, dsync_min=d, dsync_max=d
            )

    def add(self, numbers: Sequence[int], begin: int = 0) -> None:
        """Start these agents, all at once."""
        assert self._nest.stdin is not None
        paths = {}
        for number in numbers:
            paths[number] = self.folder / f"diary-{len(self.diaries):03}.jsonl"
            self.diaries.append(paths[number])
            wanted = Wanted(
                number, self.stream, self.replicas.target(number), self._control.getsockname()[1],
                str(paths[number]), asdict(self.shape), begin,
            )  # fmt: skip
            self._nest.stdin.write(json.dumps(asdict(wanted)).encode() + b"\n")
        self._nest.stdin.flush()
        for _ in numbers:
            wire, _address = self._control.accept()
            wire.settimeout(90.0)
            lines = wire.makefile("rb")
            hello = json.loads(lines.readline())
            number = hello["number"]
            self.live[number] = _Member(number, f"agent-{number:04}", hello["pid"], wire, lines, paths[number])

    def kill(self, number: int) -> None:
        self.live.pop(number).kill()

    # -- what they say

    def ask(self, **words: Any) -> dict[int, dict[str, Any]]:
        """The same to all; their answers."""
        for member in self.live.values():
            member.send(**words)
        return {number: member.heard() for number, member in self.live.items()}

    def status(self) -> dict[int, dict[str, Any]]:
        return self.ask(do="status")

    def versions(self) -> list[tuple[int, int]]:
        return sorted(tuple(told["version"]) for told in self.status().values())

    def until(self, what: str, done: Callable[[dict[int, dict[str, Any]]], bool], seconds: float) -> float:
        """Poll them; how long it took."""
        began, told = time.monotonic(), {}
        while time.monotonic() < began + seconds:
            told = self.status()
            if done(told):
                return time.monotonic() - began
            time.sleep(0.05)
        short = {
            number: [one[what] for what in ("version", "awaiting", "error", "breaker")] for number, one in told.items()
        }
        raise AssertionError(f"{what}: not after {seconds} s: {short}")

    def go_on(self, rounds: int, seconds: float) -> float:
        """Until every agent has adopted so many rounds more than the newest that any of them has, or as many of a newer
        incarnation."""
        newest = self.versions()[-1]

        def done(told: dict[int, dict[str, Any]]) -> bool:
            versions = [tuple(one["version"]) for one in told.values()]
            before = newest[1] if versions[0][0] == newest[0] else 0
            return len({version[0] for version in versions}) == 1 and min(versions)[1] >= before + rounds > 0

        return self.until(f"{rounds} rounds after {newest}", done, seconds)

    def settled(self, tries: int = 12) -> tuple[int, int]:
        """Halt all at one version; a round that somebody missed is a reason to try a later one."""
        seconds, told = 8.0 * self.shape.dsync + 5.0, {}
        for _ in range(tries):
            incarnation, epoch = self.versions()[-1]
            self.ask(do="halt", at=(incarnation, epoch + 2))
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                told = self.status()
                found = {tuple(one["version"]) for one in told.values()}
                if all(one["halted"] and not one["awaiting"] for one in told.values()):
                    break
                time.sleep(0.05)
            if len(found) == 1 and not any(one["awaiting"] for one in told.values()):
                return found.pop()
            self.ask(do="go")
        raise AssertionError(f"agents do not come to one version: {sorted(found)}")

    # -- the books

    def diary(self) -> list[Diary]:
        return [read_diary(path) for path in self.diaries]

    def rounds(self, *folders: Path) -> list[Round]:
        """What Redis wrote down, in these folders one after another."""
        return rounds_of(self.stream, (words for folder in folders for words in commands(folder)))


def loads(diaries: Sequence[Diary], shape: Shape) -> NDArray[np.int64]:
    """Rows by (agent, batch, worker) as they were routed; zeros where none were."""
    ends = [max(diary.loads, default=-1) + 1 for diary in diaries]
    out = np.zeros((shape.agents, max(ends), shape.workers), np.int64)
    for diary in diaries:
        agent = int(diary.name.removeprefix("agent-"))
        for batch, routed in diary.loads.items():
            out[agent, batch] += routed
    return out


def wipe(server: Server) -> Path:
    """Take a killed server's disk away; where it is now."""
    kept = server.aof.with_name(f"{server.aof.name}-before")
    shutil.move(server.aof, kept)
    return kept
