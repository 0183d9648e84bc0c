"""``stateful``: what Spark calls for each micro-batch of a query that keeps a state per key by itself.

A batch is one commit. Its rows go where the plan of the batch before puts them; each task reads and writes files of its
own; the driver lists them in the batch's manifest, and creating that is the commit. If it is there already, the driver
died after it and before Spark's own commit: then the work is not done again, only the handler gets the output again.

With the manifest the plan of the next batch is fixed, decided from what this batch's tasks have counted and from the
keys that there are: a re-run finds it there.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql.types import StructType

from unskew.core.errors import ConfigError, KeyTypeError, StateError
from unskew.core.operators.keyed_plan import HOSTS, first_plan, history_of, next_plan, with_batch
from unskew.core.planners import Origin
from unskew.spark.frame.jvm import run_of
from unskew.spark.frame.keys import Columns, helper, key_of, quoted
from unskew.spark.place.repartition import repartition
from unskew.spark.stateful.batch import OUTPUT, StatefulBatch, StatefulJob
from unskew.spark.stateful.calls import Function, Shapes
from unskew.spark.stateful.manifest_log import KEPT, Log, Report, query_id, state_folder
from unskew.spark.stateful.settings import StatefulSettings, arrow_schema, check_time, schema_of
from unskew.spark.stateful.task import Task
from unskew.spark.streaming.settings import check_checkpoint, check_remote, names_only
from unskew.wire.manifests import Figures, Identity, Manifest, TaskResult, task_result_from_bytes

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from unskew.spark.planning import Session

__all__ = ["Stateful", "stateful"]

_LOG = logging.getLogger("unskew.spark")
_SWEEP = 16  # batches from one look for garbage to the next


def stateful(
    sk: Session,
    handle: Callable[[DataFrame, int], object],
    key: Columns,
    fn: Function,
    schema: StructType | str,
    state: StructType | str,
    checkpoint: str,
    name: str,
    *,
    form: str = "pandas",
    time: str | None = None,
    delay: float = 0.0,
    policy: str = "kip",
    parameters: Mapping[str, object] | None = None,
    block: int = 32,
) -> Stateful:
    """For ``writeStream.foreachBatch``: ``fn`` is called for each key of a batch, with its rows and what it kept from
    the batches before, and ``handle(output, batch_id)`` gets the rows that it returned, as ``schema`` has them.

    Rows of a key come in no set order. All rows that a partition has of a batch are in one Python worker's memory.

    Parameters
    ----------
    handle, key, fn, schema : The handler, the key's columns by name, the function, and the rows that it returns.
    state : The columns that are kept for a key.
    checkpoint, name : The query's checkpointLocation, and the name that the state is kept under there.
    form : How ``fn`` gets rows and states, and what it returns (``unskew.spark.stateful.calls``).
    time, delay : A column of event time, a timestamp or a bigint of milliseconds; then the state has such a column
        ``expires``, and a key is closed, without rows, once the batches before have had a time ``delay`` seconds later.
    policy, parameters : Of the plans; one that keeps keys whole.
    block : Keys that are read and written together.

    Returns
    -------
    Stateful : Give it to ``foreachBatch``.

    Raises
    ------
    ConfigError, KeyTypeError : A setting is wrong: before the query starts.

    Examples
    --------
    >>> def count(key, rows, state):
    ...     n = len(rows) + (0 if state is None else state["n"])
    ...     return [(key[0], n)], {"n": n}
    >>> def show(output, batch):
    ...     print(output.count(), output.agg({"n": "max"}).first()[0])
    >>> each = sk.stateful(show, "user", count, "user bigint, n bigint", "n bigint", folder, "totals")
    >>> each(clicks, 0)  # Spark does: writeStream.foreachBatch(each).option("checkpointLocation", folder).start()
    7 300
    >>> each(clicks, 1)
    7 600
    """
    stream = sk.plans.stream
    spec = stream.spec
    settings = StatefulSettings(
        handle,
        fn,
        names_only("key", key),
        schema_of("schema", schema),
        schema_of("state", state),
        stream.name,
        spec.partitions,
        checkpoint,
        name,
        form,
        time,
        delay,
        policy,
        dict(parameters or {}),
        tuple(spec.weights),
        spec.seed,
        block,
    )
    made = Stateful(settings)
    check_remote(sk.spark, made)
    return made


class Stateful:
    """What ``writeStream.foreachBatch`` takes. Pickles to its settings."""

    def __init__(self, settings: StatefulSettings) -> None:
        self.settings = settings
        self._life: _StatefulQuery | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Stateful, (self.settings,)

    def __call__(self, df: DataFrame, batch: int) -> None:
        run = run_of(df)
        if self._life is None or self._life.run_id != run:
            self._life = _StatefulQuery(self.settings, df, run)
        manifest = self._life.run(df, batch)
        self.settings.handle(self._life.output(df.sparkSession, manifest), batch)
        self._life.clean(manifest)

    @property
    def report(self) -> Report | None:
        """Of the last batch that ran in this process; ``read_report`` tells of any."""
        last = None if self._life is None else self._life.last
        return None if last is None else Report.of(last)


class _StatefulQuery:
    """One run of the query, from the first batch that is seen of it: another one may have other columns, or another
    checkpoint. Where Spark does not say which run it is (Connect) each has a process of its own."""

    def __init__(self, settings: StatefulSettings, df: DataFrame, run: str | None) -> None:
        check_checkpoint(df, settings.checkpoint)
        self.run_id = run
        self._settings = settings
        names = tuple(_column_of(df, "key", name) for name in settings.key)
        self._key: list[str | Column] = [quoted(name) for name in names]
        self._types = key_of(df, self._key).types
        if "void" in self._types:
            void = self._key[self._types.index("void")]
            raise KeyTypeError(f"key column {void} is void, which has no value but NULL: cast it")
        self._log = Log(state_folder(settings.checkpoint, settings.name))
        self._job = _job_of(settings, names, df, self._log)
        self._planner = settings.planner()
        self._kept: list[Manifest] = []
        self._batches = 0
        self.last: Manifest | None = None
        query, state = query_id(settings.checkpoint), settings.state.simpleString()
        self._log.claim(Identity(query, settings.stream, settings.name, names, self._types, state, settings.time or ""))

    # -- a batch ----------------------------------------------------------------------------------------------

    def run(self, df: DataFrame, number: int) -> Manifest:
        """The batch's manifest: as it is committed, or committed now."""
        before = self._log.before(number, self.last)
        if before is not None and before.batch == number:
            # Read all the same: an operator before this one that keeps a state of its own commits when it is read.
            df.write.format("noop").mode("overwrite").save()
            self.last = before
            return before
        batch = self._batch(before, number)
        manifest = self._folded(batch, before, self._work(df, batch))
        self.last = self._log.commit(manifest)
        _LOG.info("%s/%s %s", self._settings.stream, self._settings.name, Report.of(self.last))
        return self.last

    def _batch(self, before: Manifest | None, number: int) -> StatefulBatch:
        """What its tasks get: a function of what is committed, and of the settings."""
        if before is None:
            return StatefulBatch(self._job, number, None, (), first_plan(self._planner, self._origin(number)), None)
        plan = before.next_plan
        if plan.partitions != self._planner.partitions:
            plan = next_plan(self._planner, plan, before.history, before.host_keys, self._origin(number)).plan
        clock = None
        if self._settings.time is not None and before.latest is not None:
            clock = before.latest - round(self._settings.delay * 1e6)
        return StatefulBatch(self._job, number, before.plan, before.parts, plan, clock)

    def _origin(self, number: int) -> Origin:
        return Origin(stream=self._settings.stream, batch=number, key_types=self._types)

    def _work(self, df: DataFrame, batch: StatefulBatch) -> list[TaskResult]:
        """One job: the rows to their places, and what each place's task did."""
        name = helper(df.columns, "hash")
        hashed = df.withColumn(name, key_of(df, self._key, plan=batch.plan).hash)
        placed = repartition(hashed, batch.plan, self._key)
        numbered = placed.toDF(*(f"c{i}" for i in range(len(placed.columns))))  # mapInArrow knows no dots in names
        rows = numbered.mapInArrow(Task(batch), "done binary").collect()
        if not rows:  # Spark starts no tasks for a frame that it finds empty, and keys may expire or move all the same
            each = df.sparkSession.range(0, batch.plan.partitions, 1, batch.plan.partitions)
            rows = each.mapInArrow(Task(batch, empty=True), "done binary").collect()
        results = sorted((task_result_from_bytes(bytes(row[0])) for row in rows), key=lambda done: done.partition)
        if [done.partition for done in results] != list(range(batch.plan.partitions)):
            raise StateError(
                f"{len(results)} tasks have reported, of {batch.plan.partitions} partitions: something has "
                "changed their number after the plan placed the rows; see spark.sql.adaptive"
            )
        return results

    def _folded(self, batch: StatefulBatch, before: Manifest | None, results: Sequence[TaskResult]) -> Manifest:
        """All that the tasks did as one commit, and the plan that follows."""
        figures = Figures()
        keys = np.zeros(HOSTS, np.int64) if before is None else before.host_keys.copy()
        for done in results:
            figures, keys = figures.plus(done.figures), keys + done.keys_added
        history = with_batch(
            history_of() if before is None else before.history, (done.rows for done in results), batch.plan.partitions
        )
        latest = [done.latest for done in results if done.latest is not None]
        if before is not None and before.latest is not None:
            latest.append(before.latest)
        following = next_plan(self._planner, batch.plan, history, keys, self._origin(batch.number + 1))
        return Manifest(
            batch.number,
            batch.plan,
            following.plan,
            following.reason,
            tuple(done.part for done in results),
            tuple(done.output for done in results if done.output),
            figures,
            keys,
            history,
            max(latest, default=None),
        )

    # -- after it ---------------------------------------------------------------------------------------------

    def output(self, spark: SparkSession, manifest: Manifest) -> DataFrame:
        """The batch's output rows. By a pattern of names in one folder: Spark runs a job to list many paths."""
        schema = self._settings.output
        if not manifest.outputs:
            return spark.createDataFrame([], schema)
        gone = sorted({*manifest.outputs} - {*self._log.folder.names(OUTPUT)})
        if gone:
            raise StateError(
                f"{len(gone)} of {len(manifest.outputs)} files that batch {manifest.batch} has written are gone from "
                f"{self._log.folder.path(OUTPUT)} ({gone[0]}): was the checkpoint copied in part? Restore it whole"
            )
        names = f"{{{','.join(manifest.outputs)}}}"
        where = self._log.folder.uri(OUTPUT)
        return spark.read.schema(schema).option("pathGlobFilter", names).parquet(where)

    def clean(self, manifest: Manifest) -> None:
        """Delete what was in use two batches ago and is not now; at the beginning and now and then, what failed tasks
        and earlier lives have left too. (Twice at the beginning: of the present batch nothing is deleted.)"""
        self._batches += 1
        try:
            if self._batches <= 2 or not manifest.batch % _SWEEP:
                self._kept = self._log.sweep(manifest)
                return
            if manifest.batch not in [one.batch for one in self._kept]:  # it is where Spark lost its own commit of it
                self._kept.append(manifest)
            while len(self._kept) > KEPT:
                self._log.drop(self._kept[0], self._kept[1:])
                del self._kept[0]
        except OSError as why:
            warnings.warn(f"old files of state are still there, and are tried again later: {why}", stacklevel=2)


def _column_of(df: DataFrame, what: str, name: str) -> str:
    """What the frame calls the column, which Spark finds in any case."""
    if name in df.columns:
        return name
    alike = [one for one in df.columns if one.casefold() == name.casefold()]
    if len(alike) != 1:
        raise ConfigError(what, name, f"a column of the stream: {', '.join(df.columns)}")
    return alike[0]


def _job_of(settings: StatefulSettings, key: tuple[str, ...], df: DataFrame, log: Log) -> StatefulJob:
    time = None if settings.time is None else _column_of(df, "time", settings.time)
    if time is not None:
        check_time("time", time, df.schema[time].dataType)
    own = StructType([df.schema[name] for name in key])
    shapes = Shapes(
        arrow_schema("key", own), arrow_schema("state", settings.state), arrow_schema("schema", settings.output)
    )
    frame = arrow_schema("rows", df.schema)
    return StatefulJob(log.folder, settings.fn, settings.form, key, shapes, frame, time, settings.block)
