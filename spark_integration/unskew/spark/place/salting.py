"""Placement salts: what makes Spark's own stateful operators keep their state where a plan wants it.

Such an operator takes no other partitioning than Spark's hash of *all* columns that it groups by. So it gets one more
column, the last one: the int for which that hash is the wanted partition. What a group is then depends on the salt:

- An aggregate over windows, in append mode: a split key's group is in fragments, one in each of its partitions. All
  come out in the batch in which the watermark passes the window's end, so its handler can merge them. In update mode
  only those come out that have changed, and a merge of these would be wrong; in complete mode state is kept for ever;
  a session's end is not known when its rows are salted. Those are refused.
- ``dropDuplicates`` and functions with state of their own: one state per key, so one salt per key as long as the query
  lives. The plan keeps keys whole, and the query's first plan is kept under its checkpoint and taken whatever plan is
  given later.
- A join of two streams: the rows of one side have a salt each, those of the other are copied, once for each fragment of
  their key. Inner only: a row without partner is there once for each copy. A row has to meet partners that came before
  it, so here too the first plan is the query's for life.

The salt leads to a partition only among so many as the query shuffles into. Spark keeps that number in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from unskew.core.errors import ConfigError, KeyTypeError, PlanError
from unskew.core.plan.plan import Plan
from unskew.spark.frame.jvm import output_mode_of
from unskew.spark.frame.keys import AUTO, Columns, free_names, hashable, key_of, quoted
from unskew.spark.place.first_plan import check_partitions, first_plan, shuffle_of
from unskew.spark.place.native import never_null, replicated
from unskew.spark.place.repartition import routed, salt_column
from unskew.spark.streaming.settings import names_only

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

__all__ = ["OPERATORS", "salt", "salted_join", "unsalted"]

AGGREGATE, JOIN = "aggregate", "join"
_DEDUPLICATE = ("dropDuplicates", "dropDuplicatesWithinWatermark")
_FUNCTIONS = ("transformWithState", "transformWithStateInPandas", "applyInPandasWithState")
OPERATORS = (AGGREGATE, *_DEDUPLICATE, *_FUNCTIONS)

_SALT = "salt"  # what the column is called
_MARK = "unskew.salt"  # in the column's metadata: what it is for, still there in the batch that a handler gets

# Spark's own marks in the metadata of a column, and its settings.
_WATERMARK, _SESSION = "spark.watermarkDelayMs", "spark.sessionWindow"
_IN_ORDER = "spark.sql.dropDuplicates.deterministicKeyOrder.enabled"
_SET = 4  # columns: from here on dropDuplicates hashed them in the order of a hash set, before there was that setting


def salt(
    df: DataFrame,
    key: str | Sequence[str],
    plan: Plan,
    *,
    operator: str = AGGREGATE,
    by: str | Sequence[str] | None = None,
    mode: str | None = None,
    spread: Columns = AUTO,
    checkpoint: str | None = None,
    name: str | None = None,
) -> Column:
    """The last column for ``operator`` to group by: ``df.select("*", salt(df, ...))``, then by ``by`` and ``"salt"``.

    Parameters
    ----------
    df, key, plan, spread : A streaming frame, the key's columns, and the plan that its rows are placed by.
    operator : Spark's operator: ``"aggregate"``, ``"dropDuplicates"``, ``"transformWithState"``, ...
    by : All columns that the operator groups by, in its order, without the salt; the key by default.
    mode : The query's output mode, for an aggregate: ``"append"``.
    checkpoint, name : The query's checkpointLocation and a name for the first plan, which is kept there; not needed for
        an aggregate, whose plan may change.

    Returns
    -------
    Column : Named ``salt``.

    Raises
    ------
    ConfigError, KeyTypeError, PlanError : The operator, its columns or the plan do not allow a salt.

    Examples
    --------
    >>> windows = stream.select("*", F.window("time", "1 minute"))
    >>> by = ["window", "user"]
    >>> windows.select("*", sk.salt(windows, "user", sk.last, by=by, mode="append", spread="id")).columns[-1]
    'salt'
    """
    keys = names_only("key", key)
    columns = keys if by is None else names_only("by", by)
    if operator == JOIN:
        raise ConfigError("operator", operator, "salted_join(left, right, on, plan), which salts both sides")
    if operator not in OPERATORS:
        raise ConfigError("operator", operator, OPERATORS)
    fields = _grouped(df, keys, columns)
    target = routed(df, plan, _columns(keys), spread)
    if operator == AGGREGATE:
        _check_aggregate(fields, mode)
        check_partitions(plan, shuffle_of(df, checkpoint))
    else:
        _check_whole(df, operator, columns, plan)
        plan = first_plan(df, plan, checkpoint, name, {"operator": operator, "by": columns, "key": keys})
        target = routed(df, plan, _columns(keys))
    return salt_column(plan.partitions, target, _columns(columns)).alias(_SALT, metadata={_MARK: operator})


def unsalted(batch: DataFrame) -> DataFrame:
    """A batch of a salted aggregate without the salt: the fragments, to be merged by the other grouping columns.

    Parameters
    ----------
    batch : What a handler of ``foreachBatch`` gets.

    Returns
    -------
    DataFrame : Without the salt.

    Raises
    ------
    ConfigError : The batch has no salt, or the query's output mode is not append.

    Examples
    --------
    >>> salted = clicks.withColumns({"salt": F.lit(1)}).withMetadata("salt", {"unskew.salt": "aggregate"})
    >>> sk.unsalted(salted).columns
    ['user', 'id']
    """
    salts = [field.name for field in batch.schema.fields if _MARK in (field.metadata or {})]
    if not salts:
        raise ConfigError("batch", batch.columns, "a batch of a query that groups by a column made by salt(...)")
    mode = output_mode_of(batch)
    if mode is not None:
        _check_mode(mode)
    return batch.drop(*salts)


def salted_join(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str],
    plan: Plan,
    *,
    how: str = "inner",
    key: str | Sequence[str] | None = None,
    spread: Columns = AUTO,
    checkpoint: str | None = None,
    name: str | None = None,
) -> DataFrame:
    """``left.join(right, on)`` of two streams: the left rows of a split key are spread, the right ones copied. A range
    of time, by which Spark forgets rows, goes into a ``where`` after it.

    Parameters
    ----------
    left, right, how : Two streams; inner joins only.
    on : Names that both sides have, with equal types.
    plan, key : The plan, and those of the names that it is for; all by default.
    spread : Columns that tell the left rows of one key apart.
    checkpoint, name : The query's checkpointLocation, and a name for the plan, which is kept there.

    Returns
    -------
    DataFrame : The columns of Spark's own join.

    Raises
    ------
    ConfigError, KeyTypeError, PlanError : The join cannot be salted, or the plan does not fit.

    Examples
    --------
    >>> sk.salted_join(stream, stream.select("user"), "user", sk.last, checkpoint=folder, name="users").columns
    ['user', 'id', 'time']
    """
    columns = names_only("on", on)
    keys = columns if key is None else names_only("key", key)
    if str(how).lower() != "inner":
        raise ConfigError(
            "how", how, "'inner': copies of a row without partner would come out once each; leave this join to Spark"
        )
    _same_types(_grouped(left, keys, columns, "left"), _grouped(right, keys, columns, "right"))
    routed(left, plan, _columns(keys), spread)  # refuses what does not fit, before a plan is kept for life
    plan = first_plan(left, plan, checkpoint, name, {"operator": JOIN, "by": columns, "key": keys})
    helper, spare = free_names(2, left, right)
    spreads = left.withColumn(helper, never_null(routed(left, plan, _columns(keys), spread)))
    copies = replicated(right, plan, key_of(right, _columns(keys), plan=plan).hash, helper, spare)
    sides = [_with_salt(side, plan.partitions, columns, helper) for side in (spreads, copies)]
    return sides[0].join(sides[1], [*columns, helper], "inner").drop(helper)


def _with_salt(df: DataFrame, partitions: int, columns: Sequence[str], helper: str) -> DataFrame:
    """``helper`` turned from the wanted partition to the salt that leads there."""
    made = salt_column(partitions, F.col(quoted(helper)), _columns(columns))
    return df.withColumn(helper, never_null(made))


def _columns(names: Sequence[str]) -> list[Column]:
    return [F.col(quoted(name)) for name in names]


# -- what is refused ----------------------------------------------------------------------------------------------


def _grouped(
    df: DataFrame, keys: tuple[str, ...], columns: tuple[str, ...], what: str = "df"
) -> dict[str, StructField]:
    """The columns that the operator groups by, or why it cannot do so by these and a salt."""
    if not df.isStreaming:
        raise ConfigError(what, "a frame that is no stream", "a streaming frame; for batches: aggregate, join, place")
    fields = {field.name: field for field in df.schema.fields}
    for name in columns:
        if name not in fields:
            have = ", ".join(df.columns)
            allowed = f"columns of the frame, {have}; add a window first, by select('*', F.window(...))"
            raise ConfigError("by", name, allowed)
        if df.columns.count(name) > 1:
            raise ConfigError("by", name, "a name that the frame has once")
        kind = fields[name].dataType
        if not hashable(kind, bytes_only=True):
            raise KeyTypeError(
                f"column {name} is of type {kind.simpleString()}: values that Spark calls equal have other bytes "
                "there, or no hash at all, so equal rows would get different salts. Cast it to a plain type"
            )
    if missing := [name for name in keys if name not in columns]:
        raise ConfigError("key", missing, f"columns that the operator groups by ({', '.join(columns)}), or name in by")
    return {name: fields[name] for name in columns}


def _check_aggregate(fields: Mapping[str, StructField], mode: str | None) -> None:
    _check_mode(mode)
    marks = {mark: name for name, field in fields.items() for mark in field.metadata or {}}
    if _SESSION in marks:
        raise ConfigError(
            "by",
            f"{marks[_SESSION]} (a session window)",
            "window(...) of a fixed length: where a session ends is known only after its rows are salted. For sessions "
            "keep your own state: stateful(), or operator='transformWithState' by a plan that keeps keys whole",
        )
    if _WATERMARK not in marks:
        raise ConfigError(
            "by",
            list(fields),
            "a window of a column with a watermark among them: else append mode never ends a group. Add it by "
            "select('*', F.window(...)): under Spark Connect withColumn takes the watermark off",
        )


def _check_mode(mode: str | None) -> None:
    if str(mode).lower() == "append":
        return
    why = {
        "update": "an update has only the fragments that have changed, and merged they are a wrong value",
        "complete": "complete mode keeps the state of all windows for ever, and sends all of it in each batch",
    }.get(str(mode).lower(), "the fragments of a window come out together only so")
    raise ConfigError(
        "mode",
        mode,
        f"'append', here and in writeStream.outputMode: {why}. For counts and sums leave the salt out: Spark combines "
        "their rows before it shuffles",
    )


def _check_whole(df: DataFrame, operator: str, columns: Sequence[str], plan: Plan) -> None:
    if plan.splits:
        raise PlanError(
            f"{operator} has one state per key and this plan splits keys: plan with a policy that keeps keys whole, "
            "Unskew(..., policy='kip')"
        )
    in_order = str(df.sparkSession.conf.get(_IN_ORDER, "false")).lower() == "true"
    if operator in _DEDUPLICATE and len(columns) >= _SET and not in_order:
        raise ConfigError(
            "by",
            list(columns),
            f"at most {_SET - 1} columns: this Spark hashes more, and the salt, in an order of its own. Put them into "
            "one struct column",
        )


def _same_types(left: Mapping[str, StructField], right: Mapping[str, StructField]) -> None:
    for name, field in left.items():
        kinds = [field.dataType.simpleString(), right[name].dataType.simpleString()]
        if kinds[0] != kinds[1]:
            raise KeyTypeError(
                f"on {name}: {kinds[0]} and {kinds[1]} hash differently for values that are equal: cast one of them"
            )
