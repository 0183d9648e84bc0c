"""``group_apply``: opaque groups, placed so that no task waits for another's heavy groups.

A function of a whole group cannot be split, so the best there is: heavy groups alone, the rest packed evenly around
them, and the heavy ones first (``core.operators.group_plan``): Spark starts tasks by number. One native exchange by a
column that is the partition, then ``groupBy(partition, key)``: the function sees what a plain ``groupBy(key)`` shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unskew.core.errors import ConfigError, PlanError
from unskew.core.plan.plan import Plan
from unskew.spark.frame.jvm import slots_of
from unskew.spark.frame.keys import Columns, helper, key_columns, key_of, same_each_time
from unskew.spark.operators.group_memory import Memory, warn_of_large
from unskew.spark.operators.user_functions import FORMS, Function, arity, whole
from unskew.spark.place.repartition import repartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["Groups", "applied", "groups_of", "run_groups"]


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
    hashed = key_of(df, key)
    same_each_time(df, hashed.hash)
    groups = Groups(df, key, fn, schema, form, Memory.of(df.sparkSession, memory, slots_of(df.sparkSession)))
    applied(df.groupBy(*key_columns(df, key)), fn, schema, form).schema  # noqa: B018 - Spark looks at it, runs nothing
    return groups


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
    warn_of_large(call.df, call.key, plan, call.memory, call.form)
    grouped = placed.groupBy(placed[at], *key_columns(placed, call.key))
    return applied(grouped, whole(call.fn, call.form, columns=1, in_key=1), call.schema, call.form)


def applied(grouped: Any, fn: Function, schema: StructType | str, form: str) -> DataFrame:
    made: DataFrame = (grouped.applyInPandas if form == "pandas" else grouped.applyInArrow)(fn, schema)
    return made
