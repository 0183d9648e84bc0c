"""Writes ``tests/conformance/*.json``: what a real Spark answers, for the tests that must agree with it.

Run ``python -m tools.make_conformance`` from the root, with pyspark and a Java runtime. Nothing is computed here:
hashes are read from ``xxhash64`` and ``hash``, common types from analysed plans. Each hash is asked for in two
session time zones; a difference stops the script.
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from tests.conformance.vectors import HERE, column
from unskew.core.keys.types import parse

ZONES = ("UTC", "America/St_Johns")
MICROS = 1_000_000
DAY = 86_400 * MICROS

PLAIN = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary"),
    *("date", "timestamp", "timestamp_ntz", "void"),
)
DECIMALS = (
    *("1,0", "1,1", "3,0", "5,2", "10,0", "10,2", "10,10", "12,4", "18,0", "18,18", "19,0", "20,0", "20,10"),
    *("28,10", "30,2", "37,1", "38,0", "38,10", "38,18", "38,37", "38,38"),
)
COLLATIONS = ("UTF8_LCASE", "UNICODE", "UNICODE_CI", "UNICODE_AI", "UTF8_BINARY_RTRIM", "de_CI")


def session() -> SparkSession:
    spark = (
        SparkSession.builder.master("local[1]")
        .appName("unskew-conformance")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    return spark


def _bits(form: str, values: list[float]) -> list[str]:
    return ["0x" + struct.pack(">" + form, value).hex() for value in values]


def _around(bits: int) -> list[str]:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return [str(v) for v in (0, 1, -1, 7, -128, 127, 42, low, low + 1, high, high - 1)]


def _strings() -> list[str]:
    alphabet = "the quick brown fox jumps over the lazy dog 0123456789 THE QUICK BROWN FOX"
    by_length = ["", *(alphabet[:length] for length in range(1, 71))]
    other = ["é", "ß", "日本語", "key-\U0001f511", "a\0b", "\0", "\0" * 8, "\0" * 33, "x" * 127, "ü" * 128]
    return by_length + other + ["z" * 191, "z" * 192, "y" * 1000, "\x7f\u0080\u07ff\u0800\uffff\U0010ffff"]


def _binaries() -> list[str]:
    wheel = bytes((37 * i + 129) % 256 for i in range(70))
    return [wheel[:length].hex() for length in range(71)] + ["00", "ff" * 5, "80", "fffefdfc", "00" * 40]


def _decimals(precision: int) -> list[str]:
    most = 10**precision - 1
    edges = [0, 1, -1, 9, -9, most, -most, most // 2, -(most // 3)]
    bytewise = [sign * (1 << bits) + add for bits in range(7, 127, 8) for sign in (1, -1) for add in (-1, 0, 1)]
    return [str(v) for v in dict.fromkeys(edges + bytewise) if abs(v) <= most]


def inputs() -> dict[str, list[Any]]:
    """The values of every type, each list with a NULL among them."""
    days = [0, 1, -1, 18_262, -25_567, -719_162, -719_163, 2_932_896, 11_016, -141_428]
    micros = [0, 1, -1, 1_577_880_000 * MICROS + 123_456, -DAY, -DAY - 1, days[5] * DAY, days[7] * DAY + DAY - 1]
    real = [0.0, -0.0, 1.0, -1.0, 0.1, 1.5, -2.75, float("inf"), float("-inf"), float("nan"), 16_777_217.0]
    columns: dict[str, list[Any]] = {
        "boolean": [True, False],
        "tinyint": _around(8),
        "smallint": _around(16),
        "int": _around(32),
        "bigint": [*_around(64), str(1 << 53), str((1 << 53) + 1), str(1 << 32), str(-(1 << 31) - 1)],
        "float": [*_bits("f", [*real, 3.4028234663852886e38, 1e-45]), "0x80000001", "0x007fffff", "0xffc00001"],
        "double": [
            *_bits("d", [*real, 1.7976931348623157e308, 5e-324, 2.2250738585072014e-308]),
            "0x8000000000000001",
            "0x000fffffffffffff",
            "0xfff8000000000001",
        ],
        "string": _strings(),
        "binary": _binaries(),
        "date": [str(day) for day in days],
        "timestamp": [str(micro) for micro in micros],
        "timestamp_ntz": [str(micro) for micro in micros],
    }
    for shape in ("1,0", "9,2", "10,2", "10,10", "18,0", "18,6", "19,0", "20,4", "38,0", "38,18", "38,38"):
        columns[f"decimal({shape})"] = _decimals(int(shape.split(",")[0]))
    return {name: [values[0], None, *values[1:]] for name, values in columns.items()}


def composites(single: dict[str, list[Any]]) -> Iterator[tuple[list[str], list[list[Any]]]]:
    """Rows of 2 to 4 columns; NULL in every combination of places, then other values."""
    shapes = (
        ["int", "bigint"],
        ["string", "int"],
        ["bigint", "string", "decimal(20,4)"],
        ["date", "timestamp", "double"],
        ["decimal(9,2)", "boolean", "binary", "string"],
        ["string", "string", "float", "timestamp_ntz"],
    )
    for types in shapes:
        rows = [
            [None if absent >> at & 1 else single[kind][-3] for at, kind in enumerate(types)]
            for absent in range(1 << len(types))
        ]
        rows += [[single[kind][i * 5 % len(single[kind])] for kind in types] for i in range(12)]
        yield types, rows


CASTS = (
    ("tinyint", "int"),
    ("int", "bigint"),
    ("int", "double"),
    ("int", "decimal(12,2)"),
    ("int", "decimal(38,28)"),
    ("bigint", "double"),
    ("bigint", "float"),
    ("bigint", "decimal(20,0)"),
    ("bigint", "decimal(38,18)"),
    ("float", "double"),
    ("double", "float"),
    ("decimal(9,2)", "decimal(12,4)"),
    ("decimal(9,2)", "decimal(38,18)"),
    ("decimal(18,6)", "double"),
    ("decimal(38,18)", "double"),
    ("decimal(38,38)", "double"),
    ("decimal(38,38)", "decimal(38,28)"),
    ("decimal(10,10)", "decimal(10,2)"),
    ("date", "timestamp_ntz"),
    ("string", "binary"),
)


def hashes_of(spark: SparkSession, types: list[str], columns: list[list[Any]], to: str | None = None) -> Any:
    """Spark's ``xxhash64`` and ``hash`` of these key columns, row by row."""
    names = [f"c{at}" for at in range(len(types))]
    arrays = [column(kind, values) for kind, values in zip(types, columns, strict=True)]
    rows = pa.array(np.arange(len(columns[0])))
    schema = ", ".join(["row bigint", *(f"{name} {kind}" for name, kind in zip(names, types, strict=True))])
    frame = spark.createDataFrame(pa.table([rows, *arrays], ["row", *names]), schema)
    have = [field.dataType.simpleString() for field in frame.schema.fields[1:]]
    if have != [str(parse(kind)) for kind in types]:
        raise SystemExit(f"Spark read {types} as {have}")
    keys = ", ".join(f"cast({name} as {to})" if to else name for name in names)
    answers = []
    for zone in ZONES:
        with _zone(spark, zone):
            found = frame.selectExpr("row", f"xxhash64({keys}) x", f"hash({keys}) h").orderBy("row").collect()
            answers.append({"xxhash64": [str(row.x) for row in found], "hash": [str(row.h) for row in found]})
    if answers[0] != answers[1]:
        raise SystemExit(f"the hash of {types} depends on the session's time zone")
    return answers[0]


