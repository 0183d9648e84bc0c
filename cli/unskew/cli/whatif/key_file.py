"""Reads the key column of a recorded stream and hashes it as Spark would: Parquet, CSV or text, plain or gzipped.

A folder is read as Spark writes one: all its part files in the order of their names. Text has one key a line, in one
column that is called ``value`` as in Spark (``key`` will do). CSV columns are strings and an empty field is NULL,
quoted or not, as in ``spark.read.option("header", True).csv``. Keys are hashed file by file, so that no more than one
file's values are in memory.

Deviation: a quote inside a quoted field is doubled, and line ends in it are kept, as in RFC 4180; Spark does so with
``.option("escape", '"').option("multiLine", True)``.
"""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unskew.cli.errors import InputError, choices, first_line
from unskew.core.errors import ConfigError, KeyTypeError, UnskewError
from unskew.core.keys.hashing import hash_keys
from unskew.core.keys.types import KeyType, arrow_of, parse, type_of

__all__ = ["Keys", "read_keys"]

F64 = NDArray[np.float64]
Kind = Literal["parquet", "csv", "text"]
KeyColumns = tuple[tuple[str, ...], list[pa.ChunkedArray]]
_PARQUET_MAGIC = b"PAR1"
_SIGNED = {  # as Spark's Parquet reader takes unsigned columns
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}
_OTHER_SEPARATORS = (";", "\t", "|")
_BYTES = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


@dataclass(frozen=True, eq=False)
class Keys:
    """The key hash of every row, in the order of the file, what it was hashed from, and when the row came (seconds)."""

    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    hashes: NDArray[np.uint64]
    times: F64 | None = None


def read_keys(path: Path, columns: Sequence[str], types: Sequence[str] = (), time: str = "") -> Keys:
    """The key column or columns of ``path``. No column is needed where the file has only one; ``time`` is one too."""
    given_types = tuple(parse(text) for text in types)
    if given_types and len(given_types) != max(len(columns), 1):
        raise ConfigError("--type", ", ".join(types), f"one type for each of the {max(len(columns), 1)} key columns")
    hashed, times, key = [], [], None
    with _readable(path):
        parts = _parts(path)
    for part in parts:
        with _readable(part):
            names, arrays = _read(part, columns, given_types)
        key_types = given_types or _types(names, arrays)
        if key not in (None, (names, key_types)):
            raise InputError(
                f"{part}: the key is {_listed(names, key_types)} here but {_listed(*key)} in earlier files"
            )
        key = (names, key_types)
        hashed.append(_hashed(names, arrays, key_types))
        if time:
            with _readable(part):
                times.append(_seconds(part, time))
    hashes = np.concatenate(hashed)
    if key is None or len(hashes) == 0:
        raise InputError(f"{path}: no rows; give a file with at least one key")
    name = os.fsencode(path.name).decode("utf-8", "backslashreplace")  # it goes into plans and plots
    return Keys(name, key[0], tuple(map(str, key[1])), hashes, _in_order(time, times) if time else None)


def _seconds(path: Path, time: str) -> F64:
    """The time of each row: timestamps, dates, or numbers of seconds; in CSV as text."""
    if _kind(path) == "text":
        raise ConfigError("--time", time, "a column of a Parquet or CSV file; text has only keys")
    try:
        column = _read(path, (time,), ())[1][0]
    except ConfigError as why:
        raise ConfigError("--time", time, why.allowed) from None
    seconds = _as_seconds(column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column)
    if seconds is None or not np.isfinite(seconds).all():
        raise ConfigError("--time", time, "a column of timestamps, or of numbers of seconds, without NULL")
    return seconds


def _as_seconds(column: pa.ChunkedArray) -> F64 | None:
    with suppress(pa.ArrowException):
        return np.asarray(column.cast(pa.float64(), safe=False), np.float64)
    for zone in (None, "UTC"):  # a text may end with its time zone
        with suppress(pa.ArrowException):
            micros = column.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())
            return 1e-6 * np.asarray(micros.cast(pa.float64(), safe=False), np.float64)
    return None


def _in_order(time: str, parts: Sequence[F64]) -> F64:
    seconds = np.concatenate(parts)
    fallen = np.flatnonzero(np.diff(seconds) < 0)
    if len(fallen):
        raise ConfigError("--time", time, f"a column that never falls, as after row {fallen[0] + 1:,}; sort by it")
    return seconds


def _listed(names: tuple[str, ...], types: tuple[KeyType, ...]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in zip(names, types, strict=True))


def _hashed(
    names: tuple[str, ...], arrays: Sequence[pa.ChunkedArray], types: tuple[KeyType, ...]
) -> NDArray[np.uint64]:
    try:
        return hash_keys(*arrays, types=types)
    except KeyTypeError:
        for name, array, kind in zip(names, arrays, types, strict=True):
            with _naming(name):
                hash_keys(array, types=(kind,))
        raise


def _types(names: tuple[str, ...], arrays: Sequence[pa.ChunkedArray]) -> tuple[KeyType, ...]:
    types = []
    for name, array in zip(names, arrays, strict=True):
        with _naming(name):
            types.append(type_of(array.type))
    return tuple(types)


@contextmanager
def _naming(column: str) -> Iterator[None]:
    """Put the column's name into the error."""
    try:
        yield
    except KeyTypeError as why:
        raise KeyTypeError(f"column {column!r}: {why}") from None


