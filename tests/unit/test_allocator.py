"""Prompt's Algorithm 3: balanced reduce buckets, each key in one bucket, no talk between map tasks."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.prompt_machines import hash_loads, imbalance, map_outputs, run_map_tasks
from papers.reference_table import split_keys
from unskew.core.errors import ConfigError, HistogramError
from unskew.core.operators.bucket_allocator import allocate, hash_buckets


def u64(values: object) -> np.ndarray:
    return np.asarray(values, dtype=np.uint64)


def none_split(count: int) -> np.ndarray:
    return np.zeros(count, dtype=np.bool_)


def key_of_bucket(bucket: int, buckets: int) -> int:
    """A key that hashing sends to this bucket."""
    return int(np.flatnonzero(hash_buckets(u64(range(1000)), buckets) == bucket)[0])


def test_worked_example_by_hand():
    """Three buckets, split key of 6 hashed to bucket 1; free keys 9, 7, 5, 4, 2.

    Loads 0 6 0. Turn 1, from least to most loaded: 9 -> 0, 7 -> 2, 5 -> 1: loads 9 11 7.
    Turn 2: 4 -> 2, 2 -> 0: loads 11 11 11.
    """
    split_key = key_of_bucket(1, 3)
    hashes = u64([2000, 2001, split_key, 2002, 2003, 2004])
    got = allocate(hashes, np.array([9, 7, 6, 5, 4, 2]), hashes == split_key, 3, task=0)
    assert got.buckets.tolist() == [0, 2, 1, 1, 2, 0]
    assert got.loads.tolist() == [11, 11, 11]


def test_a_chosen_bucket_is_out_until_every_bucket_has_one():
    """Plain worst fit would put all small keys beside the bucket of 100; the turns give every bucket its two."""
    got = allocate(u64(range(6)), np.array([100, 1, 1, 1, 1, 1]), none_split(6), 3, task=0)
    assert np.bincount(got.buckets).tolist() == [2, 2, 2]


def test_split_keys_go_where_hashing_says_in_every_task():
    """All tasks agree on a split key, whatever else they hold."""
    key = 77
    for task in range(5):
        hashes = u64([key, *range(1000 + task, 1010 + task)])
        got = allocate(hashes, np.arange(11, 0, -1), hashes == key, 4, task=task)
        assert got.buckets[0] == hash_buckets(u64([key]), 4)[0]


def test_reference_table_marks_keys_in_several_blocks_only():
    """Key 5 is in blocks 0 and 1; key 6 twice in block 1, which is one block."""
    marks = split_keys(u64([5, 6, 5, 6, 7]), np.array([0, 1, 1, 1, 0]))
    assert marks.tolist() == [True, False, True, False, False]
    assert split_keys(u64([]), np.array([], dtype=np.int64)).size == 0


@pytest.mark.parametrize("z", [0.5, 0.75, 1.0, 1.25, 1.5])
@pytest.mark.parametrize(("blocks", "buckets"), [(16, 16), (16, 8), (8, 32)])
def test_buckets_are_more_even_than_hashing_makes_them(z, blocks, buckets):
    """On the same map outputs, for every draw, Zipf 0.5 to 1.5."""
    for seed in range(5):
        out = map_outputs(np.random.default_rng(seed), rows=100_000, keys=5_000, z=z, blocks=blocks)
        _, loads = run_map_tasks(out, buckets)
        assert loads.sum() == out.counts.sum()
        assert imbalance(loads) < imbalance(hash_loads(out, buckets))


def test_one_tie_order_for_all_tasks_would_be_worse_than_hashing():
    """Why ties start elsewhere in each task: without that, the comparison above fails."""
    out = map_outputs(np.random.default_rng(0), rows=100_000, keys=5_000, z=0.5, blocks=64)
    hashed = imbalance(hash_loads(out, 64))
    assert imbalance(run_map_tasks(out, 64)[1]) < hashed
    assert imbalance(run_map_tasks(out, 64, start_of=lambda _: 0)[1]) > hashed


def test_broadcast_split_share_evens_out_further():
    """Tasks that hold no part of the hot key spare its bucket too; no key changes from one bucket to two."""
    gains = []
    for seed in range(5):
        out = map_outputs(np.random.default_rng(seed), rows=100_000, keys=5_000, z=1.0, blocks=16)
        chosen, sent = run_map_tasks(out, 16, broadcast=True)
        assert one_bucket_each(out.keys, chosen)
        gains.append(imbalance(run_map_tasks(out, 16)[1]) - imbalance(sent))
    assert np.mean(gains) > 0.02


def one_bucket_each(keys: np.ndarray, buckets: np.ndarray) -> bool:
    pairs = np.unique(np.stack([keys, buckets.astype(np.uint64)], axis=1), axis=0)
    return pairs.shape[0] == np.unique(keys).size


@pytest.mark.parametrize("z", [0.5, 1.0, 1.5])
def test_every_key_is_in_one_bucket_over_all_map_tasks(z):
    """Split keys by hash, the others in one block only."""
    out = map_outputs(np.random.default_rng(5), rows=100_000, keys=5_000, z=z, blocks=16)
    assert split_keys(out.keys, out.blocks).any()
    chosen, _ = run_map_tasks(out, 16)
    assert one_bucket_each(out.keys, chosen)


def test_without_the_reference_table_keys_fall_apart():
    """The check above can fail: split keys that are not marked land in several buckets."""
    out = map_outputs(np.random.default_rng(5), rows=100_000, keys=5_000, z=1.0, blocks=16)
    chosen = np.empty(out.keys.size, dtype=np.int32)
    for task in range(16):
        mine = out.blocks == task
        part = allocate(out.keys[mine], out.counts[mine], none_split(int(mine.sum())), 16, task=task)
        chosen[mine] = part.buckets
    assert not one_bucket_each(out.keys, chosen)


@pytest.mark.parametrize("keys", [0, 1, 2])
def test_fewer_keys_than_buckets(keys):
    """No key, one, two: each is placed once, in its own bucket."""
    got = allocate(u64(range(keys)), np.full(keys, 3), none_split(keys), 5, task=2)
    assert got.buckets.size == keys
    assert np.unique(got.buckets).size == keys
    assert got.loads.sum() == 3 * keys


def test_one_bucket_takes_all_and_all_split_is_hashing():
    """The ends of the range."""
    hashes, counts = u64(range(50)), np.arange(1, 51)
    assert set(allocate(hashes, counts, none_split(50), 1, task=0).buckets.tolist()) == {0}
    np.testing.assert_array_equal(allocate(hashes, counts, ~none_split(50), 7, task=3).buckets, hash_buckets(hashes, 7))


@pytest.mark.parametrize("buckets", [0, -1, 1 << 21, 2.0, True])
def test_bad_bucket_numbers_are_refused(buckets):
    """The error names the parameter."""
    with pytest.raises(ConfigError, match="buckets"):
        allocate(u64([1]), np.array([1]), none_split(1), buckets, task=0)


@pytest.mark.parametrize("distinct", [1, 3])
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32, np.uint64])
def test_sizes_of_any_integer_type_add_up_in_64_bits(dtype, distinct):
    """Loads far beyond the type's own range come out as with int64, and so do the buckets."""
    sizes = np.full(8192, min(np.iinfo(dtype).max, 1 << 20)) - np.arange(8192) % distinct
    hashes = u64(range(8192))
    want = allocate(hashes, sizes, none_split(8192), 2, task=0)
    got = allocate(hashes, sizes.astype(dtype), none_split(8192), 2, task=0)
    assert got.loads.dtype == np.int64
    assert got.loads.tolist() == want.loads.tolist()
    assert got.loads.sum() == sizes.sum()
    assert got.buckets.tolist() == want.buckets.tolist()


