"""Arrays in JSON: lists that become numpy arrays, and are written from them.

Looking at each number by itself takes longest of all that reading JSON does: 1.1 us a hash, so that a thousand took
longer than the rest of the call. A list is taken as a whole first. Where that does not go, because of one number that
is wrong or because hashes are written in different ways, each is looked at by itself, which finds out what is wrong and
where. Both take the same lists and make the same of them.

Key hashes have 64 bits, more than a JavaScript number holds. They are taken as strings (decimal, signed as Spark has
them or not, or ``0x...``) or as numbers, and given as decimal strings, unsigned.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import (
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    TypeAdapter,
    WithJsonSchema,
)
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
_DECIMALS = re.compile(r"-?[0-9]{1,20}(?:,-?[0-9]{1,20})*")
_HEX = re.compile(r"0[xX][0-9a-fA-F]{1,16}")
_TO_UNSIGNED, _TO_SIGNED = pc.CastOptions.safe(pa.uint64()), pc.CastOptions.safe(pa.int64())
_FEW = 200  # hashes that are read sooner without Arrow


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
Hash = Annotated[int, BeforeValidator(hash_of), PlainSerializer(str, return_type=str), WithJsonSchema(_HASH_SCHEMA)]
Count = Annotated[int, Field(ge=0, le=_MOST)]


@dataclass(frozen=True)
class _Listed:
    """A list of at most so many of this kind, as an array: by ``whole`` from a list of what is ``loose``ly that kind,
    or else, where that gives None, by ``made`` from one in which each was looked at."""

    kind: Any
    loose: Any
    whole: Callable[[list[Any]], Array | None]
    made: Callable[[list[Any]], Array]
    written: Callable[[Array], list[Any]]
    most: int | None

    def __get_pydantic_core_schema__(self, _source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        strict = SchemaValidator(handler.generate_schema(list[self.kind]))  # type: ignore[name-defined]  # a type made at run time
        loose = handler.generate_schema(Annotated[list[self.loose], Field(max_length=self.most)])  # type: ignore[name-defined]  # a type made at run time

        def validate(value: list[Any]) -> Array:
            found = self.whole(value)
            return self.made(strict.validate_python(value)) if found is None else found

        return core_schema.no_info_after_validator_function(
            validate,
            loose,
            serialization=core_schema.plain_serializer_function_ser_schema(self.written),
        )

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        listed = Annotated[list[self.kind], Field(max_length=self.most)]  # type: ignore[name-defined]  # a type made at run time
        return handler(TypeAdapter(listed).core_schema)  # what is written looks as what is read


# -- hashes -----------------------------------------------------------------------------------------------------


def _whole_hashes(value: list[Any]) -> Array | None:
    if not value:
        return None
    if type(value[0]) is str:
        return _of_few(value) if len(value) < _FEW else _of_many(value)
    return _integers(value) if set(map(type, value)) == {int} else None


def _of_few(value: list[Any]) -> Array | None:
    try:
        if _DECIMALS.fullmatch(",".join(value)) is None:
            return None
        found = [int(one) for one in value]
        fits = min(found) >= -(2**63) and max(found) <= _UNSIGNED
        return np.array([one & _UNSIGNED for one in found], np.uint64) if fits else None
    except (TypeError, ValueError):  # not all of them text; or a comma in one
        return None


def _of_many(value: list[Any]) -> Array | None:
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


def _hashes(value: list[int]) -> Array:
    return np.array(value, np.uint64)


def _written_hashes(value: Array) -> list[Any]:
    return [str(one) for one in value.tolist()]


# -- counts and values --------------------------------------------------------------------------------------


def _whole_counts(value: list[int]) -> Array | None:
    try:
        found = np.array(value, np.int64)
    except OverflowError:
        return None
    return None if len(found) and int(found.min()) < 0 else found


def _counts(value: list[int]) -> Array:
    return np.array(value, np.int64)


def _matrix(value: list[list[float]]) -> Array:
    lengths = set(map(len, value)) or {0}
    if len(lengths) > 1:
        raise ValueError(f"rows of {min(lengths)} to {max(lengths)} values; give each as many as there are workers")
    columns = lengths.pop()
    return np.fromiter(chain.from_iterable(value), np.float64, len(value) * columns).reshape(len(value), columns)


def _listed(value: Array) -> list[Any]:
    found: list[Any] = value.tolist()
    return found


def no_numbers() -> Array:
    """What a list that was left out is."""
    return np.zeros(0, np.int64)


Hashes = Annotated[NDArray[np.uint64], _Listed(Hash, Any, _whole_hashes, _hashes, _written_hashes, MAX_JSON_KEYS)]
AllHashes = Annotated[NDArray[np.uint64], _Listed(Hash, Any, _whole_hashes, _hashes, _written_hashes, None)]
Counts = Annotated[NDArray[np.int64], _Listed(Count, int, _whole_counts, _counts, _listed, MAX_JSON_KEYS)]
PerHost = Annotated[NDArray[np.int64], _Listed(Count, int, _whole_counts, _counts, _listed, 1 << 17)]
PerWorker = Annotated[NDArray[np.int64], _Listed(Count, int, _whole_counts, _counts, _listed, MAX_PARTITIONS)]
Matrix = Annotated[NDArray[np.float64], _Listed(list[float], list[float], _matrix, _matrix, _listed, MAX_JSON_KEYS)]
