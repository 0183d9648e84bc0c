"""Whether an aggregate of Spark's own needs anything: a change of one setting at most, for there is no plan for it.

Spark combines the rows of a key in every task before it shuffles, so a hot key costs no more than another. With
``spark.sql.execution.bypassPartialAggregation`` (Spark 4.3) it does not: then every row moves, and a hot key is one
task's. That is the better way only where nearly every row has a key of its own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unskew.core.arrays.types import F64
from unskew.core.histogram.histogram import Histogram
from unskew.core.operators.advice import SPARK, SQL, Advice, states
from unskew.core.operators.job_seconds import STATE, JobCosts, costs_of, pays, stage_seconds, start_seconds
from unskew.core.operators.spark_shuffle import HashedRows, Job, spark_tasks
from unskew.core.planners import make_planner

__all__ = ["BYPASS", "advise_sql"]

BYPASS = "spark.sql.execution.bypassPartialAggregation"
_COMBINED = (
    "Spark combines the rows of a key in every task before it shuffles, so at most one row a key and task moves and a "
    "hot key costs no more than another"
)


def advise_sql(rows: int, job: Job, histogram: Histogram | None = None) -> Advice:
    """The advice for about so many rows. ``histogram``: of the rows, where Spark is set not to combine them."""
    costs = costs_of(SQL)
    if histogram is None:
        tasks = spark_tasks(job, lambda n: _even(n, rows))
        times = {name: _combining(rows, rows, work, costs, job) for name, work in tasks.items()}
        return _advice(times, _COMBINED, costs)
    tasks = spark_tasks(job, lambda n: _hashed(n, histogram, costs, job))
    times = {name: start_seconds(rows, job) + stage_seconds(work, costs, job) for name, work in tasks.items()}
    made = states(histogram, make_planner("hash", job.shuffle_partitions).plan(histogram), job.inputs).input_shipped
    combined = spark_tasks(job, lambda n: _even(n, made))[""]
    times[f"{BYPASS}=false"] = _combining(rows, made, combined, costs, job)
    return _advice(times, f"with {BYPASS} Spark moves every row, and that is no slower here", costs)


def _combining(rows: int, made: int, work: F64, costs: JobCosts, job: Job) -> float:
    """Rows are combined where they are read; so many states are shuffled."""
    return start_seconds(made, job) + costs.row * rows / (job.cores or job.slots) + stage_seconds(work, costs, job)


def _even(n: int, made: int) -> HashedRows:
    return HashedRows(np.full(n, made * STATE / n), np.full(n, made / n))


def _hashed(n: int, histogram: Histogram, costs: JobCosts, job: Job) -> HashedRows:
    rows = job.heavy.loads(make_planner("hash", n).plan(histogram), histogram)
    return HashedRows(rows * costs.row, rows)


def _advice(times: dict[str, float], reason: str, costs: JobCosts) -> Advice:
    as_set = times.pop("")
    best = min(times, key=times.__getitem__, default=None)
    changed = None if best is None else times[best]
    found = Advice(
        SQL, SPARK, reason, spark_seconds=as_set, setting_seconds=changed, best_setting=best, costs=costs.words(SQL)
    )
    if best is None or changed is None or not pays(as_set, changed):
        return found
    return replace(found, setting=best, reason=f"{as_set:.1f} s as it is set, with the setting {changed:.1f} s")
