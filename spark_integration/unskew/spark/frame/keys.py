"""The key hash and the spread hash as Spark expressions, and which columns may be keys.

The key hash is Spark's own ``xxhash64`` over the key columns in their own types: what ``core.keys.hashing.hash_keys``
computes elsewhere. A plan knows the types it was made for; columns of other types are refused, because their hashes
would differ for keys that Spark calls equal (DESIGN section 4). All checks read the schema: no job runs.

The spread hash tells the rows of a split key apart. It is seeded by a number first, so that it is another function than
the key hash even of the same columns: ``xxhash64(SPREAD_SEED, columns ...)``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType, UserDefinedType, VariantType

from unskew.core.errors import ConfigError, KeyTypeError, PlanError
from unskew.core.in_flight.cell_table import CellTable
from unskew.core.keys.types import parse
from unskew.core.plan.plan import Plan
from unskew.spark.frame.jvm import deterministic
from unskew.spark.frame.lineage import DRAWN, SAME, unsteady

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "AUTO",
    "SPREAD_SEED",
    "Columns",
    "Key",
    "Spread",
    "check_new",
    "free_names",
    "has_all",
    "hashable",
    "helper",
    "is_auto",
    "key_columns",
    "key_names",
    "key_of",
    "key_without_frame",
    "quoted",
    "same_each_time",
    "spread_of",
    "spread_without_frame",
]

Columns: TypeAlias = "str | Column | Sequence[str | Column]"

SPREAD_SEED = 0x5EED  # an int: hashed as 4 bytes before the columns
AUTO = "auto"


@dataclass(frozen=True, eq=False)
class Key:
    """The hash of a frame's key, and the Spark types it was made in (``Plan.key_types``)."""

    hash: Column
    types: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Spread:
    """The spread hash, the columns it reads, and those of the frame that cannot be hashed."""

    hash: Column
    names: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def is_auto(spread: Columns) -> bool:
    """Not ``==``: a Column compared is another Column."""
    return isinstance(spread, str) and spread == AUTO


def key_of(df: DataFrame, key: Columns, *, plan: Plan | CellTable | None = None) -> Key:
    """The key hash over these columns of ``df``; with ``plan`` their types must be the plan's."""
    columns = _listed(key)
    types = tuple(_key_type(name, kind) for name, kind in _resolved(df, columns, "key"))
    if plan is not None and plan.key_types and types != plan.key_types:
        raise PlanError(_other_types(", ".join(types), plan))
    return Key(F.xxhash64(*columns), types)


def key_columns(df: DataFrame, key: Columns) -> list[Column]:
    """The key's columns one by one, as ``df.groupBy`` takes them."""
    return [df[one] if isinstance(one, str) else one for one in _listed(key)]


def key_names(df: DataFrame, key: Columns) -> tuple[str, ...]:
    """What Spark calls the key's columns."""
    return tuple(name for name, _ in _resolved(df, _listed(key), "key"))


def key_without_frame(key: Columns, plan: Plan) -> Column:
    """The key hash where no frame is at hand yet: the types are compared when Spark plans the query, and a row of
    another type raises instead of being routed. Where they agree nothing is left of the check."""
    columns = [_column(one) for one in _listed(key)]
    if not plan.key_types:
        return F.xxhash64(*columns)
    if len(columns) != len(plan.key_types):
        raise PlanError(_other_types(", ".join("?" * len(columns)), plan))
    same = F.lit(True)  # noqa: FBT003 - the value
    for column, name in zip(columns, plan.key_types, strict=True):
        same = same & (F.typeof(column) == F.lit(name))
    wrong = F.raise_error(F.lit(_other_types("other types", plan)))
    return F.when(same, F.xxhash64(*columns)).otherwise(wrong)


def spread_of(df: DataFrame, spread: Columns = AUTO) -> Spread:
    """The spread hash of ``df``: over the given columns, or (``"auto"``) over all that Spark can hash, but for strings
    with a collation, names that the frame has twice, and what another run of a task may make otherwise (``lineage``).
    An order of rows may be asked for, and has to be a total one; what is drawn may not."""
    if is_auto(spread):
        return _spread_of_all(df)
    columns = _listed(spread, "spread")
    resolved = _resolved(df, columns, "spread")
    for name, kind in resolved:
        if not hashable(kind):
            raise ConfigError("spread", f"{name} ({kind.simpleString()})", "columns without map and variant in them")
    names = tuple(name for name, _ in resolved)
    if DRAWN in (unsteady(df.select(*key_columns(df, columns))) or ()):
        raise ConfigError(
            "spread",
            ", ".join(names),
            "an expression that gives a row the same value each time: a task that runs again would send its rows "
            "elsewhere, and rows would be lost or doubled",
        )
    return Spread(spread_without_frame(spread), names)


