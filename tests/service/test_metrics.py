"""Every metric of DESIGN section 6 is there, and moves when what it counts happens; what is gone is not told on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.service.engines import Cuttable, Log, a_report, engines, run, skewed, until
from tests.service.faces import Served, digest_of, histogram, report, served
from unskew.core.plan.plan import PlanInfo, Version
from unskew.core.rounds.round_digests import NOTHING_SEEN
from unskew.core.stream_spec import BatchWork, Part, StreamSpec, Work
from unskew.core.version import __version__
from unskew.service.engine.engine import Engine
from unskew.service.errors import NotFoundError, UnavailableError
from unskew.service.events.events import (
    AgentsSeen,
    BatchSeen,
    Event,
    PlanBuilt,
    PlanServed,
    RoundMerged,
    ScaleAdvised,
    StoreCalled,
    StreamChanged,
    WatchersSeen,
    WorkSeen,
)
from unskew.service.events.metrics import Metrics
from unskew.v1 import partitioner_pb2 as pb
from unskew.v1.partitioner_pb2_grpc import PartitionerServiceStub
from unskew.wire import histograms, round_messages
from unskew.wire.streams import version_to_message

DESIGN = Path(__file__).resolve().parents[2] / "docs" / "design.md"
TOKENS = f"{digest_of('root')} root admin *\n{digest_of('small')} small admin small* max_streams=1\n"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(page: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def told(metrics: Metrics) -> Samples:
    return parsed(generate_latest(metrics.registry).decode())


def key(name: str, **labels: object) -> tuple[str, tuple[tuple[str, str], ...]]:
    return f"unskew_{name}", tuple(sorted((label, str(value)) for label, value in labels.items()))


# -- each by a real action ------------------------------------------------------------------------------------


class World:
    """A guarded service with an engine, and somebody who may do everything."""

    def __init__(self, running: Served, channel: grpc.Channel) -> None:
        self.running, self.stub = running, PartitionerServiceStub(channel)
        self.names = 0
        self.me = [("authorization", "Bearer root")]

    def page(self) -> Samples:
        headers = {"authorization": "Bearer root"}
        return parsed(httpx.get(self.running.metrics, headers=headers, trust_env=False, timeout=60).text)

    def stream(self, **spec: Any) -> str:
        """A new one."""
        self.names += 1
        name = f"s{self.names}"
        given = pb.StreamSpec(**{"partitions": 4, "policy": "balanced", "dsync_seconds": 1.0, **spec})
        self.stub.PutStream(pb.PutStreamRequest(stream=name, spec=given), metadata=self.me)
        return name

    def planned(self, stream: str, batch: int = 1) -> pb.BuildPlanResponse:
        part = Part("app", batch)
        self.stub.ReportHistogram(histograms.chunks(histogram(), stream, part), metadata=self.me)
        return self.stub.BuildPlan(pb.BuildPlanRequest(stream=stream, batch=batch, fresh=True), metadata=self.me)

    def worked(self, stream: str, *rows: int, batch: int = 1, version: Version | None = None) -> None:
        work = [pb.PartitionWork(partition=at, rows=count, seconds=1.0) for at, count in enumerate(rows)]
        times = {"interval_seconds": 2.0, "processing_seconds": 1.8, "map_seconds": 0.9, "reduce_seconds": 0.9}
        about = pb.Part(source="app", batch=batch, parts=1)
        bound = None if version is None else version_to_message(version)
        asked = pb.ReportBatchRequest(stream=stream, part=about, partitions=work, version=bound, **times)
        self.stub.ReportBatch(asked, metadata=self.me)

    def version(self, stream: str) -> Version:
        found = self.stub.GetStream(pb.GetStreamRequest(stream=stream), metadata=self.me).stream.version
        return Version(found.incarnation, found.number)

    def synced(self, stream: str) -> None:
        asked = pb.SyncRequest(stream=stream, report=round_messages.report_to_message(report(4)), wait_seconds=10)
        assert self.stub.Sync(asked, metadata=self.me).HasField("answer")


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with served("engine", tokens=TOKENS) as running, grpc.insecure_channel(running.target) as channel:
        yield World(running, channel)


def planned(name: str, **labels: object) -> Callable[[World], object]:
    def act(world: World) -> object:
        stream = world.stream()
        world.planned(stream)
        return key(name, stream=stream, **labels)

    return act


def advised(world: World) -> object:
    """Before the first batch: count it."""
    stream = world.stream()
    world.stub.BuildPlan(pb.BuildPlanRequest(stream=stream, batch=1), metadata=world.me)
    return key("ways_advised_total", stream=stream, way="same")


def synced(name: str, **labels: object) -> Callable[[World], object]:
    def act(world: World) -> object:
        stream = world.stream()
        world.synced(stream)
        return key(name, stream=stream, **labels)

    return act


def worked(name: str) -> Callable[[World], object]:
    def act(world: World) -> object:
        stream = world.stream()
        world.planned(stream)
        world.worked(stream, 10, 10, 10, 30, version=world.version(stream))
        return key(name, stream=stream)

    return act


def scaled(name: str, **labels: object) -> Callable[[World], object]:
    def act(world: World) -> object:
        stream = world.stream()
        world.planned(stream)
        for batch in range(12):
            world.worked(stream, 10, 10, 10, 30, batch=batch)
        world.stub.GetScale(pb.GetScaleRequest(stream=stream), metadata=world.me)
        return key(name, stream=stream, **labels)

    return act


def behind(world: World) -> object:
    """A batch of the first of two plans."""
    stream = world.stream()
    world.planned(stream)
    first = world.version(stream)
    world.planned(stream, 2)
    world.worked(stream, 1, 1, 1, 1, version=first)
    return key("versions_behind", stream=stream)


def moved(world: World) -> object:
    """By whole keys, where one plan had none of them."""
    stream = world.stream(policy="kip")
    world.planned(stream)
    spec = pb.StreamSpec(partitions=3, policy="kip", dsync_seconds=1.0)
    world.stub.PutStream(pb.PutStreamRequest(stream=stream, spec=spec), metadata=world.me)
    world.planned(stream, 2)
    return key("moved_share", stream=stream)


def aged(world: World) -> object:
    stream = world.stream()
    world.planned(stream)
    return key("plan_age_seconds", stream=stream)


def rejected(world: World) -> object:
    with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
        world.stub.GetStream(pb.GetStreamRequest(stream="x"), metadata=[("authorization", "Bearer who")])
    return key("rejected_total", reason="unknown credential")


def limited(world: World) -> object:
    me = [("authorization", "Bearer small")]
    spec = pb.StreamSpec(partitions=2)
    world.stub.PutStream(pb.PutStreamRequest(stream="small-1", spec=spec), metadata=me)
    with pytest.raises(grpc.RpcError, match="RESOURCE_EXHAUSTED"):
        world.stub.PutStream(pb.PutStreamRequest(stream="small-2", spec=spec), metadata=me)
    return key("rejected_total", reason="limit")


def plain(name: str, **labels: object) -> Callable[[World], object]:
    """One that is not of a stream."""

    def act(world: World) -> object:
        stream = world.stream()
        world.planned(stream)
        world.synced(stream)
        return key(name, **labels)

    return act


ACTIONS: dict[str, Callable[[World], Any]] = {
    "plan_builds_total{stream,policy,outcome}": planned("plan_builds_total", policy="balanced", outcome="new"),
    "ways_advised_total{stream,way}": advised,
    "plan_build_seconds": plain("plan_build_seconds_count"),
    "plan_version": planned("plan_version"),
    "plan_age_seconds": aged,
    "versions_behind": behind,
    "partition_load{stream,partition,routing}": planned("partition_load", partition=0, routing="plan"),
    "partition_load by hash": planned("partition_load", partition=3, routing="hash"),
    "predicted_imbalance": planned("predicted_imbalance"),
    "observed_imbalance": worked("observed_imbalance"),
    "imbalance_against_plan": worked("imbalance_against_plan"),
    "hot_keys": planned("hot_keys"),
    "fragments": planned("fragments"),
    "moved_share": moved,
    "sync_rounds_total{stream,outcome}": synced("sync_rounds_total", outcome="complete"),
    "sync_round_seconds": plain("sync_round_seconds_count"),
    "dsync_seconds": synced("dsync_seconds"),
    "agents": synced("agents"),
    "scale_partitions{stream,stage}": scaled("scale_partitions", stage="reduce"),
    "scale_zone": scaled("scale_zone"),
    "store_seconds{op}": plain("store_seconds_count", op="put_plan"),
    "rpc_seconds{method,code}": plain("rpc_seconds_count", method="BuildPlan", code="OK"),
    "rejected_total{reason}": rejected,
    "rejected_total by a limit": limited,
}
BELOW = {"store_errors_total{op}"}  # where a store can be cut off
BELOW |= {"over_quota_total{quota}"}  # in tests/attack, where bounds are small


@pytest.mark.parametrize("name", ACTIONS)
def test_a_metric_moves_when_what_it_tells_happens(world: World, name: str) -> None:
    """From nothing, or from what it was, to a number above 0; its labels are those of the design."""
    before = world.page()
    series = ACTIONS[name](world)
    after = world.page()
    assert after.get(series, 0.0) > before.get(series, 0.0)


def test_every_metric_of_the_design_is_tried_here() -> None:
    """By its name and, where the design gives them, its labels."""
    text = DESIGN.read_text().partition("Metrics (`unskew_` prefix")[2].partition("\n\n")[0]
    listed = {found.removeprefix("unskew_") for found in re.findall(r"`(unskew_[a-z_]+(?:\{[a-z,]+\})?)`", text)}
    assert len(listed) == 23
    assert listed <= set(ACTIONS) | BELOW


def test_no_label_has_a_key_and_no_series_outlives_its_stream(world: World) -> None:
    """Labels are names of streams, policies, stages, methods; when a stream goes, they go."""
    stream = world.stream()
    world.planned(stream)
    world.synced(stream)
    world.worked(stream, 1, 2, 3, 4, version=world.version(stream))
    mine = [labels for _, labels in world.page() if ("stream", stream) in labels]
    assert len(mine) > 20
    allowed = {"stream", "policy", "outcome", "partition", "routing", "stage", "what", "way"}
    assert {name for labels in mine for name, _ in labels} <= allowed
    world.stub.DeleteStream(pb.DeleteStreamRequest(stream=stream), metadata=world.me)
    assert not [labels for _, labels in world.page() if ("stream", stream) in labels]


# -- an observer by itself ------------------------------------------------------------------------------------


def built(
    number: int, *loads: int, by_hash: tuple[int, ...] = (), outcome: str = "new", stream: str = "s"
) -> PlanBuilt:
    info = PlanInfo(stream=stream, version=Version(1, number), loads=loads)
    return PlanBuilt(stream, "kip", outcome, "why", 0.1, "digest", len(loads), number, 0, info, by_hash)


def batch(number: int | None, *rows: int, part: Part | None = None, latest: int | None = None) -> BatchSeen:
    work = BatchWork(
        tuple(Work(at, rows=count) for at, count in enumerate(rows)),
        version=None if number is None else Version(1, number),
    )
    return BatchSeen("s", part or Part("app", 1), work, None if latest is None else Version(1, latest))


def test_an_older_plan_that_is_asked_for_again_does_not_hide_the_latest() -> None:
    """It is counted as asked for, no more."""
    metrics = Metrics()
    for event in (built(1, 5, 5), built(2, 9, 1), built(1, 5, 5, outcome="repeated")):
        metrics(event)
    found = told(metrics)
    assert found[key("plan_version", stream="s")] == 2
    assert found[key("hot_keys", stream="s")] == 2
    assert found[key("partition_load", stream="s", partition=0, routing="plan")] == 9
    assert found[key("plan_builds_total", stream="s", policy="kip", outcome="repeated")] == 1


def test_a_plan_that_another_replica_made_is_the_latest_too() -> None:
    """It is seen when it is served; its age counts from then."""
    now = 100.0
    metrics = Metrics(lambda: now)
    metrics(built(1, 5, 5))
    now = 130.0
    metrics(PlanServed("s", Version(1, 4), stale=False))
    metrics(PlanServed("s", Version(1, 1), stale=False))  # by its version
    now = 135.0
    assert told(metrics)[key("plan_version", stream="s")] == 4
    assert told(metrics)[key("plan_age_seconds", stream="s")] == 5.0


def test_versions_behind_is_of_the_source_that_was_most_behind_when_it_reported_last() -> None:
    """Another incarnation is at least all plans of this one behind; who is silent for long is none."""
    now = 0.0
    metrics = Metrics(lambda: now)
    behind = key("versions_behind", stream="s")
    metrics(batch(7, 1, part=Part("slow", 1), latest=9))
    metrics(batch(9, 1, part=Part("fast", 1), latest=9))
    assert told(metrics)[behind] == 2
    metrics(BatchSeen("s", Part("other", 1), BatchWork((), version=Version(0, 100)), Version(1, 12)))
    assert told(metrics)[behind] == 12
    now = 3599.0
    metrics(batch(11, 1, part=Part("fast", 2), latest=12))
    now = 3601.0
    assert told(metrics)[behind] == 1


def test_a_source_that_reports_to_another_replica_now_falls_no_further_behind_here() -> None:
    """Of plans that are made after its last batch it may have used every one."""
    metrics = Metrics()
    behind = key("versions_behind", stream="s")
    metrics(batch(8, 1, part=Part("app", 1), latest=9))
    metrics(built(30, 1))
    assert told(metrics)[behind] == 1


def test_it_is_told_when_a_replica_heard_last_of_what() -> None:
    """Several tell of one stream; by this a query knows whom to believe."""
    now = 0.0
    metrics = Metrics(lambda: now)
    events: dict[str, Event] = {
        "plan": built(3, 5, 5),
        "report": batch(3, 1, part=Part("a", 1, part=0, parts=2)),
        "observed": WorkSeen("s", 1, BatchWork((Work(0, rows=3),))),
        "round": AgentsSeen("s", 1, 20.0),
        "scale": ScaleAdvised("s", 4, 4, "hold", 2, "why"),
    }
    for what, event in events.items():
        before, now = told(metrics), now + 10.0
        metrics(event)
        heard = {of: told(metrics).get(key("heard_timestamp_seconds", stream="s", what=of)) for of in events}
        was = {of: before.get(key("heard_timestamp_seconds", stream="s", what=of)) for of in events}
        assert heard == {**was, what: now}
    now += 10.0
    metrics(built(1, 9, 1, outcome="repeated"))
    assert told(metrics)[key("heard_timestamp_seconds", stream="s", what="plan")] == 10.0


def test_a_counter_is_told_before_it_counts() -> None:
    """Of one that begins with its first event, Prometheus sees no increase by that one."""
    metrics = Metrics()
    metrics(StoreCalled("put_plan", 0.1))
    metrics(built(1, 5, 5))
    found = told(metrics)
    for reason in ("denied", "limit", "no credential", "unknown credential", "unknown scheme"):
        assert found[key("rejected_total", reason=reason)] == 0.0
    for what in ("news", "plan", "report", "round"):
        assert found[key("skipped_total", what=what)] == 0.0
    assert found[key("store_errors_total", op="put_plan")] == 0.0
    assert found[key("stale_plans_total", stream="s")] == 0.0


def test_the_release_that_runs_is_told() -> None:
    assert told(Metrics())[key("build_info", version=__version__)] == 1.0


def test_how_many_map_tasks_is_not_told_while_nobody_knows() -> None:
    """Who scales by the metric would read 0 and take the workers away."""
    metrics = Metrics()
    stage = {of: key("scale_partitions", stream="s", stage=of) for of in ("map", "reduce")}
    metrics(ScaleAdvised("s", 8, 4, "hold", 2, "why"))
    assert (told(metrics)[stage["map"]], told(metrics)[stage["reduce"]]) == (8, 4)
    metrics(ScaleAdvised("s", 0, 4, "hold", 2, "why"))
    assert stage["map"] not in told(metrics)
    assert told(metrics)[stage["reduce"]] == 4


def test_a_plan_that_is_kept_is_shown_for_the_rows_that_hashing_is_shown_for() -> None:
    """It was made from fewer: bars of 10 and of 100 rows say nothing of skew."""
    metrics = Metrics()
    info = PlanInfo(stream="s", version=Version(1, 1), loads=(5, 5))
    metrics(PlanBuilt("s", "kip", "kept", "why", 0.1, "digest", 2, 1, 0, info, by_hash=(90, 10), by_plan=(60, 40)))
    found = told(metrics)
    assert found[key("partition_load", stream="s", partition=0, routing="plan")] == 60
    assert found[key("partition_load", stream="s", partition=0, routing="hash")] == 90
    assert found[key("predicted_imbalance", stream="s")] == 1.2


def test_a_batch_is_observed_over_all_partitions_that_it_was_for() -> None:
    metrics = Metrics()
    seen = BatchSeen("s", Part("app", 1), BatchWork((Work(0, rows=8),)), partitions=4)
    metrics(seen)
    assert told(metrics)[key("observed_imbalance", stream="s")] == 4.0
    metrics(WorkSeen("s", 1, BatchWork((Work(0, rows=8),)), 8))
    assert told(metrics)[key("observed_imbalance", stream="s")] == 8.0


def test_no_counter_has_a_series_more_than_its_own() -> None:
    """Prometheus' library adds the time of creation to each, which doubles what a stream costs."""
    metrics = Metrics()
    metrics(built(1, 5, 5))
    assert not [name for name, _ in told(metrics) if name.endswith("_created")]


