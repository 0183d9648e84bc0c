"""Reading keys: every format and type gives the hashes that Spark would give."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.command import skewed, write_stream
from unskew.cli.errors import InputError
from unskew.cli.whatif.key_file import read_keys
from unskew.core.errors import ConfigError, KeyTypeError
from unskew.core.keys.hashing import hash_keys

WORDS = ["b", "a", "", "b", "naïve"]


def test_parquet_csv_and_text_agree(tmp_path: Path) -> None:
    """The same strings in each format, plain or gzipped, in the same order: the same hashes. CSV has no empty string:
    it is NULL there."""
    lines = "\n".join(WORDS) + "\n"
    pq.write_table(pa.table({"key": WORDS, "n": range(5)}), tmp_path / "k.parquet")
    (tmp_path / "k.txt").write_text(lines)
    (tmp_path / "k.log.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "dos.txt").write_bytes(lines.replace("\n", "\r\n").encode())
    (tmp_path / "open.txt").write_text(lines[:-1])
    table = "key,n\n" + "".join(f'"{word}",1\n' for word in WORDS)
    (tmp_path / "k.csv").write_text(table)
    (tmp_path / "k.csv.gz").write_bytes(gzip.compress(table.encode()))
    (tmp_path / "k.tsv").write_text(table.replace(",", "\t"))
    words, fields = hash_keys(WORDS).tolist(), hash_keys([word or None for word in WORDS]).tolist()
    for name in ("k.parquet", "k.csv", "k.csv.gz", "k.tsv", "k.txt", "k.log.gz", "dos.txt", "open.txt"):
        keys = read_keys(tmp_path / name, ["key"])
        assert (name, keys.hashes.tolist()) == (name, fields if ".csv" in name or ".tsv" in name else words)
        assert (keys.name, keys.columns, keys.types) == (name, ("key",), ("string",))


def test_a_parquet_file_is_known_by_its_content(tmp_path: Path) -> None:
    """Whatever its name."""
    pq.write_table(pa.table({"key": WORDS}), tmp_path / "part-00000")
    assert len(read_keys(tmp_path / "part-00000", ["key"]).hashes) == 5


def test_the_only_column_need_not_be_named(tmp_path: Path) -> None:
    """Parquet and CSV of one column, and text, whose column Spark calls value."""
    pq.write_table(pa.table({"word": WORDS}), tmp_path / "k.parquet")
    (tmp_path / "k.txt").write_text("a\n")
    assert read_keys(tmp_path / "k.parquet", []).columns == ("word",)
    assert read_keys(tmp_path / "k.txt", []).columns == ("value",)
    assert read_keys(tmp_path / "k.txt", ["value"]).columns == ("value",)


def test_a_folder_is_read_as_spark_writes_it(tmp_path: Path) -> None:
    """Part files in the order of their names; markers, checksums and empty parts are left out."""
    keys = skewed(3000)
    for number, part in enumerate(keys.reshape(3, -1)):
        pq.write_table(pa.table({"key": part}), tmp_path / f"part-0000{number}.snappy.parquet")
    (tmp_path / "_SUCCESS").write_bytes(b"")
    (tmp_path / "_committed_1").write_text("{}")
    (tmp_path / "part-00003.csv").write_bytes(b"")
    (tmp_path / ".part-00000.crc").write_bytes(b"crc")
    assert read_keys(tmp_path, ["key"]).hashes.tolist() == hash_keys(keys).tolist()


def test_a_folder_of_two_types_is_refused(tmp_path: Path) -> None:
    """int 7 and bigint 7 hash differently, so a mixture would silently part equal keys."""
    pq.write_table(pa.table({"key": pa.array([7], pa.int64())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"key": pa.array([7], pa.int32())}), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"b\.parquet: the key is key int here but key bigint in earlier files"):
        read_keys(tmp_path, ["key"])
    assert read_keys(tmp_path, ["key"], ["bigint"]).hashes.tolist() == hash_keys(np.array([7, 7])).tolist()


def test_several_columns_make_one_key(tmp_path: Path) -> None:
    """Each column seeds the next, in the order given."""
    path = write_stream(tmp_path / "s.parquet", 400)
    table = pq.read_table(path)
    keys = read_keys(path, ["day", "number"])
    assert (keys.columns, keys.types) == (("day", "number"), ("date", "bigint"))
    assert keys.hashes.tolist() == hash_keys(table["day"], table["number"]).tolist()


def test_repeated_and_null_strings_in_many_row_groups(tmp_path: Path) -> None:
    """Dictionaries differ from row group to row group; NULL keeps the seed."""
    words = [None if key % 7 == 0 else f"user-{key}" for key in skewed(4000).tolist()]
    pq.write_table(pa.table({"key": words}), tmp_path / "k.parquet", row_group_size=500)
    assert read_keys(tmp_path / "k.parquet", ["key"]).hashes.tolist() == hash_keys(words).tolist()


@pytest.mark.parametrize(("name", "content"), [("k.csv", "id\n007\n8\n"), ("k.txt", "007\n8\n")])
def test_the_type_can_be_given(tmp_path: Path, name: str, content: str) -> None:
    """Text of digits is a string or a number, as the job has it: leading zeros stay where it is a string."""
    (tmp_path / name).write_text(content)
    assert read_keys(tmp_path / name, [], ["string"]).hashes.tolist() == hash_keys(["007", "8"]).tolist()
    number = read_keys(tmp_path / name, [], ["int"])
    assert number.types == ("int",)
    assert number.hashes.tolist() == hash_keys(np.array([7, 8], np.int32)).tolist()


def test_a_column_that_spark_cannot_hash_is_refused_by_name(tmp_path: Path) -> None:
    """The column, and what to do."""
    pq.write_table(pa.table({"tags": pa.array([[1], [2]])}), tmp_path / "k.parquet")
    with pytest.raises(KeyTypeError, match=r"column 'tags'.*cast to string"):
        read_keys(tmp_path / "k.parquet", ["tags"])


def test_a_wrong_column_lists_those_there_are(tmp_path: Path) -> None:
    """In the first column of two as in the second."""
    path = write_stream(tmp_path / "s.parquet", 400)
    for columns in (["kee", "day"], ["day", "kee"]):
        with pytest.raises(ConfigError, match="'kee' is not allowed; use one of key, number, day"):
            read_keys(path, columns)


def test_csv_keys_are_strings_and_empty_is_null(tmp_path: Path) -> None:
    """As ``spark.read.option("header", True).csv`` reads them: digits stay as written, in the first block and the last;
    an empty field is NULL, quoted or not; blanks and the word null are text."""
    words = ["007", "7", str(2**64), str(2**64 + 1), "1.0", "1.00", None, None, "null", "NA", " 7 ", "true", "a,b"]
    rows = ["007", "7", str(2**64), str(2**64 + 1), "1.0", "1.00", "", '""', "null", "NA", " 7 ", "true", '"a,b"']
    (tmp_path / "k.csv").write_text("id,n\n" + "".join(f"{row},1\n" for row in rows) + "07,1\n" * 300_000)
    keys = read_keys(tmp_path / "k.csv", ["id"])
    assert keys.types == ("string",)
    assert keys.hashes[: len(words)].tolist() == hash_keys(pa.array(words)).tolist()
    assert set(keys.hashes[len(words) :].tolist()) == set(hash_keys(["07"]).tolist())


def test_an_empty_line_of_text_is_an_empty_key(tmp_path: Path) -> None:
    """As in ``spark.read.text``; the end of the last line begins no further one."""
    (tmp_path / "k.txt").write_text("a\n\nb\n")
    assert read_keys(tmp_path / "k.txt", []).hashes.tolist() == hash_keys(["a", "", "b"]).tolist()


def test_unsigned_columns_are_taken_as_spark_takes_them(tmp_path: Path) -> None:
    """The next wider signed type; 64 bits as decimal(20,0). Dictionaries and NULLs too, and --type on top of it."""
    for bits, kind, arrow in (
        (8, "smallint", pa.int16()),
        (16, "int", pa.int32()),
        (32, "bigint", pa.int64()),
        (64, "decimal(20,0)", pa.decimal128(20, 0)),
    ):
        values = [0, 1, 2**bits - 1, None]
        unsigned = pa.array(values, getattr(pa, f"uint{bits}")())
        pq.write_table(pa.table({"u": unsigned, "d": unsigned.dictionary_encode()}), tmp_path / "k.parquet")
        for column in ("u", "d"):
            keys = read_keys(tmp_path / "k.parquet", [column])
            assert keys.types == (kind,)
            assert keys.hashes.tolist() == hash_keys(pa.array(values, arrow)).tolist()
    pq.write_table(pa.table({"u": pa.array([7], pa.uint8())}), tmp_path / "k.parquet")
    assert read_keys(tmp_path / "k.parquet", ["u"], ["bigint"]).hashes.tolist() == hash_keys(np.array([7])).tolist()


def test_a_type_that_does_not_fit_names_its_column(tmp_path: Path) -> None:
    """The second of two, with both types given."""
    path = write_stream(tmp_path / "s.parquet", 400)
    with pytest.raises(KeyTypeError, match=r"column 'day': .*date.* int"):
        read_keys(path, ["key", "day"], ["string", "int"])


def test_another_separator_is_told(tmp_path: Path) -> None:
    """The whole header is one column then; who names exactly that column gets it."""
    for separator, shown in ((";", "';'"), ("\t", r"'\\t'"), ("|", r"'\|'")):
        (tmp_path / "k.csv").write_text(f"id{separator}n\n1{separator}2\n")
        for columns in ([], ["id"]):
            with pytest.raises(InputError, match=f"separator seems to be {shown}"):
                read_keys(tmp_path / "k.csv", columns)
        assert len(read_keys(tmp_path / "k.csv", [f"id{separator}n"]).hashes) == 1


def test_with_its_type_named_a_long_integer_keeps_its_digits(tmp_path: Path) -> None:
    """1,000 ids of 20 digits are 1,000 keys as string and as decimal, and one as double: as the job has it."""
    (tmp_path / "k.csv").write_text("id\n" + "".join(f"{5 * 10**19 + key}\n" for key in range(1000)))
    keys = {
        kind: len(np.unique(read_keys(tmp_path / "k.csv", ["id"], [kind]).hashes))
        for kind in ("string", "decimal(20,0)", "double")
    }
    assert keys == {"string": 1000, "decimal(20,0)": 1000, "double": 1}


def test_csv_numbers_with_their_type_given(tmp_path: Path) -> None:
    """The largest bigints, doubles with NaN, and empty fields, which are NULL there too."""
    (tmp_path / "i.csv").write_text(f"id,n\n{2**63 - 1},1\n{-(2**63)},1\n,1\n")
    (tmp_path / "d.csv").write_text(f"id,n\n{2**53 - 1}.0,1\n-0.5,1\nNaN,1\n,1\n")
    whole = pa.array([2**63 - 1, -(2**63), None])
    assert read_keys(tmp_path / "i.csv", ["id"], ["bigint"]).hashes.tolist() == hash_keys(whole).tolist()
    doubles = pa.array([2.0**53 - 1, -0.5, float("nan"), None], from_pandas=False)
    assert read_keys(tmp_path / "d.csv", ["id"], ["double"]).hashes.tolist() == hash_keys(doubles).tolist()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_of_two_columns_of_one_name_none_is_taken(kind: str, tmp_path: Path) -> None:
    """The line names the column and says what to do; other columns of that file can still be keys."""
    path = tmp_path / f"k.{kind}"
    if kind == "csv":
        path.write_text("id,id,name\n1,2,a\n")
    else:
        columns = [pa.array([1]), pa.array([2]), pa.array(["a"])]
        pq.write_table(pa.Table.from_arrays(columns, names=["id", "id", "name"]), path)
    with pytest.raises(InputError, match=r"2 columns are called 'id'; rename"):
        read_keys(path, ["id"])
    assert read_keys(path, ["name"]).hashes.tolist() == hash_keys(["a"]).tolist()
