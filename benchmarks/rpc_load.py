"""Load for a gRPC server, from a process of its own, and the bare server that ours is measured beside.

``Generator`` keeps calls in flight on C-core channels with requests that were serialized before; all that it does for a
call is to hand out bytes and, for agents, to patch a sequence number in. Closed loop: each lane sends when its answer
has come. Open loop: calls fall due by a schedule, and a call that has to wait for its lane is timed from when it fell
due.

A reporter does what ``unskew.client.Agent`` does, without the routing: reports with rising seq, waiting for the round
as long as an agent does, naming the newest answer that it has. The agents of a stream end a slice at the same round,
so that none is left alone in one; in the open loop all reports of a stream fall due at once, as the rounds keep
agents in step.

``python -m benchmarks.rpc_load echo`` is the bare server; ``generate`` takes commands, a line of JSON each.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from unskew.core.dalton.qtable import QTable
from unskew.core.rounds.messages import Report
from unskew.core.sketches.frequent import FrequentItems
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire.round_messages import report_to_message

__all__ = ["ECHO", "GET_PLAN", "Crowd", "Loader", "Measured", "cpu", "echo_server", "loader"]

ECHO, GET_PLAN = "/bench.Echo/Echo", "/unskew.v1.PartitionerService/GetPlan"
_SYNC = "/unskew.v1.PartitionerService/Sync"
_CHANNELS = 8
_TIMEOUT = 30.0
_WAIT = 10.0  # what an agent with a DSYNC of 20 s asks the service to wait for its round
_FIRST_SEQ = 1 << 14  # from here on, to 2^21, a seq is three bytes


@dataclass(frozen=True)
class Crowd:
    """The agents of some streams, each with a table of so many rows and a summary of so many counters."""

    streams: int
    agents: int
    rows: int
    workers: int
    counters: int = 256

    @property
    def names(self) -> list[str]:
        return [f"{self.rows}x{self.workers}-{self.counters}-{self.agents}-{at}" for at in range(self.streams)]


@dataclass(frozen=True)
class Measured:
    """One slice: calls a second within it, all calls with those that were under way at its end, the generator's share
    of a core, and latencies in seconds."""

    rate: float
    calls: int
    busy: float
    p50: float
    p99: float
    size_in: int
    size_out: int
    failed: int


# -- lanes ----------------------------------------------------------------------------------------------------


class Fixed:
    """Always the same request; answers are not looked at."""

    def __init__(self, method: str, data: bytes) -> None:
        self.method, self.data, self.group = method, data, ""

    def request(self) -> bytes:
        return self.data

    def take(self, answer: bytes) -> None:
        pass


class Reporter:
    """One agent. Its first report has the hot keys only: what all of them have a mean worker's share of is hot in the
    first answer, and stays so while it has half of that."""

    method = _SYNC

    def __init__(self, stream: str, number: int, crowd: Crowd) -> None:
        self.group, self.seq = stream, _FIRST_SEQ
        self.known = 0, 0
        self._bare = self._parts(stream, _report(number, crowd, light=False))
        self._full = self._parts(stream, _report(number, crowd, light=True))

    @staticmethod
    def _parts(stream: str, report: Report) -> tuple[bytes, bytes]:
        """What is before the seq and after it."""
        data = pb.SyncRequest(stream=stream, report=report_to_message(report)).SerializeToString()
        seq = b"\x18" + _varint(report.seq)
        head, found, tail = data.partition(b"\x10\x07" + seq)  # after session 7
        assert found
        return head + b"\x10\x07\x18", tail

    def request(self) -> bytes:
        head, tail = self._bare if self.seq == _FIRST_SEQ else self._full
        incarnation, epoch = self.known
        own = pb.SyncRequest(wait_seconds=_WAIT, incarnation=incarnation, epoch=epoch).SerializeToString()
        return b"".join((head, _varint(self.seq), tail, own))

    def take(self, answer: bytes) -> None:
        """An agent goes on with its next report when an answer has this one in it."""
        found = pb.SyncResponse.FromString(answer).answer
        self.known = max(self.known, (found.incarnation, found.epoch))
        if found.merged:
            self.seq += 1


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def _report(number: int, crowd: Crowd, *, light: bool) -> Report:
    """``crowd.rows`` rows, of which as many are hot as can be, and light keys of the agent's own."""
    rng = np.random.default_rng(number)
    hot = min(crowd.rows, crowd.workers)
    hashes = np.random.default_rng(1).integers(0, 2**63, crowd.rows).astype(np.uint64)  # the same for all agents
    others = rng.integers(2**63, 2**64, max(crowd.counters - hot, 0), dtype=np.uint64)
    counts = np.full(hot, 6_000)
    if light:
        share = 4_000 * hot // max(len(others), 1)
        seen = _counted(crowd, np.concatenate([hashes[:hot], others]), np.concatenate([counts, others * 0 + share]))
    else:
        seen = _counted(crowd, hashes[:hot], counts)
    values = rng.uniform(-1.0, 1.0, (crowd.rows, crowd.workers))
    values[rng.random(values.shape) < 0.5] = -2.0
    rows = np.concatenate([counts, np.ones(crowd.rows - hot, np.int64)])
    table = QTable.of(hashes, values, rows, values > -2.0)
    loads = rng.integers(0, 10_000, crowd.workers)
    return Report(f"agent-{number:04}", 7, _FIRST_SEQ, table, seen.total, seen, loads, 20.0, longer=False)