def _spread_of_all(df: DataFrame) -> Spread:
    fields = df.schema.fields
    times = Counter(field.name.casefold() for field in fields)
    steady = unsteady(df) or [SAME] * len(fields)
    names: list[str] = []
    rest: list[str] = []
    for field, level in zip(fields, steady, strict=True):
        usable = times[field.name.casefold()] == 1 and level == SAME and hashable(field.dataType, bytes_only=True)
        (names if usable else rest).append(field.name)
    if not names:
        raise ConfigError(
            "spread",
            AUTO,
            "columns that Spark can hash and that are the same if a task runs again; of the frame's, "
            f"{', '.join(rest)}, none is",
        )
    return Spread(spread_without_frame([F.col(quoted(name)) for name in names]), tuple(names), tuple(rest))


def spread_without_frame(spread: Columns) -> Column:
    """The spread hash over columns of a frame that is not at hand: unchecked."""
    return F.xxhash64(F.lit(SPREAD_SEED), *map(_column, _listed(spread, "spread")))


def _listed(given: Columns, what: str = "key") -> list[str | Column]:
    columns = [given] if isinstance(given, (str, Column)) else list(given)
    if not columns or not all(isinstance(one, (str, Column)) for one in columns):
        raise ConfigError(what, given, "the name of a column, a Column, or several of them in a list")
    return columns


def _column(one: str | Column) -> Column:
    return F.col(one) if isinstance(one, str) else one


def helper(names: Iterable[str], name: str) -> str:
    """A name that is none of these, whatever the case."""
    taken = {one.lower() for one in names}
    made = f"__unskew_{name}"
    while made in taken:
        made += "_"
    return made


def free_names(count: int, *frames: DataFrame) -> list[str]:
    """Names that none of these frames has."""
    taken = {name.casefold() for df in frames for name in df.columns}
    return [name for name in (f"__unskew_{i}" for i in range(count + len(taken))) if name not in taken][:count]


def check_new(df: DataFrame, column: str) -> None:
    """Refuses a name that Spark would take for one of the frame's, whatever the case, and write over."""
    if column.casefold() in (name.casefold() for name in df.columns):
        raise ConfigError("column", column, "a name that the frame does not have yet")


def has_all(df: DataFrame, columns: Columns) -> bool:
    """Whether the frame has these columns. Spark is not asked: to an observation a failed analysis is a failed job."""
    names = {name.casefold() for name in df.columns}
    return all(_first_of(one).casefold() in names for one in _listed(columns) if isinstance(one, str))


def _first_of(name: str) -> str:
    """The column that a name of fields begins with."""
    return name[1:-1].replace("``", "`") if name.startswith("`") else name.split(".", 1)[0]


def quoted(name: str) -> str:
    """A column's name as it stands, dots and all."""
    return "`" + name.replace("`", "``") + "`"


def same_each_time(df: DataFrame, key: Column) -> None:
    """A key that is drawn anew each time it is evaluated would be placed by one value and grouped by another."""
    if deterministic(df, key) is False:
        raise ConfigError("key", str(key), "an expression that gives a row the same value each time")


def _resolved(df: DataFrame, columns: list[str | Column], what: str) -> list[tuple[str, DataType]]:
    """Name and type of each, read from the analysed plan. ``df[name]``, because ``select("user")`` of a frame without
    such a column is Spark's function ``user()``: one key for all rows."""
    try:
        fields = df.select(*key_columns(df, columns)).schema.fields
    except AnalysisException as why:
        names = [one if isinstance(one, str) else str(one) for one in columns]
        reason = str(why).splitlines()[0][:300]
        allowed = f"columns of the frame, {', '.join(df.columns)}, or expressions over them ({reason})"
        raise ConfigError(what, names[0] if len(names) == 1 else names, allowed) from None
    if len(fields) != len(columns):  # "*" names more than one
        raise ConfigError(what, [str(one) for one in columns], "one column each, without *")
    return [(field.name, field.dataType) for field in fields]


def _key_type(name: str, kind: DataType) -> str:
    try:
        return str(parse(kind.simpleString()))
    except KeyTypeError as why:
        raise KeyTypeError(f"key column {name}: {why}") from None


def hashable(kind: DataType, *, bytes_only: bool = False) -> bool:
    """Whether Spark hashes it; ``bytes_only``: and equal values to the same. Of the strings that a collation calls
    equal, a group keeps any one, another one where its task runs again: not for ``"auto"`` to build on."""
    if isinstance(kind, (MapType, VariantType)):
        return False
    if isinstance(kind, StringType):
        return not (bytes_only and " collate " in f"{kind.simpleString()} ")
    if isinstance(kind, ArrayType):
        return hashable(kind.elementType, bytes_only=bytes_only)
    if isinstance(kind, UserDefinedType):
        return hashable(kind.sqlType(), bytes_only=bytes_only)
    if isinstance(kind, StructType):
        return all(hashable(field.dataType, bytes_only=bytes_only) for field in kind.fields)
    return True


def _other_types(types: str, plan: Plan | CellTable) -> str:
    return (
        f"the plan is for keys of type ({', '.join(plan.key_types)}) and the key columns are of ({types}): their "
        "hashes differ for equal keys. Cast the columns to the plan's types, or make a plan for this frame"
    )