def test_more_rows_than_a_load_can_hold_are_refused():
    """2^63 - 1 rows are the most; half of that beside expected rows, which stand in the same sum."""
    hashes, none = u64(range(4)), none_split(4)
    most = np.array([2**61, 2**61, 2**62 - 1, 0])
    assert sum(allocate(hashes, most, none, 1, task=0).loads.tolist()) == 2**63 - 1
    for sizes in (most + 1, np.full(4, 2**62), u64([2**64 - 1, 0, 0, 0])):
        with pytest.raises(HistogramError, match=f"{sum(sizes.tolist())} rows"):
            allocate(hashes, sizes, none, 2, task=0)
    share, half = np.array([1.0, 0.0]), np.array([2**61, 2**61 - 1, 0, 0])
    assert sorted(allocate(hashes, half, none, 2, task=0, split_share=share).loads.tolist()) == [2**61 - 1, 2**61]
    with pytest.raises(HistogramError, match="at most 4611686018427387903"):
        allocate(hashes, most // 2 + 1, none, 2, task=0, split_share=share)


def test_bad_clusters_are_refused():
    """Lengths, types, negative sizes, task and shares."""
    one = np.array([1])
    with pytest.raises(HistogramError, match="one each"):
        allocate(u64([1, 2]), one, none_split(2), 2, task=0)
    with pytest.raises(HistogramError, match="uint64"):
        allocate(one, one, none_split(1), 2, task=0)  # type: ignore[arg-type]
    with pytest.raises(HistogramError, match="-1 rows"):
        allocate(u64([1]), -one, none_split(1), 2, task=0)
    with pytest.raises(HistogramError, match="timedelta64"):
        allocate(u64([1]), one.astype("m8[s]"), none_split(1), 2, task=0)  # type: ignore[arg-type]
    with pytest.raises(HistogramError, match="2 keys but 1 blocks"):
        split_keys(u64([1, 2]), one)
    with pytest.raises(ConfigError, match="task"):
        allocate(u64([1]), one, none_split(1), 2, task=-1)
    with pytest.raises(ConfigError, match="split_share"):
        allocate(u64([1]), one, none_split(1), 2, task=0, split_share=np.array([0.5, np.nan]))
