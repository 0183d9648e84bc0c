"""Every way a key column may be given hashes the same, and what cannot be a key is refused clearly."""

from __future__ import annotations

import doctest
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from tests.spark_hash import placement_salt, spark_hash
from unskew.core.errors import ConfigError, KeyTypeError
from unskew.core.keys import hashing
from unskew.core.keys.hashing import SEED, hash_keys, mix

KEYS = ["a", None, "key-17", "", "b" * 40, "é", "a", "c" * 300, None]
DICTIONARY = pa.DictionaryArray.from_arrays


def _plain(text: str | None) -> int:
    return SEED if text is None else xxhash.xxh64_intdigest(text.encode(), SEED)


@pytest.mark.parametrize(
    "column",
    [
        KEYS,
        tuple(KEYS),
        np.array(KEYS, object),
        pa.array(KEYS),
        pa.array(KEYS, pa.large_string()),
        pa.array(KEYS, pa.string_view()),
        pa.array(KEYS).cast(pa.binary()),
        pa.array(KEYS).dictionary_encode(),
        pa.array([None, "x", *KEYS, "y"]).slice(2, len(KEYS)),
        pa.array(["x", *KEYS, "y"]).dictionary_encode().slice(1, len(KEYS)),
        pa.chunked_array([KEYS[:2], [], KEYS[2:]], pa.string()),
        pa.chunked_array([pa.array(KEYS[:2]).dictionary_encode(), pa.array(KEYS[2:]).dictionary_encode()]),
        pa.chunked_array([KEYS[:3], KEYS[3:]], pa.string_view()),
    ],
    ids=lambda c: str(getattr(c, "type", type(c).__name__)),
)
def test_every_form_of_a_string_column_has_the_same_hashes(column: Any) -> None:
    """Lists, numpy objects, Arrow arrays of any layout, chunks, slices, dictionaries."""
    assert hash_keys(column).tolist() == [_plain(key) for key in KEYS]
    assert spark_hash(column).tolist() == spark_hash(KEYS).tolist()


@pytest.mark.parametrize(
    ("values", "same"),
    [
        ([1, None, -7], pa.array([1, None, -7], pa.int64())),
        ([1, np.int64(2)], np.array([1, 2])),
        ([1.5, None], pa.array([1.5, None])),
        ([True, False], np.array([True, False])),
        ([b"a", bytearray(b"b")], pa.array([b"a", b"b"])),
        ([date(1960, 2, 29)], np.array(["1960-02-29"], "datetime64[D]")),
        ([datetime(2020, 1, 1, 5)], np.array(["2020-01-01T05"], "datetime64[s]")),
        (np.array(["ab", "c"]), ["ab", "c"]),
        (np.arange(10)[::3], [0, 3, 6, 9]),
        (pa.array([b"abcd", None], pa.binary(4)), [b"abcd", None]),
        (pa.array([Decimal("1.50")], pa.decimal256(20, 2)), pa.array([Decimal("1.50")], pa.decimal128(20, 2))),
        (pa.array([1, 2]).slice(1), [2]),
        (np.array(["NaT", "2020-01-01"], "datetime64[us]"), pa.array([None, datetime(2020, 1, 1)])),
    ],
)
def test_plain_values_hash_as_the_arrow_column_of_the_same_type(values: Any, same: Any) -> None:
    """The type is read from the values as Spark would read it."""
    assert hash_keys(values).tolist() == hash_keys(same).tolist()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_timestamp_is_its_microseconds_in_any_unit_and_zone(unit: str) -> None:
    """The instant counts, not the unit, nor the zone it is shown in."""
    instant = datetime(1999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)
    expected = hash_keys(pa.array([946_684_799_000_000]))
    zoned = hash_keys(pa.array([instant], pa.timestamp(unit, "Asia/Tokyo")))
    naive = hash_keys(pa.array([instant.replace(tzinfo=None)], pa.timestamp(unit)))
    assert zoned.tolist() == naive.tolist() == expected.tolist()
    assert hash_keys([instant.astimezone(timezone(timedelta(hours=9)))]).tolist() == expected.tolist()


def test_a_python_decimal_hashes_the_same_whatever_stands_beside_it() -> None:
    """Its type is Spark's decimal(38,18), not the least that holds the values of the list."""
    alone, beside = hash_keys([Decimal("1.5")]), hash_keys([Decimal("1.5"), Decimal("123.4567")])
    assert alone[0] == beside[0]
    assert alone.tolist() == hash_keys(pa.array([Decimal("1.5")], pa.decimal128(38, 18))).tolist()


