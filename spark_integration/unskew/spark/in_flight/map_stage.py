"""The map stage of a shuffle, run by itself, and a frame of what it has written, read as we say.

The one adapter to what Spark does not promise: ``ShuffleExchangeExec`` (``submitShuffleJob``, ``getShuffleRDD``),
``AdaptiveSparkPlanExec.finalPhysicalPlan``, ``LogicalRDD``, the same in Spark 4.0 to 4.3 but for one argument. Where
anything is other than expected ``NotAsExpectedError`` is raised, and the caller places rows in another way.

The shuffle is Spark's own ``repartition(cells, key)``: lost map output is written again, tasks are retried, stages
rolled back as ever. What is decided here is which of its partitions each reduce task reads, before the first one runs.
With AQE on the frame below is run adaptively. Shuffle files go when the frame has gone: nothing else refers to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from unskew.spark.frame.jvm import spark_version
from unskew.spark.place.repartition import partition_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from unskew.core.in_flight.assign import TaskRanges

__all__ = ["MapStage", "NotAsExpectedError", "run_map_stage"]

_DESCRIPTION = "spark.job.description"
_NO = False  # not streaming, and the flag below
_FLAG = (4, 3)  # the Spark whose LogicalRDD has one argument more


class NotAsExpectedError(Exception):
    """Spark's internals are other than this module knows them."""


@dataclass(frozen=True, eq=False)
class MapStage:
    """A shuffle whose map stage has run: ``df`` is the frame that Spark made it for, ``tasks`` how many map tasks have
    written it. ``metrics``: what was observed while it ran."""

    df: DataFrame
    tasks: int
    metrics: tuple[Any, ...]
    _exchange: Any

    def frame(self, ranges: TaskRanges, *, whole: bool, column: str | None = None) -> DataFrame:
        """The rows, each task reading its range. Where keys are ``whole`` Spark is told so, by the key: what groups by
        it shuffles no more. ``column`` adds the task's number, as a plan's shuffle has it, and Spark is told that each
        has one partition."""
        try:
            rdd = self._exchange.getShuffleRDD(self._specs(ranges))
            if column is None:
                claim = self._by_key(ranges) if whole else None
                return self._frame(self.df, rdd, claim)
            number = partition_value(self.df, F.spark_partition_id(), len(ranges.ranges))
            numbered = self._frame(self.df, rdd, None).withColumn(column, number)
            return self._frame(numbered, numbered._jdf.queryExecution().toRdd(), self._by_number(numbered, ranges))
        except Py4JError as why:
            raise _unexpected(why) from why

    # -- which rows a task reads ------------------------------------------------------------------------------

    @property
    def _jvm(self) -> Any:
        inner: Any = self.df.sparkSession
        return inner._jvm

    def _specs(self, ranges: TaskRanges) -> Any:
        """As Spark's adaptive execution says it: so many neighbouring partitions, or some map tasks' part of one."""
        context: Any = self.df.sparkSession.sparkContext
        execution = self._jvm.org.apache.spark.sql.execution
        unknown = self._jvm.scala.Option.empty()  # bytes
        array = context._gateway.new_array(execution.ShufflePartitionSpec, len(ranges.ranges))
        for at, one in enumerate(ranges.ranges):
            if one.maps is None:
                array[at] = execution.CoalescedPartitionSpec(one.first, one.last, unknown)
            else:
                array[at] = execution.PartialReducerPartitionSpec(one.first, *one.maps, 1)
        return array

    # -- what Spark is told of the frame ----------------------------------------------------------------------

    def _by_key(self, ranges: TaskRanges) -> Any | None:
        """Keys are whole: clustered by the exchange's own hash, its partitions joined as the ranges say. None where it
        is of anything but the frame's columns."""
        hashed, output = self._exchange.outputPartitioning(), self.df._jdf.queryExecution().analyzed().outputSet()
        if not hashed.references().subsetOf(output):
            return None
        return self._coalesced(hashed, [(one.first, one.last) for one in ranges.ranges])

    def _by_number(self, df: Any, ranges: TaskRanges) -> Any:
        """Rows with the same number are in the same partition. The boundaries are this shuffle's own: no other frame's
        partitioning equals them, so Spark takes no two frames for placed alike but two of one shuffle."""
        attribute = df._jdf.queryExecution().analyzed().output().last()
        seq = self._seq([attribute])
        tasks = len(ranges.ranges)
        hashed = self._jvm.org.apache.spark.sql.catalyst.plans.physical.HashPartitioning(seq, tasks)
        mine = -1 - int(self._exchange.shuffleDependency().shuffleId())
        return self._coalesced(hashed, [(mine, -1 - at) for at in range(tasks)])

    def _coalesced(self, hashed: Any, bounds: Sequence[tuple[int, int]]) -> Any:
        physical = self._jvm.org.apache.spark.sql.catalyst.plans.physical
        return physical.CoalescedHashPartitioning(
            hashed, self._seq([physical.CoalescedBoundary(*each) for each in bounds])
        )

    def _seq(self, values: Sequence[Any]) -> Any:
        listed = self._jvm.java.util.ArrayList()
        for value in values:
            listed.add(value)
        return self._jvm.PythonUtils.toSeq(listed)

    def _frame(self, df: DataFrame, rdd: Any, claim: Any | None) -> DataFrame:
        """A frame of ``rdd`` with the columns, names and size of ``df``."""
        from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

        inner: Any = df
        jvm, session = self._jvm, inner.sparkSession._jsparkSession
        query = inner._jdf.queryExecution()
        none = jvm.scala.Option.empty()
        unknown = jvm.org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning(int(rdd.getNumPartitions()))
        size = jvm.scala.Option.apply(query.optimizedPlan().stats())
        placed = query.analyzed().output(), rdd, claim or unknown, self._seq([]), _NO
        more = (_NO,) if spark_version(df) >= _FLAG else ()
        logical = jvm.org.apache.spark.sql.execution.LogicalRDD(*placed, none, session, size, none, *more)
        made: DataFrame = ClassicFrame(
            jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, logical), inner.sparkSession
        )
        return made