@contextmanager
def _zone(spark: SparkSession, zone: str) -> Iterator[None]:
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def make_hashes(spark: SparkSession) -> dict[str, Any]:
    single = inputs()
    return {
        "spark": spark.version,
        "columns": [
            {"type": kind, "values": values, **hashes_of(spark, [kind], [values])} for kind, values in single.items()
        ],
        "composites": [
            {"types": types, "rows": rows, **hashes_of(spark, types, [list(c) for c in zip(*rows, strict=True)])}
            for types, rows in composites(single)
        ],
        "casts": [
            {"type": have, "to": to, "values": values, **hashes_of(spark, [have], [values], to)}
            for have, to in CASTS
            for values in [_that_fit(have, to, single[have])]
        ],
    }


def _that_fit(have: str, to: str, values: list[Any]) -> list[Any]:
    """Leave out what overflows a narrower target: in ANSI mode Spark stops there."""
    if (have, to) == ("decimal(10,10)", "decimal(10,2)"):
        values = [*values, "5000000", "-5000000", "1500000000", "-1500000000", "1234567890", "49999999"]
    if (have, to) == ("decimal(38,38)", "decimal(38,28)"):
        values = [*values, *(f"{sign}{digits}" for sign in ("", "-") for digits in ("5000000000", "14999999999"))]
    return values


