"""What the tests of the faces share: verbs that answer from memory and remember what they were asked, the service over
them in a thread with a loop of its own, and tokens."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import httpx
import numpy as np

from unskew.core.dalton.qtable import QTable
from unskew.core.freshness.way_scores import WayChoice
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Explanation, Version
from unskew.core.planners import make_planner
from unskew.core.rounds.messages import Answer, Report
from unskew.core.rounds.round_digests import SeenRound
from unskew.core.sketches.frequent import FrequentItems
from unskew.core.stream_spec import BatchWork, Part, StreamSpec, check_name
from unskew.service.api.verbs import BuiltPlan, Fetched, NameFilter, Overview, ScaleAnswer, StreamInfo, Summary, Synced
from unskew.service.app.main import Running, build
from unskew.service.app.settings import Settings
from unskew.service.errors import NotFoundError
from unskew.v1.partitioner_pb2_grpc import PartitionerServiceStub
from unskew.wire import plan_from_bytes, plan_to_bytes

SERVICE = "unskew.v1.PartitionerService"


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def histogram(keys: int = 200) -> Histogram:
    """A few heavy keys and many light ones."""
    hashes = np.random.default_rng(5).integers(0, 2**64, keys, np.uint64)
    return Histogram.from_counts(hashes, (1000 // np.arange(1, keys + 1)) + 1)


@dataclass
class FakeVerbs:
    """One dictionary of streams, one plan a stream. ``asked`` holds (verb, stream) in order."""

    streams: dict[str, StreamSpec] = field(default_factory=dict)
    plans: dict[str, bytes] = field(default_factory=dict)
    advice: WayChoice | None = None
    histograms: dict[tuple[str, Part], Histogram] = field(default_factory=dict)
    batches: list[tuple[str, Part, BatchWork]] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    trouble: Exception | None = None
    waiting: threading.Event = field(default_factory=threading.Event)
    drained: asyncio.Event = field(default_factory=asyncio.Event)
    watching: int = 0
    stale: bool = False

    def _take(self, verb: str, stream: str, *, known: bool = True) -> None:
        check_name("stream", stream)
        self.asked.append((verb, stream))
        if self.trouble is not None:
            raise self.trouble
        if known and stream not in self.streams:
            raise NotFoundError(f"there is no stream {stream!r}; put it first", field="stream")

    def _info(self, stream: str) -> StreamInfo:
        plan = plan_from_bytes(self.plans[stream]) if stream in self.plans else None
        version = None if plan is None else plan.version
        return StreamInfo(stream, self.streams[stream], 1.5e9, version, plan.digest if plan else "", 3, 2, 20.0)

    async def put_stream(
        self, stream: str, spec: StreamSpec, owner: str = "", most: int | None = None
    ) -> tuple[StreamInfo, bool]:
        self._take("put_stream", stream, known=False)
        created = stream not in self.streams
        self.streams[stream] = spec
        return self._info(stream), created

    async def get_stream(self, stream: str) -> StreamInfo:
        self._take("get_stream", stream)
        return self._info(stream)

    async def overview(self, stream: str) -> Overview:
        self._take("overview", stream)
        plan = plan_from_bytes(self.plans[stream]) if stream in self.plans else None
        return Overview(self._info(stream), plan, None, None, [], [], [])

    async def summaries(self, after: str, limit: int, wanted: NameFilter | None = None) -> Sequence[Summary]:
        return [Summary(info, None, None) for info in await self.list_streams(after, limit, wanted)]

    async def list_streams(self, after: str, limit: int, wanted: NameFilter | None = None) -> Sequence[StreamInfo]:
        names = [name for name in sorted(self.streams) if name > after and (wanted is None or wanted(name))]
        return [self._info(name) for name in names[:limit]]

    async def delete_stream(self, stream: str) -> None:
        self._take("delete_stream", stream)
        del self.streams[stream]

    async def report_histogram(self, stream: str, part: Part, histogram: Histogram) -> bool:
        self._take("report_histogram", stream)
        there = (stream, part) in self.histograms
        self.histograms[stream, part] = histogram
        return there

    async def build_plan(
        self, stream: str, batch: int | None = None, *, fresh: bool = False, histogram: Histogram | None = None
    ) -> BuiltPlan:
        self._take("build_plan", stream)
        spec = self.streams[stream]
        counted = histogram or next((h for (name, _), h in self.histograms.items() if name == stream), None)
        planner = make_planner("balanced", spec.partitions, spec.seed)
        plan = planner.plan(counted if counted is not None else Histogram.empty())
        self.plans[stream] = plan_to_bytes(plan)
        outcome = "new" if counted is not None else "nothing reported"
        return BuiltPlan(self.plans[stream], plan.digest, plan.version, outcome, "as it was asked", self.advice)

    async def get_plan(self, stream: str, version: Version | None = None, if_none_match: str = "") -> Fetched:
        self._take("get_plan", stream)
        if stream not in self.plans:
            raise NotFoundError("there is no plan yet; build one", field="version")
        plan = plan_from_bytes(self.plans[stream])
        if version is not None and version != plan.version:
            raise NotFoundError(f"there is no plan {version}", field="version")
        if if_none_match == plan.digest:
            return Fetched(b"", plan.digest, not_modified=True)
        return Fetched(self.plans[stream], plan.digest, stale=self.stale)

    async def watch_plans(self, stream: str, if_none_match: str = "") -> AsyncIterator[Fetched]:
        self._take("watch_plans", stream)
        self.watching += 1
        try:
            if stream in self.plans:
                yield await self.get_plan(stream)
            self.waiting.set()
            await asyncio.Event().wait()
        finally:
            self.watching -= 1

    async def sync(self, stream: str, report: Report, wait: float, known: SeenRound, data: bytes = b"") -> Synced:
        self._take("sync", stream)
        self.reports.append(report)
        if wait:
            self.waiting.set()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.drained.wait(), wait)
            if not self.drained.is_set():
                return Synced(None)
        if known >= (1, 7):
            return Synced(None)
        return Synced(answer(report.table), 1, merged=True, age=0.5)

    def drain(self) -> None:
        self.drained.set()

    async def report_batch(self, stream: str, part: Part, batch: BatchWork) -> bool:
        self._take("report_batch", stream)
        self.batches.append((stream, part, batch))
        return False

    async def get_scale(self, stream: str) -> ScaleAnswer:
        self._take("get_scale", stream)
        return ScaleAnswer(4, 8, "out", 3, "the batch took longer than its interval")

    async def watch_scale(self, stream: str) -> AsyncIterator[ScaleAnswer]:
        while True:
            yield await self.get_scale(stream)
            self.waiting.set()
            await asyncio.sleep(3600)

    async def explain(self, stream: str, key: int, version: Version | None = None) -> Explanation:
        self._take("explain", stream)
        return plan_from_bytes((await self.get_plan(stream, version)).plan).explain(key)


def answer(table: QTable) -> Answer:
    split = np.array([1, 2**63 + 5], np.uint64)
    return Answer(7, (), table, 12, frozenset({9}), np.arange(table.workers), 10.0, split)


def report(workers: int = 3, agent: str = "a1") -> Report:
    """One hot key of a few, with two workers holding it."""
    hashes = np.array([5, 2**63 + 1], np.uint64)
    held = np.zeros((2, workers), np.bool_)
    held[0, :2] = True
    table = QTable(hashes, np.linspace(-1, 1, 2 * workers).reshape(2, workers), np.array([8, 2]), held)
    frequent = FrequentItems(4).update(np.repeat(hashes, [8, 2]))
    return Report(agent, 1, 1, table, 10, frequent, np.arange(workers), 20.0, longer=False)


@dataclass
class Served:
    """The service, its verbs, and how to reach it."""

    running: Running
    verbs: Any
    loop: asyncio.AbstractEventLoop

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.running.http_port}"

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.running.grpc_port}"

    @property
    def metrics(self) -> str:
        return f"http://127.0.0.1:{self.running.metrics_port}/metrics"

    def stub(self, channel: grpc.Channel) -> PartitionerServiceStub:
        return PartitionerServiceStub(channel)

    def run(self, work: Any) -> Any:
        """Run a coroutine on the service's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)


@contextlib.contextmanager
def served(verbs: Any | None = None, **given: Any) -> Iterator[Served]:
    """The service on free ports; over fake verbs unless told otherwise."""
    ports = {"http_port": 0, "grpc_port": 0, "metrics_port": 0}
    settings = Settings(**{**ports, "drain": 5.0, **given})
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        own = FakeVerbs() if verbs is None else verbs
        start = build(settings, None if own == "engine" else own)
        running = asyncio.run_coroutine_threadsafe(start, loop).result(60)
        try:
            yield Served(running, own, loop)
        finally:
            asyncio.run_coroutine_threadsafe(running.close(), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


@contextlib.contextmanager
def channel(served: Served) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(served.target, options=[("grpc.enable_retries", 0)]) as open_channel:
        yield open_channel


@contextlib.contextmanager
def web(served: Served, **headers: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.base, headers=headers, trust_env=False, timeout=60) as client:
        yield client


def taken_port() -> socket.socket:
    """A port that somebody listens on, until closed."""
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    return taken
