"""The demo itself: runs every batch through both arms' queries, one after the other, and measures them.

- ``hash``: ``foreachBatch`` with ``repartition(n, key)``, Spark as it comes, AQE on.
- ``unskew``: ``foreachBatch`` by ``Unskew.for_each_batch``: each batch goes the way that would have been cheapest so
  far, by a plan from those before or by a count of its own rows. The demo waits for the next plan at the end of a
  batch, so counting and planning are in the arm's time.

Which arm goes first alternates. Both run once before the first batch, unmeasured: Java, Python workers and kernels are
slow at first, and that would count against the arm that goes first.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from unskew.client import Client
from unskew.client.testing import embedded
from unskew.core.dalton.qtable import QTable
from unskew.core.plan.plan import Plan
from unskew.spark.demo.agents import Agents, Round
from unskew.spark.demo.local import local_spark
from unskew.spark.demo.queries import Query, StalledError, checkpoint_of
from unskew.spark.demo.stream import SCHEMA, Demo, Stream, folder_of, make_stream
from unskew.spark.demo.work import MeasuredRun, Proof, job, prove
from unskew.spark.frame.histogram import Sampling
from unskew.spark.session import Unskew
from unskew.spark.streaming.foreach import ForEachBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ARMS", "DemoBatch", "Outcome", "Step", "Watcher", "play"]

HASH, UNSKEW = ARMS = ("hash", "unskew")
_KEY, _SPREAD = "word", "id"
_TIMEOUT = 60.0  # seconds for a call to the embedded service, while two cores are busy with Spark
_SAMPLED = 60_000  # rows of the sample: enough for so few partitions
_WARM_ROWS = 12_000
_WARM, _WARM_AGENTS = "demo-warm", "demo-warm-agents"


@dataclass(frozen=True)
class DemoBatch:
    """A batch by both arms. ``plan`` is the plan of unskew's arm, None for plain hash; ``counted``: made from a count
    of the batch's own rows; ``in_flight``: placed by them without a plan; ``changed``: other keys become hot with this
    batch; ``learned``: imbalance of the agents; ``began``: seconds since the agents started."""

    number: int
    hot: str
    share: float
    changed: bool
    hash: MeasuredRun
    unskew: MeasuredRun
    plan: Plan | None
    learned: float
    began: float
    counted: bool = False
    in_flight: bool = False

    @property
    def placed_by(self) -> str:
        """Plain hash, a count of its own rows or they in flight, the number of the service's plan, or a plan of the
        driver's."""
        if self.plan is None:
            return "inflight" if self.in_flight else "hash"
        return "counted" if self.counted else str(self.plan.version.number or "driver")

    @property
    def known(self) -> bool:
        """Whether its plan was made for its hot keys."""
        return self.in_flight or (self.plan is not None and (self.counted or not self.changed))

    @property
    def faster(self) -> float:
        return self.hash.seconds / self.unskew.seconds


@dataclass(frozen=True)
class Outcome:
    """The results of the demo."""

    demo: Demo
    stream: Stream
    batches: tuple[DemoBatch, ...]
    rounds: tuple[Round, ...]
    table: QTable | None
    proof: Proof
    spark: str
    cores: int
    seconds: float

    def of(self, arm: str, batches: Sequence[DemoBatch] | None = None) -> tuple[MeasuredRun, ...]:
        """An arm's runs of these batches, or of all."""
        chosen = self.batches if batches is None else batches
        return tuple(batch.hash if arm == HASH else batch.unskew for batch in chosen)

    def total(self, arm: str, batches: Sequence[DemoBatch] | None = None) -> float:
        return sum((ran.seconds for ran in self.of(arm, batches)), 0.0)

    def longest(self, arm: str, batches: Sequence[DemoBatch] | None = None) -> float:
        """The seconds of the task that worked longest."""
        return max((ran.longest for ran in self.of(arm, batches)), default=0.0)

    @property
    def faster(self) -> float:
        return self.total(HASH) / self.total(UNSKEW)

    @property
    def lost(self) -> tuple[DemoBatch, ...]:
        """Batches in which hash was the faster one."""
        return tuple(batch for batch in self.batches if batch.faster < 1.0)

    @property
    def planned(self) -> tuple[DemoBatch, ...]:
        """Batches whose plan was made for their hot keys."""
        return tuple(batch for batch in self.batches if batch.known)


@dataclass(frozen=True)
class Step:
    """The arm and the batch that run now; ``share`` is that of the batch's hottest key."""

    batch: int
    hot: str
    share: float
    arm: str


class Watcher(Protocol):
    """Shows the progress."""

    def phase(self, what: str) -> None:
        """Something other than a batch begins."""

    def page(self, address: str) -> None:
        """The address of the service's page."""

    def running(self, step: Step) -> None:
        """An arm begins."""

    def done(self, batch: DemoBatch) -> None:
        """Both arms have ended."""


