"""One key column, in the form Spark hashes it: 4-byte words, 8-byte words, or byte strings.

Takes numpy arrays, Arrow arrays and plain lists; casts to the wanted Spark type; leaves the arithmetic to
``xxh64`` and ``murmur3``. Which type becomes which form is Spark's ``HashExpression``, checked against a live
Spark in ``tests/spark``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.core.bytesview import ByteRows
from unskew.core.errors import KeyTypeError
from unskew.core.keytypes import KeyType, arrow_of, parse, type_of

__all__ = ["Column", "Values", "to_arrow"]

Values: TypeAlias = "pa.Array | pa.ChunkedArray | NDArray[np.generic] | Sequence[object]"

_SHORT_DECIMAL = 18  # Spark hashes decimals of up to 18 digits as their unscaled long


@dataclass(frozen=True)
class Column:
    """``words`` (4 or 8 bytes each) or ``bytes``; ``valid`` is None when there is no NULL.

    ``codes`` is set when the payload holds each distinct value once: row i has the value ``codes[i]``.
    """

    type: KeyType
    length: int
    payload: NDArray[np.uint32] | NDArray[np.uint64] | ByteRows | None
    valid: NDArray[np.bool_] | None = None
    codes: NDArray[np.intp] | None = None

    @classmethod
    def of(cls, values: Values, wanted: KeyType | str | None = None) -> Column:
        array = to_arrow(values)
        key = parse(wanted) if isinstance(wanted, str) else wanted
        key = type_of(array.type) if key is None else key
        if pa.types.is_dictionary(array.type):
            return _encoded(array, key)
        array = _cast(array, key)
        valid = None if array.null_count == 0 else _numpy(array.is_valid())
        return cls(key, len(array), _payload(array, key), valid)

    def flat(self) -> Column:
        """The same column with every row's own value, for when each row has a seed of its own."""
        if self.codes is None or self.payload is None:
            return self
        return Column(self.type, self.length, self.payload.take(self.codes), self.valid)


def to_arrow(values: Values) -> pa.Array:
    """One contiguous Arrow array of ``values``."""
    if isinstance(values, pa.ChunkedArray):
        return _one_chunk(values)
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, np.ndarray) and values.dtype.kind in "US":
        values = values.tolist()
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError) as why:
        raise KeyTypeError(
            f"these values are no single column of one type ({why}); give one numpy array, Arrow array or list "
            "a column, without mixed types"
        ) from None


def _one_chunk(values: pa.ChunkedArray) -> pa.Array:
    if values.num_chunks == 1:
        return values.chunk(0)
    wide = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(values.type)
    if wide is not None:  # 32-bit offsets cannot address the joined chunks beyond 2 GB
        values = values.cast(wide)
    if pa.types.is_dictionary(values.type):
        values = values.unify_dictionaries()
    joined = values.combine_chunks()
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def _encoded(array: pa.DictionaryArray, key: KeyType) -> Column:
    once = Column.of(array.dictionary, key)
    if once.valid is not None:
        return Column.of(array.dictionary_decode(), key)
    valid = None if array.null_count == 0 else _numpy(array.is_valid())
    codes = _numpy(pc.fill_null(array.indices, 0) if array.indices.null_count else array.indices)
    if len(array.dictionary) == 0:
        return Column.of(pa.nulls(len(array)), key)
    return Column(key, len(array), once.payload, valid, codes.astype(np.intp, copy=False))


def _numpy(array: pa.Array) -> NDArray[np.generic]:
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _cast(array: pa.Array, key: KeyType) -> pa.Array:
    have = type_of(array.type)
    if {have.name, key.name} == {"date", "timestamp"} or {have.name, key.name} == {"timestamp_ntz", "timestamp"}:
        raise KeyTypeError(
            f"a {have} column cannot be hashed as {key} here: the result depends on the session's time zone. "
            "Cast the column in Spark, then hash it."
        )
    target = arrow_of(key)
    if array.type == target:
        return array
    try:
        return array.cast(target)
    except pa.ArrowException as why:
        raise KeyTypeError(f"a column of type {array.type} cannot be cast to {key} without loss: {why}") from None


def _payload(array: pa.Array, key: KeyType) -> NDArray[np.uint32] | NDArray[np.uint64] | ByteRows | None:
    if key.name == "void":
        return None
    if key.name in ("string", "binary"):
        return ByteRows.of(array)
    if key.is_decimal:
        return _decimal(array, key)
    if key.name in ("float", "double"):
        return _float_bits(array, key)
    if key.name == "boolean":
        return _numpy(pc.fill_null(array, False)).astype(np.uint32)
    plain = array.view(pa.int32()) if key.name == "date" else array
    if key.name in ("timestamp", "timestamp_ntz"):
        plain = array.view(pa.int64())
    values = _numpy(pc.fill_null(plain, 0) if plain.null_count else plain)
    if values.dtype == np.int64:
        return values.view(np.uint64)
    return values.astype(np.int32, copy=False).view(np.uint32)


def _float_bits(array: pa.Array, key: KeyType) -> NDArray[np.uint32] | NDArray[np.uint64]:
    """The IEEE bits with one NaN and one zero, as Java's ``floatToIntBits`` after Spark's -0.0 rule."""
    values = _numpy(pc.fill_null(array, 0.0) if array.null_count else array)
    values = np.where(np.isnan(values), np.asarray(np.nan, values.dtype), values + 0.0)
    return values.view(np.uint64 if key.name == "double" else np.uint32)


def _decimal(array: pa.Array, key: KeyType) -> NDArray[np.uint64] | ByteRows:
    raw = np.frombuffer(array.buffers()[1], np.uint64).reshape(-1, 2)
    words = raw[array.offset : array.offset + len(array)]
    if key.precision <= _SHORT_DECIMAL:
        return np.ascontiguousarray(words[:, 0])
    return _big_integers(words)


def _big_integers(words: NDArray[np.uint64]) -> ByteRows:
    """Java's ``BigInteger.toByteArray``: big-endian two's complement in as few bytes as hold the sign."""
    big = np.ascontiguousarray(words).view(np.uint8).reshape(-1, 16)[:, ::-1]
    sign = np.where(big[:, 0] >= 128, 255, 0).astype(np.uint8)
    same_sign = (big[:, 1:] >= 128) == (sign[:, None] == 255)
    spare = np.logical_and.accumulate((big[:, :-1] == sign[:, None]) & same_sign, axis=1).sum(axis=1)
    starts = np.arange(len(big), dtype=np.int64) * 16 + spare
    return ByteRows(np.ascontiguousarray(big).reshape(-1), starts, 16 - spare.astype(np.int64))