def test_a_named_type_overrules_the_default_for_decimals() -> None:
    """Values too large for decimal(38,18) are fine in the type that was asked for."""
    huge = Decimal(10) ** 30
    expected = hash_keys(pa.array([huge], pa.decimal128(38, 0)))
    assert hash_keys([huge], types=["decimal(38,0)"]).tolist() == expected.tolist()


def test_the_type_of_a_key_is_part_of_its_hash() -> None:
    """7 as int and 7 as bigint differ until both are cast to the common type."""
    small, wide = np.array([7], np.int32), np.array([7], np.int64)
    assert hash_keys(small)[0] != hash_keys(wide)[0]
    assert hash_keys(small, types=["bigint"])[0] == hash_keys(wide)[0]


@pytest.mark.parametrize(
    "column",
    [
        [],
        np.array([], np.float64),
        pa.array([], pa.string()),
        pa.array([], pa.decimal128(30, 2)),
        pa.chunked_array([], pa.string()),
        pa.chunked_array([], pa.dictionary(pa.int32(), pa.string())),
        DICTIONARY(pa.array([], pa.int8()), pa.array(["a", "b"])),
    ],
    ids=lambda c: str(getattr(c, "type", "plain")),
)
def test_an_empty_column_has_no_hashes(column: Any) -> None:
    """Alone, first, second or third: nothing in, nothing out, in the right dtype."""
    for hashes in (hash_keys(column), hash_keys(column, []), hash_keys([], column), hash_keys([], [], column)):
        assert hashes.dtype == np.uint64
        assert len(hashes) == 0
    assert spark_hash(column, []).dtype == np.int32


@pytest.mark.parametrize(
    "column",
    [
        [None, None],
        pa.nulls(2),
        pa.nulls(2, pa.decimal128(30, 2)),
        DICTIONARY(pa.array([None, None], pa.int32()), pa.array([], pa.string())),
        DICTIONARY(pa.array([0, None]), pa.array([None], pa.string())),
    ],
    ids=lambda c: str(getattr(c, "type", "plain")),
)
def test_null_leaves_the_seed_as_it_was(column: Any) -> None:
    """An all-NULL column alone gives 42, and beside another column changes nothing."""
    assert hash_keys(column).tolist() == [SEED, SEED]
    beside = hash_keys(["x", "y"]).tolist()
    assert hash_keys(column, ["x", "y"]).tolist() == hash_keys(["x", "y"], column).tolist() == beside


def test_a_null_inside_a_dictionary_is_a_null() -> None:
    """Whether the index or the value it points to is NULL."""
    column = DICTIONARY(pa.array([0, 1, None, 2]), pa.array(["a", None, "b"]))
    assert hash_keys(column).tolist() == hash_keys(["a", None, None, "b"]).tolist()


def test_a_dictionary_larger_than_its_rows_is_only_read_where_needed() -> None:
    """A slice of a batch keeps the whole dictionary."""
    column = pa.array([f"k{i}" for i in range(1000)]).dictionary_encode().slice(990, 3)
    assert hash_keys(column).tolist() == hash_keys(["k990", "k991", "k992"]).tolist()


def test_one_row_of_several_columns_seeds_column_by_column() -> None:
    """A single row must not be mistaken for a value that all rows share."""
    whole = hash_keys(["a", "b"], ["x", None], [1, 2])
    assert hash_keys(["a"], ["x"], [1])[0] == whole[0]
    assert hash_keys(pa.array(["b"]).dictionary_encode(), [None], [2])[0] == whole[1]


@pytest.mark.parametrize("rows", [1, 8191, 8192, 8193, 70_000])
@pytest.mark.parametrize("distinct", [3, 40_000])
def test_columns_of_any_size_hash_value_by_value(rows: int, distinct: int) -> None:
    """Across block borders, with few distinct values (found once each) and with many."""
    keys = [None if i % 97 == 0 else f"user-{i * 7919 % distinct}" for i in range(rows)]
    once = {key: _plain(key) for key in set(keys)}
    assert hash_keys(keys).tolist() == [once[key] for key in keys]


