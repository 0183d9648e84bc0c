"""Casts of a key column to a Spark type: those that give Spark's own result, and no others.

Arrow would cast more, but not always as Spark: an integer to a timestamp (Spark: seconds, Arrow: microseconds),
a string to a number (Spark trims, Arrow reads hexadecimal), anything between a zoned timestamp and the rest
(Spark: the zone of the session). Those are refused; Spark itself can do them before the key is hashed.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from unskew.core.errors import KeyTypeError
from unskew.core.keys.types import FRACTIONAL, INTEGRAL, KeyType, arrow_of, type_of

__all__ = ["cast"]

_AS_THEY_ARE = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
_BYTES = ("string", "binary")


def cast(array: pa.Array, key: KeyType) -> pa.Array:
    """``array`` in the Arrow type that a key of this Spark type is hashed in."""
    have = type_of(array.type)
    if have != key and not _as_spark(have, key):
        zone = " (the result depends on the session's time zone)" if "timestamp" in (have.name, key.name) else ""
        raise KeyTypeError(
            f"a {have} column cannot be cast to {key} here exactly as Spark would{zone}; "
            f"cast the column to {key} in Spark, then hash it"
        )
    try:
        return _cast(array, have, key)
    except pa.ArrowException as why:
        raise KeyTypeError(
            f"a column of type {array.type} has values that do not fit {key} ({why}); "
            "hash it in a wider type, or convert these values first"
        ) from None


def _as_spark(have: KeyType, key: KeyType) -> bool:
    if have.name == "void" or (have.name == "date" and key.name == "timestamp_ntz"):
        return True
    if have.name in _BYTES:
        return key.name in _BYTES
    if have.name in INTEGRAL:
        return key.name in INTEGRAL or key.name in FRACTIONAL or key.is_decimal
    if have.is_decimal:
        return key.is_decimal or key.name == "double"
    return have.name in FRACTIONAL and key.name in FRACTIONAL


def _cast(array: pa.Array, have: KeyType, key: KeyType) -> pa.Array:
    if key.name in _BYTES:
        return _bytes(array, have, key)
    if key.name == "timestamp" and have == key:
        return array.cast(pa.timestamp("us", tz=array.type.tz))
    if key.name in FRACTIONAL and have.is_decimal:
        return array.cast(pa.string()).cast(arrow_of(key))  # Arrow's own cast is off by one bit now and then
    if key.name in FRACTIONAL:
        return array.cast(arrow_of(key), safe=False)  # beyond 2^53 rounded, as Java does
    if key.is_decimal and have.name in INTEGRAL:
        array = array.cast(pa.decimal128(19, 0))
    if key.is_decimal and have.is_decimal and have.scale > key.scale:
        wide = array.cast(pa.decimal256(have.precision + 1, have.scale))  # 0.99 may round up to 1.0
        array = pc.round(wide, key.scale, "half_towards_infinity")
    return array.cast(arrow_of(key))


def _bytes(array: pa.Array, have: KeyType, key: KeyType) -> pa.Array:
    if array.type in _AS_THEY_ARE and (have == key or key.name == "binary"):
        return array
    return array.cast(pa.large_string() if key.name == "string" else pa.large_binary())
