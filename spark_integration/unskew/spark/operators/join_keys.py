"""Which columns two frames are joined by, in which type, and what of it is refused. Reads schemas only: no job runs.

Both sides are cast to the type in which Spark compares them before they are hashed: an int and a bigint of one value
hash differently, and so do two scales of a decimal (DESIGN section 4). ``core.keys.types.common_type`` knows Spark's
rules in ANSI mode, the default of Spark 4. With it off other rules hold where strings and fractions are concerned;
pairs that both modes compare alike are taken there, others are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark code

from unskew.core.errors import ConfigError, KeyTypeError
from unskew.core.keys.types import INTEGRAL, KeyType, common_type, parse
from unskew.core.operators.join_plan import HOWS, LEFT, RIGHT
from unskew.spark.frame.keys import key_of, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["JoinKeys", "On", "how_of", "join_keys"]

On: TypeAlias = "str | Sequence[str] | Sequence[tuple[str, str]]"

_ALIASES = {
    "leftouter": "left", "rightouter": "right", "outer": "full", "fullouter": "full", "semi": "left_semi",
    "leftsemi": "left_semi", "anti": "left_anti", "leftanti": "left_anti",
}  # fmt: skip
_CHAR = "__CHAR_VARCHAR_TYPE_STRING"  # where Spark keeps that a column of a table is a char(n): its length pads
_DATES = ("date", "timestamp", "timestamp_ntz")
_FIXED = re.compile(r"\s*char\s*\(")


@dataclass(frozen=True, eq=False)
class JoinKeys:
    """The key's names on both sides, and the types in which they meet. ``using``: equal names, in the result once."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    types: tuple[str, ...]
    using: bool

    def cast(self, side: str) -> list[Column]:
        """The key columns of a side in the common types."""
        names = self.left if side == LEFT else self.right
        return [F.col(quoted(name)).cast(kind) for name, kind in zip(names, self.types, strict=True)]


def how_of(how: str) -> str:
    """Spark's name of the join type, without its many spellings."""
    plain = how.lower().replace("_", "") if isinstance(how, str) else how
    for name in HOWS:
        if plain == name.replace("_", ""):
            return name
    if plain in _ALIASES:
        return _ALIASES[plain]
    if plain == "cross":
        raise ConfigError("how", how, "DataFrame.crossJoin: a cross join has no key to place rows by")
    raise ConfigError("how", how, [*HOWS, "or Spark's other names of these"])


def join_keys(left: DataFrame, right: DataFrame, on: On) -> JoinKeys:
    """The checked keys of a join."""
    pairs, using = _pairs(on)
    names = [(_found(left, a, LEFT), _found(right, b, RIGHT)) for a, b in pairs]
    lefts, rights = tuple(a for a, _ in names), tuple(b for _, b in names)
    left_types = key_of(left, [F.col(quoted(name)) for name in lefts]).types
    right_types = key_of(right, [F.col(quoted(name)) for name in rights]).types
    ansi = str(left.sparkSession.conf.get("spark.sql.ansi.enabled", "true")).lower() == "true"
    types = []
    for (a, b), one, other in zip(names, left_types, right_types, strict=True):
        _same_padding(left, a, right, b)
        types.append(str(_common(a, b, parse(one), parse(other), ansi=ansi)))
    return JoinKeys(lefts, rights, tuple(types), using)


def _pairs(on: On) -> tuple[list[tuple[str, str]], bool]:
    given = [on] if isinstance(on, str) else on
    allowed = (
        "the name of a column that both sides have, a list of such names, or a list of pairs (left name, right name)"
    )
    if not isinstance(given, Sequence) or not given:
        raise ConfigError("on", on, allowed)
    if all(isinstance(one, str) for one in given):
        return [(str(one), str(one)) for one in given], True
    if all(isinstance(one, tuple) and len(one) == 2 and all(isinstance(name, str) for name in one) for one in given):
        return [(one[0], one[1]) for one in given], False
    raise ConfigError("on", on, allowed)


def _found(df: DataFrame, name: str, side: str) -> str:
    """The column's own name. As Spark does it, a name is taken as it stands, with its dots."""
    exact = str(df.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"
    same = [one for one in df.columns if one == name or (not exact and one.lower() == name.lower())]
    if not same:
        raise ConfigError("on", name, f"columns of the {side} frame: {', '.join(df.columns)}")
    if len(same) > 1:
        raise ConfigError("on", name, f"a name that the {side} frame has once; it has {', '.join(same)}: rename one")
    return same[0]


def _common(left: str, right: str, one: KeyType, other: KeyType, *, ansi: bool) -> KeyType:
    try:
        kind = common_type(one, other)
    except KeyTypeError as why:
        raise KeyTypeError(f"on {left} = {right}: {why}") from None
    if ansi or one == other or _alike(one, other):
        return kind
    raise ConfigError(
        "spark.sql.ansi.enabled",
        "false",
        f"true, or cast {left} ({one}) or {right} ({other}) to the type of the other: without ANSI mode Spark compares "
        "the two in another type than the one in which unskew would hash them",
    )


def _alike(one: KeyType, other: KeyType) -> bool:
    """Pairs that Spark compares in one type whether ANSI mode is on or off."""
    whole = all(kind.name in INTEGRAL or kind.is_decimal for kind in (one, other))
    return whole or all(kind.name in _DATES for kind in (one, other)) or "void" in (one.name, other.name)


def _same_padding(left: DataFrame, a: str, right: DataFrame, b: str) -> None:
    """Spark pads the shorter of two char(n) columns before it compares them, and not before it hashes them."""
    kinds = [_fixed(left, a), _fixed(right, b)]
    if all(kinds) and kinds[0] != kinds[1]:
        raise KeyTypeError(
            f"on {a} = {b}: {kinds[0]} and {kinds[1]} are equal to Spark when padded, and have other bytes: cast both "
            "to string with rtrim(col) or rpad(col, n, ' ')"
        )


def _fixed(df: DataFrame, name: str) -> str | None:
    """``char(n)`` where the column is one, by a table's metadata or by its type."""
    field = next(field for field in df.schema.fields if field.name == name)
    for text in (str((field.metadata or {}).get(_CHAR, "")), field.dataType.simpleString()):
        if _FIXED.match(text):
            return text.strip()
    return None