@pytest.mark.parametrize("lengths", [(8,), (16,), (36,), (5,), (0, 31), (30, 70), (64,), (191, 192, 3), (500, 9000, 1)])
def test_byte_strings_of_any_mix_of_lengths_hash_as_the_xxhash_package_does(lengths: tuple[int, ...]) -> None:
    """Rows of one length, of mixed lengths, and long ones, which take different paths."""
    rng = np.random.default_rng(7)
    keys = [rng.bytes(lengths[i % len(lengths)]) for i in range(120)]
    assert hash_keys(keys).tolist() == [xxhash.xxh64_intdigest(key, SEED) for key in keys]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([1, 1.5], "mixed types .float, int."),
        ([1, True], "mixed types"),
        (["a", b"a"], "mixed types .bytes, str."),
        (["a", 1], "mixed types"),
        ([Decimal(1), 1], "mixed types"),
        ([date(2020, 1, 1), datetime(2020, 1, 1)], "mixed types"),
        ([datetime(2020, 1, 1), datetime(2020, 1, 1, tzinfo=timezone.utc)], "with and without a zone"),
        ([2**63], "64 bits"),
        ([Decimal("NaN")], "one type"),
        (["ok", "\ud800"], "give them as bytes"),
        ("abc", "put it in a list"),
        (b"abc", "put it in a list"),
        (7, "give one numpy array"),
        ([object()], "one type"),
        ([[1]], "cannot be a key"),
        ([time(1)], "cannot be a key"),
        (np.array([1], np.uint64), "uint64 to decimal"),
        (np.zeros((2, 2)), "one column"),
        (np.array(["2020"], "datetime64[Y]"), "datetime64 in D, s, ms, us or ns"),
        (np.array([1], ">i4"), "one type"),
        (pa.array([{"a": 1}]), "argument of its own"),
        (pa.array([1], pa.timestamp("ns")), "lose data"),
        (pa.array([2**62], pa.timestamp("s")), "out of bounds"),
    ],
)
def test_values_that_cannot_be_one_key_column_are_refused_with_advice(values: Any, says: str) -> None:
    """A KeyTypeError that says what is wrong, never Arrow's own error."""
    with pytest.raises(KeyTypeError, match=says):
        hash_keys(values)


@pytest.mark.parametrize(
    ("values", "wanted", "says"),
    [
        ([2**40], "int", "do not fit int"),
        (["1"], "bigint", "in Spark, then hash it"),
        ([1], "timestamp", "in Spark, then hash it"),
        ([datetime(2020, 1, 1)], "timestamp", "time zone"),
        (np.array(["2020-01-01"], "datetime64[D]"), "timestamp", "time zone"),
        ([1.5], "int", "exactly as Spark would"),
        ([1.5], "decimal(10,2)", "exactly as Spark would"),
        ([Decimal("123.4")], "decimal(3,2)", "do not fit"),
        ([b"\xff"], "string", "do not fit string"),
        ([True], "int", "exactly as Spark would"),
        (pa.array(["a"]).dictionary_encode(), "int", "exactly as Spark would"),
    ],
)
def test_a_cast_that_spark_would_do_otherwise_is_refused(values: Any, wanted: str, says: str) -> None:
    """Casts are left to Spark unless the result is certain to be Spark's."""
    with pytest.raises(KeyTypeError, match=says):
        hash_keys(values, types=[wanted])


def test_columns_and_types_must_fit_together() -> None:
    """No column, columns of two lengths, a type too many: each error names what it is about."""
    with pytest.raises(ConfigError, match="at least one key column"):
        hash_keys()
    with pytest.raises(KeyTypeError, match=r"different lengths \[1, 2\]"):
        hash_keys([1], [1, 2])
    with pytest.raises(ConfigError, match="one type for each of the 1 columns"):
        hash_keys([1], types=["int", "int"])


def test_a_salt_brings_every_row_to_its_partition() -> None:
    """Appended as the last column, it makes pmod(hash, P) the wanted partition."""
    words, wanted = [f"w{i}" for i in range(100)], np.arange(100, dtype=np.int32) % 13
    salts = placement_salt(spark_hash(words), wanted, 13)
    assert salts.dtype == np.int32
    assert (spark_hash(words, salts) % 13).tolist() == wanted.tolist()


def test_mixed_hashes_are_a_permutation_unlike_the_hashes() -> None:
    """No two keys collide, salts differ, and the top bits say nothing about the key hash's top bits."""
    hashes = np.sort(hash_keys(np.arange(50_000)))
    mixed = mix(hashes, 1)
    assert len(np.unique(mixed)) == len(hashes)
    assert not np.array_equal(mixed, mix(hashes, 2))
    low_half = hashes < np.uint64(1 << 63)
    assert abs(np.mean(mixed[low_half] < np.uint64(1 << 63)) - 0.5) < 0.02


def test_the_examples_in_the_docstrings_are_true() -> None:
    """They are run as written."""
    assert doctest.testmod(hashing) == doctest.TestResults(failed=0, attempted=2)


def test_a_table_or_a_list_of_columns_says_to_give_the_columns_one_by_one() -> None:
    """The two ways in which a newcomer asks for a composite key."""
    table = pa.table({"a": [1, 2], "b": ["x", "y"]})
    for wrong in (table, np.zeros((2, 2)), table.to_batches()[0]):
        with pytest.raises(KeyTypeError, match="each key column by itself"):
            hash_keys(wrong)
    with pytest.raises(KeyTypeError, match="each column as an argument of its own"):
        hash_keys([[1, 2], [3, 4]])