def _parts(path: Path) -> list[Path]:
    mode = path.stat().st_mode
    if stat.S_ISREG(mode):
        return [path]
    if not stat.S_ISDIR(mode):
        raise InputError(f"{path}: a pipe or a device; give a regular file, or a folder that Spark wrote")
    inside = [file for file in sorted(path.rglob("*")) if file.is_file()]
    visible = [file for file in inside if not any(p[0] in "._" for p in file.relative_to(path).parts)]
    files = [file for file in visible if file.stat().st_size > 0]
    if not files:
        raise InputError(f"{path}: a folder without files to read; give a file, or a folder that Spark wrote")
    return files


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn what libraries raise for an unreadable file into ``InputError``."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; give a Parquet, CSV or text file") from None
    except UnskewError:
        raise
    except UnicodeEncodeError:
        raise InputError(f"{path}: cannot be read: its path is not UTF-8; rename it") from None
    except (pa.ArrowException, EOFError, ValueError, zlib.error) as why:
        reason = "not UTF-8; re-encode it first, as with iconv" if _otherwise_encoded(path, why) else first_line(why)
        raise InputError(f"{path}: cannot be read as {_kind(path)}: {reason}") from None
    except OSError as why:
        raise InputError(f"{path}: cannot be read: {why.strerror or first_line(why)}") from None


def _otherwise_encoded(path: Path, why: Exception) -> bool:
    """Whether the encoding is the cause; for UTF-16 libraries complain of broken lines."""
    with path.open("rb") as file:
        utf16 = file.read(2) in (b"\xff\xfe", b"\xfe\xff")
    return utf16 or isinstance(why, UnicodeDecodeError) or "utf8" in str(why).lower()


def _kind(path: Path) -> Kind:
    with path.open("rb") as file:
        if file.read(4) == _PARQUET_MAGIC:
            return "parquet"
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in (".gz", ".snappy", ".zstd")]
    last = suffixes[-1] if suffixes else ""
    if last in (".parquet", ".pq"):
        return "parquet"
    return "csv" if last in (".csv", ".tsv") else "text"


def _read(path: Path, columns: Sequence[str], types: tuple[KeyType, ...]) -> KeyColumns:
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the file is empty; give a file with at least one key")
    reader = {"parquet": _read_parquet, "csv": _read_csv, "text": _read_text}[_kind(path)]
    return reader(path, columns, types)


def _key_columns(path: Path, columns: Sequence[str], header: Sequence[str]) -> tuple[str, ...]:
    """The key columns; an error lists the file's columns."""
    if not columns and len(header) == 1:
        return tuple(header)
    if not columns:
        raise InputError(f"{path}: say which column is the key; --column one of {', '.join(header)}")
    for column in columns:
        if column not in header:
            raise ConfigError("--column", column, _columns_instead(column, header))
        if header.count(column) > 1:
            raise InputError(f"{path}: {header.count(column)} columns are called {column!r}; rename all but one")
    return tuple(columns)


def _columns_instead(column: str, header: Sequence[str]) -> str:
    parts = [part.strip() for part in column.split(",")]
    if len(parts) > 1 and all(part in header for part in parts):
        return "one option a column: " + " ".join(f"--column {part}" for part in parts)
    return choices(column, header)


def _read_parquet(path: Path, columns: Sequence[str], _: tuple[KeyType, ...]) -> KeyColumns:
    schema = pq.read_schema(path)
    key_names = _key_columns(path, columns, schema.names)
    strings = [name for name in key_names if schema.field(name).type in _BYTES]
    with pq.ParquetFile(path, read_dictionary=strings) as file:
        table = file.read(columns=list(key_names))
    return key_names, [_as_spark_reads(table.column(name)) for name in key_names]


def _as_spark_reads(column: pa.ChunkedArray) -> pa.ChunkedArray:
    values = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return column.cast(_SIGNED[values]) if values in _SIGNED else column


def _read_csv(path: Path, columns: Sequence[str], types: tuple[KeyType, ...]) -> KeyColumns:
    tabs = ".tsv" in [suffix.lower() for suffix in path.suffixes]
    parsing = pacsv.ParseOptions(delimiter="\t" if tabs else ",", newlines_in_values=True)
    with pacsv.open_csv(path, parse_options=parsing) as head:
        header = head.schema.names
    _refuse_unsplit(path, columns, header)
    key_names = _key_columns(path, columns, header)
    kinds = types or (KeyType("string"),) * len(key_names)
    converting = pacsv.ConvertOptions(
        include_columns=list(key_names),
        column_types={name: arrow_of(kind) for name, kind in zip(key_names, kinds, strict=True)},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
    )
    table = pacsv.read_csv(path, parse_options=parsing, convert_options=converting)
    return key_names, [table.column(name) for name in key_names]


def _refuse_unsplit(path: Path, columns: Sequence[str], header: Sequence[str]) -> None:
    """Refuse a file with another separator: its only column has the whole header as its name."""
    if len(header) == 1 and tuple(columns) != tuple(header):
        for separator in _OTHER_SEPARATORS:
            if separator in header[0]:
                raise InputError(
                    f"{path}: its only column is called {header[0]!r}: the separator seems to be {separator!r}; "
                    "write it with commas, or with tabs as .tsv"
                )


def _read_text(path: Path, columns: Sequence[str], types: tuple[KeyType, ...]) -> KeyColumns:
    key_names = _key_columns(path, columns, ("key",) if tuple(columns) == ("key",) else ("value",))
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    lines = pc.split_pattern(pa.array([data.decode("utf-8")], pa.large_string()), "\n").values
    lines = lines[:-1] if data.endswith(b"\n") or not data else lines
    lines = pc.utf8_rtrim(lines, "\r") if b"\r" in data else lines
    return key_names, [pa.chunked_array([lines if not types else lines.cast(arrow_of(types[0]))])]
