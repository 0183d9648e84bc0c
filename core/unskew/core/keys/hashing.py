"""Key hashes that equal Spark's ``xxhash64``, computed without Spark: what rows are routed by.

``hash_keys`` is the key hash of DESIGN section 4: XXH64 with seed 42 over the value as Spark lays it out; NULL leaves
the seed unchanged; with several columns each hash seeds the next. ``columns`` lays out, ``xxh64`` hashes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unskew.core.arrays.mixing import SEED, mix
from unskew.core.arrays.types import U64
from unskew.core.errors import ConfigError, KeyTypeError
from unskew.core.keys import xxh64
from unskew.core.keys.byte_rows import ByteRows
from unskew.core.keys.columns import Column, Values
from unskew.core.keys.types import KeyType

__all__ = ["SEED", "hash_keys", "mix"]


def hash_keys(*columns: Values, types: Sequence[KeyType | str] | None = None) -> U64:
    """Hash one key column, or several as one composite key, as Spark's ``xxhash64`` does.

    A plan that was made from these hashes routes the rows of a Spark job that hashes the same columns there.

    Parameters
    ----------
    *columns
        The key columns, equally long: numpy arrays, Arrow arrays or lists.
    types
        Spark type names to cast the columns to before hashing: for a join, the common type of both sides
        (``keys.types.common_type``). Left out, each column is hashed in the type it has.

    Returns
    -------
    NDArray[np.uint64]
        One hash for each row.

    Raises
    ------
    KeyTypeError
        If a column has a type that Spark does not hash, cannot be cast as Spark would, or has another length.
    ConfigError
        If there is no column, or not one type for each column.

    Examples
    --------
    >>> hash_keys(["a", None]).tolist()
    [9864288744972464332, 42]
    >>> hash_keys([1, 2], ["x", "y"], types=["int", "string"]).shape
    (2,)
    """
    first, *others = _columns(columns, types)
    # All rows share one seed for the first column, so each distinct value needs hashing only once.
    out = _hash_column(first.once(), np.array([SEED], np.uint64))
    for column in others:
        out = _hash_column(column.flat(), out)
    return out


def _columns(columns: Sequence[Values], types: Sequence[KeyType | str] | None) -> list[Column]:
    if not columns:
        raise ConfigError("columns", 0, "at least one key column")
    if types is not None and len(types) != len(columns):
        raise ConfigError("types", list(map(str, types)), f"one type for each of the {len(columns)} columns")
    key_types = types if types is not None else [None] * len(columns)
    out = [Column.of(values, key_type) for values, key_type in zip(columns, key_types, strict=True)]
    if len({column.length for column in out}) > 1:
        raise KeyTypeError(
            f"key columns have different lengths {[column.length for column in out]}; give one value a row in each"
        )
    return out


def _hash_column(column: Column, seed: U64) -> U64:
    """Hash one column on top of ``seed`` (one for all rows, or one a row); a row with NULL keeps its seed."""
    if column.payload is None:
        return np.broadcast_to(seed, column.length).copy()
    if isinstance(column.payload, ByteRows):
        hashed = xxh64.hash_bytes(column.payload, seed)
    elif column.payload.dtype == np.uint64:
        hashed = xxh64.hash_u64(column.payload.view(np.uint64), seed)
    else:
        hashed = xxh64.hash_u32(column.payload.view(np.uint32), seed)
    if column.codes is not None:
        hashed = hashed.take(column.codes)
    return hashed if column.valid is None else np.where(column.valid, hashed, seed)
