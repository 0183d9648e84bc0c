"""``group_apply``: opaque groups, placed so that no task waits for another's heavy groups.

A function of a whole group cannot be split, so the best there is: heavy groups alone, the rest packed evenly around
them (KIP), and the heavy ones first. For that there are three partitions a slot or more, numbered by descending
predicted load: Spark starts tasks by number, and short ones fill up beside the long ones. One native exchange by a
column that is the partition, then ``groupBy(partition, key)``: the function sees what a plain ``groupBy(key)`` shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unskew.core.errors import ConfigError, PlanError
from unskew.core.histogram import Histogram
from unskew.core.limits import MAX_PARTITIONS
from unskew.core.plan import Plan, Version
from unskew.core.planners import Origin, make_planner
from unskew.core.relabel import relabelled
from unskew.spark.calls import FORMS, Function, arity, whole
from unskew.spark.jvm import slots_of
from unskew.spark.keys import Columns, helper, key_columns, key_of, same_each_time
from unskew.spark.memory import Memory, warn_of_large
from unskew.spark.repartition import repartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["Groups", "applied", "group_partitions", "group_plan", "groups_of", "run_groups"]

PER_SLOT = 3  # partitions a slot, at least: what is left to even out at the end is a third of a slot's share


def group_partitions(spark: SparkSession, partitions: int) -> int:
    slots = slots_of(spark)
    return partitions if slots is None else min(max(partitions, PER_SLOT * slots), MAX_PARTITIONS)


def group_plan(histogram: Histogram, partitions: int, stream: str, key_types: tuple[str, ...], seed: int = 7) -> Plan:
    """Whole keys, heavy ones isolated, the heaviest partition first."""
    origin = Origin(stream=stream, key_types=key_types, version=Version(0, 1))
    plan = make_planner("kip", partitions, seed).plan(histogram, origin=origin)
    return relabelled(plan, plan.info.loads)


@dataclass(frozen=True, eq=False)
class Groups:
    """A checked call: nothing has run yet."""

    df: DataFrame
    key: Columns
    fn: Function
    schema: StructType | str
    form: str
    memory: Memory


def groups_of(
    df: DataFrame, key: Columns, fn: Function, schema: StructType | str, form: str, memory: int | str | None
) -> Groups:
    """The call, once everything about it that can be wrong has been looked at. No job runs."""
    if form not in FORMS:
        raise ConfigError("form", form, FORMS)
    arity("fn", fn)
    found = key_of(df, key)
    same_each_time(df, found.hash)
    made = Groups(df, key, fn, schema, form, Memory.of(df.sparkSession, memory, slots_of(df.sparkSession)))
    applied(df.groupBy(*key_columns(df, key)), fn, schema, form).schema  # noqa: B018 - Spark looks at it, runs nothing
    return made


def run_groups(call: Groups, plan: Plan) -> DataFrame:
    """The result of the function for each group of ``call.df``, each group whole in one task."""
    if plan.splits:
        raise PlanError(
            f"plan {plan.version} ({plan.info.policy or 'no policy named'}) splits {len(plan.hot.slots.bits)} keys; "
            "group_apply needs each group whole in one task: leave plan out, make one with a policy that keeps keys "
            "whole (kip), or use aggregate for a state that can be merged"
        )
    at = helper(call.df.columns, "partition")
    placed = repartition(call.df, plan, call.key, column=at)
    warn_of_large(call.df, call.key, plan, call.memory, call.form, stacklevel=4)
    grouped = placed.groupBy(placed[at], *key_columns(placed, call.key))
    return applied(grouped, whole(call.fn, call.form, columns=1, in_key=1), call.schema, call.form)


def applied(grouped: Any, fn: Function, schema: StructType | str, form: str) -> DataFrame:
    made: DataFrame = (grouped.applyInPandas if form == "pandas" else grouped.applyInArrow)(fn, schema)
    return made
