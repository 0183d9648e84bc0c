"""``aggregate``: a user's mergeable state per key, with hot keys split over tasks and merged after.

At the plan: one native exchange puts the rows where the plan says, hot keys in several partitions; ``partial`` makes a
state of each group there. States of whole keys are final where they are,
and only those of split keys are shuffled again, for ``merge``: Dalton's key-forwarding in Spark's form. Prompt's
Algorithm 3 (section 5) says which reduce bucket merges which split key. Its map tasks see their own keys only, so they
hash split ones (line 2); the driver knows them all, so it runs lines 3 to 12 once, on numbers of states, and every
task carries the answer as a table.

Spark evaluates a stage once for each of two consumers, so the states are persisted and read twice: ``release`` frees
them. They are made at once, in a job of their own: left to AQE both readers start at the same time, and on two
executors make the same states twice (docs/decisions/0016-operators.md). A plan that splits no key runs nothing yet.

Where a lost executor took states with it, Spark makes them again from the first exchange. That is exact though
``partial`` may give another state of the same rows then: a piece has the same rows again, the two readers have no key
in common, and one task merges all pieces of a key.

At the input: states are made where the rows are read, a bounded number of rows at a time, and only states are shuffled.
That is better where a state stands for very many rows: ``core.operators.advice`` says where, for ``at="auto"``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram
from unskew.core.operators.advice import PIECE
from unskew.core.operators.advice import states as states_of
from unskew.core.operators.bucket_allocator import allocate
from unskew.core.plan.hot_keys import SPLIT
from unskew.core.plan.lookup import find_lookup
from unskew.core.plan.plan import Plan
from unskew.spark.frame.jvm import slots_of
from unskew.spark.frame.keys import AUTO, Columns, helper, key_columns, key_names, key_of, quoted, same_each_time
from unskew.spark.operators.groups import applied
from unskew.spark.operators.user_functions import FORMS, Function, arity, fragment, in_pieces, streamed, whole
from unskew.spark.place.native import bucket_column, hot_column, route_column, table
from unskew.spark.place.repartition import move_rows, repartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "Aggregation",
    "MergeBuckets",
    "SplitKeys",
    "aggregation_of",
    "at_input",
    "at_plan",
    "grouped",
    "place_for",
    "split_keys_of",
    "states_of_pieces",
]

_PLACES = ("plan", "input", "auto")


@dataclass(frozen=True, eq=False)
class Aggregation:
    """A checked call: nothing has run yet. ``names`` are the key's columns, in the rows of state too."""

    df: DataFrame
    key: Columns
    partial: Function
    merge: Function
    schema: StructType
    form: str
    names: tuple[str, ...]


def aggregation_of(
    df: DataFrame, key: Columns, partial: Function, merge: Function, schema: StructType | str, form: str, at: str
) -> Aggregation:
    """The call, once everything about it that can be wrong has been looked at. No job runs."""
    if form not in FORMS:
        raise ConfigError("form", form, FORMS)
    if at not in _PLACES:
        raise ConfigError("at", at, _PLACES)
    if at == "input" and form != "arrow":
        raise ConfigError(
            "at", at, "form='arrow' with it: rows of many keys are read at once there, and pandas makes floats of a "
            "column of integers where any of them has a NULL; or at='plan'"
        )  # fmt: skip
    arity("partial", partial)
    if streamed(partial) is not None:
        raise ConfigError("partial", partial, "a function of all rows of a piece: a table or a frame, no Iterator")
    arity("merge", merge)
    same_each_time(df, key_of(df, key).hash)
    states = applied(df.groupBy(*key_columns(df, key)), partial, schema, form)
    return Aggregation(df, key, partial, merge, states.schema, form, _names_in(df, key, states.schema))


def _names_in(df: DataFrame, key: Columns, schema: StructType) -> tuple[str, ...]:
    """The key's columns, once they are in the schema with the types that they have."""
    own = df.select(*key_columns(df, key)).schema
    types = {field.name: field.dataType for field in schema.fields}
    for field in own.fields:
        if types.get(field.name) != field.dataType:
            key_text = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in own.fields)
            allowed = f"the key's columns as they are in the frame, {key_text}, then the state"
            raise ConfigError("schema", schema.simpleString(), allowed)
    return key_names(df, key)


# -- split keys -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MergeBuckets:
    """In which of so many reduce ``buckets`` the states of each split key, or of each cut cell's keys, are merged."""

    bucket: NDArray[np.int32]
    buckets: int

    @classmethod
    def of(cls, ids: NDArray[np.uint64], fragments: NDArray[np.int64], most: int) -> MergeBuckets:
        """Algorithm 3 over all of them at once: worst fit by their number of states, in at most ``most`` buckets."""
        buckets = max(min(len(ids), most), 1)
        return cls(allocate(ids, fragments, np.zeros(len(ids), np.bool_), buckets, task=0).buckets, buckets)


