"""What Prometheus is told: the calls, the process, and what the engine lets its observer see (``observing``).

Names are the contract of DESIGN section 6. No label has a key in it; loads per partition are told for streams of up
to 256 partitions, others by their imbalance only. What is known of a stream goes when the stream is deleted, and when
so many others were heard of since that Prometheus would have too much to keep.

``unskew_partition_load`` has, by ``routing``: "plan" and "hash", the rows that the latest plan expects and those that
plain hashing would give for the same histogram; "observed", those of the last batch that was reported.

Any replica may take any message, so several tell of one stream, each what it heard last: the one is right that heard of
it last. ``unskew_heard_timestamp_seconds`` says when that was, and queries take the greatest (``docs/metrics.md``).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from time import time
from typing import Any, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Info,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from unskew.core.plan.plan import Version
from unskew.core.quality.measures import load_imbalance
from unskew.core.stream_spec import BatchWork
from unskew.core.version import __version__
from unskew.service.api.problems import MEDIA_TYPE, Fault
from unskew.service.auth.access import Access
from unskew.service.events.events import (
    MOST_SHOWN,
    AgentsSeen,
    BatchSeen,
    Event,
    PlanBuilt,
    PlanServed,
    RoundMerged,
    ScaleAdvised,
    Skipped,
    StoreCalled,
    StreamChanged,
    WatchersSeen,
    WorkSeen,
)
from unskew.service.lru_cache import LruCache

__all__ = ["Metrics", "metrics_app"]

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_MOST_STREAMS, _MOST_SOURCES, _MOST_BATCHES = 1000, 100, 4
_ADOPTER = 3600.0  # seconds after its last report for which a source is counted
_ANSWERS = {"NotFoundError", "ConflictError", "LimitError", "ConfigError"}  # the store was asked, and said no
_LIMITS = {"RESOURCE_EXHAUSTED", "413", "429"}
# Told as 0 from the beginning: of a counter that begins with its first event, Prometheus does not see that one.
_REASONS = ("denied", "limit", "no credential", "unknown credential", "unknown scheme")
_SKIPS = ("advice", "news", "note", "plan", "report", "round")
M = TypeVar("M", bound=Any)


@dataclass(eq=False)
class _Parts:
    """The rows per partition of a batch, from the parts that came to this replica."""

    came: set[int] = field(default_factory=set)
    rows: dict[int, int] = field(default_factory=dict)


@dataclass(eq=False)
class _StreamMetrics:
    """What has to be remembered of a stream: its series, the latest plan, who routes by which, batches under way."""

    series: dict[tuple[Any, tuple[str, ...]], Any] = field(default_factory=dict)
    latest: Version | None = None
    since: float = 0.0
    lags: LruCache[str, tuple[int, float]] = field(default_factory=lambda: LruCache(_MOST_SOURCES))
    batches: LruCache[tuple[str, int, int], _Parts] = field(default_factory=lambda: LruCache(_MOST_BATCHES))

    def behind(self, now: float) -> int:
        """How far the last batch of a source was behind the plan that was the latest then, of the source of late where
        that is most. It does not grow by plans made since: whoever is silent here may report to another replica."""
        return max((lag for lag, at in list(self.lags.values()) if now - at < _ADOPTER), default=0)


def _between(version: Version, latest: Version | None) -> int:
    """Of another incarnation: at least as many as this one has."""
    if latest is None or version >= latest:
        return 0
    return latest.number - (version.number if version.incarnation == latest.incarnation else 0)


class _Times(Collector):
    """A histogram of seconds. Of every call and every operation of the store: the library's own looks at one bucket
    after another and takes two locks, 4 us each time instead of half a one. Filled on the loop only."""

    def __init__(self, name: str, text: str, *labels: str) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._rows: dict[tuple[str, ...], list[float]] = {}  # a number for each bucket and for what is above, the sum

    def observe(self, seconds: float, *labels: str) -> None:
        row = self._rows.get(labels)
        if row is None:
            row = self._rows[labels] = [0.0] * (len(_SECONDS) + 2)
        row[bisect_left(_SECONDS, seconds)] += 1.0
        row[-1] += seconds

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for labels, row in list(self._rows.items()):
            *counts, total = row.copy()
            below = zip([*map(floatToGoString, _SECONDS), "+Inf"], accumulate(counts), strict=True)
            family.add_metric(labels, list(below), total)
        yield family


class _Registry(CollectorRegistry):
    """Without the time of creation that the library tells of every counter: as many series again, for nobody."""

    def collect(self) -> Iterator[Metric]:
        for family in super().collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


class Metrics:
    """A registry, and the observer that fills it. Called on the loop; quick; never raises."""

    def __init__(self, clock: Callable[[], float] = time) -> None:
        self.registry = _Registry(auto_describe=True)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._clock = clock
        self._streams: OrderedDict[str, _StreamMetrics] = OrderedDict()
        self._made(Info, "build", "The release that runs.").info({"version": __version__})
        self._of_calls()
        self._of_plans()
        self._of_rounds()
        self._on: dict[type, Callable[[Any], None]] = {
            AgentsSeen: self._agents_seen,
            BatchSeen: self._batch_seen,
            PlanBuilt: self._plan_built,
            PlanServed: self._plan_served,
            RoundMerged: self._round_merged,
            ScaleAdvised: self._scale_advised,
            Skipped: lambda event: self._skipped.labels(event.what).inc(),
            StoreCalled: self._store_called,
            StreamChanged: self._stream_changed,
            WatchersSeen: self._watchers_seen,
            WorkSeen: lambda event: self._observe(event.stream, _rows(event.batch), event.partitions),
        }

    def _of_calls(self) -> None:
        self._calls = self._times("rpc_seconds", "Calls, by gRPC or HTTP status.", "method", "code")
        self._rejected = self._made(Counter, "rejected", "Calls turned away by access rules or limits.", "reason")
        self._store = self._times("store_seconds", "Operations of the store.", "op")
        self._store_errors = self._made(Counter, "store_errors", "Operations of the store without an answer.", "op")
        self._store_up = self._made(Gauge, "store_up", "Whether the store answered when it was last asked.")
        self._skipped = self._made(Counter, "skipped", "What was not done.", "what")
        self._ops: set[str] = set()
        for reason in _REASONS:
            self._rejected.labels(reason)
        for what in _SKIPS:
            self._skipped.labels(what)

    def _of_plans(self) -> None:
        text = "When this replica last heard of it: of several, the one that did last is right."
        self._heard = self._made(Gauge, "heard_timestamp_seconds", text, "stream", "what")
        self._builds = self._made(Counter, "plan_builds", "Plans asked for.", "stream", "policy", "outcome")
        self._build_seconds = self._times("plan_build_seconds", "Time to make a plan.")
        self._version = self._made(Gauge, "plan_version", "Number of the latest plan.", "stream")
        self._age = self._made(Gauge, "plan_age_seconds", "Since the latest plan was first seen here.", "stream")
        text = "Plans between that of a source's last batch and the latest then: the most of the last hour's sources."
        self._behind = self._made(Gauge, "versions_behind", text, "stream")
        self._stale = self._made(Counter, "stale_plans", "Plans served that may not be the latest.", "stream")
        loads = ("stream", "partition", "routing")
        self._load = self._made(Gauge, "partition_load", "Rows: by plan, by plain hash, as observed.", *loads)
        self._predicted = self._made(Gauge, "predicted_imbalance", "Fullest partition / mean, as planned.", "stream")
        self._observed = self._made(Gauge, "observed_imbalance", "The same, of the last batch.", "stream")
        text = "Observed imbalance of the last batch / that predicted by the plan it was bound to."
        self._against = self._made(Gauge, "imbalance_against_plan", text, "stream")
        self._hot = self._made(Gauge, "hot_keys", "Keys with a route of their own.", "stream")
        self._fragments = self._made(Gauge, "fragments", "Places of the hot keys.", "stream")
        self._moved = self._made(Gauge, "moved_share", "Share of the rows that the latest plan moved.", "stream")
        self._watchers = self._made(Gauge, "watchers", "Watches of plans here.", "stream")
        self._scale = self._made(Gauge, "scale_partitions", "Tasks advised.", "stream", "stage")
        self._zone = self._made(Gauge, "scale_zone", "1: too many tasks, 2: right, 3: too few.", "stream")

    def _of_rounds(self) -> None:
        self._rounds = self._made(Counter, "sync_rounds", "Rounds of cooperative learning.", "stream", "outcome")
        self._round_seconds = self._times("sync_round_seconds", "From a round's first report to its answer.")
        self._dsync = self._made(Gauge, "dsync_seconds", "Between two reports of an agent.", "stream")
        self._agents = self._made(Gauge, "agents", "Agents with a lease.", "stream")

    def _made(self, kind: type[M], name: str, text: str, *labels: str) -> M:
        made: M = kind(f"unskew_{name}", text, labels, registry=self.registry)
        return made

    def _times(self, name: str, text: str, *labels: str) -> _Times:
        made = _Times(f"unskew_{name}", text, *labels)
        self.registry.register(made)
        return made

    # -- from the faces and the process -----------------------------------------------------------------------

    def call(self, method: str, code: str, seconds: float) -> None:
        self._calls.observe(seconds, method, code)
        if code in _LIMITS:
            self.rejected("limit")

    def rejected(self, reason: str) -> None:
        self._rejected.labels(reason).inc()

    def store_up(self, *, up: bool) -> None:
        self._store_up.set(up)

    # -- from the engine --------------------------------------------------------------------------------------

    def __call__(self, event: Event, /) -> None:
        on = self._on.get(type(event))
        if on is not None:
            on(event)

    def _of(self, metric: Any, stream: str, *rest: str) -> Any:
        """The metric with these labels, remembered for the day the stream goes."""
        series, key = self._known(stream).series, (metric, (stream, *rest))
        found = series.get(key)
        if found is None:
            found = series[key] = metric.labels(*key[1])
        return found

    def _drop(self, metric: Any, stream: str, *rest: str) -> bool:
        """Tell it no longer; whether it was told."""
        key = metric, (stream, *rest)
        found = self._known(stream).series.pop(key, None) is not None
        if found:
            metric.remove(*key[1])
        return found

    def _known(self, stream: str) -> _StreamMetrics:
        found = self._streams.get(stream)
        if found is None:
            found = self._streams[stream] = _StreamMetrics()
            if len(self._streams) > _MOST_STREAMS:
                self._forget(next(iter(self._streams)))
        self._streams.move_to_end(stream)
        return found

    def _forget(self, stream: str) -> None:
        known = self._streams.pop(stream, None)
        for metric, labels in known.series if known else ():
            metric.remove(*labels)

    def _hear(self, stream: str, what: str) -> None:
        self._of(self._heard, stream, what).set(self._clock())

    def _stream_changed(self, event: StreamChanged) -> None:
        if event.what == "deleted":
            self._forget(event.stream)

    def _watchers_seen(self, event: WatchersSeen) -> None:
        if event.watchers or event.stream in self._streams:  # the last one may leave because the stream is gone
            self._of(self._watchers, event.stream).set(event.watchers)

    # -- plans

    def _seen(self, stream: str, version: Version) -> bool:
        """A plan of this version is there; whether it is the latest that is known here."""
        known = self._known(stream)
        if known.latest is None or version > known.latest:
            known.latest, known.since = version, self._clock()
            self._of(self._version, stream).set(version.number)
            self._of(self._age, stream).set_function(lambda: max(0.0, self._clock() - known.since))
            self._of(self._stale, stream)  # told as 0 from the beginning
        return version == known.latest

    def _plan_built(self, event: PlanBuilt) -> None:
        stream, info = event.stream, event.info
        self._of(self._builds, stream, event.policy, event.outcome).inc()
        self._build_seconds.observe(event.seconds)
        if not self._seen(stream, info.version):
            return  # a plan of before, asked for again
        self._hear(stream, "plan")
        self._of(self._hot, stream).set(event.hot_keys)
        self._of(self._fragments, stream).set(event.fragments)
        if event.outcome == "new":
            self._of(self._moved, stream).set(info.moved_rows)
        loads = event.by_plan or info.loads  # of a plan that was kept: for the rows that hashing is shown for too
        if any(loads):
            self._of(self._predicted, stream).set(load_imbalance(loads))
        self._loads(stream, loads, "plan")
        if event.by_hash or len(loads) > MOST_SHOWN:
            self._loads(stream, event.by_hash, "hash")

    def _plan_served(self, event: PlanServed) -> None:
        if event.stale:
            self._of(self._stale, event.stream).inc()
        elif event.version is not None:
            known = self._streams.get(event.stream)
            if known is None or known.latest is None or event.version > known.latest:
                self._seen(event.stream, event.version)

    def _loads(self, stream: str, loads: Sequence[int], routing: str) -> None:
        """Those of partitions that are no more, go."""
        told = loads if len(loads) <= MOST_SHOWN else ()
        for partition, rows in enumerate(told):
            self._of(self._load, stream, str(partition), routing).set(rows)
        partition = len(told)
        while self._drop(self._load, stream, str(partition), routing):
            partition += 1

    # -- batches

    def _batch_seen(self, event: BatchSeen) -> None:
        part, version = event.part, event.batch.version
        known = self._known(event.stream)
        self._hear(event.stream, "report")
        if event.latest is not None:
            self._seen(event.stream, event.latest)
        if version is not None:
            known.lags.put(part.source, (_between(version, known.latest), self._clock()))
            self._of(self._behind, event.stream).set_function(lambda: known.behind(self._clock()))
        key = part.source, part.batch, part.run
        batch = known.batches.put(key, known.batches.get(key) or _Parts())
        batch.came.add(part.part)
        for work in event.batch.work:
            batch.rows[work.partition] = batch.rows.get(work.partition, 0) + work.rows
        if len(batch.came) == part.parts:
            known.batches.pop(key)
            promised = event.promised.loads if event.promised else ()
            self._observe(event.stream, batch.rows, event.partitions)
            if any(promised) and any(batch.rows.values()):
                ratio = load_imbalance(_listed(batch.rows, len(promised))) / load_imbalance(promised)
                self._of(self._against, event.stream).set(ratio)

    def _observe(self, stream: str, rows: Mapping[int, int], partitions: int) -> None:
        """A whole batch. One of which only some parts came to this replica is told when a plan is made from it."""
        if any(rows.values()):
            loads = _listed(rows, partitions)
            self._hear(stream, "observed")
            self._of(self._observed, stream).set(load_imbalance(loads))
            self._loads(stream, loads, "observed")

    def _scale_advised(self, event: ScaleAdvised) -> None:
        scale = event.scale
        self._hear(event.stream, "scale")
        self._of(self._scale, event.stream, "reduce").set(scale.reduce_tasks)
        if scale.map_tasks:
            self._of(self._scale, event.stream, "map").set(scale.map_tasks)
        else:  # not known: who scales by it must not read 0
            self._drop(self._scale, event.stream, "map")
        self._of(self._zone, event.stream).set(scale.zone)

    # -- rounds and the store

    def _round_merged(self, event: RoundMerged) -> None:
        self._of(self._rounds, event.stream, event.outcome).inc()
        self._round_seconds.observe(event.seconds)
        self._of(self._dsync, event.stream).set(event.dsync)

    def _agents_seen(self, event: AgentsSeen) -> None:
        self._hear(event.stream, "round")
        self._of(self._agents, event.stream).set(event.agents)
        self._of(self._dsync, event.stream).set(event.dsync)

    def _store_called(self, event: StoreCalled) -> None:
        self._store.observe(event.seconds, event.op)
        if event.op not in self._ops:
            self._ops.add(event.op)
            self._store_errors.labels(event.op)  # told as 0 from the beginning
        if event.error is not None and event.error not in _ANSWERS:
            self._store_errors.labels(event.op).inc()


def _rows(batch: BatchWork) -> dict[int, int]:
    return {work.partition: work.rows for work in batch.work}


def _listed(rows: Mapping[int, int], least: int) -> list[int]:
    """By partition, for at least so many."""
    return [rows.get(at, 0) for at in range(max(max(rows, default=-1) + 1, least))]


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
