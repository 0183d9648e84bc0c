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

from unskew.spark.frame.jvm import java_class, spark_version
from unskew.spark.in_flight.bulk_values import array_of, seq_of
from unskew.spark.place.repartition import partition_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from unskew.core.in_flight.assign import CellRange

__all__ = ["MapStage", "NotAsExpectedError", "moved_already", "run_map_stage"]

_DESCRIPTION = "spark.job.description"
_SQL = "org.apache.spark.sql"
_PLANS = f"{_SQL}.catalyst.plans.physical"
_NO = False  # not streaming, and the flag below
_FLAG = (4, 3)  # the Spark whose LogicalRDD has one argument more
_TOLD = (4, 2)  # the Spark whose observers are told by a method that is not private by name
_COMPARED = tuple(
    f"spark.sql.shuffle.orderIndependentChecksum.{name}" for name in ("enabled", "enableFullRetryOnMismatch")
)
_MANAGER = "org.apache.spark.sql.classic.ObservationManager"


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

    def frame(
        self, ranges: Sequence[CellRange], *, whole: bool = False, column: str | None = None, copied: bool = False
    ) -> DataFrame:
        """The rows of these ranges, each task reading one. Where keys are ``whole`` Spark is told so, by the key: what
        groups by it shuffles no more. ``column`` adds the task's number, as a plan's shuffle has it, and Spark is told
        that each has one partition. ``copied``: a task that has a part of a cell reads all of it: the ranges are by
        another shuffle's map tasks."""
        try:
            rdd = self._exchange.getShuffleRDD(self._specs(ranges, copied))
            if column is None:
                claim = self._by_key(ranges) if whole else None
                return _frame(self.df, rdd, claim)
            number = partition_value(self.df, F.spark_partition_id(), len(ranges))
            numbered = _frame(self.df, rdd, None).withColumn(column, number)
            return _frame(numbered, numbered._jdf.queryExecution().toRdd(), self._by_number(numbered, ranges))
        except Py4JError as why:
            raise _unexpected(why) from why

    # -- which rows a task reads ------------------------------------------------------------------------------

    def _specs(self, ranges: Sequence[CellRange], copied: bool) -> Any:  # noqa: FBT001 - as ``frame`` names it
        """As Spark's adaptive execution says it: so many neighbouring partitions, or some map tasks' part of one."""
        kind = f"{_SQL}.execution.ShufflePartitionSpec"
        return array_of(self.df.sparkSession, kind, [_spec(one, copied) for one in ranges])

    # -- what Spark is told of the frame ----------------------------------------------------------------------

    def _by_key(self, ranges: Sequence[CellRange]) -> Any | None:
        """Keys are whole: clustered by the exchange's own hash, its partitions joined as the ranges say. None where it
        is of anything but the frame's columns."""
        hashed, output = self._exchange.outputPartitioning(), self.df._jdf.queryExecution().analyzed().outputSet()
        if not hashed.references().subsetOf(output):
            return None
        return self._coalesced(hashed, [(one.first, one.last) for one in ranges])

    def _by_number(self, df: Any, ranges: Sequence[CellRange]) -> Any:
        """Rows with the same number are in the same partition. The boundaries are this shuffle's own: no other frame's
        partitioning equals them, so Spark takes no two frames for placed alike but two of one shuffle."""
        attribute = df._jdf.queryExecution().analyzed().output().last()
        spark, tasks = self.df.sparkSession, len(ranges)
        hashed = java_class(spark, f"{_PLANS}.HashPartitioning")(_seq(spark, [attribute]), tasks)
        mine = -1 - int(self._exchange.shuffleDependency().shuffleId())
        return self._coalesced(hashed, [(mine, -1 - at) for at in range(tasks)])

    def _coalesced(self, hashed: Any, bounds: Sequence[tuple[int, int]]) -> Any:
        spark = self.df.sparkSession
        listed = [{"startReducerIndex": first, "endReducerIndex": last} for first, last in bounds]
        boundaries = seq_of(spark, f"{_PLANS}.CoalescedBoundary", listed)
        return java_class(spark, f"{_PLANS}.CoalescedHashPartitioning")(hashed, boundaries)


def _frame(df: DataFrame, rdd: Any, claim: Any | None) -> DataFrame:
    """A frame of ``rdd`` with the columns, names and size of ``df``."""
    inner: Any = df
    spark, query, option = inner.sparkSession, inner._jdf.queryExecution(), java_class(df.sparkSession, "scala.Option")
    unknown = java_class(spark, f"{_PLANS}.UnknownPartitioning")
    placed = query.analyzed().output(), rdd, claim or unknown(int(rdd.getNumPartitions())), _seq(spark, []), _NO
    none, size = option.empty(), option.apply(query.optimizedPlan().stats())
    more = (_NO,) if spark_version(df) >= _FLAG else ()
    logical = java_class(spark, f"{_SQL}.execution.LogicalRDD")
    made: DataFrame = _classic(df, logical(*placed, none, spark._jsparkSession, size, none, *more))
    return made


