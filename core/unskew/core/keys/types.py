"""The key types of Spark, by Spark's own names, and the common type of two of them.

A key's hash depends on its type: the int 7 and the bigint 7 hash differently, and so do ``1.0`` and ``1.00``.
A plan therefore carries its key type, and both sides of a join are cast to Spark's common type *before* hashing
(DESIGN section 4). Types that cannot be hashed exactly as Spark does are refused by name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unskew.core.errors import KeyTypeError

if TYPE_CHECKING:  # only for columns: a plan has key types by name and must not load Arrow
    import pyarrow as pa

__all__ = ["FRACTIONAL", "INTEGRAL", "KeyType", "arrow_of", "common_type", "parse", "type_of"]

_PLAIN = (
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date",
    "timestamp", "timestamp_ntz",
)  # fmt: skip
_ALIASES = {
    "bool": "boolean", "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint",
    "real": "float", "timestamp_ltz": "timestamp", "dec": "decimal", "numeric": "decimal",
}  # fmt: skip
INTEGRAL = ("tinyint", "smallint", "int", "bigint")
_INTEGRAL_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
FRACTIONAL = ("float", "double")
_DATES = ("date", "timestamp_ntz", "timestamp")
_MAX_PRECISION = 38

_DECIMAL = re.compile(r"(?:decimal|dec|numeric)\s*(?:\(\s*([0-9]{1,9})\s*(?:,\s*(-?[0-9]{1,9})\s*)?\))?")
_COLLATED = re.compile(r"(?:string|(?:var)?char\s*\(\s*\d+\s*\))\s+collate\s+(\S+)")
_CHARS = re.compile(r"(?:var)?char\s*\(\s*\d+\s*\)")

# Arrow's types by the names that it gives them. The first one of a Spark type is that in which its keys are hashed.
_SPARK_TYPES = {
    "bool": "boolean", "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "float": "float",
    "double": "double", "string": "string", "large_string": "string", "string_view": "string", "binary": "binary",
    "large_binary": "binary", "binary_view": "binary", "date32[day]": "date", "timestamp[us]": "timestamp_ntz",
    "null": "void",
}  # fmt: skip
_ARROW_TYPES = {spark: arrow for arrow, spark in reversed(_SPARK_TYPES.items())}

# Spark's other types, by how their names begin: why they cannot be keys, and what to do instead.
_REFUSED = {
    "timestamp": "nanosecond timestamps are off by default and laid out otherwise; cast to timestamp or timestamp_ntz",
    "time": "Spark 4 neither reads nor writes TIME columns by default; cast it to string",
    "interval": "Arrow has no column of it that keeps Spark's layout; cast it to string",
    "struct": "give the struct's fields as separate key columns: the hash is the same",
    "array": "cast it to string, or use to_json(col)",
    "map": "Spark itself does not hash maps, nor group by them; use to_json(map_entries(col)) or a field",
    "variant": "Spark itself does not hash variants; take a field out with variant_get, or use to_json(col)",
}


@dataclass(frozen=True)
class KeyType:
    """One of Spark's types by its simple name; precision and scale are set for decimals only."""

    name: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})" if self.name == "decimal" else self.name

    @property
    def is_decimal(self) -> bool:
        return self.name == "decimal"


def parse(text: str) -> KeyType:
    """Read Spark's simple type string (``bigint``, ``decimal(10,2)``, ``string collate UTF8_LCASE`` ...)."""
    name = text.strip().lower()
    name = _ALIASES.get(name, name)
    if name in _PLAIN or name == "void":
        return KeyType(name)
    if _CHARS.fullmatch(name):
        return KeyType("string")
    if match := _COLLATED.fullmatch(name):
        return _collated(match.group(1), text)
    if match := _DECIMAL.fullmatch(name):
        return _decimal(int(match.group(1) or 10), int(match.group(2) or 0))
    reason = next((why for start, why in _REFUSED.items() if name.startswith(start)), "cast it to string or binary")
    raise KeyTypeError(
        f"key type {text!r} cannot be hashed as Spark does, use one of {', '.join(_PLAIN)} or decimal(p,s): {reason}"
    )