def test_observed_is_compared_with_the_plan_of_the_batch_not_with_the_latest() -> None:
    """A batch that ran under an old plan says nothing of the new one."""
    metrics = Metrics()
    metrics(built(2, 40, 20, 20, 20))
    seen = batch(1, 30, 10, 10, 10, latest=2)
    promised = PlanInfo(version=Version(1, 1), loads=(25, 25, 25, 25))
    metrics(BatchSeen("s", seen.part, seen.batch, seen.latest, promised))
    found = told(metrics)
    assert found[key("predicted_imbalance", stream="s")] == 1.6
    assert found[key("observed_imbalance", stream="s")] == 2.0
    assert found[key("imbalance_against_plan", stream="s")] == 2.0


def test_a_batch_is_observed_when_all_of_it_came_in_whatever_order() -> None:
    """Parts of two batches and two sources between each other; a part of a batch alone says nothing."""
    metrics = Metrics()
    observed = key("observed_imbalance", stream="s")
    metrics(batch(None, 30, part=Part("a", 1, part=0, parts=2)))
    metrics(batch(None, 9, 9, part=Part("b", 1, part=0, parts=2)))
    assert observed not in told(metrics)
    metrics(batch(None, 0, 10, part=Part("a", 1, part=1, parts=2)))
    assert told(metrics)[observed] == 1.5
    metrics(WorkSeen("s", 1, BatchWork((Work(0, rows=3), Work(1, rows=1), Work(3, rows=0)))))
    assert told(metrics)[observed] == 3.0


