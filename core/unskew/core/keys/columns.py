"""One key column, in the form Spark hashes it: 4-byte words, 8-byte words, or byte strings.

Takes numpy arrays, Arrow arrays and plain lists; casts to the given Spark type; leaves the arithmetic to
``xxh64``. Which type becomes which form is Spark's ``HashExpression``, checked against a live
Spark in ``tests/spark``. Plain Python values have the types Spark gives them: int is ``bigint``, float ``double``,
Decimal ``decimal(38,18)``, a list of mixed types is refused. Deviation: a datetime without a zone is
``timestamp_ntz``; Spark would read it in the session's zone, which is not known here. A plan's key type tells
the two apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.core.arrays.types import U64, Index, Mask
from unskew.core.errors import KeyTypeError
from unskew.core.keys.byte_rows import ByteRows
from unskew.core.keys.casts import cast
from unskew.core.keys.types import KeyType, parse, type_of

__all__ = ["Column", "Values", "to_arrow"]

Values: TypeAlias = "pa.Array | pa.ChunkedArray | NDArray[Any] | Sequence[object]"
Payload: TypeAlias = "NDArray[np.uint32] | NDArray[np.uint64] | ByteRows | None"

_SHORT_DECIMAL = 18  # Spark hashes decimals of up to 18 digits as their unscaled long
_FAMILIES = (bool, np.bool_, int, np.integer, float, np.floating, str, bytes, bytearray, memoryview)
_SAME: dict[type, type] = {np.bool_: bool, np.integer: int, np.floating: float, bytearray: bytes, memoryview: bytes}


@dataclass(frozen=True)
class Column:
    """``payload`` is None where every row is NULL; ``valid`` is None when there is no NULL.

    ``codes`` is set when the payload holds each distinct value once: row i has the value ``codes[i]``.
    """

    type: KeyType
    length: int
    payload: Payload
    valid: Mask | None = None
    codes: Index | None = None

    @classmethod
    def of(cls, values: Values, key_type: KeyType | str | None = None) -> Column:
        array = to_arrow(values)
        key = parse(key_type) if isinstance(key_type, str) else key_type
        key = _own_type(array, values) if key is None else key
        if pa.types.is_dictionary(array.type):
            return _encoded(array, key)
        array = cast(array, key)
        if array.null_count == len(array):
            return cls(key, len(array), None)
        valid = _bools(array.is_valid()) if array.null_count else None
        return cls(key, len(array), _payload(array, key), valid)

    def flat(self) -> Column:
        """The same column with every row's own value, for when each row has a seed of its own."""
        if self.codes is None or self.payload is None:
            return self
        return replace(self, payload=self.payload.take(self.codes), codes=None)

    def once(self) -> Column:
        """The same column with each distinct byte string once, where that is worth finding out."""
        if self.codes is not None or not isinstance(self.payload, ByteRows) or not self.payload.repeats():
            return self
        encoded = self.payload.array.dictionary_encode()
        codes = encoded.indices.to_numpy().astype(np.intp)
        return replace(self, payload=ByteRows(encoded.dictionary), codes=codes)


def to_arrow(values: Values) -> pa.Array:
    """One contiguous Arrow array of ``values``."""
    if isinstance(values, pa.ChunkedArray):
        return _one_chunk(values)
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, (str, bytes)):
        raise KeyTypeError(f"{values!r} is one value, not a column of values; put it in a list")
    if getattr(values, "ndim", 1) != 1 or isinstance(values, (pa.Table, pa.RecordBatch)):
        raise KeyTypeError(
            f"a {type(values).__name__} is not one column; give each key column by itself: "
            "hash_keys(table['a'], table['b'])"
        )
    if isinstance(values, np.ndarray) and values.dtype.kind in "USO":
        values = values.tolist()
    array = _from_python(values)
    if not isinstance(values, np.ndarray) and not pa.types.is_string(array.type):
        _one_family(values)
    return array


def _own_type(array: pa.Array, values: Values) -> KeyType:
    """The type of a column without a given type. All Python decimals have one type: else a hash would depend on the
    digits of the other values."""
    if pa.types.is_decimal(array.type) and not isinstance(values, (pa.Array, pa.ChunkedArray)):
        return KeyType("decimal", 38, 18)
    return type_of(array.type)