def play(demo: Demo, folder: Path, watcher: Watcher, service: str = "") -> Outcome:
    """Run the demo. Its files stay in ``folder``; ``service``: the target of a running one; else one is started."""
    began = time.monotonic()
    watcher.phase("making the stream")
    stream = make_stream(demo)
    for batch in range(demo.batches):
        stream.write(folder / "stream", batch)
    with ExitStack() as stack:
        watcher.phase("starting Spark")
        spark = stack.enter_context(local_spark(demo.partitions, folder))
        target = service or _started(stack, watcher)
        sk = stack.enter_context(_session(spark, "demo", demo, target))
        watcher.phase("warming up: Java, Python workers, kernels")
        _warm_up(spark, demo, folder, target)
        agents = stack.enter_context(closing(Agents(target, demo)))
        run = _DemoRun(demo, stream, folder, spark, sk, agents, watcher)
        batches = tuple(run.batches())
        watcher.phase("comparing the results")
        proof = prove(spark, folder / "stream", folder / HASH, folder / UNSKEW)
        seconds = time.monotonic() - began
        rounds, table = tuple(agents.log.rounds), agents.log.table
        return Outcome(demo, stream, batches, rounds, table, proof, spark.version, _cores(), seconds)


def _started(stack: ExitStack, watcher: Watcher) -> str:
    watcher.phase("starting the service")
    own = stack.enter_context(embedded())
    watcher.page(f"{own.http}/")
    return own.target


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _session(spark: SparkSession, name: str, demo: Demo, service: str) -> Unskew:
    return Unskew(
        spark,
        stream=name,
        partitions=demo.partitions,
        service=service,
        seed=demo.seed,
        sampling=Sampling(min(1.0, _SAMPLED / demo.rows), demo.seed),
        required=True,
        timeout=_TIMEOUT,
    )


def _warm_up(spark: SparkSession, demo: Demo, folder: Path, service: str) -> None:
    """Run each arm twice and the agents once on rows of another seed, without measuring them."""
    small = replace(demo, seed=demo.seed ^ 1, batches=2, rows=_WARM_ROWS, wait=0.0)
    stream = make_stream(small)
    with closing(Agents(service, small, _WARM_AGENTS)) as agents, _session(spark, _WARM, small, service) as sk:
        agents.feed(stream.hashes_of(0))
        for batch in range(2):
            stream.write(folder / "warm", batch)
            df = spark.read.schema(SCHEMA).parquet(str(folder_of(folder / "warm", batch)))
            plan = sk.plan(df, _KEY, _SPREAD)
            for arm, placed in ((HASH, _hashed(df, small)), (UNSKEW, sk.repartition(df, _KEY, plan))):
                job(placed, small.partitions, 0.0, folder_of(folder / "warmed" / arm, batch))
        agents.settle()
    with Client(service, timeout=_TIMEOUT) as client:  # so that the service's page shows the demo's own streams only
        for name in (_WARM, _WARM_AGENTS):
            client.delete_stream(name)


@dataclass(eq=False)
class _DemoRun:
    demo: Demo
    stream: Stream
    folder: Path
    spark: SparkSession
    sk: Unskew
    agents: Agents
    watcher: Watcher
    plan: Plan | None = None
    counted: bool = False
    in_flight: bool = False
    ran: dict[str, MeasuredRun] = field(default_factory=dict)

    def batches(self) -> Iterator[DemoBatch]:
        homes = {arm: self.folder / "queries" / arm for arm in ARMS}
        planned = self.sk.for_each_batch(
            self._unskew, _KEY, str(checkpoint_of(homes[UNSKEW])), "demo", spread=_SPREAD, threshold=0
        )
        with (
            closing(planned),
            Query(self.spark, homes[HASH], self._hash) as hashed,
            Query(self.spark, homes[UNSKEW], partial(self._settled, planned)) as placed,
        ):
            for number in range(self.demo.batches):
                yield self._batch(number, {HASH: hashed, UNSKEW: placed})

    def _batch(self, number: int, queries: Mapping[str, Query]) -> DemoBatch:
        hot, share = self.stream.hottest(number)
        began = self.agents.log.clock()
        self.agents.feed(self.stream.hashes_of(number))
        for arm in ARMS if number % 2 == 0 else ARMS[::-1]:
            self.watcher.running(Step(number, hot, share, arm))
            seconds = queries[arm].run(self.folder / "stream", number)
            self.ran[arm] = replace(self.ran[arm], seconds=seconds)
        batch = DemoBatch(
            number,
            hot,
            share,
            number > 0 and number % self.demo.change == 0,
            self.ran[HASH],
            self.ran[UNSKEW],
            self.plan,
            self.agents.settle(),
            began,
            self.counted,
            self.in_flight,
        )
        self.watcher.done(batch)
        return batch

    def _hash(self, df: DataFrame, number: int) -> None:
        self._job(HASH, _hashed(df, self.demo), number)

    def _unskew(self, placed: DataFrame, number: int) -> None:
        bound = self.sk.plans.context.batch
        self.plan = bound.plan if bound is not None and bound.plan is not None and bound.plan.info.rows else None
        self.counted = bound is not None and bound.counted
        self.in_flight = bound is not None and bound.in_flight
        self._job(UNSKEW, placed, number)

    def _settled(self, planned: ForEachBatch, df: DataFrame, number: int) -> None:
        """Run the batch and wait for the next plan, which a stream would not do: so planning is in the arm's time."""
        planned(df, number)
        if not planned.settle(_TIMEOUT):
            raise StalledError(f"no plan was made after batch {number} in {_TIMEOUT:.0f} s")

    def _job(self, arm: str, placed: DataFrame, number: int) -> None:
        out = folder_of(self.folder / arm, number)
        self.ran[arm] = MeasuredRun(0.0, *job(placed, self.demo.partitions, self.demo.wait, out))


def _hashed(df: DataFrame, demo: Demo) -> DataFrame:
    return df.repartition(demo.partitions, _KEY)
