"""Spark's ``hash(col, ...)`` (Murmur3) over numpy arrays: what Spark's own exchanges place rows by.

The product only inverts it for one int (``unskew.core.keys.murmur3_inverse``); tests need it whole, to show that the
inverse is right and that columns are laid out as Spark lays them out. Spark's variant of Murmur3_x86_32 differs from
the public one in the tail: each of the last 1-3 bytes is taken as a sign-extended int through a full round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.core.arrays.mixing import SEED
from unskew.core.keys.byte_rows import ByteRows
from unskew.core.keys.columns import Column, Values
from unskew.core.keys.murmur3_inverse import invert_u32
from unskew.core.keys.types import KeyType

__all__ = ["hash_u32", "placement_salt", "spark_hash"]

U32 = NDArray[np.uint32]

C1, C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
FINAL_1, FINAL_2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)


def spark_hash(*columns: Values, types: Sequence[KeyType | str] | None = None, seed: int = SEED) -> NDArray[np.int32]:
    """Spark's Murmur3 ``hash(col, ...)``; each column's hash seeds the next, NULL leaves the seed unchanged."""
    out = np.array([seed & 0xFFFFFFFF], np.uint32)
    for values, key_type in zip(columns, types or [None] * len(columns), strict=True):
        out = _hash_column(Column.of(values, key_type).flat(), out)
    return out.view(np.int32)


def placement_salt(seed: NDArray[np.int32], partition: NDArray[np.int32], partitions: int) -> NDArray[np.int32]:
    """The int that, as the last hashed column, makes Spark place a row in ``partition``.

    ``seed`` is Spark's hash of all columns before it. Spark's partition is ``pmod(hash, partitions)``, so the
    hash to reach is the partition number itself.
    """
    assert ((partition >= 0) & (partition < partitions)).all()
    return invert_u32(partition.astype(np.uint32), seed.view(np.uint32)).view(np.int32)


def _hash_column(column: Column, seed: U32) -> U32:
    if column.payload is None:
        return np.broadcast_to(seed, column.length).copy()
    if isinstance(column.payload, ByteRows):
        hashed = _hash_bytes(column.payload, seed)
    elif column.payload.itemsize == 8:
        low = (column.payload & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        high = (column.payload >> np.uint64(32)).astype(np.uint32)
        hashed = _finish(_mix(_mix(seed, low), high), 8)
    else:
        hashed = hash_u32(column.payload.astype(np.uint32, copy=False), seed)
    return hashed if column.valid is None else np.where(column.valid, hashed, seed)


def hash_u32(values: U32, seed: U32) -> U32:
    """Spark's hash of an int."""
    out: U32 = _finish(_mix(seed, values), 4)
    return out


def _rotate(x: Any, by: int) -> Any:
    return (x << np.uint32(by)) | (x >> np.uint32(32 - by))


def _mix(h: Any, word: Any) -> Any:
    h = h ^ (_rotate(word * C1, 15) * C2)
    return _rotate(h, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finish(h: Any, length: int) -> Any:
    h = h ^ np.array([length], np.uint32)
    h = (h ^ (h >> np.uint32(16))) * FINAL_1
    h = (h ^ (h >> np.uint32(13))) * FINAL_2
    return h ^ (h >> np.uint32(16))


def _hash_bytes(rows: ByteRows, seed: U32) -> U32:
    values = rows.array.view(pa.binary() if pa.types.is_string(rows.array.type) else pa.large_binary()).to_pylist()
    seeds = np.broadcast_to(seed, len(values))
    hashes = [_hash_row(value, seeds[i : i + 1]) for i, value in enumerate(values)]
    return np.concatenate([np.zeros(0, np.uint32), *hashes])


def _hash_row(value: bytes, seed: U32) -> U32:
    whole = len(value) & ~3
    words = np.frombuffer(value[:whole], "<u4")
    tail = np.frombuffer(value[whole:], np.int8).astype(np.int32).view(np.uint32)
    h = seed
    for word in [*words, *tail]:
        h = _mix(h, np.array([word], np.uint32))
    out: U32 = _finish(h, len(value))
    return out
