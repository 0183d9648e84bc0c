"""What Prometheus is told of: the calls, the process, and the events of the engine.

Names are the contract of DESIGN section 6. No label has a key in it; loads per partition are exported for streams of up
to 256 partitions, others by their imbalance only. The series of a stream end when the stream is deleted, and when
so many others were active since that Prometheus would have too much to keep.

``unskew_partition_load`` has, by ``routing``: "plan" and "hash", the rows that the latest plan expects and those that
plain hashing would give for the same histogram; "observed", those of the last batch that was reported.

Any replica may take any message, so several export one stream, each what it received last. The one that received
something last is right: ``unskew_heard_timestamp_seconds`` says when, and queries take the greatest (docs/metrics.md).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Any, TypeVar

from prometheus_client import Counter, Gauge, GCCollector, Info, PlatformCollector, ProcessCollector

from unskew.core.plan.plan import Version
from unskew.core.quality.measures import load_imbalance
from unskew.core.version import __version__
from unskew.service.events import events
from unskew.service.events.registry import Registry, SecondsHistogram
from unskew.service.lru_cache import LruCache
from unskew.service.stores.records import NewsState

__all__ = ["Metrics"]

_MOST_STREAMS, _MOST_SOURCES, _MOST_BATCHES = 1000, 100, 4
_SOURCE_AGE = 3600.0  # seconds after its last report for which a source is counted
# The store was asked, and said no.
_ANSWERS = {"NotFoundError", "ConflictError", "LimitError", "QuotaError", "ConfigError"}
_LIMITS = {"RESOURCE_EXHAUSTED", "413", "429"}
# Exported as 0 from the beginning: of a counter that begins with its first event Prometheus does not see that one.
_REASONS = ("cross site", "denied", "limit", "no credential", "unknown credential", "unknown scheme")
_QUOTAS = ("agents", "batch bytes", "batch parts", "batch sources", "identity bytes", "round bytes", "store")
_SHED = ("bytes", "computations", "held", "limit", "rate", "watches")
_SKIPS = ("advice", "news", "note", "plan", "report", "round")
M = TypeVar("M", bound=Any)


@dataclass(eq=False)
class _PartialBatch:
    """The rows per partition of a batch, from the parts that this replica has received."""

    parts: set[int] = field(default_factory=set)
    rows: dict[int, int] = field(default_factory=dict)


@dataclass(eq=False)
class _StreamMetrics:
    """The state of a stream: its series, the latest plan, how far each source is behind it, incomplete batches."""

    series: dict[tuple[Any, tuple[str, ...]], Any] = field(default_factory=dict)
    latest: Version | None = None
    since: float = 0.0
    lags: LruCache[str, tuple[int, float]] = field(default_factory=lambda: LruCache(_MOST_SOURCES))
    batches: LruCache[tuple[str, int, int], _PartialBatch] = field(default_factory=lambda: LruCache(_MOST_BATCHES))

    def behind(self, now: float) -> int:
        """How far the last batch of a source was behind the plan that was the latest then: the most of those sources
        that reported lately. Plans made since do not count: a source that is silent here may report elsewhere."""
        return max((lag for lag, at in list(self.lags.values()) if now - at < _SOURCE_AGE), default=0)


def _plans_between(version: Version, latest: Version | None) -> int:
    """How many plans there are from ``version`` to ``latest``; from another incarnation: as many as this one has."""
    if latest is None or version >= latest:
        return 0
    return latest.number - (version.number if version.incarnation == latest.incarnation else 0)


class Metrics:
    """A registry, and the observer that fills it. Called on the loop; quick; never raises."""

    def __init__(self, clock: Callable[[], float] = time) -> None:
        self.registry = Registry(auto_describe=True)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._clock = clock
        self._streams: OrderedDict[str, _StreamMetrics] = OrderedDict()
        self._metric(Info, "build", "The release that runs.").info({"version": __version__})
        self._of_calls()
        self._of_plans()
        self._of_rounds()
        self._on: dict[type, Callable[[Any], None]] = {
            events.AgentsSeen: self._agents_seen,
            events.BatchSeen: self._batch_seen,
            events.PlanBuilt: self._plan_built,
            events.PlanServed: self._plan_served,
            events.RoundMerged: self._round_merged,
            events.ScaleAdvised: self._scale_advised,
            events.Skipped: lambda event: self._skipped.labels(event.what).inc(),
            events.StoreCalled: self._store_called,
            events.StreamChanged: self._stream_changed,
            events.WatchersSeen: self._watchers_seen,
            events.WorkSeen: lambda event: self._observe(event.stream, events.rows_of(event.batch), event.partitions),
        }

    def _of_calls(self) -> None:
        self._calls = self._histogram("rpc_seconds", "Calls, by gRPC or HTTP status.", "method", "code")
        self._rejected = self._metric(Counter, "rejected", "Calls turned away by access rules or limits.", "reason")
        self._store = self._histogram("store_seconds", "Operations of the store.", "op")
        self._store_errors = self._metric(Counter, "store_errors", "Operations of the store without an answer.", "op")
        self._store_up = self._metric(Gauge, "store_up", "Whether the store answered when it was last asked.")
        text = "Whether the store answered and refused a write: full, or a replica."
        self._writes_refused = self._metric(Gauge, "store_writes_refused", text)
        self._store_used = self._metric(Gauge, "store_used_bytes", "Bytes of the store in use, as last read.")
        self._store_max = self._metric(Gauge, "store_max_bytes", "Bytes that the store may use; 0: no bound.")
        self._over_quota = self._metric(Counter, "over_quota", "What was not kept: there was no room.", "quota")
        self._news_up = self._metric(Gauge, "news_up", "Whether news of the store come, from other replicas.")
        self._news_dropped = self._metric(
            Counter, "news_dropped", "Messages on the store's news channel that are none."
        )
        self._dropped = 0
        self._skipped = self._metric(Counter, "skipped", "What was not done.", "what")
        self._ops: set[str] = set()
        self._shed = self._metric(Counter, "shed", "Calls refused, or refusals held back, because of load.", "reason")
        for reason in _REASONS:
            self._rejected.labels(reason)
        for quota in _QUOTAS:
            self._over_quota.labels(quota)
        for reason in _SHED:
            self._shed.labels(reason)
        for what in _SKIPS:
            self._skipped.labels(what)

    def _of_plans(self) -> None:
        text = "When this replica last heard of it: of several, the one that did last is right."
        self._heard = self._metric(Gauge, "heard_timestamp_seconds", text, "stream", "what")
        self._builds = self._metric(Counter, "plan_builds", "Plans asked for.", "stream", "policy", "outcome")
        self._ways = self._metric(Counter, "ways_advised", "Plans asked for, by the way advised.", "stream", "way")
        self._build_seconds = self._histogram("plan_build_seconds", "Time to make a plan.")
        self._version = self._metric(Gauge, "plan_version", "Number of the latest plan.", "stream")
        self._age = self._metric(Gauge, "plan_age_seconds", "Since the latest plan was first seen here.", "stream")
        text = "Plans between that of a source's last batch and the latest then: the most of the last hour's sources."
        self._behind = self._metric(Gauge, "versions_behind", text, "stream")
        self._stale = self._metric(Counter, "stale_plans", "Plans served that may not be the latest.", "stream")
        loads = ("stream", "partition", "routing")
        self._load = self._metric(Gauge, "partition_load", "Rows: by plan, by plain hash, as observed.", *loads)
        self._predicted = self._metric(Gauge, "predicted_imbalance", "Fullest partition / mean, as planned.", "stream")
        self._observed = self._metric(Gauge, "observed_imbalance", "The same, of the last batch.", "stream")
        text = "Observed imbalance of the last batch / that predicted by the plan it was bound to."
        self._against = self._metric(Gauge, "imbalance_against_plan", text, "stream")
        self._hot = self._metric(Gauge, "hot_keys", "Keys with a route of their own.", "stream")
        self._fragments = self._metric(Gauge, "fragments", "Places of the hot keys.", "stream")
        self._moved = self._metric(Gauge, "moved_share", "Share of the rows that the latest plan moved.", "stream")
        self._watchers = self._metric(Gauge, "watchers", "Watches of plans here.", "stream")
        self._scale = self._metric(Gauge, "scale_partitions", "Tasks advised.", "stream", "stage")
        self._zone = self._metric(Gauge, "scale_zone", "1: too many tasks, 2: right, 3: too few.", "stream")

    def _of_rounds(self) -> None:
        self._rounds = self._metric(Counter, "sync_rounds", "Rounds of cooperative learning.", "stream", "outcome")
        self._round_seconds = self._histogram("sync_round_seconds", "From a round's first report to its answer.")
        self._dsync = self._metric(Gauge, "dsync_seconds", "Between two reports of an agent.", "stream")
        self._agents = self._metric(Gauge, "agents", "Agents with a lease.", "stream")

    def _metric(self, kind: type[M], name: str, text: str, *labels: str) -> M:
        metric: M = kind(f"unskew_{name}", text, labels, registry=self.registry)
        return metric

    def _histogram(self, name: str, text: str, *labels: str) -> SecondsHistogram:
        histogram = SecondsHistogram(f"unskew_{name}", text, *labels)
        self.registry.register(histogram)
        return histogram

    # -- from gRPC, REST and the process -----------------------------------------------------------------------

    def call(self, method: str, code: str, seconds: float) -> None:
        self._calls.observe(seconds, method, code)
        if code in _LIMITS:
            self.rejected("limit")

    def rejected(self, reason: str) -> None:
        self._rejected.labels(reason).inc()

    def shed(self, reason: str) -> None:
        self._shed.labels(reason).inc()

    def store_up(self, *, up: bool, refused: bool = False) -> None:
        self._store_up.set(up)
        self._writes_refused.set(refused)

    def store_bytes(self, read: Callable[[], tuple[int, int]]) -> None:
        """Where to read them when they are asked for."""
        self._store_used.set_function(lambda: read()[0])
        self._store_max.set_function(lambda: read()[1])

    def news(self, state: NewsState) -> None:
        self._news_up.set(not state.trouble)
        self._news_dropped.inc(state.dropped - self._dropped)
        self._dropped = state.dropped

    # -- from the engine --------------------------------------------------------------------------------------

    def __call__(self, event: events.Event, /) -> None:
        on = self._on.get(type(event))
        if on is not None:
            on(event)

    def _of(self, metric: Any, stream: str, *rest: str) -> Any:
        """The metric with these labels, noted so that it can be removed with the stream."""
        series, key = self._state(stream).series, (metric, (stream, *rest))
        child = series.get(key)
        if child is None:
            child = series[key] = metric.labels(*key[1])
        return child

    def _drop(self, metric: Any, stream: str, *rest: str) -> bool:
        """Export it no longer; whether it was exported."""
        key = metric, (stream, *rest)
        exported = self._state(stream).series.pop(key, None) is not None
        if exported:
            metric.remove(*key[1])
        return exported

    def _state(self, stream: str) -> _StreamMetrics:
        state = self._streams.get(stream)
        if state is None:
            state = self._streams[stream] = _StreamMetrics()
            if len(self._streams) > _MOST_STREAMS:
                self._forget(next(iter(self._streams)))
        self._streams.move_to_end(stream)
        return state

    def _forget(self, stream: str) -> None:
        state = self._streams.pop(stream, None)
        for metric, labels in state.series if state else ():
            metric.remove(*labels)

    def _received(self, stream: str, what: str) -> None:
        self._of(self._heard, stream, what).set(self._clock())

    def _stream_changed(self, event: events.StreamChanged) -> None:
        if event.what == "deleted":
            self._forget(event.stream)

    def _watchers_seen(self, event: events.WatchersSeen) -> None:
        if event.watchers or event.stream in self._streams:  # the last watcher may leave because the stream is gone
            self._of(self._watchers, event.stream).set(event.watchers)

    # -- plans

    def _version_exists(self, stream: str, version: Version) -> bool:
        """Whether this version is the latest that this replica has read."""
        state = self._state(stream)
        if state.latest is None or version > state.latest:
            state.latest, state.since = version, self._clock()
            self._of(self._version, stream).set(version.number)
            self._of(self._age, stream).set_function(lambda: max(0.0, self._clock() - state.since))
            self._of(self._stale, stream)  # exported as 0 from the beginning
        return version == state.latest

    def _plan_built(self, event: events.PlanBuilt) -> None:
        stream, info = event.stream, event.info
        self._of(self._builds, stream, event.policy, event.outcome).inc()
        self._build_seconds.observe(event.seconds)
        if event.advice is not None and event.outcome != "repeated":
            self._of(self._ways, stream, event.advice.way).inc()
        if not self._version_exists(stream, info.version):
            return  # an earlier plan, asked for again
        self._received(stream, "plan")
        self._of(self._hot, stream).set(event.hot_keys)
        self._of(self._fragments, stream).set(event.fragments)
        if event.outcome == "new":
            self._of(self._moved, stream).set(info.moved_rows)
        loads = event.by_plan or info.loads  # of a plan that was kept: for the rows that hashing is shown for too
        if any(loads):
            self._of(self._predicted, stream).set(load_imbalance(loads))
        self._loads(stream, loads, "plan")
        if event.by_hash or len(loads) > events.MOST_SHOWN:
            self._loads(stream, event.by_hash, "hash")

    def _plan_served(self, event: events.PlanServed) -> None:
        if event.stale:
            self._of(self._stale, event.stream).inc()
        elif event.version is not None:
            state = self._streams.get(event.stream)
            if state is None or state.latest is None or event.version > state.latest:
                self._version_exists(event.stream, event.version)

    def _loads(self, stream: str, loads: Sequence[int], routing: str) -> None:
        """Also removes those of partitions that are gone."""
        shown = loads if len(loads) <= events.MOST_SHOWN else ()
        for partition, rows in enumerate(shown):
            self._of(self._load, stream, str(partition), routing).set(rows)
        partition = len(shown)
        while self._drop(self._load, stream, str(partition), routing):
            partition += 1

    # -- batches

    def _batch_seen(self, event: events.BatchSeen) -> None:
        part, version = event.part, event.batch.version
        state = self._state(event.stream)
        self._received(event.stream, "report")
        if event.latest is not None:
            self._version_exists(event.stream, event.latest)
        if version is not None:
            state.lags.put(part.source, (_plans_between(version, state.latest), self._clock()))
            self._of(self._behind, event.stream).set_function(lambda: state.behind(self._clock()))
        key = part.source, part.batch, part.run
        batch = state.batches.put(key, state.batches.get(key) or _PartialBatch())
        batch.parts.add(part.part)
        for work in event.batch.work:
            batch.rows[work.partition] = batch.rows.get(work.partition, 0) + work.rows
        if len(batch.parts) == part.parts:
            state.batches.pop(key)
            promised = event.promised.loads if event.promised else ()
            self._observe(event.stream, batch.rows, event.partitions)
            if any(promised) and any(batch.rows.values()):
                ratio = load_imbalance(events.loads_of(batch.rows, len(promised))) / load_imbalance(promised)
                self._of(self._against, event.stream).set(ratio)

    def _observe(self, stream: str, rows: Mapping[int, int], partitions: int) -> None:
        """A whole batch. One of which this replica received only some parts is exported when a plan is made from it."""
        if any(rows.values()):
            loads = events.loads_of(rows, partitions)
            self._received(stream, "observed")
            self._of(self._observed, stream).set(load_imbalance(loads))
            self._loads(stream, loads, "observed")

    def _scale_advised(self, event: events.ScaleAdvised) -> None:
        self._received(event.stream, "scale")
        self._of(self._scale, event.stream, "reduce").set(event.reduce_tasks)
        if event.map_tasks:
            self._of(self._scale, event.stream, "map").set(event.map_tasks)
        else:  # unknown: an autoscaler must not read 0
            self._drop(self._scale, event.stream, "map")
        self._of(self._zone, event.stream).set(event.zone)

    # -- rounds and the store

    def _round_merged(self, event: events.RoundMerged) -> None:
        self._of(self._rounds, event.stream, event.outcome).inc()
        self._round_seconds.observe(event.seconds)
        self._of(self._dsync, event.stream).set(event.dsync)

    def _agents_seen(self, event: events.AgentsSeen) -> None:
        self._received(event.stream, "round")
        self._of(self._agents, event.stream).set(event.agents)
        self._of(self._dsync, event.stream).set(event.dsync)

    def _store_called(self, event: events.StoreCalled) -> None:
        self._store.observe(event.seconds, event.op)
        if event.op not in self._ops:
            self._ops.add(event.op)
            self._store_errors.labels(event.op)  # exported as 0 from the beginning
        if event.error is not None and event.error not in _ANSWERS:
            self._store_errors.labels(event.op).inc()
        if event.quota:
            self._over_quota.labels(event.quota).inc()
