"""Arrays in JSON requests: lists that become numpy arrays.

Validating each number by itself takes most of the time of reading JSON: 1.1 us a hash, so that a thousand took longer
than the rest of the call. So a list is converted as a whole first. If that fails, because one number is wrong or the
hashes are written in different ways, each number is validated by itself, which says what is wrong and where. Both ways
accept the same lists and return the same arrays.

A key hash has 64 bits, more than a JavaScript number holds. It is read from a string (decimal, signed as Spark has it
or not, or ``0x...``) or from a number, and written as a decimal string, unsigned (``encoder.decimals``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, SchemaValidator, core_schema

from unskew.core.limits import MAX_PARTITIONS
from unskew.service.app.settings import MAX_JSON_KEYS

__all__ = ["AllHashes", "Count", "Counts", "Hash", "Hashes", "Matrix", "PerHost", "PerWorker", "hash_of", "no_numbers"]

Array = NDArray[Any]

_MOST = 2**63 - 1
_LONGEST = 20  # digits of 2^64 - 1, or of -2^63
_UNSIGNED = 2**64 - 1
_DECIMAL = re.compile(r"-?[0-9]{1,20}")
_HEX = re.compile(r"0[xX][0-9a-fA-F]{1,16}")
_TO_UNSIGNED, _TO_SIGNED = pc.CastOptions.safe(pa.uint64()), pc.CastOptions.safe(pa.int64())


def hash_of(value: object) -> int:
    """64 bits from a number or a string, unsigned; a ``ValueError`` if it is neither."""
    if isinstance(value, str):
        if _HEX.fullmatch(value):
            return int(value, 16)
        if _DECIMAL.fullmatch(value):
            value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**64:
        return value & _UNSIGNED
    raise ValueError("a hash has 64 bits: decimal, signed or not, or 0x and hexadecimal digits")


_HASH_SCHEMA = {
    "anyOf": [{"type": "string", "pattern": "^(-?[0-9]{1,20}|0[xX][0-9a-fA-F]{1,16})$"}, {"type": "integer"}],
    "description": "64 bits; strings keep all of them in any language",
    "examples": ["9864288744972464332"],
}
Hash = Annotated[int, BeforeValidator(hash_of), WithJsonSchema(_HASH_SCHEMA)]
Count = Annotated[int, Field(ge=0, le=_MOST)]


@dataclass(frozen=True)
class _ListAsArray:
    """A list of at most ``most`` items of type ``item``, as an array. ``whole`` converts a list of ``loose`` items, or
    returns None; then each item is validated and ``convert`` makes the array."""

    item: Any
    loose: Any
    whole: Callable[[list[Any]], Array | None]
    convert: Callable[[list[Any]], Array]
    most: int | None

    def __get_pydantic_core_schema__(self, _source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        strict = SchemaValidator(handler.generate_schema(list[self.item]))  # type: ignore[name-defined]  # a type made at run time
        loose = handler.generate_schema(Annotated[list[self.loose], Field(max_length=self.most)])  # type: ignore[name-defined]  # a type made at run time

        def validate(value: list[Any]) -> Array:
            array = self.whole(value)
            return self.convert(strict.validate_python(value)) if array is None else array

        return core_schema.no_info_after_validator_function(validate, loose)

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        listed = Annotated[list[self.item], Field(max_length=self.most)]  # type: ignore[name-defined]  # a type made at run time
        return handler(TypeAdapter(listed).core_schema)


def _whole_hashes(value: list[Any]) -> Array | None:
    if not value:
        return None
    if type(value[0]) is str:
        return _texts(value)
    return _integers(value) if set(map(type, value)) == {int} else None


def _texts(value: list[Any]) -> Array | None:
    try:
        text = pa.array(value, pa.string())
    except (pa.ArrowException, TypeError, ValueError):
        return None
    ends = np.frombuffer(text.buffers()[1], np.int32, len(value) + 1)
    if text.null_count or int(np.diff(ends).max()) > _LONGEST:  # Arrow takes any number of zeros in front
        return None
    for to in (_TO_UNSIGNED, _TO_SIGNED):  # all from 0 on, or all signed
        try:
            return np.asarray(pc.call_function("cast", [text], to)).view(np.uint64)
        except pa.ArrowException:
            continue
    return None


def _integers(value: list[int]) -> Array | None:
    for kind in (np.uint64, np.int64):
        try:
            return np.array(value, kind).view(np.uint64)
        except OverflowError:
            continue
    return None


def _whole_counts(value: list[int]) -> Array | None:
    try:
        counts = np.array(value, np.int64)
    except OverflowError:
        return None
    return None if len(counts) and int(counts.min()) < 0 else counts


def _matrix(value: list[list[float]]) -> Array:
    lengths = set(map(len, value)) or {0}
    if len(lengths) > 1:
        raise ValueError(f"rows of {min(lengths)} to {max(lengths)} values; give each as many as there are workers")
    columns = lengths.pop()
    return np.fromiter(chain.from_iterable(value), np.float64, len(value) * columns).reshape(len(value), columns)


def no_numbers() -> Array:
    """The value of a list that was left out."""
    return np.zeros(0, np.int64)


_hashes, _counts = partial(np.array, dtype=np.uint64), partial(np.array, dtype=np.int64)
Hashes = Annotated[NDArray[np.uint64], _ListAsArray(Hash, Any, _whole_hashes, _hashes, MAX_JSON_KEYS)]
AllHashes = Annotated[NDArray[np.uint64], _ListAsArray(Hash, Any, _whole_hashes, _hashes, None)]
Counts = Annotated[NDArray[np.int64], _ListAsArray(Count, int, _whole_counts, _counts, MAX_JSON_KEYS)]
PerHost = Annotated[NDArray[np.int64], _ListAsArray(Count, int, _whole_counts, _counts, 1 << 17)]
PerWorker = Annotated[NDArray[np.int64], _ListAsArray(Count, int, _whole_counts, _counts, MAX_PARTITIONS)]
Matrix = Annotated[NDArray[np.float64], _ListAsArray(list[float], list[float], _matrix, _matrix, MAX_JSON_KEYS)]
