"""Laws of the key hashes: value by value, whatever the layout; columns chain; Murmur3 of an int is invertible."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spark_hash import hash_u32, placement_salt, spark_hash
from unskew.core.keys import murmur3_inverse, xxh64
from unskew.core.keys.byte_rows import ByteRows
from unskew.core.keys.hashing import SEED, hash_keys

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=90)
KEYS = st.lists(st.none() | TEXT, max_size=60)
BINARY = st.lists(st.none() | st.binary(max_size=300), max_size=40)
LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)


def _plain(data: bytes | None, seed: int = SEED) -> int:
    return seed if data is None else xxhash.xxh64_intdigest(data, seed)


@given(BINARY)
def test_bytes_hash_as_the_xxhash_package_hashes_each_value(keys: list[bytes | None]) -> None:
    """Any mix of lengths and NULLs in one column."""
    assert hash_keys(pa.array(keys, pa.binary())).tolist() == [_plain(key) for key in keys]


@given(st.integers(0, 130), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_every_row_may_have_its_own_seed(size: int, seeds: list[int]) -> None:
    """Rows of one length with one seed each: what the second column of a composite key needs."""
    keys = [bytes((i * 31 + j * 7) % 256 for j in range(size)) for i in range(len(seeds))]
    got = xxh64.hash_bytes(ByteRows.of(pa.array(keys, pa.binary())), np.array(seeds, np.uint64))
    assert got.tolist() == [_plain(key, seed) for key, seed in zip(keys, seeds, strict=True)]


@given(st.lists(st.none() | LONGS, max_size=50))
def test_longs_hash_as_their_eight_bytes(values: list[int | None]) -> None:
    """Little-endian two's complement."""
    expected = [_plain(None if v is None else v.to_bytes(8, "little", signed=True)) for v in values]
    assert hash_keys(pa.array(values, pa.int64())).tolist() == expected


@given(KEYS, st.data())
def test_the_layout_of_a_column_does_not_matter(keys: list[str | None], data: st.DataObject) -> None:
    """List, string, large_string, string_view, dictionary, chunks, slices: the same hashes."""
    array, expected = pa.array(keys, pa.string()), hash_keys(pa.array(keys, pa.string())).tolist()
    at = data.draw(st.integers(0, len(keys)))
    layouts = [
        array.cast(pa.large_string()),
        array.cast(pa.string_view()),
        array.dictionary_encode(),
        array.dictionary_encode(null_encoding="encode"),
        pa.chunked_array([array.slice(0, at), array.slice(at)], pa.string()),
        pa.chunked_array([array.slice(at), array.slice(0, at)]).dictionary_encode(),
    ]
    if any(key is not None for key in keys):
        assert hash_keys(keys).tolist() == expected
    for layout in layouts[:-1]:
        assert hash_keys(layout).tolist() == expected
    assert hash_keys(layouts[-1]).tolist() == expected[at:] + expected[:at]
    assert hash_keys(array.slice(at)).tolist() == expected[at:]
    other = spark_hash(array).tolist()
    assert all(spark_hash(layout).tolist() == other for layout in layouts[:-1])


@given(st.lists(st.tuples(st.none() | TEXT, st.none() | LONGS, st.none() | st.binary(max_size=40)), max_size=30))
def test_each_column_seeds_the_next(rows: list[tuple[str | None, int | None, bytes | None]]) -> None:
    """A composite key is the chain of its columns; NULL passes the seed on."""
    text, number, data = ([row[at] for row in rows] for at in range(3))
    columns = [pa.array(text, pa.string()), pa.array(number, pa.int64()), pa.array(data, pa.binary())]
    expected = []
    for a, b, c in rows:
        h = _plain(None if a is None else a.encode())
        h = _plain(None if b is None else b.to_bytes(8, "little", signed=True), h)
        expected.append(_plain(c, h))
    assert hash_keys(*columns).tolist() == expected
    assert hash_keys(*[column.dictionary_encode() for column in columns]).tolist() == expected


@given(st.lists(TEXT, min_size=1, max_size=30), st.data())
def test_a_batch_hashes_as_its_parts(keys: list[str], data: st.DataObject) -> None:
    """Cutting a column anywhere changes nothing, for both hashes and a second column too."""
    at = data.draw(st.integers(0, len(keys)))
    second = list(range(len(keys)))
    for hasher in (hash_keys, spark_hash):
        whole = hasher(keys, second).tolist()
        assert hasher(keys[:at], second[:at]).tolist() + hasher(keys[at:], second[at:]).tolist() == whole


@given(st.lists(st.tuples(INTS, INTS), min_size=1, max_size=50))
def test_murmur_of_an_int_is_inverted_for_any_seed_and_target(pairs: list[tuple[int, int]]) -> None:
    """There is exactly one int that hashes to the target: the inverse of the hash, both ways round."""
    seed, target = (np.array(side, np.int32).view(np.uint32) for side in zip(*pairs, strict=True))
    found = murmur3_inverse.invert_u32(target, seed)
    assert hash_u32(found, seed).tolist() == target.tolist()
    assert murmur3_inverse.invert_u32(hash_u32(target, seed), seed).tolist() == target.tolist()


@settings(max_examples=200)
@given(st.lists(st.tuples(st.none() | TEXT, st.integers(0, 2**31 - 2)), min_size=1, max_size=40), st.data())
def test_a_salt_reaches_any_partition_of_any_number(rows: list[tuple[str | None, int]], data: st.DataObject) -> None:
    """pmod(hash(key, salt), P) is the wanted partition, for every key, NULL too."""
    partitions = data.draw(st.integers(1, 2**31 - 1))
    keys = pa.array([key for key, _ in rows], pa.string())
    wanted = np.array([target % partitions for _, target in rows], np.int32)
    salts = placement_salt(spark_hash(keys), wanted, partitions)
    assert (spark_hash(keys, salts).astype(np.int64) % partitions).tolist() == wanted.tolist()
