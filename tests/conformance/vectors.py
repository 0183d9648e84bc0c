"""Reads the conformance files: how a value is written in JSON, and the Arrow column it stands for.

The files are meant for any language: booleans and strings are JSON's own; every number is a string. A bigint is
its digits; a float or double its IEEE bits in hexadecimal; a decimal its unscaled digits; a date its days, a
timestamp its microseconds since 1970; binary is hexadecimal; NULL is null. Hashes are Spark's signed numbers.
"""

from __future__ import annotations

import json
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from unskew.core.keys.types import arrow_of, parse

HERE = Path(__file__).parent

_RAW = {
    "tinyint": np.int8,
    "smallint": np.int16,
    "int": np.int32,
    "bigint": np.int64,
    "date": np.int32,
    "timestamp": np.int64,
    "timestamp_ntz": np.int64,
}
_BITS = {"float": (np.uint32, np.float32), "double": (np.uint64, np.float64)}


def load(name: str) -> Any:
    return json.loads((HERE / name).read_text(encoding="utf-8"))


def column(type_name: str, values: list[Any]) -> pa.Array:
    """The Arrow column of values as the files write them."""
    key = parse(type_name)
    kind = arrow_of(key)
    missing = np.array([value is None for value in values], bool)
    if key.name == "binary":
        return pa.array([None if v is None else bytes.fromhex(v) for v in values], kind)
    if key.is_decimal:
        return pa.array([None if v is None else _decimal(int(v), key.scale) for v in values], kind)
    if key.name in _RAW:
        raw = np.array([int(v or 0) for v in values], _RAW[key.name])
        return pa.array(raw, mask=missing).cast(kind)
    if key.name in _BITS:
        bits, real = _BITS[key.name]
        return pa.array(np.array([int(v or "0", 16) for v in values], bits).view(real), mask=missing)
    return pa.array(values, kind)


def _decimal(unscaled: int, scale: int) -> Decimal:
    with localcontext() as exact:
        exact.prec = 60
        return Decimal(unscaled).scaleb(-scale)
