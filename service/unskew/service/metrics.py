"""What Prometheus is told: the calls, the process, and what the engine lets its observer see (``observing``).

Names are the contract of DESIGN section 6. No label has a key in it; loads per partition are told for streams of up
to 256 partitions, others by their imbalance only. What is known of a stream goes when the stream is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import time
from typing import Any, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from unskew.service.access import Access
from unskew.service.observing import (
    AgentsSeen,
    BatchSeen,
    Event,
    PlanBuilt,
    RoundMerged,
    ScaleAdvised,
    Skipped,
    StoreCalled,
    StreamChanged,
    WatchersSeen,
)
from unskew.service.problems import MEDIA_TYPE, Fault

__all__ = ["Metrics", "metrics_app"]

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_MOST_PARTITIONS = 256
M = TypeVar("M", bound=Any)


@dataclass(eq=False)
class _Batch:
    """The rows per partition of the batch that a stream reported last, from the parts that came so far."""

    key: tuple[str, int, int]
    rows: dict[int, int]


class Metrics:
    """A registry, and the observer that fills it. Called on the loop; quick; never raises."""

    def __init__(self, clock: Callable[[], float] = time) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._clock = clock
        self._labels: dict[str, set[tuple[Any, tuple[str, ...]]]] = {}
        self._batches: dict[str, _Batch] = {}
        self._calls = self._made(Histogram, "rpc_seconds", "Calls, by gRPC or HTTP status.", "method", "code")
        self._rejected = self._made(Counter, "rejected", "Calls turned away by access rules.", "reason")
        self._store = self._made(Histogram, "store_seconds", "Operations of the store.", "op")
        self._store_errors = self._made(Counter, "store_errors", "Operations of the store without an answer.", "op")
        self._builds = self._made(Counter, "plan_builds", "Plans asked for.", "stream", "policy", "outcome")
        self._build_seconds = self._made(Histogram, "plan_build_seconds", "Time to make a plan.")
        self._version = self._made(Gauge, "plan_version", "Number of the latest plan.", "stream")
        self._age = self._made(Gauge, "plan_age_seconds", "Since the latest plan was made here.", "stream")
        loads = ("stream", "partition", "routing")
        self._load = self._made(Gauge, "partition_load", "Rows: planned, and of the last batch.", *loads)
        self._predicted = self._made(Gauge, "predicted_imbalance", "Fullest partition / mean, as planned.", "stream")
        self._observed = self._made(Gauge, "observed_imbalance", "The same, of the last batch.", "stream")
        self._hot = self._made(Gauge, "hot_keys", "Keys with a route of their own.", "stream")
        self._fragments = self._made(Gauge, "fragments", "Places of the hot keys.", "stream")
        self._moved = self._made(Gauge, "moved_share", "Share of the rows that the latest plan moved.", "stream")
        self._rounds = self._made(Counter, "sync_rounds", "Rounds of cooperative learning.", "stream", "outcome")
        self._round_seconds = self._made(Histogram, "sync_round_seconds", "From a round's first report to its answer.")
        self._dsync = self._made(Gauge, "dsync_seconds", "Between two reports of an agent.", "stream")
        self._agents = self._made(Gauge, "agents", "Agents with a lease.", "stream")
        self._watchers = self._made(Gauge, "watchers", "Watches of plans here.", "stream")
        self._scale = self._made(Gauge, "scale_partitions", "Tasks advised.", "stream", "stage")
        self._zone = self._made(Gauge, "scale_zone", "1: too many tasks, 2: right, 3: too few.", "stream")
        self._skipped = self._made(Counter, "skipped", "What was not done.", "what")
        self._on: dict[type, Callable[[Any], None]] = {
            AgentsSeen: self._agents_seen,
            BatchSeen: self._batch_seen,
            PlanBuilt: self._plan_built,
            RoundMerged: self._round_merged,
            ScaleAdvised: self._scale_advised,
            Skipped: lambda event: self._skipped.labels(event.what).inc(),
            StoreCalled: self._store_called,
            StreamChanged: self._stream_changed,
            WatchersSeen: lambda event: self._of(self._watchers, event.stream).set(event.watchers),
        }

    def _made(self, kind: type[M], name: str, text: str, *labels: str) -> M:
        more: dict[str, Any] = {"buckets": _SECONDS} if kind is Histogram else {}
        made: M = kind(f"unskew_{name}", text, labels, registry=self.registry, **more)
        return made

    # -- from the faces ---------------------------------------------------------------------------------------

    def call(self, method: str, code: str, seconds: float) -> None:
        self._calls.labels(method, code).observe(seconds)

    def rejected(self, reason: str) -> None:
        self._rejected.labels(reason).inc()

    # -- from the engine --------------------------------------------------------------------------------------

    def __call__(self, event: Event, /) -> None:
        on = self._on.get(type(event))
        if on is not None:
            on(event)

    def _of(self, metric: Any, stream: str, *rest: str) -> Any:
        """The metric with these labels, remembered for the day the stream goes."""
        labels = (stream, *rest)
        self._labels.setdefault(stream, set()).add((metric, labels))
        return metric.labels(*labels)

    def _stream_changed(self, event: StreamChanged) -> None:
        if event.what == "deleted":
            for metric, labels in self._labels.pop(event.stream, ()):
                metric.remove(*labels)
            self._batches.pop(event.stream, None)

    def _plan_built(self, event: PlanBuilt) -> None:
        stream, info = event.stream, event.info
        self._of(self._builds, stream, event.policy, event.outcome).inc()
        self._build_seconds.observe(event.seconds)
        self._of(self._version, stream).set(info.version.number)
        self._of(self._hot, stream).set(event.hot_keys)
        self._of(self._fragments, stream).set(event.fragments)
        if event.outcome == "new":
            made = self._clock()
            self._of(self._age, stream).set_function(lambda: max(0.0, self._clock() - made))
            self._of(self._moved, stream).set(info.moved_rows)
        self._loads(stream, info.loads, "planned", self._predicted)

    def _loads(self, stream: str, loads: Sequence[int], routing: str, imbalance: Any) -> None:
        total = sum(loads)
        if total:
            self._of(imbalance, stream).set(max(loads) * len(loads) / total)
        if len(loads) <= _MOST_PARTITIONS:
            for partition, rows in enumerate(loads):
                self._of(self._load, stream, str(partition), routing).set(rows)

    def _batch_seen(self, event: BatchSeen) -> None:
        part = event.part
        batch = self._batches.get(event.stream)
        if batch is None or batch.key != (part.source, part.batch, part.run):
            batch = self._batches[event.stream] = _Batch((part.source, part.batch, part.run), {})
        for work in event.batch.work:
            batch.rows[work.partition] = batch.rows.get(work.partition, 0) + work.rows
        if batch.rows:
            loads = [batch.rows.get(at, 0) for at in range(max(batch.rows) + 1)]
            self._loads(event.stream, loads, "observed", self._observed)

    def _round_merged(self, event: RoundMerged) -> None:
        self._of(self._rounds, event.stream, event.outcome).inc()
        self._round_seconds.observe(event.seconds)
        self._of(self._dsync, event.stream).set(event.dsync)

    def _agents_seen(self, event: AgentsSeen) -> None:
        self._of(self._agents, event.stream).set(event.agents)
        self._of(self._dsync, event.stream).set(event.dsync)

    def _scale_advised(self, event: ScaleAdvised) -> None:
        scale = event.scale
        self._of(self._scale, event.stream, "map").set(scale.map_tasks)
        self._of(self._scale, event.stream, "reduce").set(scale.reduce_tasks)
        self._of(self._zone, event.stream).set(scale.zone)

    def _store_called(self, event: StoreCalled) -> None:
        self._store.labels(event.op).observe(event.seconds)
        if event.error is not None:
            self._store_errors.labels(event.op).inc()


def metrics_app(metrics: Metrics, access: Access) -> ASGIApp:
    """``GET /metrics`` for callers that may read every stream: the names of all are in it."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await (await _answered(Request(scope, receive)))(scope, receive, send)

    async def _answered(request: Request) -> Response:
        try:
            if (request.method, request.scope["path"]) != ("GET", "/metrics"):
                return _problem(Fault("NOT_FOUND", "there is only GET /metrics here"))
            names = request.scope.get("state", {}).get("sans", ())
            access.require(access.identify(request.headers.get("authorization"), names), "Metrics")
            page = await asyncio.to_thread(generate_latest, metrics.registry)
            return Response(page, media_type=CONTENT_TYPE_LATEST)
        except Exception as why:  # noqa: BLE001 - the border: every error becomes a problem
            return _problem(Fault.of(why))

    return app


def _problem(fault: Fault) -> Response:
    return JSONResponse(fault.problem(), fault.status, fault.headers(), MEDIA_TYPE)
