"""Which columns of a frame are the same when a task runs again, read from the analysed plan. No job runs.

A spread hash places rows, so a value that is another one in a second run sends its row elsewhere: lost, or there twice.
The expression alone does not tell. ``rand()`` may stand anywhere below; a second run gets the rows of a shuffle in
another order, and a ``first`` or a sum of doubles over them is another one then.

Values are looked at, not which rows there are: which of several rows a filter on ``row_number`` keeps is up to its
order. In a handler of ``foreachBatch`` the frame's own plan is an RDD of rows; what made them is the plan of the
query's batch. Classic Spark only, as ``jvm`` is; under Connect there is no plan to look at.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types

from unskew.spark.frame.jvm import batch_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DRAWN", "ORDERED", "SAME", "read_from_files", "unsteady"]

_log = logging.getLogger("unskew.spark")

SAME, ORDERED, DRAWN = 0, 1, 2  # the same each time; by the order of rows; drawn

_AGGREGATES = ("Aggregate", "Window")
_EXACT = frozenset(
    ("Count", "Min", "Max", "Sum", "Average", "BitAndAgg", "BitOrAgg", "BitXorAgg", "HyperLogLogPlusPlus")
)
_ROUNDED = ("Sum", "Average")  # where they add up fractions
_FRACTIONAL = ("float", "double")

# What makes a row of a row, without a shuffle or a state; the last one is what Spark calls the handler by.
_BY_ROW = (
    *("Project", "Filter", "SubqueryAlias", "View", "Generate", "EventTimeWatermark", "Union"),
    *("WriteToMicroBatchDataSource", "WriteToMicroBatchDataSourceV1"),
)
_USERS_CODE = ("PYTHON_UDF", "SCALA_UDF")

Levels = dict[int, int]  # by expression id; SAME is left out
Named = dict[int, list[int]]  # the columns of each common table expression, by its id
Behind = Callable[[Any], Any]  # the plan that made the rows of an RDD; None where Spark does not say


def unsteady(df: DataFrame) -> list[int] | None:
    """For each column of ``df`` one of the above; None where Spark does not say."""
    inner: Any = df
    if not hasattr(inner, "_jdf"):
        return None
    plan = inner._jdf.queryExecution().analyzed()
    levels = _levels(plan, {}, lambda rdd: batch_plan(df, rdd))
    return [levels.get(attribute, SAME) for attribute in _ids(plan.output())]


def read_from_files(df: DataFrame) -> bool:
    """Whether Spark's own expressions make the rows of files, row by row: then reading them twice runs no user's code,
    touches no state and asks no other system. False where Spark does not say."""
    inner: Any = df
    if not hasattr(inner, "_jdf"):
        return False
    try:
        patterns = cast("Any", df.sparkSession)._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
        users = [getattr(patterns, name)() for name in _USERS_CODE]
        return _from_files(inner._jdf.queryExecution().analyzed(), users, lambda rdd: batch_plan(df, rdd))
    except Py4JError as why:  # Spark's own affair
        _log.info("what makes the rows of a batch is not known: %s", str(why).partition("\n")[0])
        return False


def _from_files(plan: Any, users: list[Any], behind: Behind) -> bool:
    kind = _class(plan)
    if kind == "LogicalRelation":
        return True
    if kind == "LogicalRDD":
        source = behind(plan.rdd())
        return source is not None and _from_files(source, users, lambda _: None)
    steady = kind in _BY_ROW and plan.deterministic() and not any(plan.containsPattern(one) for one in users)
    return bool(steady) and all(_from_files(one, users, behind) for one in _each(plan.children()))


def _levels(plan: Any, named: Named, behind: Behind) -> Levels:
    below = [_levels(one, named, behind) for one in _each(plan.children())]  # definitions before what refers to them
    kind = _class(plan)
    if kind == "LogicalRDD":
        return _of_rows(plan, behind(plan.rdd()), behind)
    looked_at = kind in _AGGREGATES or kind.startswith(("Deduplicate", "CTERelation"))
    if not looked_at and not any(below) and plan.deterministic():
        return {}  # most plans: a call each into the JVM, and not one for every column
    inputs = {one: level for levels in below for one, level in levels.items()}
    if kind == "CTERelationDef":
        named[plan.id()] = [inputs.get(one, SAME) for one in _ids(plan.output())]
    if kind == "CTERelationRef":
        return dict(zip(_ids(plan.output()), named.get(plan.cteId(), []), strict=False))
    if kind == "Union":
        return _by_position(plan, below)
    if kind.startswith("Deduplicate"):
        keys = set(_ids(plan.keys()))
        return {one: max(inputs.get(one, SAME), SAME if one in keys else ORDERED) for one in _ids(plan.output())}
    made = {
        _id(one): _level(one, inputs, aggregates=kind in _AGGREGATES)
        for one in _each(plan.expressions())
        if _class(one) == "Alias"
    }
    passed = {one for child in _each(plan.children()) for one in _ids(child.output())}
    opaque = max([*inputs.values(), SAME if _all_deterministic(plan) else DRAWN], default=SAME)
    levels = {
        one: made[one] if one in made else inputs.get(one, SAME) if one in passed else opaque
        for one in _ids(plan.output())
    }
    return {one: level for one, level in levels.items() if level}


def _of_rows(leaf: Any, source: Any | None, behind: Behind) -> Levels:
    """Of rows that are there already: by what made them, where Spark says so."""
    if source is None:
        return {}
    levels, pairs = _levels(source, {}, behind), zip(_ids(leaf.output()), _ids(source.output()), strict=True)
    return {one: levels[was] for one, was in pairs if was in levels}


def _level(expression: Any, inputs: Levels, *, aggregates: bool) -> int:
    if not expression.deterministic():
        return DRAWN
    level = (
        max((inputs.get(one, SAME) for one in _ids(expression.references().toSeq())), default=SAME) if inputs else SAME
    )
    return max(level, ORDERED) if aggregates and _by_order(expression) else level


def _by_order(expression: Any) -> bool:
    """Whether a function in it may give something else where its rows come in another order."""
    kind = _class(expression)
    if kind == "WindowExpression":
        return True
    if kind == "AggregateExpression":
        function = expression.aggregateFunction()
        name = _class(function)
        return name not in _EXACT or (name in _ROUNDED and str(function.dataType().typeName()) in _FRACTIONAL)
    return any(_by_order(child) for child in _each(expression.children()))


def _by_position(union: Any, below: list[Levels]) -> Levels:
    sides = [_ids(child.output()) for child in _each(union.children())]
    highest: Levels = {}
    for at, one in enumerate(_ids(union.output())):
        level = max(levels.get(side[at], SAME) for levels, side in zip(below, sides, strict=True))
        if level:
            highest[one] = level
    return highest


def _all_deterministic(plan: Any) -> bool:
    return all(one.deterministic() for one in _each(plan.expressions()))


def _each(items: Any) -> list[Any]:
    return [items.apply(at) for at in range(items.size())]


def _ids(attributes: Any) -> list[int]:
    return [_id(one) for one in _each(attributes)]


def _id(named: Any) -> int:
    return int(named.exprId().id())


def _class(value: Any) -> str:
    return str(value.getClass().getSimpleName())