def test_loads_are_told_for_256_partitions_and_those_that_are_gone_go() -> None:
    """More would be too many series; then the imbalance is told alone."""
    metrics = Metrics()

    def series(routing: str) -> int:
        return sum(name == "unskew_partition_load" and ("routing", routing) in labels for name, labels in told(metrics))

    metrics(built(1, *[3] * 256, by_hash=(3,) * 256))
    assert (series("plan"), series("hash")) == (256, 256)
    metrics(built(2, 4, 4, by_hash=(7, 1)))
    assert (series("plan"), series("hash")) == (2, 2)
    metrics(built(3, 4, 4, outcome="kept"))
    assert (series("plan"), series("hash")) == (2, 2)
    metrics(built(4, *[3] * 256, 6))
    assert (series("plan"), series("hash")) == (0, 0)
    assert told(metrics)[key("predicted_imbalance", stream="s")] == pytest.approx(6 * 257 / (256 * 3 + 6))


def test_of_too_many_streams_those_not_heard_of_for_long_are_dropped() -> None:
    """Prometheus keeps every series that it ever saw: a thousand streams are told."""
    metrics = Metrics()
    for number in range(1001):
        metrics(AgentsSeen(f"s{number}", 1, 20.0))
        metrics(AgentsSeen("often", 1, 20.0))
    streams = {dict(labels)["stream"] for _, labels in told(metrics) if "stream" in dict(labels)}
    assert len(streams) == 1000
    assert {"often", "s1000"} <= streams
    assert not {"s0", "s1"} & streams