def _counted(crowd: Crowd, hashes: np.ndarray[Any, Any], counts: np.ndarray[Any, Any]) -> FrequentItems:
    return FrequentItems(max(crowd.counters, len(hashes))).update(hashes, counts.astype(np.int64))


def _lanes(given: dict[str, Any]) -> list[Fixed | Reporter]:
    if "crowd" in given:
        crowd = Crowd(**given["crowd"])
        return [Reporter(name, at, crowd) for name in crowd.names for at in range(crowd.agents)]
    lane = Fixed(given["method"], bytes.fromhex(given["head"]) + bytes(given["pad"]))
    return [lane] * given["lanes"]


# -- the generator --------------------------------------------------------------------------------------------


class Generator:
    """Lanes, each on one of a few channels."""

    def __init__(self, target: str, lanes: Sequence[Fixed | Reporter]) -> None:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        channels = [grpc.insecure_channel(target, options=options) for _ in range(min(_CHANNELS, len(lanes)))]
        self.lanes = lanes
        self._calls: list[Any] = [
            channels[at % len(channels)].unary_unary(lane.method) for at, lane in enumerate(lanes)
        ]
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        # What a lane does when its answer has come, and when that was.
        self._then: Callable[[int, float], None] = lambda _at, _now: None
        self._begin(0.0)

    def _begin(self, seconds: float) -> None:
        self._took: list[float] = []
        self._last: dict[str, int] = {}
        self._flying = self._failed = self._inside = self._size_in = self._size_out = 0
        self._end = time.perf_counter() + seconds

    def _send(self, at: int, due: float) -> None:
        lane = self.lanes[at]
        data = lane.request()
        self._size_in = len(data)
        with self._lock:
            self._flying += 1
        future = self._calls[at].future(data, timeout=_TIMEOUT)
        future.add_done_callback(lambda done: self._done(at, due, done))

    def _done(self, at: int, due: float, future: Any) -> None:
        now = time.perf_counter()
        try:
            answer = future.result()
        except grpc.RpcError:
            self._failed += 1
        else:
            self._took.append(now - due)
            self._inside += now <= self._end
            self._size_out = len(answer)
            self.lanes[at].take(answer)
        self._then(at, now)
        with self._idle:
            self._flying -= 1
            if not self._flying:
                self._idle.notify_all()

    def _wait(self) -> None:
        with self._idle:
            self._idle.wait_for(lambda: not self._flying, 2 * _TIMEOUT)

    def _last_round(self, lane: Reporter) -> int:
        """The round that all agents of a stream end with: the next one, when the first of them finds the time over."""
        with self._lock:
            return self._last.setdefault(lane.group, lane.known[1] + 1)

    def _measured(self, calls: int, seconds: float, spent: float) -> Measured:
        p50, p99 = np.percentile(self._took or [0.0], (50, 99)).tolist()
        return Measured(
            calls / seconds, len(self._took), spent / seconds, p50, p99, self._size_in, self._size_out, self._failed
        )

    def closed(self, seconds: float) -> Measured:
        """Every lane with a call in flight, for so long."""
        self._begin(seconds)

        def again(at: int, now: float) -> None:
            lane = self.lanes[at]
            if now < self._end or (isinstance(lane, Reporter) and lane.known[1] < self._last_round(lane)):
                self._send(at, now)

        self._then = again
        spent = time.process_time()
        for at in range(len(self.lanes)):
            self._send(at, time.perf_counter())
        time.sleep(max(self._end - time.perf_counter(), 0.0))
        spent = time.process_time() - spent
        self._wait()
        return self._measured(self._inside, seconds, spent)

    def open(self, rate: float, seconds: float) -> Measured:
        """So many calls a second."""
        self._begin(seconds)
        waiting: list[deque[float]] = [deque() for _ in self.lanes]
        busy = [False] * len(self.lanes)

        def again(at: int, _now: float) -> None:
            with self._lock:
                due = waiting[at].popleft() if waiting[at] else None
                busy[at] = due is not None
            if due is not None:
                self._send(at, due)

        self._then = again
        schedule = (
            _bursts(self.lanes, rate, seconds) if self.lanes[0].group else _singly(len(self.lanes), rate, seconds)
        )
        start, spent = time.perf_counter(), time.process_time()
        for offset, at in schedule:
            due = start + offset
            while (left := due - time.perf_counter()) > 0:
                time.sleep(left)
            with self._lock:
                free, busy[at] = not busy[at], True
                if not free:
                    waiting[at].append(due)
            if free:
                self._send(at, due)
        self._wait()
        return self._measured(len(schedule), seconds, time.process_time() - spent)