def run_map_stage(df: DataFrame, cells: int, metric: str, description: str) -> MapStage:
    """Run the map stage of ``df``, which a ``repartition`` into so many cells ends, and wait for it: a job with this
    description, of the caller's job group. ``metric``: the name of what ``df`` observes.

    Raises ``NotAsExpectedError``; what fails in the user's own work is raised as Spark raises it."""
    inner: Any = df
    try:
        with _described(inner.sparkSession.sparkContext, description):
            exchange = _run(inner, cells)
        observed = _find(exchange, "CollectMetricsExec", lambda node: str(node.name()) == metric)
        row = observed.collectedMetrics()
        metrics = tuple(row.get(at) for at in range(row.size()))
        return MapStage(df, int(exchange.numMappers()), metrics, exchange)
    except Py4JJavaError:
        raise  # a job's own failure
    except (Py4JError, TypeError) as why:  # TypeError: a class or method is not there
        raise _unexpected(why) from why


def _run(inner: Any, cells: int) -> Any:
    """The exchange, once its map stage has run."""
    plan = inner._jdf.queryExecution().executedPlan()
    if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
        return _exchange(plan.finalPhysicalPlan(), cells)  # which runs all stages below
    exchange = _exchange(plan, cells)
    jvm = inner.sparkSession._jvm
    forever = getattr(jvm.scala.concurrent.duration, "Duration$").__getattr__("MODULE$").Inf()
    jvm.org.apache.spark.util.ThreadUtils.awaitResult(exchange.submitShuffleJob(), forever)
    return exchange


def _exchange(plan: Any, cells: int) -> Any:
    """The exchange on top of a plan: nothing but the stage that holds it may be above."""
    node = plan
    for _ in range(4):
        name = str(node.getClass().getSimpleName())
        if name == "ShuffleExchangeExec" and int(node.outputPartitioning().numPartitions()) == cells:
            return node
        if name not in ("ResultQueryStageExec", "ShuffleQueryStageExec"):
            break
        node = node.plan()
    raise NotAsExpectedError(f"{plan.getClass().getSimpleName()} where the exchange was expected")


def _find(plan: Any, name: str, fits: Any) -> Any:
    """The first node of this name that fits, of a plan and the stages that it reads."""
    if str(plan.getClass().getSimpleName()) == name and fits(plan):
        return plan
    for child in _children(plan):
        try:
            return _find(child, name, fits)
        except NotAsExpectedError:
            continue
    raise NotAsExpectedError(f"no {name} in the plan")


def _children(plan: Any) -> Iterator[Any]:
    children = plan.children()
    for at in range(int(children.size())):
        yield children.apply(at)


@contextmanager
def _described(context: Any, text: str) -> Iterator[None]:
    """Jobs of this thread say this of themselves in Spark's UI, where the user has not said something else."""
    before = context.getLocalProperty(_DESCRIPTION)
    if before is None:
        context.setLocalProperty(_DESCRIPTION, text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)


def _unexpected(why: Exception) -> NotAsExpectedError:
    return NotAsExpectedError(str(why).splitlines()[0][:300])