def test_what_comes_after_a_stream_is_deleted_brings_nothing_back() -> None:
    """A watch ends because its stream is gone, and after that."""
    metrics = Metrics()
    metrics(WatchersSeen("s", 1))
    metrics(StreamChanged("s", "deleted"))
    metrics(WatchersSeen("s", 0))
    assert not [labels for _, labels in told(metrics) if ("stream", "s") in labels]


def test_a_store_that_fails_is_counted_by_operation_and_told_as_down() -> None:
    metrics = Metrics()
    metrics(StoreCalled("put_plan", 0.1, "UnavailableError"))
    metrics.store_up(up=False)
    assert told(metrics)[key("store_errors_total", op="put_plan")] == 1
    assert told(metrics)[key("store_up")] == 0
    metrics.store_up(up=True)
    assert told(metrics)[key("store_up")] == 1


# -- and the engine that tells it -----------------------------------------------------------------------------


def test_plans_served_from_memory_while_the_store_is_away_are_counted() -> None:
    async def main() -> None:
        store, metrics = Cuttable(), Metrics()
        async with engines(store, observer=metrics) as (engine,):
            await engine.put_stream("s", StreamSpec(4, "balanced"))
            await engine.report_histogram("s", Part("app", 1), skewed())
            await engine.build_plan("s", 1, fresh=True)
            store.cut = True
            while not (await engine.get_plan("s")).stale:  # until what was read is not taken for present any longer
                await asyncio.sleep(0.01)
            assert told(metrics)[key("stale_plans_total", stream="s")] == 1
            with pytest.raises(UnavailableError):
                await engine.get_stream("s")
            assert told(metrics)[key("store_errors_total", op="stream")] >= 1
            store.cut = False

    run(main())


