"""Key hashes: Spark's ``xxhash64`` (routing) and Spark's ``hash`` (placement salts), without Spark.

``hash_keys`` is the key hash of DESIGN section 4: XXH64 with seed 42 over the value as Spark lays it out; NULL
leaves the seed unchanged; with several columns each hash seeds the next. What it returns equals
``xxhash64(col, ...)`` in a Spark job to the bit, so a plan learned here routes rows there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.core.arrays.mixing import SEED, mix
from unskew.core.errors import ConfigError, KeyTypeError
from unskew.core.keys import murmur3, xxh64
from unskew.core.keys.byte_rows import ByteRows
from unskew.core.keys.columns import Column, Values
from unskew.core.keys.types import KeyType

__all__ = ["SEED", "hash_keys", "mix", "placement_salt", "spark_hash"]

U64 = NDArray[np.uint64]


@dataclass(frozen=True)
class _Hash:
    u32: Callable[..., NDArray[Any]]
    u64: Callable[..., NDArray[Any]]
    bytes: Callable[..., NDArray[Any]]


_XXH64 = _Hash(xxh64.hash_u32, xxh64.hash_u64, xxh64.hash_bytes)
_MURMUR3 = _Hash(murmur3.hash_u32, murmur3.hash_u64, murmur3.hash_bytes)


def hash_keys(*columns: Values, types: Sequence[KeyType | str] | None = None) -> U64:
    """Hash one key column, or several as one composite key.

    ``types`` are Spark type names to cast to first: for a join, the common type of both sides
    (``keytypes.common_type``). Without it each column is hashed in the type it has.

    >>> hash_keys(["a", None]).tolist()
    [9864288744972464332, 42]
    """
    return _hash(_columns(columns, types), np.array([SEED], np.uint64), _XXH64)


def spark_hash(*columns: Values, types: Sequence[KeyType | str] | None = None, seed: int = SEED) -> NDArray[np.int32]:
    """Spark's Murmur3 ``hash(col, ...)``: what Spark's own exchanges and stateful operators place rows by."""
    start = np.array([seed & 0xFFFFFFFF], np.uint32)
    return _hash(_columns(columns, types), start, _MURMUR3).view(np.int32)


def placement_salt(seed: NDArray[np.int32], partition: NDArray[np.int32], partitions: int) -> NDArray[np.int32]:
    """The int that, as the last hashed column, makes Spark place a row in ``partition``.

    ``seed`` is Spark's hash of all columns before it. Spark's partition is ``pmod(hash, partitions)``, so the
    hash to reach is the partition number itself; Murmur3 of one int is inverted in closed form.
    """
    seed, partition = np.atleast_1d(seed), np.atleast_1d(partition)
    if seed.dtype != np.int32:
        raise ConfigError("seed", seed.dtype.name, "an int32 array, as spark_hash returns it")
    if not 1 <= partitions <= 0x7FFFFFFF:
        raise ConfigError("partitions", partitions, "1 to 2147483647")
    if partition.dtype.kind not in "iu" or np.any((partition < 0) | (partition >= partitions)):
        raise ConfigError("partition", partition.tolist()[:5], f"integers from 0 to {partitions - 1}")
    return murmur3.invert_u32(partition.astype(np.uint32), seed.view(np.uint32)).view(np.int32)


def _columns(columns: Sequence[Values], types: Sequence[KeyType | str] | None) -> list[Column]:
    if not columns:
        raise ConfigError("columns", 0, "at least one key column")
    if types is not None and len(types) != len(columns):
        raise ConfigError("types", list(map(str, types)), f"one type for each of the {len(columns)} columns")
    wanted = types if types is not None else [None] * len(columns)
    ready = [Column.of(v, t) for v, t in zip(columns, wanted, strict=True)]
    if len({column.length for column in ready}) > 1:
        raise KeyTypeError(
            f"key columns have different lengths {[column.length for column in ready]}; give one value a row in each"
        )
    return ready


def _hash(columns: Sequence[Column], start: NDArray[Any], kind: _Hash) -> NDArray[Any]:
    """Hash the columns one on top of the other; a row with NULL keeps what it had."""
    out = _one(columns[0].once(), start, kind)  # one seed for all rows: each distinct value needs hashing once
    for column in columns[1:]:
        out = _one(column.flat(), out, kind)
    return out


def _one(column: Column, seed: NDArray[Any], kind: _Hash) -> NDArray[Any]:
    if column.payload is None:
        return np.broadcast_to(seed, column.length).copy()
    if isinstance(column.payload, ByteRows):
        hashed = kind.bytes(column.payload, seed)
    else:
        hashed = (kind.u64 if column.payload.itemsize == 8 else kind.u32)(column.payload, seed)
    if column.codes is not None:
        hashed = hashed.take(column.codes)
    return hashed if column.valid is None else np.where(column.valid, hashed, seed)
