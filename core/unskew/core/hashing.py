"""Key hashes: Spark's ``xxhash64`` (routing) and Spark's ``hash`` (placement salts), without Spark.

``hash_keys`` is the key hash of DESIGN section 4: XXH64 with seed 42 over the value as Spark lays it out; NULL
leaves the seed unchanged; with several columns each hash seeds the next. What it returns equals
``xxhash64(col, ...)`` in a Spark job to the bit, so a plan learned here routes rows there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unskew.core import murmur3, xxh64
from unskew.core.bytesview import ByteRows
from unskew.core.columns import Column, Values, to_arrow
from unskew.core.errors import ConfigError, KeyTypeError
from unskew.core.keytypes import KeyType

__all__ = ["SEED", "hash_keys", "mix", "placement_salt", "spark_hash"]

SEED = 42
U64 = NDArray[np.uint64]

# Below this many rows, or where fewer than a quarter repeat, finding the distinct values costs more than hashing.
_PROBE_ROWS = 16_384
_REPEATS = 0.25


def hash_keys(*columns: Values, types: Sequence[KeyType | str] | None = None) -> U64:
    """Hash one key column, or several as one composite key.

    ``types`` are Spark type names to cast to first: for a join, the common type of both sides
    (``keytypes.common_type``). Without it each column is hashed in the type it has.

    >>> hash_keys(["a", None]).tolist()
    [15347103895264012286, 42]
    """
    out = np.array([SEED], np.uint64)
    for column in _columns(columns, types):
        if isinstance(column.payload, np.ndarray):
            wide = column.payload.dtype == np.uint64
            out = _chain(column, out, xxh64.hash_u64 if wide else xxh64.hash_u32)
        else:
            out = _chain(column, out, xxh64.hash_bytes)
    return out


def spark_hash(
    *columns: Values, types: Sequence[KeyType | str] | None = None, seed: int = SEED
) -> NDArray[np.int32]:
    """Spark's Murmur3 ``hash(col, ...)``: what Spark's own exchanges and stateful operators place rows by."""
    out = np.array([seed & 0xFFFFFFFF], np.uint32)
    for column in _columns(columns, types):
        if isinstance(column.payload, np.ndarray):
            wide = column.payload.dtype == np.uint64
            out = _chain(column, out, murmur3.hash_u64 if wide else murmur3.hash_u32)
        else:
            out = _chain(column, out, murmur3.hash_bytes)
    return out.view(np.int32)


def placement_salt(seed: NDArray[np.int32], partition: NDArray[np.int32], partitions: int) -> NDArray[np.int32]:
    """The int that, as the last hashed column, makes Spark place a row in ``partition``.

    ``seed`` is Spark's hash of all columns before it. Spark's partition is ``pmod(hash, partitions)``, so the
    hash to reach is the partition number itself; Murmur3 of one int is inverted in closed form.
    """
    if partitions < 1 or np.any((partition < 0) | (partition >= partitions)):
        raise ConfigError("partition", np.asarray(partition).tolist()[:5], f"0 to {partitions - 1}")
    wanted = np.asarray(partition, np.int32).view(np.uint32)
    return murmur3.invert_u32(wanted, np.asarray(seed, np.int32).view(np.uint32)).view(np.int32)


def mix(hashes: U64, salt: int) -> U64:
    """A second, independent hash of key hashes (the splitmix64 finaliser, salted).

    The plan's tail reads the top bits of the key hash, so all keys of one partition share them; a sketch or a
    further hash choice must not read those bits again.
    """
    z = hashes + np.uint64((salt * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _columns(columns: Sequence[Values], types: Sequence[KeyType | str] | None) -> list[Column]:
    if not columns:
        raise ConfigError("columns", 0, "at least one key column")
    if types is not None and len(types) != len(columns):
        raise ConfigError("types", list(map(str, types)), f"one type for each of the {len(columns)} columns")
    wanted = types if types is not None else [None] * len(columns)
    ready = [Column.of(v, t) for v, t in zip(columns, wanted, strict=True)]
    if len({column.length for column in ready}) > 1:
        raise KeyTypeError(f"key columns have different lengths: {[column.length for column in ready]}")
    return ready


def _distinct_once(column: Column, values: Values) -> Column:
    """Byte strings that repeat are found once each; a probe decides whether that pays."""
    if not isinstance(column.payload, ByteRows) or column.codes is not None or column.length < 4 * _PROBE_ROWS:
        return column
    array = to_arrow(values)
    if len(array.slice(0, _PROBE_ROWS).unique()) > (1 - _REPEATS) * _PROBE_ROWS:
        return column
    return Column.of(array.dictionary_encode(), column.type)


def _chain(column: Column, seed: NDArray[np.unsignedinteger], hasher) -> NDArray[np.unsignedinteger]:  # type: ignore[no-untyped-def,type-arg]
    """Hash one column on top of the columns before it; rows with NULL keep what they had."""
    if column.payload is None:
        return np.broadcast_to(seed, (column.length,)).copy()
    if len(seed) > 1:
        column = column.flat()
    hashed = hasher(column.payload, seed)
    if column.codes is not None:
        hashed = hashed.take(column.codes)
    if len(hashed) != column.length:
        raise KeyTypeError(f"key columns have different lengths: {len(hashed)} and {column.length}")
    if column.valid is not None:
        hashed = np.where(column.valid, hashed, seed)
    return hashed
