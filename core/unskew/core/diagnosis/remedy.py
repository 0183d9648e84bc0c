"""What to write for an operator whose stage waits for its longest task, or why unskew has nothing for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unskew.core.diagnosis import spark_operator as kinds
from unskew.core.diagnosis.expressions import KeyColumn
from unskew.core.diagnosis.spark_operator import Operator

__all__ = ["Remedy", "remedy_of"]


@dataclass(frozen=True)
class Remedy:
    """``advise``: the call that counts the keys and says what is to gain; ``write``: the line that mends it. Both are
    empty where unskew has nothing, and ``words`` says why, or what else helps."""

    advise: str = ""
    write: str = ""
    words: str = ""

    def __bool__(self) -> bool:
        return bool(self.write)


def remedy_of(operator: Operator) -> Remedy:
    """The remedy for an operator.

    >>> key = (KeyColumn("user", True),)
    >>> remedy_of(Operator("group_apply", "FlatMapGroupsInPandas", (key,))).advise
    "sk.advise(df, key='user', operator='group_apply')"
    """
    make = _REMEDIES.get(operator.kind)
    return Remedy(words=_NONE[operator.kind]) if make is None else make(operator)


def _join(operator: Operator) -> Remedy:
    left, right = (*operator.keys, (), ())[:2]
    if not left or len(left) != len(right) or not all(column.plain for column in (*left, *right)):
        return Remedy(
            words="the plan does not name the join's columns, or joins by expressions: make them columns first"
        )
    names = [column.text for column in left]
    others = [column.text for column in right]
    renamed = "".join(f".withColumnRenamed({b!r}, {a!r})" for a, b in zip(names, others, strict=True) if a != b)
    on: object = _short(names) if names == others else list(zip(names, others, strict=True))
    how = _HOW.get(operator.how, "inner")
    typed = "" if how == "inner" else f", how={how!r}"
    return Remedy(
        f"sk.advise(left, key={_short(names)!r}, operator='join', other=right{renamed}{typed})",
        f"sk.join(left, right, on={on!r}{typed})",
        "" if how != "full" else "a full join keeps keys whole: a hot key stays in one task",
    )


def _by_key(line: str) -> Callable[[Operator], Remedy]:
    def remedy(operator: Operator) -> Remedy:
        key = _key(operator.keys[0] if operator.keys else ())
        return Remedy(f"sk.advise(df, key={key}, operator={operator.kind!r})", line.format(key=key))

    return remedy


def _aggregate(operator: Operator) -> Remedy:
    key = _key(operator.keys[0] if operator.keys else ())
    return Remedy(
        f"sk.advise(df, key={key}, operator='aggregate')",
        f"sk.aggregate(df, {key}, partial, merge, schema)",
        "if partial states can be merged; count, sum and avg Spark combines itself (operator='sql')",
    )


def _key(columns: tuple[KeyColumn, ...]) -> str:
    """As Python: a name, a list of names, or expressions."""
    if not columns:
        return "..."
    parts = [repr(column.text) if column.plain else f"F.expr({column.text!r})" for column in columns]
    return parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]"


def _short(names: list[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else names


_HOW = {
    "LeftOuter": "left", "RightOuter": "right", "FullOuter": "full", "LeftSemi": "left_semi", "LeftAnti": "left_anti",
}  # fmt: skip
_PAIRS = Remedy(
    "sk.advise(rdd.toDF(['key', 'value']), key='key', operator='repartition')",
    "sk.partition_by(rdd, key=lambda record: record[0])",
    "before the step that gathers keys; policy='kip' keeps keys whole, as groupByKey needs them",
)
_REMEDIES: dict[str, Callable[[Operator], Remedy]] = {
    kinds.JOIN: _join,
    kinds.GROUPS: _by_key("sk.group_apply(df, {key}, fn, schema)"),
    kinds.REPARTITION: _by_key("sk.repartition(df, {key})"),
    kinds.AGGREGATE: _aggregate,
    kinds.RDD: lambda _: _PAIRS,
}
_NONE = {
    kinds.WINDOW: "no verb of unskew splits a window's key; a smaller key (a day within it) or two steps help",
    kinds.COGROUPS: "cogroups are kept whole by Spark; unskew has no verb for them",
    kinds.SORT: "rows are placed by ranges, not by a key's hash; sort by more columns, or not at all",
    kinds.SINGLE: "all rows go to one task because there is no key; give the window or the aggregate a key",
    kinds.WRITE: "rows are written as they came; df.repartition(n) before the write evens them",
    kinds.SCAN: "the input is read in uneven splits, no rows are placed by a key: "
    "smaller files, or spark.sql.files.maxPartitionBytes",
    kinds.OTHER: "the plan does not say by which key rows were placed",
}
