"""The one module that looks behind pyspark's public API, and does without where there is nothing to look at.

Under Spark Connect a DataFrame has no JVM object here. Everything that routes works there too; what only checks is left
out and says so by returning None.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass  # type: ignore[import-untyped]  # it has no types
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException

from unskew.core.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession

__all__ = [
    "SHUFFLE_PARTITIONS",
    "Jobs",
    "StageTime",
    "TaskTime",
    "batch_plan",
    "checkpoint_of",
    "default_files",
    "deterministic",
    "end_gateway",
    "estimated_bytes",
    "expected_rows",
    "input_partitions",
    "input_splits",
    "java_class",
    "jobs_of",
    "local_cores",
    "metrics_of",
    "output_mode_of",
    "physical_text",
    "request_slots",
    "rows_before",
    "run_of",
    "shuffle_partitions",
    "slots_of",
    "spark_version",
    "stage_times",
    "task_times",
    "unpersist",
]

_log = logging.getLogger("unskew.spark")

OLDEST = (4, 0)
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_LOOKED = 0.02  # seconds between two looks
_COLUMN_BYTES = 8  # of a value in a file or in memory: a guess, good for how many rows to sample
# Spark's operators that have as many rows as what is below them.
_SAME_ROWS = ("Project", "Union", "Sort", "Repartition", "RepartitionByExpression", "CollectMetrics", "Window")
_UNKNOWN = 1 << 62  # Spark's own default for what it knows nothing of is as large as a long can be


def spark_version(df: DataFrame) -> tuple[int, int]:
    """The server's version, or a ``ConfigError`` where it is none that unskew runs on."""
    text = df.sparkSession.version
    major, minor = (int(part) for part in text.split(".")[:2])
    if not OLDEST <= (major, minor) < (OLDEST[0] + 1, 0):
        raise ConfigError(
            "Spark version", text, "Spark 4.0 or a later 4.x (3.x has neither ANSI typing nor these types)"
        )
    return major, minor


def java_class(spark: SparkSession, name: str) -> Any:
    """A class of Java's by its full name. Nothing asks Java before it is used: ``spark._jvm.org.apache`` asks for each
    part of a name."""
    jvm: Any = spark._jvm
    return JavaClass(name, jvm._gateway_client)


def physical_text(df: DataFrame) -> str:
    """What ``df.explain()`` prints, without printing: the final plan where the frame has run under AQE."""
    inner: Any = df
    if hasattr(inner, "_jdf"):
        utils = java_class(df.sparkSession, "org.apache.spark.sql.api.python.PythonSQLUtils")
        return str(utils.explainString(inner._jdf.queryExecution(), "simple"))
    return str(inner._explain_string())


def input_partitions(df: DataFrame) -> int | None:
    """How many tasks read the frame, where its plan says so without running a job: it has no exchange in it."""
    inner: Any = df
    if not hasattr(inner, "_jdf"):
        return None
    text = physical_text(df)
    if any(mark in text for mark in ("Exchange", "AdaptiveSparkPlan", "Subquery")):
        return None
    return int(inner._jdf.queryExecution().toRdd().getNumPartitions())


def shuffle_partitions(spark: SparkSession) -> int:
    """How many partitions Spark makes of a shuffle by itself."""
    return int(str(spark.conf.get(SHUFFLE_PARTITIONS, "200")))


def input_splits(df: DataFrame) -> int:
    """How many tasks read the frame; where its plan does not say so, as after a shuffle, as many as that has."""
    return input_partitions(df) or shuffle_partitions(df.sparkSession)