def _from_python(values: Any) -> pa.Array:
    try:
        array = pa.array(values)
    except UnicodeEncodeError as why:
        raise KeyTypeError(
            f"a string is not valid Unicode ({why.reason} at {why.start}), and Spark's strings are UTF-8; "
            "encode such keys yourself and give them as bytes"
        ) from None
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as why:
        raise KeyTypeError(
            f"these values are no single column of one type ({why}); give one numpy array, Arrow array or list "
            "a column, without mixed types, integers within 64 bits, datetime64 in D, s, ms, us or ns"
        ) from None
    return _one_chunk(array) if isinstance(array, pa.ChunkedArray) else array


def _one_family(values: Any) -> None:
    """Spark refuses to merge ints with floats, dates with datetimes and so on; Arrow would convert them."""
    kinds = {next((f for f in _FAMILIES if issubclass(kind, f)), kind) for kind in set(map(type, values))}
    names = {_SAME.get(kind, kind).__name__ for kind in kinds - {type(None)}}
    if any(issubclass(kind, datetime) for kind in kinds):
        zoned = {value.tzinfo is not None for value in values if isinstance(value, datetime)}
        names |= {"datetime with and without a zone"} if len(zoned) > 1 else set()
    if len(names) > 1:
        raise KeyTypeError(f"a key column of mixed types ({', '.join(sorted(names))}); convert them to one type first")


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
    """A dictionary is hashed once a value, unless it has NULLs of its own or more values than there are rows."""
    dictionary = cast(array.dictionary, key)
    if dictionary.null_count or len(dictionary) > len(array):
        return Column.of(dictionary.take(array.indices), key)
    if array.null_count == len(array):
        return Column(key, len(array), None)
    indices = pc.fill_null(array.indices, 0) if array.null_count else array.indices
    codes = np.asarray(indices.to_numpy(zero_copy_only=False)).astype(np.intp)
    valid = _bools(array.is_valid()) if array.null_count else None
    return Column(key, len(array), _payload(dictionary, key), valid, codes)


def _bools(array: pa.Array) -> Mask:
    return np.asarray(array.to_numpy(zero_copy_only=False), np.bool_)


def _payload(array: pa.Array, key: KeyType) -> Payload:
    if key.name in ("string", "binary"):
        return ByteRows.of(array)
    if key.is_decimal:
        return _decimal(array, key)
    if key.name == "boolean":
        return _bools(pc.fill_null(array, False)).astype(np.uint32)  # noqa: FBT003 - the value to fill in
    if key.name in ("timestamp", "timestamp_ntz"):
        array = array.view(pa.int64())
    elif key.name == "date":
        array = array.view(pa.int32())
    values: NDArray[Any] = (pc.fill_null(array, 0) if array.null_count else array).to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f":
        return _float_bits(values)
    return values.view(np.uint64) if values.itemsize == 8 else values.astype(np.int32).view(np.uint32)


def _float_bits(values: NDArray[Any]) -> NDArray[np.uint32] | U64:
    """The IEEE bits with one NaN and one zero, as Java's ``floatToIntBits`` after Spark's -0.0 rule."""
    bits: NDArray[Any] = np.where(np.isnan(values), values.dtype.type(np.nan), values + values.dtype.type(0))
    return bits.view(np.uint64) if values.itemsize == 8 else bits.view(np.uint32)


def _decimal(array: pa.Array, key: KeyType) -> U64 | ByteRows:
    words = np.frombuffer(array.buffers()[1], np.uint64, 2 * len(array), 16 * array.offset).reshape(-1, 2)
    return np.ascontiguousarray(words[:, 0]) if key.precision <= _SHORT_DECIMAL else _big_integers(words)


def _big_integers(words: U64) -> ByteRows:
    """Java's ``BigInteger.toByteArray``: big-endian two's complement in as few bytes as hold the sign."""
    big = np.ascontiguousarray(words).view(np.uint8).reshape(-1, 16)[:, ::-1]
    sign = np.where(big[:, :1] >= 128, np.uint8(255), np.uint8(0))
    same_sign = (big[:, 1:] >= 128) == (sign == 255)
    spare = np.logical_and.accumulate((big[:, :-1] == sign) & same_sign, axis=1).sum(axis=1)
    return ByteRows.cut(big, spare)