def _collated(collation: str, text: str) -> KeyType:
    if collation.upper() == "UTF8_BINARY":
        return KeyType("string")
    raise KeyTypeError(
        f"key type {text!r}: two strings that this collation calls equal have different bytes, and Spark's xxhash64 "
        "reads the bytes, so equal keys would be hashed apart. Route by a column in which they are the same, such "
        "as lower(col collate UTF8_BINARY) or rtrim(col collate UTF8_BINARY)"
    )


def _decimal(precision: int, scale: int) -> KeyType:
    if not (1 <= precision <= _MAX_PRECISION and 0 <= scale <= precision):
        raise KeyTypeError(f"decimal({precision},{scale}) is no type of Spark: precision 1..38, scale 0..precision")
    return KeyType("decimal", precision, scale)


def type_of(arrow: pa.DataType) -> KeyType:
    """The Spark type of an Arrow type, as Spark's own Arrow conversion maps it."""
    import pyarrow as pa

    if pa.types.is_dictionary(arrow):
        return type_of(arrow.value_type)
    if pa.types.is_decimal(arrow):
        return _decimal(arrow.precision, arrow.scale)
    if pa.types.is_timestamp(arrow):
        return KeyType("timestamp" if arrow.tz else "timestamp_ntz")
    name = "binary" if pa.types.is_fixed_size_binary(arrow) else _SPARK_TYPES.get(str(arrow))
    if name is not None:
        return KeyType(name)
    raise KeyTypeError(
        f"an Arrow column of type {arrow} cannot be a key: Spark has no such type or gives it no stable hash. "
        "Unsigned integers: cast as Spark reads them (uint32 to int64, uint64 to decimal(20,0)). Structs, and several "
        "columns in a list: give each column as an argument of its own. Others: cast to string."
    )


def arrow_of(key: KeyType) -> pa.DataType:
    """The Arrow type in which a key of this Spark type is hashed."""
    import pyarrow as pa

    if key.is_decimal:
        return pa.decimal128(key.precision, key.scale)
    if key.name == "timestamp":
        return pa.timestamp("us", tz="UTC")
    return pa.type_for_alias(_ARROW_TYPES[key.name])


def common_type(left: KeyType | str, right: KeyType | str) -> KeyType:
    """The type to which Spark (ANSI mode, the default of Spark 4) casts both sides of ``left = right``.

    Raises ``KeyTypeError`` for pairs that Spark itself refuses to compare.
    """
    a = parse(left) if isinstance(left, str) else left
    b = parse(right) if isinstance(right, str) else right
    if a == b:
        return a
    common = _wider(a, b) or _wider(b, a)
    if common is not None:
        return common
    raise KeyTypeError(f"Spark does not compare {a} with {b}: cast one side of the join explicitly")


def _wider(a: KeyType, b: KeyType) -> KeyType | None:
    """The common type by the rules about ``a``, else None (the caller also tries the other order)."""
    if a.name == "void":
        return b
    if a.name == "string" and b.name != "void":
        return _against_string(b)
    if a.is_decimal:
        return _against_decimal(a, b)
    if a.name in FRACTIONAL and b.name in FRACTIONAL + INTEGRAL:
        return KeyType("double")
    for family in (INTEGRAL, _DATES):
        if a.name in family and b.name in family:
            return max(a, b, key=lambda t: family.index(t.name))
    return None


def _against_string(other: KeyType) -> KeyType:
    """ANSI: a string meets an integral as bigint, a fraction or decimal as double, anything else as its type."""
    if other.name in INTEGRAL:
        return KeyType("bigint")
    if other.name in FRACTIONAL or other.is_decimal:
        return KeyType("double")
    return other


def _against_decimal(decimal: KeyType, other: KeyType) -> KeyType | None:
    if other.name in FRACTIONAL:
        return KeyType("double")
    if other.name in _INTEGRAL_DIGITS:
        other = KeyType("decimal", _INTEGRAL_DIGITS[other.name], 0)
    if not other.is_decimal:
        return None
    scale = max(decimal.scale, other.scale)
    digits = max(decimal.precision - decimal.scale, other.precision - other.scale)
    scale = min(scale, _MAX_PRECISION - digits)  # past 38 digits, those before the point are kept
    return KeyType("decimal", digits + scale, scale)