@dataclass(frozen=True, eq=False)
class SplitKeys:
    """The split keys of a plan, how many fragments each has, and where its states are merged."""

    hashes: NDArray[np.uint64]
    fragments: NDArray[np.int64]
    merge: MergeBuckets

    def number(self, key: Column) -> Column:
        """Which of the split keys it is, -1 for every other key."""
        lookup = find_lookup(self.hashes)
        numbers = np.zeros(lookup.buckets, np.int32)
        numbers[lookup.bucket(self.hashes)] = np.arange(len(self.hashes), dtype=np.int32)
        which = F.get(table(numbers, "int"), bucket_column(lookup, key))
        return F.coalesce(F.when(hot_column(lookup, self.hashes, key), which), F.lit(-1))


def split_keys_of(plan: Plan, most: int) -> SplitKeys:
    """The split keys of a plan; their states are merged in at most ``most`` buckets."""
    hot = plan.hot
    at = np.flatnonzero(hot.home < 0)
    fragments = np.array([len(hot.slots.units(int(SPLIT - hot.home[i]))) for i in at.tolist()], np.int64)
    return SplitKeys(hot.hashes[at], fragments, MergeBuckets.of(hot.hashes[at], fragments, most))


# -- at the plan ------------------------------------------------------------------------------------------------


def at_plan(call: Aggregation, plan: Plan, spread: Columns = AUTO) -> tuple[DataFrame, DataFrame | None]:
    """The result, and what has been persisted for it: nothing where the plan splits no key."""
    at, mark = helper(call.df.columns, "partition"), helper(call.df.columns, "split")
    placed = repartition(call.df, plan, call.key, spread, column=at)
    if not plan.splits:
        own = whole(call.partial, call.form, columns=1, in_key=1)
        return applied(grouped(placed, call.key, at), own, call.schema, call.form), None
    split = split_keys_of(plan, slots_of(call.df.sparkSession) or plan.partitions)
    marked = placed.withColumn(mark, split.number(key_of(placed, call.key).hash))
    states = states_of_pieces(call, marked, at).persist()
    states.count()
    out = states.columns[-1]
    final = states.where(states[out] < 0).select(*(states[name] for name in map(quoted, call.schema.names)))
    return final.unionAll(_merged(call, states.where(states[out] >= 0), split.merge)), states


def grouped(df: DataFrame, key: Columns, *before: str) -> Any:
    return df.groupBy(*(df[name] for name in before), *key_columns(df, key))


def states_of_pieces(call: Aggregation, placed: DataFrame, at: str) -> DataFrame:
    """A state for each key of each partition, and last the number of the split key, -1 where it is none."""
    out = helper(call.schema.names, "split")
    schema = StructType([*call.schema.fields, StructField(out, IntegerType())])
    return applied(
        grouped(placed, call.key, at), fragment(call.partial, call.form, call.schema.names, out), schema, call.form
    )


def _merged(call: Aggregation, states: DataFrame, merge: MergeBuckets) -> DataFrame:
    """Merged by the split key's number too: pandas has one NaN for NULL and for NaN, and they are two keys."""
    out, bucket = states.columns[-1], helper(states.columns, "bucket")
    moved = move_rows(states, F.get(table(merge.bucket, "int"), states[out]), merge.buckets, column=bucket)
    own = whole(call.merge, call.form, columns=2, in_key=2)
    return applied(grouped(moved, [quoted(name) for name in call.names], bucket, out), own, call.schema, call.form)


# -- at the input -----------------------------------------------------------------------------------------------


def at_input(call: Aggregation, plan: Plan, held: int = PIECE) -> DataFrame:
    """States made where the rows are, and merged after one exchange of them. A key is merged in one place, whatever
    the plan: a split one where its first fragment is."""
    made = helper([*call.df.columns, *call.schema.names], "hash")
    named = [f"{made}_{i}" for i in range(len(call.names))]
    columns = [one.alias(name) for one, name in zip(key_columns(call.df, call.key), named, strict=True)]
    rows = call.df.select("*", *columns, key_of(call.df, call.key).hash.alias(made))
    schema = StructType([*call.schema.fields, StructField(made, LongType())])
    states = rows.mapInArrow(in_pieces(call.partial, len(call.names), call.schema.names, made, held), schema)
    at = helper(states.columns, "partition")
    target = route_column(plan, states[made], F.lit(0).cast("bigint"))
    moved = move_rows(states, target, plan.partitions, column=at)
    own = whole(call.merge, call.form, columns=2, in_key=2)
    return applied(grouped(moved, [quoted(name) for name in call.names], at, made), own, call.schema, call.form)


def place_for(histogram: Histogram, plan: Plan, splits: int, form: str, slots: int = 1) -> str:
    """``"input"`` or ``"plan"``, as ``core.operators.advice`` weighs their states. A task at the input makes states of
    every ``PIECE`` rows, so there are at least as many inputs as that; with fewer splits than slots it would be the
    slower way whatever it ships."""
    if form != "arrow" or splits < slots:
        return "plan"
    inputs = max(splits, -(-histogram.total // PIECE))
    return "plan" if states_of(histogram, plan, inputs).plan_pays else "input"
