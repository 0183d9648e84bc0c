"""The command reads files as Spark reads them: the same keys, by Spark's own hash of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.cli.whatif.key_file import read_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

FIELDS = [
    "007", "7", "", '""', " 8 ", "NA", "null", "NaN", "true", "2024-01-31", "1.0", "1.00", '"a,b"', "'q'", '" x "',
    str(2**64), str(2**64 + 1), "naïve", "日本語", 'a"b', "#c",
]  # fmt: skip


def sparks(frame: DataFrame, column: str) -> list[int]:
    """Spark's distinct hashes of a column, unsigned as ours."""
    rows = frame.selectExpr(f"xxhash64(`{column}`)").distinct().collect()
    return np.unique(np.array([row[0] for row in rows], np.int64).view(np.uint64)).tolist()


def ours(path: Path, column: str, *types: str) -> list[int]:
    return np.unique(read_keys(path, [column], types).hashes).tolist()


@pytest.mark.parametrize("name", ["k.csv", "k.tsv"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_csv_column_has_the_keys_that_spark_reads(name: str, end: str, spark: SparkSession, tmp_path: Path) -> None:
    """Strings as written, NULL for empty fields, empty lines left out; nothing but ``header`` set."""
    separator = "\t" if name.endswith("tsv") else ","
    lines = [f"n{separator}id", *(f"1{separator}{field}" for field in FIELDS), "", f"2{separator}last"]
    (tmp_path / name).write_bytes(end.join([*lines, ""]).encode())
    frame = spark.read.option("header", True).option("sep", separator).csv(str(tmp_path / name))
    found = ours(tmp_path / name, "id")
    assert found == sparks(frame, "id")
    assert len(found) == len(FIELDS)  # "" and the quoted "" are one NULL; one key more in the last line


@pytest.mark.parametrize("kind", ["int", "bigint", "double", "string"])
def test_a_csv_column_of_a_given_type(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    """``--type`` is the type in the schema that the job reads with; NULLs included."""
    (tmp_path / "k.csv").write_text('id,n\n007,1\n7,1\n,1\n"9",1\n-3,1\n')
    frame = spark.read.option("header", True).schema(f"id {kind}, n string").csv(str(tmp_path / "k.csv"))
    assert ours(tmp_path / "k.csv", "id", kind) == sparks(frame, "id")


def test_quotes_and_line_ends_in_a_field(spark: SparkSession, tmp_path: Path) -> None:
    """As RFC 4180 has them, which Spark reads with these two options."""
    (tmp_path / "k.csv").write_text('id,n\n"a""b",1\n"c\nd",1\n"e,f",1\n"",1\n')
    reader = spark.read.option("header", True).option("escape", '"').option("multiLine", True)
    assert ours(tmp_path / "k.csv", "id") == sparks(reader.csv(str(tmp_path / "k.csv")), "id")


def test_text_has_one_key_a_line(spark: SparkSession, tmp_path: Path) -> None:
    """An empty line is an empty string, not NULL."""
    (tmp_path / "k.txt").write_text("a\n\nb\n \n007")
    assert ours(tmp_path / "k.txt", "value") == sparks(spark.read.text(str(tmp_path / "k.txt")), "value")


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_unsigned_parquet_columns(bits: int, spark: SparkSession, tmp_path: Path) -> None:
    """The type that Spark gives them, and the same keys; the largest value and NULL included."""
    values = pa.array([0, 1, 7, 2 ** (bits - 1), 2**bits - 1, None], getattr(pa, f"uint{bits}")())
    pq.write_table(pa.table({"id": values}), tmp_path / "k.parquet")
    frame = spark.read.parquet(str(tmp_path / "k.parquet"))
    assert read_keys(tmp_path / "k.parquet", ["id"]).types == (frame.dtypes[0][1],)
    assert ours(tmp_path / "k.parquet", "id") == sparks(frame, "id")
