"""Our hashes and common types are Spark's, vector by vector (the files come from ``tools/make_conformance.py``)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.conformance.vectors import column, load
from tests.spark_hash import spark_hash
from unskew.core.errors import KeyTypeError
from unskew.core.keys.hashing import hash_keys
from unskew.core.keys.types import common_type, parse, type_of

HASHES = load("hashes.json")
COMMON = load("common_types.json")["left_right_common"]
COLLATIONS = load("collations.json")["collations"]


def _expect(vector: dict[str, Any], columns: list[Any], types: list[str] | None) -> None:
    assert hash_keys(*columns, types=types).view(np.int64).tolist() == [int(h) for h in vector["xxhash64"]]
    assert spark_hash(*columns, types=types).tolist() == [int(h) for h in vector["hash"]]


@pytest.mark.parametrize("vector", HASHES["columns"], ids=lambda v: v["type"])
def test_a_column_hashes_as_in_spark(vector: dict[str, Any]) -> None:
    """Both hashes of every value of the type, NULL among them, with the type named and without."""
    values = column(vector["type"], vector["values"])
    assert str(type_of(values.type)) == vector["type"]
    _expect(vector, [values], None)
    _expect(vector, [values], [vector["type"]])


@pytest.mark.parametrize("vector", HASHES["columns"], ids=lambda v: v["type"])
def test_a_dictionary_or_a_slice_of_it_hashes_as_in_spark(vector: dict[str, Any]) -> None:
    """The same column encoded as a dictionary, and one row at a time."""
    values = column(vector["type"], vector["values"])
    _expect(vector, [values.dictionary_encode()], None)
    singles = [hash_keys(values.slice(row, 1)) for row in range(len(values))]
    assert np.concatenate(singles).tolist() == hash_keys(values).tolist()


@pytest.mark.parametrize("vector", HASHES["composites"], ids=lambda v: "+".join(v["types"]))
def test_a_composite_key_hashes_as_in_spark(vector: dict[str, Any]) -> None:
    """Two to four columns, NULL in every combination of places."""
    columns = [
        column(kind, list(values))
        for kind, values in zip(vector["types"], zip(*vector["rows"], strict=True), strict=True)
    ]
    _expect(vector, columns, vector["types"])
    _expect(vector, [values.dictionary_encode() for values in columns], None)


@pytest.mark.parametrize("vector", HASHES["casts"], ids=lambda v: f"{v['type']} as {v['to']}")
def test_a_cast_key_hashes_as_sparks_cast(vector: dict[str, Any]) -> None:
    """Hashed ``types=[to]`` here, ``xxhash64(cast(key as to))`` there: rounding included."""
    _expect(vector, [column(vector["type"], vector["values"])], [vector["to"]])


@pytest.mark.parametrize("left", COMMON)
def test_the_common_type_is_sparks(left: str) -> None:
    """For ``left = right`` with every type on the right; where Spark refuses to compare, so do we."""
    ours = {}
    for right in COMMON[left]:
        try:
            ours[right] = str(common_type(left, right))
        except KeyTypeError:
            ours[right] = None
    assert ours == COMMON[left]


@pytest.mark.parametrize("case", COLLATIONS, ids=lambda c: c["type"])
def test_collated_keys_are_refused_by_the_name_spark_gives_them(case: dict[str, Any]) -> None:
    """Spark hashes their bytes, so strings it calls equal hash apart: the error says what to do instead."""
    assert case["xxhash64"] == [str(h) for h in hash_keys(case["values"]).view(np.int64).tolist()]
    with pytest.raises(KeyTypeError, match="equal keys would be hashed apart"):
        parse(case["type"])
    with pytest.raises(KeyTypeError, match="lower"):
        hash_keys(case["values"], types=[case["type"]])


def test_some_collation_in_the_file_really_calls_different_bytes_equal() -> None:
    """The reason for refusing is a fact of the vectors, not a belief."""
    assert any(case["equal"] and len(set(case["xxhash64"])) == 2 for case in COLLATIONS)