def estimated_bytes(df: DataFrame) -> int | None:
    """What Spark takes the frame's size for, where it has any idea of it. No job runs."""
    inner: Any = df
    if not hasattr(inner, "_jdf"):
        return None
    guessed = int(str(df.sparkSession.conf.get("spark.sql.defaultSizeInBytes", str(_UNKNOWN))))
    size = int(str(inner._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    return None if size >= min(guessed, _UNKNOWN) else size


def expected_rows(df: DataFrame) -> int:
    """About how many rows the frame has, by Spark's count of what it reads, or by bytes and columns; 0 where that says
    nothing: where rows are filtered, joined or grouped first (Spark takes a join for the product of its sides). No job
    runs."""
    inner: Any = df
    known = hasattr(inner, "_jdf") and estimated_bytes(df) is not None
    return _rows_of(inner._jdf.queryExecution().optimizedPlan()) if known else 0


def _rows_of(node: Any) -> int:
    """Of a logical plan, where its rows are those of its leaves."""
    children = node.children()
    count = int(children.size())
    if not count:
        stats = node.stats()
        if stats.rowCount().isDefined():
            return int(str(stats.rowCount().get()))
        columns = max(int(node.output().size()), 1)
        return int(str(stats.sizeInBytes())) // (_COLUMN_BYTES * columns)
    if str(node.getClass().getSimpleName()) not in _SAME_ROWS:
        return 0
    each = [_rows_of(children.apply(at)) for at in range(count)]
    return sum(each) if all(each) else 0


def default_files(df: DataFrame) -> str | None:
    """The file system of paths without a scheme, as a URI; None where Spark does not say."""
    spark: Any = df.sparkSession
    if not hasattr(spark, "_jsparkSession"):
        return None
    return str(spark._jsparkSession.sessionState().newHadoopConf().get("fs.defaultFS", "file:///"))


def _running(df: DataFrame) -> Any | None:
    """The query whose handler this thread runs; None where Spark does not say. Its frames have a session of their own,
    which knows of no query: what all sessions share does."""
    spark: Any = df.sparkSession
    query = _local_property(spark, "sql.streaming.queryId")
    if query is None:
        return None
    try:
        running = spark._jsparkSession.sharedState().activeStreamingQueries()
    except Py4JError as why:  # Spark's own affair, the same from 3.1 to 4.3
        _log.warning("the query of a batch is not known: %s", str(why).splitlines()[0])
        return None
    return running.get(spark._jvm.java.util.UUID.fromString(query))


def _local_property(spark: Any, name: str) -> str | None:
    """What Spark has set for this thread. None under Connect."""
    value = spark.sparkContext.getLocalProperty(name) if hasattr(spark, "_jsparkSession") else None
    return None if value is None else str(value)


def batch_plan(df: DataFrame, rdd: Any) -> Any | None:
    """The analysed plan by which the rows of this thread's micro-batch come about, where ``rdd`` are those rows: the
    handler's frame shows them as they are, and not what made them. None where it is anything else."""
    query = _running(df)
    try:
        execution = None if query is None else query.lastExecution()
        return None if execution is None or execution.toRdd().id() != rdd.id() else execution.analyzed()
    except Py4JError as why:  # Spark's own affair, as above
        _log.warning("the plan of a batch is not known: %s", str(why).splitlines()[0])
        return None


def checkpoint_of(df: DataFrame) -> str | None:
    """The checkpointLocation of the query that a batch's frame belongs to; None where Spark does not say."""
    query = _running(df)
    return None if query is None else str(query.resolvedCheckpointRoot())


def run_of(df: DataFrame) -> str | None:
    """The id of this run of the query that a batch's frame belongs to, another one after each start; None as above."""
    query = _running(df)
    return None if query is None else str(query.runId().toString())


def end_of(df: DataFrame) -> Callable[[], int | None] | None:
    """What asks Spark how this run of the query that a batch's frame belongs to has ended: None while it runs, then the
    last batch that it committed, -1 where it failed or committed none. None as above."""
    query = _running(df)
    if query is None:
        return None

    def asked() -> int | None:
        if query.isActive():
            return None
        if query.exception().isDefined():
            return -1
        done = [one for one in query.recentProgress() if one.durationMs().containsKey("commitOffsets")]
        return max((int(one.batchId()) for one in done), default=-1)

    return asked


def output_mode_of(df: DataFrame) -> str | None:
    """The output mode, in small letters, of the query that a batch's frame belongs to; None as above."""
    query = _running(df)
    return None if query is None else str(query.outputMode().toString()).lower()


@dataclass(frozen=True)
class StageTime:
    """A stage that has run: the records that it read from a shuffle, its tasks, seconds from its begin to its end, the
    seconds for which all of its tasks ran, its number and attempt in Spark, and whether it wrote a shuffle."""

    records: int
    tasks: int
    seconds: float
    work: float = 0.0
    number: int = -1
    attempt: int = 0
    writes_shuffle: bool = False

    @property
    def reads_shuffle(self) -> bool:
        return self.records > 0


@dataclass(frozen=True)
class TaskTime:
    """A task that has succeeded: its number in its stage, the records that it read from a shuffle, and its seconds."""

    index: int
    records: int
    seconds: float


@dataclass(frozen=True)
class Jobs:
    """Jobs of a batch by their numbers, and the last one that its query has had."""

    numbers: tuple[int, ...]
    last: int


def jobs_of(df: DataFrame, after: int) -> Jobs:
    """The jobs that this thread's query has had since the one with this number. None under Connect."""
    spark: Any = df.sparkSession
    group = _local_property(spark, "spark.jobGroup.id")
    if group is None:
        return Jobs((), after)
    numbers = tuple(int(job) for job in spark.sparkContext.statusTracker().getJobIdsForGroup(group) if job > after)
    return Jobs(numbers, max(numbers, default=after))


def stage_times(df: DataFrame, jobs: Jobs) -> list[StageTime]:
    """The stages of these jobs; none where Spark's store has forgotten them, or is not the one that we know."""
    try:
        return _stage_times(df.sparkSession, jobs) if jobs.numbers else []
    except (Py4JError, PySparkException) as why:
        _log.warning("stage times are not known: %s", str(why).splitlines()[0])
        return []


def _stage_times(spark: Any, jobs: Jobs) -> list[StageTime]:
    context = spark.sparkContext
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
    infos = [info for info in map(tracker.getJobInfo, jobs.numbers) if info is not None]
    stages = {int(stage) for info in infos for stage in info.stageIds}
    return [one for one in (_stage_time(store, stage) for stage in sorted(stages)) if one]


def _stage_time(store: Any, stage: int) -> StageTime | None:
    data = store.lastStageAttempt(stage)
    begin, end = data.submissionTime(), data.completionTime()
    if begin.isEmpty() or end.isEmpty():  # skipped, or still running
        return None
    seconds = (end.get().getTime() - begin.get().getTime()) / 1000.0
    work = int(data.executorRunTime()) / 1000.0
    records, tasks, attempt = int(data.shuffleReadRecords()), int(data.numTasks()), int(data.attemptId())
    return StageTime(records, tasks, seconds, work, stage, attempt, int(data.shuffleWriteRecords()) > 0)


def task_times(df: DataFrame, stage: StageTime) -> list[TaskTime]:
    """The tasks of a stage; none as above. Two calls of the JVM, however many tasks: each figure of each task by a call
    of its own would take longer from some thirty tasks on."""
    inner: Any = df.sparkSession
    try:
        tasks = inner.sparkContext._jsc.sc().statusStore().taskList(stage.number, stage.attempt, 4 * stage.tasks)
        mapper = inner._jvm.org.apache.spark.status.api.v1.JacksonMessageWriter().mapper()
        listed = json.loads(str(mapper.writeValueAsString(tasks)))
    except (Py4JError, PySparkException, TypeError, ValueError) as why:  # TypeError: the writer is not there
        _log.warning("task times are not known: %s", str(why).splitlines()[0])
        return []
    return [_task_time(task) for task in listed if task["status"] == "SUCCESS" and "taskMetrics" in task]


def _task_time(task: dict[str, Any]) -> TaskTime:
    metrics = task["taskMetrics"]
    records = int(metrics["shuffleReadMetrics"]["recordsRead"])
    return TaskTime(int(task["index"]), records, int(metrics["executorRunTime"]) / 1000.0)


def request_slots(spark: SparkSession, slots: int) -> bool:
    """Ask for executors so that so many tasks can run at once; whether there was anybody to ask."""
    inner: Any = spark
    conf = inner.sparkContext.getConf() if hasattr(inner, "_jsparkSession") else None
    if conf is None or conf.get("spark.dynamicAllocation.enabled", "false") != "true":
        return False
    present = int(inner.sparkContext.defaultParallelism)
    each = max(int(conf.get("spark.executor.cores", "1")) // max(int(conf.get("spark.task.cpus", "1")), 1), 1)
    missing = -(-(slots - present) // each)
    return missing > 0 and bool(inner.sparkContext._jsc.sc().requestExecutors(missing))


def rows_before(df: DataFrame) -> int | None:
    """How many rows the batch before this one had; None where Spark does not say."""
    query = _running(df)
    progress = None if query is None else query.lastProgress()
    return None if progress is None else int(progress.numInputRows())


def unpersist(frames: Sequence[DataFrame]) -> None:
    """Unpersist them; ignore errors if Spark is gone."""
    for frame in frames:
        try:
            frame.unpersist()
        except (Py4JError, PySparkException, OSError) as why:
            _log.warning("a persisted frame is still there: %s", str(why).partition("\n")[0])


def metrics_of(observation: Observation, wait: float) -> dict[str, Any] | None:
    """What a job has observed; None where none has run (``get`` would wait for ever), or the first one failed. Spark
    delivers it after the job, in a thread of its own that may be behind: that may take ``wait`` seconds."""
    inner: Any = observation
    if not hasattr(inner, "_jo"):
        return dict(inner.get) or None
    until = time.monotonic() + wait
    while inner._jo is None or not inner._jo.future().isCompleted():
        if inner._jo is None or time.monotonic() >= until:
            return None
        time.sleep(_LOOKED)
    try:
        return dict(inner.get)
    except PySparkException as why:  # the first thing that was asked of the frame failed, in the user's own code
        _log.info("nothing is known of a frame: %s", str(why).partition("\n")[0][:200])
        return None


def slots_of(spark: SparkSession) -> int | None:
    """How many tasks run at once; None where Spark does not say (Connect)."""
    return int(spark.sparkContext.defaultParallelism) if hasattr(spark, "_jsparkSession") else None


def local_cores(spark: SparkSession) -> int | None:
    """The processors that all slots share under a local master; None elsewhere, where each slot has its own."""
    master = str(spark.sparkContext.master) if hasattr(spark, "_jsparkSession") else ""
    return os.cpu_count() if master.startswith("local[") else None


def deterministic(df: DataFrame, column: Column) -> bool | None:
    """Whether evaluating the expression again gives the same; None where Spark does not say (Connect)."""
    inner: Any = df.select(column)
    if not hasattr(inner, "_jdf"):
        return None
    expressions = inner._jdf.queryExecution().analyzed().expressions()
    return all(expressions.apply(i).deterministic() for i in range(expressions.size()))


def end_gateway(given: float = 10.0) -> None:
    """End the Java process that pyspark started for this one, after its session has stopped, and wait until it is gone;
    no longer than this. (Left alone it ends some time after this process.)"""
    from pyspark import SparkContext

    inner: Any = SparkContext
    gateway = inner._gateway
    if gateway is None:
        return
    inner._gateway = inner._jvm = None
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is None:  # another program's
        return
    process.stdin.close()
    try:
        process.wait(given)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