def make_common_types(spark: SparkSession) -> dict[str, Any]:
    """The type Spark casts both sides of ``left = right`` to, for columns; null where it refuses.

    All pairs are analysed as one plan, by the analyzer alone: it coerces what it can and leaves the rest.
    """
    names = [*PLAIN, *(f"decimal({shape})" for shape in DECIMALS)]
    typed = ", ".join(f"cast(null as {name}) c{at}" for at, name in enumerate(names))
    spark.sql(f"select {typed}").createOrReplaceTempView("typed")
    pairs = ", ".join(f"l.c{a} = r.c{b}" for a in range(len(names)) for b in range(len(names)))
    state = spark._jsparkSession.sessionState()
    plan = state.sqlParser().parsePlan(f"select {pairs} from typed l, typed r")
    output = state.analyzer().execute(plan).expressions().iterator()
    table = {left: {right: _common(output.next().child()) for right in names} for left in names}
    return {"spark": spark.version, "ansi": spark.conf.get("spark.sql.ansi.enabled"), "left_right_common": table}


def _common(equal: Any) -> str | None:
    if not equal.checkInputDataTypes().isSuccess():
        return None
    sides = {side.dataType().simpleString() for side in (equal.left(), equal.right())}
    if len(sides) != 1:
        raise SystemExit(f"two types in one comparison: {sides}")
    return str(sides.pop())


def make_collations(spark: SparkSession) -> dict[str, Any]:
    """Strings that a collation calls equal, and Spark's hashes of them: of the bytes, so they differ."""
    found = []
    for name in COLLATIONS:
        left, right = ("a", "a ") if name.endswith("RTRIM") else ("a", "A")
        sides = [f"'{text}' collate {name}" for text in (left, right)]
        row = spark.sql(f"select {sides[0]} l, {sides[1]} r, xxhash64({sides[0]}) x, xxhash64({sides[1]}) y")
        kind = row.schema["l"].dataType.simpleString()
        answer = row.selectExpr("l", "r", "l = r as equal", "x", "y").head()
        found.append(
            {"type": kind, "values": [left, right], "equal": answer.equal, "xxhash64": [str(answer.x), str(answer.y)]}
        )
    return {"spark": spark.version, "collations": found}


FILES = {"hashes.json": make_hashes, "common_types.json": make_common_types, "collations.json": make_collations}


def main() -> None:
    spark = session()
    try:
        for name, make in FILES.items():
            (HERE / name).write_text(_lines(make(spark)) + "\n", encoding="ascii")
            print(f"wrote {name}")
    finally:
        spark.stop()


def _lines(value: Any, depth: int = 0) -> str:
    """JSON with one line for each list of values, so that a change shows as few lines."""
    if depth == 4 or not isinstance(value, (dict, list)) or not any(isinstance(v, (dict, list)) for v in _items(value)):
        return json.dumps(value)
    pad, brackets = " " * (depth + 1), "{}" if isinstance(value, dict) else "[]"
    keys = [json.dumps(key) + ": " for key in value] if isinstance(value, dict) else [""] * len(value)
    inner = [pad + key + _lines(item, depth + 1) for key, item in zip(keys, _items(value), strict=True)]
    return brackets[0] + "\n" + ",\n".join(inner) + "\n" + pad[1:] + brackets[1]


def _items(value: Any) -> list[Any]:
    return list(value.values() if isinstance(value, dict) else value)


if __name__ == "__main__":
    main()
