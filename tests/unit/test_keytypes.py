"""Type names as Spark writes them, types of Arrow columns, and what is refused with which advice."""

from __future__ import annotations

import pyarrow as pa
import pytest

from unskew.core.errors import KeyTypeError
from unskew.core.keys.types import KeyType, arrow_of, common_type, parse, type_of


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("BIGINT", "bigint"),
        (" long ", "bigint"),
        ("integer", "int"),
        ("real", "float"),
        ("timestamp_ltz", "timestamp"),
        ("decimal", "decimal(10,0)"),
        ("dec(5)", "decimal(5,0)"),
        ("numeric( 12 , 4 )", "decimal(12,4)"),
        ("varchar(20)", "string"),
        ("char(3)", "string"),
        ("string collate UTF8_BINARY", "string"),
        ("void", "void"),
    ],
)
def test_names_and_aliases_are_read_as_spark_reads_them(text: str, name: str) -> None:
    """``parse`` gives the simple name, and reading that again changes nothing."""
    assert str(parse(text)) == name
    assert parse(name) == parse(text)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("struct<a:int,b:string>", "separate key columns"),
        ("array<int>", "to_json"),
        ("map<string,int>", "to_json"),
        ("variant", "variant_get"),
        ("interval day", "cast it to string"),
        ("time(6)", "TIME columns"),
        ("timestamp_ntz(9)", "nanosecond"),
        ("geometry", "cast it to string or binary"),
        ("string collate UTF8_LCASE", "lower"),
        ("varchar(5) collate UNICODE_CI", "hashed apart"),
        ("decimal(39,0)", "precision 1..38"),
        ("decimal(5,6)", "scale 0..precision"),
        ("decimal(5,-2)", "scale 0..precision"),
        ("decimal(0,0)", "precision 1..38"),
        ("", "use one of boolean"),
    ],
)
def test_a_type_that_cannot_be_a_key_is_refused_with_advice(text: str, advice: str) -> None:
    """The message names the type and says what to do."""
    with pytest.raises(KeyTypeError, match=advice):
        parse(text)


@pytest.mark.parametrize(
    ("arrow", "name"),
    [
        (pa.int8(), "tinyint"),
        (pa.float32(), "float"),
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.binary(16), "binary"),
        (pa.binary_view(), "binary"),
        (pa.timestamp("ns"), "timestamp_ntz"),
        (pa.timestamp("s", "Asia/Tokyo"), "timestamp"),
        (pa.decimal256(20, 2), "decimal(20,2)"),
        (pa.dictionary(pa.int8(), pa.date32()), "date"),
        (pa.null(), "void"),
    ],
)
def test_an_arrow_type_is_the_type_spark_exchanges_it_for(arrow: pa.DataType, name: str) -> None:
    """As in Spark's own Arrow batches."""
    assert str(type_of(arrow)) == name


@pytest.mark.parametrize(
    "arrow",
    [
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(), pa.date64(), pa.time64("us")),
        *(pa.duration("us"), pa.list_(pa.int32()), pa.struct([("a", pa.int32())]), pa.decimal256(40, 2)),
        pa.run_end_encoded(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_an_arrow_type_without_a_counterpart_is_refused(arrow: pa.DataType) -> None:
    """Unsigned and nested types, and those Spark reads as something else."""
    with pytest.raises(KeyTypeError):
        type_of(arrow)


@pytest.mark.parametrize("name", ["boolean", "bigint", "double", "string", "binary", "date", "decimal(20,3)"])
def test_the_arrow_type_of_a_key_has_that_type(name: str) -> None:
    """``arrow_of`` and ``type_of`` undo each other."""
    assert type_of(arrow_of(parse(name))) == parse(name)


def test_the_common_type_is_symmetric_and_takes_names_or_types() -> None:
    """Which side a type stands on does not matter."""
    assert common_type("int", KeyType("bigint")) == common_type("bigint", "int") == KeyType("bigint")


def test_types_spark_does_not_compare_have_no_common_type() -> None:
    """The error names both and says to cast."""
    with pytest.raises(KeyTypeError, match="boolean with int: cast one side"):
        common_type("boolean", "int")