def test_what_one_replica_deletes_is_not_told_by_the_others() -> None:
    """They hear of it, look, and forget."""

    async def main() -> None:
        found = [Metrics(), Metrics()]
        store = Cuttable()
        async with engines(store, observer=found[0]) as (first,):
            second = Engine(store, observer=found[1])
            await second.start()
            await first.put_stream("s", StreamSpec(4, "balanced"))
            await second.report_histogram("s", Part("app", 1), skewed())
            await second.build_plan("s", 1, fresh=True)
            assert key("plan_version", stream="s") in told(found[1])
            await first.delete_stream("s")
            await until(lambda: key("plan_version", stream="s") not in told(found[1]))
            with pytest.raises(NotFoundError):
                await second.get_stream("s")
            await second.close()

    run(main())


def test_a_round_takes_from_its_first_report_to_its_answer() -> None:
    """Also the time that it was open for, waiting for an agent that did not come."""

    async def main() -> None:
        log = Log()
        async with engines(observer=log) as (engine,):
            await engine.put_stream("s", StreamSpec(4, "balanced", dsync=0.2, dsync_min=0.1))
            both = [engine.sync("s", a_report(name, dsync=0.2), 60.0, NOTHING_SEEN) for name in ("a", "b")]
            await asyncio.gather(*both)
            await engine.sync("s", a_report("a", 2, dsync=0.2), 60.0, NOTHING_SEEN)
            (late,) = (event for event in log.of(RoundMerged) if event.outcome == "deadline")
            assert 0.1 < late.seconds < 60.0

    run(main())