def _classic(df: DataFrame, logical: Any) -> Any:
    """A frame of the session of ``df`` with this plan."""
    spark: Any = df.sparkSession
    return _classic_of(spark, spark._jsparkSession, logical)


def _classic_of(spark: Any, session: Any, logical: Any) -> Any:
    """A frame of this session of Java's."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

    return ClassicFrame(java_class(spark, f"{_SQL}.classic.Dataset").ofRows(session, logical), spark)


def _seq(spark: SparkSession, values: Sequence[Any]) -> Any:
    listed = java_class(spark, "java.util.ArrayList")()
    for value in values:
        listed.add(value)
    return java_class(spark, "org.apache.spark.api.python.PythonUtils").toSeq(listed)


def moved_already(df: DataFrame) -> DataFrame:
    """The rows of a frame that ends in a ``repartition``, without it: each is where it would put it, and Spark is told
    what it would know then."""
    inner: Any = df
    try:
        plan = inner._jdf.queryExecution().analyzed()
        if plan.getClass().getSimpleName() != "RepartitionByExpression":
            raise NotAsExpectedError(f"{plan.getClass().getSimpleName()} where a repartition was expected")
        below = _classic(df, plan.child())
        return _frame(below, below._jdf.queryExecution().toRdd(), plan.partitioning())
    except (Py4JError, TypeError) as why:
        raise _unexpected(why) from why


def _spec(one: CellRange, copied: bool) -> tuple[str, dict[str, int]]:  # noqa: FBT001 - as ``frame`` names it
    if one.maps is None or copied:
        fields = {"startReducerIndex": one.first, "endReducerIndex": one.last}
        return f"{_SQL}.execution.CoalescedPartitionSpec", fields
    fields = {"reducerIndex": one.first, "startMapIndex": one.maps[0], "endMapIndex": one.maps[1], "dataSize": 1}
    return f"{_SQL}.execution.PartialReducerPartitionSpec", fields


def run_map_stage(
    df: DataFrame, cells: int, description: str, metric: str | None = None, *, compared: bool = True
) -> MapStage:
    """Run the map stage of ``df``, which a ``repartition`` into so many cells ends, and wait for it: a job with this
    description, of the caller's job group. ``metric``: the name of what ``df`` observes, if it does. ``compared``: as
    Spark is set (from 4.1 on by default), a job fails where a map task that runs again writes other rows than before
    and some of those have been read; False only where all that a map task writes has one reader.

    Raises ``NotAsExpectedError``; what fails in the user's own work is raised as Spark raises it."""
    inner: Any = df
    try:
        with _described(inner.sparkSession.sparkContext, description):
            exchange = _run(inner, cells) if compared else _run_not_compared(inner, cells)
        _tell_observers(inner)
        metrics = () if metric is None else _observed(inner, metric)
        return MapStage(df, int(exchange.numMappers()), metrics, exchange)
    except Py4JJavaError:
        raise  # a job's own failure
    except (Py4JError, TypeError) as why:  # TypeError: a class or method is not there
        raise _unexpected(why) from why


def _run_not_compared(inner: Any, cells: int) -> Any:
    """The exchange, run by a session that is like the frame's own but for this setting: other queries keep it."""
    session = inner.sparkSession._jsparkSession.cloneSession()
    for name in _COMPARED:
        session.conf().set(name, "false")
    sessions = java_class(inner.sparkSession, f"{_SQL}.SparkSession")
    before = sessions.getActiveSession()
    sessions.setActiveSession(session)
    try:
        plan = inner._jdf.queryExecution().analyzed()
        return _run(_classic_of(inner.sparkSession, session, plan), cells)
    finally:
        sessions.setActiveSession(before.get()) if before.isDefined() else sessions.clearActiveSession()


def _observed(inner: Any, metric: str) -> tuple[Any, ...]:
    """What was observed by this name."""
    row = inner._jdf.queryExecution().observedMetrics().apply(metric)
    return tuple(row.get(at) for at in range(row.size()))


def _run(inner: Any, cells: int) -> Any:
    """The exchange, once its map stage has run."""
    plan = inner._jdf.queryExecution().executedPlan()
    if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
        return _exchange(plan.finalPhysicalPlan(), cells)  # which runs all stages below
    exchange = _exchange(plan, cells)
    forever = java_class(inner.sparkSession, "scala.concurrent.duration.Duration").Inf()
    threads = java_class(inner.sparkSession, "org.apache.spark.util.ThreadUtils")
    ended = threads.awaitReady(exchange.submitShuffleJob(), forever)
    ended.value().get().get()  # what failed is thrown as it is; ``awaitResult`` would wrap it
    return exchange


def _tell_observers(inner: Any) -> None:
    """What the user observes of the frame below has been seen now, and no later job sees it: the frame that is made of
    the map stage reads what it has written."""
    manager = inner.sparkSession._jsparkSession.observationManager()
    name = "tryComplete" if spark_version(inner) >= _TOLD else f"{_MANAGER.replace('.', '$')}$$tryComplete"
    getattr(manager, name)(inner._jdf.queryExecution())


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