def _singly(lanes: int, rate: float, seconds: float) -> list[tuple[float, int]]:
    """At random, by whichever lane: there are so many that none is ever waited for at half of the peak."""
    rng, now = random.Random(1), 0.0
    found: list[tuple[float, int]] = []
    for number in range(int(rate * seconds)):
        now += rng.expovariate(rate)
        found.append((now, number % lanes))
    return found


def _bursts(lanes: Sequence[Fixed | Reporter], rate: float, seconds: float) -> list[tuple[float, int]]:
    """All agents of a stream at once, every period; the streams out of step at random."""
    groups: dict[str, list[int]] = {}
    for at, lane in enumerate(lanes):
        groups.setdefault(lane.group, []).append(at)
    rng, period = random.Random(1), len(lanes) / rate
    found: list[tuple[float, int]] = []
    for members in groups.values():
        for number in range(int(seconds / period)):
            due = (number + rng.random() / 2) * period
            found.extend((due, at) for at in members)
    return sorted(found)


def _generate() -> None:
    """Commands from stdin, a line of JSON each; so are the answers."""
    generator: Generator | None = None
    for line in sys.stdin:
        given = json.loads(line)
        if "target" in given:
            generator = Generator(given["target"], _lanes(given))
            said: dict[str, Any] = {}
        else:
            assert generator is not None
            said = asdict(generator.open(**given) if "rate" in given else generator.closed(**given))
        print(json.dumps(said), flush=True)


# -- the bare server ------------------------------------------------------------------------------------------


async def _echo() -> None:
    """Bytes in, as many bytes out as the first four of them say."""
    answers: dict[bytes, bytes] = {}

    async def handler(data: bytes, _context: Any) -> bytes:
        size = data[:4]
        if size not in answers:
            answers[size] = bytes(int.from_bytes(size, "little"))
        return answers[size]

    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0)])
    handlers: dict[str, Any] = {"Echo": grpc.unary_unary_rpc_method_handler(handler)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Echo", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


# -- from the benchmark ---------------------------------------------------------------------------------------


@dataclass
class Loader:
    """A generator process."""

    process: subprocess.Popen[str]

    def ask(self, **given: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(given) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the load generator ended")
        return json.loads(line)

    def closed(self, seconds: float) -> Measured:
        return Measured(**self.ask(seconds=seconds))

    def open(self, rate: float, seconds: float) -> Measured:
        return Measured(**self.ask(rate=rate, seconds=seconds))


@contextlib.contextmanager
def _child(*words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.rpc_load", *words]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def loader(target: str, crowd: Crowd | None = None, **fixed: Any) -> Iterator[Loader]:
    """A generator against this server: a crowd of agents, or ``method``, ``head`` (bytes, then ``pad`` zeros) and the
    number of ``lanes``."""
    with _child("generate") as process:
        load = Loader(process)
        if crowd is not None:
            load.ask(target=target, crowd=asdict(crowd))
        else:
            load.ask(target=target, **{**fixed, "head": fixed["head"].hex()})
        yield load


@contextlib.contextmanager
def echo_server() -> Iterator[tuple[str, int]]:
    """Its target and pid."""
    with _child("echo") as process:
        assert process.stdout is not None
        yield f"127.0.0.1:{int(process.stdout.readline())}", process.pid


def cpu(*pids: int) -> float:
    """Seconds of processor time that these have taken."""
    return sum(_ticks(pid) for pid in pids) / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


_ROLES: dict[str, Callable[[], None]] = {"echo": lambda: asyncio.run(_echo()), "generate": _generate}

if __name__ == "__main__":
    _ROLES[sys.argv[1]]()
