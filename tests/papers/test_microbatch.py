"""Dalton for micro-batches (section 3.4): by hand, against a slow reference, and against the oracle of its batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.grid import Dose, bound_of, stream_of
from papers.microbatch import BatchRouter, route_batch
from tests.dalton_reference import poured
from tests.planning import key_hashes, spread_of
from unskew.core import make_router
from unskew.core.dalton.batch_learner import learning, place_hot_keys, workers_allowed
from unskew.core.dalton.qtable import UNTRIED, QTable
from unskew.core.errors import ConfigError, HistogramError, KeyTypeError
from unskew.core.kernels import base as kernels
from unskew.core.keys.hashing import mix
from unskew.core.quality.windows import window_imbalance
from unskew.simulate.key_streams import zipf_keys

U64 = np.ndarray
GREEDY = learning(epsilon=0.0)


def zipf_batch(rows: int, exponent: float = 1.5, keys: int = 500, seed: int = 1) -> U64:
    return key_hashes(keys, 7)[zipf_keys(np.random.default_rng(seed), rows, keys, exponent)]


def homed(n: int, home: int, count: int, but: int = 0) -> U64:
    """So many keys whose hash worker this is, after the first ``but`` of them."""
    keys = key_hashes(200 * n, 3)
    return keys[make_router("hash", n).route(keys) == home][but : but + count]


def pairs(hashes: U64, workers: np.ndarray) -> list[tuple[int, int, int]]:
    """(key, worker, tuples), sorted."""
    found, counts = np.unique(np.stack([hashes, workers.astype(np.uint64)]), axis=1, return_counts=True)
    return [(int(key), int(worker), int(count)) for (key, worker), count in zip(found.T, counts, strict=True)]


# -- what is decided


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_every_decision_is_that_of_the_reference(data: st.DataObject) -> None:
    """Tuples per worker and values, to the bit, with any settings, capacities, and values known before."""
    n, keys = data.draw(st.integers(1, 7)), data.draw(st.integers(0, 5))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    how = learning(
        gamma=data.draw(st.sampled_from([1e-6, 0.1, 1.0])),
        epsilon=data.draw(st.sampled_from([0.0, 0.1, 1.0])),
        p1=data.draw(st.sampled_from([0.0, 0.5, 1.0])),
        look=data.draw(st.integers(1, 5)),
        keep_untried=data.draw(st.booleans()),
        quantum=data.draw(st.integers(1, 6)),
    )
    counts, tail, seed = rng.integers(1, 60, keys), rng.integers(0, 40, n), int(rng.integers(0, 2**63))
    most, homes = rng.integers(1, n + 1, keys), rng.integers(0, n, keys).astype(np.int32)
    relative = rng.choice([0.5, 1.0, 1.5], n)
    known = np.where(rng.random((keys, n)) < 0.5, UNTRIED, rng.choice([-1.0, -0.25, -0.25, 0.5], (keys, n)))
    hashes = np.sort(key_hashes(keys))
    table = QTable(hashes, known, counts, known > UNTRIED)
    rule = how.rule(n, np.uint64(0), windowed=True)
    done = place_hot_keys(hashes, counts, homes, most, tail, relative, table, rule, seed)
    values = known.tolist()
    want = poured(
        counts.tolist(), homes.tolist(), most.tolist(), tail.tolist(), relative.tolist(), how, seed, values
    )  # fmt: skip
    assert done.placed.tolist() == want
    assert done.table.values.tolist() == values
    assert (done.placed > 0).sum(axis=1).tolist() <= most.tolist()


def test_rewards_by_hand() -> None:
    """Two workers, eight tuples, so a mean of 4. Two cold ones are placed first, on the hash worker of the six of the
    hot key. R of the six there, one by one: load 3 to 8 against the mean of the whole batch, one fragment of two."""
    first, second = homed(2, home=0, count=2)
    hot = homed(2, home=0, count=1, but=2)[0]
    batch = np.array([hot, first, hot, hot, second, hot, hot, hot])
    out, table = route_batch(batch, QTable.empty(2), learning(epsilon=0.0, split_cap=1, keep_untried=True), seed=1)
    q = UNTRIED
    for load in range(3, 9):
        q += 0.1 * (-(0.5 * (load - 4.0) / max(load, 4.0) + 0.5 * 1 / 2) - q)
    assert out.tolist() == [0] * 8
    assert table.hashes.tolist() == [hot]
    assert table.values.tolist() == [[pytest.approx(q, rel=1e-12), UNTRIED]]
    assert table.rows.tolist() == [6]
    assert table.held.tolist() == [[True, False]]


def test_a_batch_is_poured_heaviest_key_first() -> None:
    """Ties by hash: a batch is the reference on its counts, over what its tail makes of the loads."""
    n, seed = 8, 11
    cold = key_hashes(300, 5)
    hot = np.sort(key_hashes(4, 6))[[2, 0, 3, 1]]
    batch = np.random.default_rng(1).permutation(np.concatenate([cold, np.repeat(hot, [400, 300, 300, 900])]))
    out, table = route_batch(batch, QTable.empty(n), learning(), seed)
    order = [hot[3], hot[0], *sorted([hot[1], hot[2]])]
    counts = [900, 400, 300, 300]
    home = make_router("hash", n).route
    tail = np.bincount(home(cold), minlength=n).tolist()
    most = workers_allowed(learning(), np.array(counts), len(batch), n).tolist()
    homes, values = home(np.array(order)).tolist(), [[UNTRIED] * n for _ in order]
    want = poured(counts, homes, most, tail, [1.0] * n, learning(), seed, values)
    assert [np.bincount(out[batch == key], minlength=n).tolist() for key in order] == want
    assert [table.take(np.array([key])).values[0].tolist() for key in order] == values


def test_with_spread_hashes_a_row_has_its_worker_in_any_order() -> None:
    """Rows of a split key too; without them which row goes where depends on the order."""
    batch, spread = zipf_batch(4_000), spread_of(4_000)
    order = np.random.default_rng(9).permutation(4_000)
    first, again = (
        route_batch(batch[at], QTable.empty(8), learning(), 5, spread[at])[0] for at in (slice(None), order)
    )
    assert again.tolist() == first[order].tolist()
    first, again = (route_batch(batch[at], QTable.empty(8), learning(), 5)[0] for at in (slice(None), order))
    assert again.tolist() != first[order].tolist()
    assert pairs(batch, first) == pairs(batch[order], again)


def test_hot_is_a_key_with_its_share_of_this_very_batch() -> None:
    """L / n of the batch's own tuples: 25 of 100 on four workers; 26 of 101 and 25 of 101 are on either side of it."""
    keys = key_hashes(120)
    for count, total, hot in ((25, 100, True), (24, 100, False), (26, 101, True), (25, 101, False), (3, 10, True)):
        batch = np.concatenate([np.repeat(keys[:1], count), keys[1 : total - count + 1]])
        router = BatchRouter(4)
        router.route(batch)
        assert (keys[0] in router.table.hashes) == hot
        assert len(router.table) == hot
    assert BatchRouter(4).route(keys[:2]).tolist() == make_router("hash", 4).route(keys[:2]).tolist()


def test_cold_keys_stay_where_they_are_hashed() -> None:
    batch = zipf_batch(5_000)
    router = BatchRouter(16)
    out = router.route(batch)
    cold = ~np.isin(batch, router.table.hashes)
    assert out[cold].tolist() == make_router("hash", 16).route(batch)[cold].tolist()
    assert 0 < cold.sum() < 5_000


def test_the_tail_is_placed_before_any_hot_key() -> None:
    """One worker has all of the tail: a hot key that is at home there, and comes first, leaves it to the others."""
    hot, tail = homed(4, home=2, count=1), homed(4, home=2, count=60, but=1)
    out = BatchRouter(4).route(np.concatenate([np.repeat(hot, 140), tail]))
    load = np.bincount(out, minlength=4)
    assert load.max() <= 1.25 * load.mean() + 10
    assert np.bincount(out[:140], minlength=4)[2] <= 10


def test_fragments_are_those_of_the_batch() -> None:
    """What the batch before held counts no more: with epsilon 0 the one worker used again has one fragment of four."""
    key = key_hashes(1)
    everywhere = QTable.of(key, [[-0.1, -0.2, -0.2, -0.2]], [100], [[True] * 4])
    _, table = route_batch(np.repeat(key, 1), everywhere, learning(epsilon=0.0, gamma=1.0), seed=1)
    assert table.values[0, 0] == -(0.5 * (1 - 0.25) / 1 + 0.5 * 1 / 4)
    assert table.held.tolist() == [[True, False, False, False]]


def test_values_outlive_one_batch_without_their_key_and_no_more() -> None:
    """Hot in batch 1, absent in 2: still known to batch 3, and gone after it."""
    a, b = key_hashes(2)
    router = BatchRouter(4, settings=GREEDY)
    router.route(np.repeat(a, 10))
    learned = router.table
    router.route(np.repeat(b, 10))
    assert router.table.hashes.tolist() == sorted([int(a), int(b)])
    assert router.table.take(np.array([a])).values.tolist() == learned.values.tolist()
    assert router.table.take(np.array([a])).rows.tolist() == [0]
    router.route(np.repeat(b, 10))
    assert router.table.hashes.tolist() == [b]


@pytest.mark.parametrize("cap", [1, 2, 5, None, "adaptive", "share"])
def test_no_key_is_on_more_workers_than_it_may_be(cap: int | str | None) -> None:
    """In no batch; and where more are needed they are used."""
    how, router = learning(split_cap=cap), BatchRouter(16, settings=learning(split_cap=cap))
    for seed in range(4):
        batch = zipf_batch(8_000, seed=seed)
        router.route(batch)
        now = router.table.rows > 0
        most = workers_allowed(how, router.table.rows[now], len(batch), 16)
        assert (router.table.held.sum(axis=1)[now] <= most).all()
        assert router.table.held.sum(axis=1).max() >= min(int(most.max()), 6)


def test_workers_allowed_by_hand() -> None:
    """Half of 1,000 rows on 16 workers is eight workers' load: 1 + 4 x 8, cut to 16; 70 rows are 1.12 loads: 1 + 5."""
    assert workers_allowed(learning(), np.array([500, 70]), 1000, 16).tolist() == [16, 6]
    assert workers_allowed(learning(share=1.0), np.array([500, 70]), 1000, 16).tolist() == [9, 3]
    assert workers_allowed(learning(split_cap=3), np.array([500, 70]), 1000, 2).tolist() == [2, 2]
    assert workers_allowed(learning(split_cap=None), np.array([500]), 1000, 16).tolist() == [16]


# -- laws


@settings(max_examples=40, deadline=None)
@given(
    ranks=st.lists(st.integers(0, 3) | st.integers(0, 40), max_size=120),
    n=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_the_order_of_arrival_does_not_matter(ranks: list[int], n: int, seed: int) -> None:
    """Every row goes to one of the workers; a permuted batch gives the same number per key and worker, the same
    Q-table, and with ``spread`` the same worker to every row."""
    batch, spread = key_hashes(41)[np.array(ranks, np.int64)], spread_of(len(ranks))
    order = np.random.default_rng(seed).permutation(len(ranks))
    straight, mixed_up, by_spread = (BatchRouter(n, seed) for _ in range(3))
    for _ in range(2):
        out, shuffled = straight.route(batch), mixed_up.route(batch[order])
        assert out.dtype == np.int32
        assert len(out) == len(batch)
        assert set(out.tolist()) <= set(range(n))
        assert pairs(batch[order], shuffled) == pairs(batch, out)
        assert mixed_up.table == straight.table
    first = by_spread.route(batch, spread)
    again, _ = route_batch(batch[order], QTable.empty(n), by_spread.settings, seed_of(seed, 0), spread[order])
    assert again.tolist() == first[order].tolist()


def seed_of(seed: int, batch: int) -> int:
    """The seed that a router uses for its batch of this number."""
    return int(mix(np.array([batch], np.uint64), seed)[0])


def test_a_batch_is_a_function_of_its_arguments() -> None:
    """Same arguments, same result; nothing that was handed in is changed, and nothing is kept."""
    batch, spread = zipf_batch(3_000), spread_of(3_000)
    _, table = route_batch(zipf_batch(3_000, seed=2), QTable.empty(8), learning(), 5)
    before = batch.copy(), spread.copy(), table.values.copy(), table.rows.copy(), table.held.copy()
    first, second = (route_batch(batch, table, learning(), 5, spread) for _ in range(2))
    assert first[0].tolist() == second[0].tolist()
    assert first[1] == second[1]
    after = batch, spread, table.values, table.rows, table.held
    assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))
    assert route_batch(batch, table, learning(), 6, spread)[0].tolist() != first[0].tolist()


def test_a_router_goes_on_from_its_table_and_number() -> None:
    """Both are all that it knows: a re-run of batch 3 after a restart decides the same."""
    batches = [zipf_batch(2_000, seed=seed) for seed in range(4)]
    router = BatchRouter(8, 3)
    for batch in batches[:3]:
        router.route(batch)
    again = BatchRouter(8, 3)
    again.table, again.batch = router.table, router.batch
    assert again.route(batches[3]).tolist() == router.route(batches[3]).tolist()
    assert router.batch == 4


@pytest.mark.parametrize("seed", [-1, 0, 2**64 + 5])
def test_any_whole_number_is_a_seed(seed: int) -> None:
    assert len(route_batch(zipf_batch(100), QTable.empty(4), learning(), seed)[0]) == 100
    assert len(BatchRouter(4, seed).route(zipf_batch(100))) == 100


def test_the_smallest_batches() -> None:
    """No rows, one row, one key, one worker."""
    key = key_hashes(1)
    router = BatchRouter(4)
    assert router.route(np.zeros(0, np.uint64)).tolist() == []
    assert len(router.table) == 0
    assert router.route(key).tolist() == make_router("hash", 4).route(key).tolist()
    assert BatchRouter(1).route(zipf_batch(50)).tolist() == [0] * 50
    load = np.bincount(BatchRouter(4).route(np.repeat(key, 4_000)), minlength=4)
    assert load.sum() == 4_000
    assert load.max() <= 1.15 * 1_000


def test_bad_input_is_refused_by_name() -> None:
    with pytest.raises(HistogramError, match="spread: 3 hashes for 4 tuples"):
        BatchRouter(4).route(key_hashes(4), spread_of(3))
    with pytest.raises(KeyTypeError, match="hashes"):
        BatchRouter(4).route(np.zeros(4))
    with pytest.raises(ConfigError, match="partitions"):
        BatchRouter(0)
    for name, value in (
        ("gamma", 0.0), ("gamma", 1e-9), ("gamma", float("nan")), ("epsilon", 1.1), ("p1", -0.1), ("look", 0),
        ("split_cap", 0), ("split_cap", "some"), ("share", 0.5), ("quantum", 0),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=f"{name}: "):
            learning(**{name: value})  # type: ignore[arg-type]


def test_a_quantum_is_one_decision_for_many_tuples() -> None:
    """Twelve tuples by fives: 5, 5 and 2, wherever they go; the value moves as by five equal rewards."""
    key = key_hashes(1)
    home = int(make_router("hash", 4).route(key)[0])
    known = QTable.of(key, [[-0.5 if worker == home else UNTRIED for worker in range(4)]], [1], [[True] * 4])
    out, table = route_batch(np.repeat(key, 5), known, learning(epsilon=0.0, quantum=5), seed=1)
    reward = -(0.5 * (5 - 5 / 4) / 5 + 0.5 / 4)
    assert out.tolist() == [home] * 5
    assert table.values[0, home] == pytest.approx(reward + 0.9**5 * (-0.5 - reward), rel=1e-12)
    everywhere = np.bincount(route_batch(np.repeat(key, 12), known, learning(epsilon=1.0, quantum=5), seed=1)[0])
    assert sorted(int(many) % 5 for many in everywhere if many % 5) == [2]


# -- against the oracle of the batch


@pytest.mark.skipif(not kernels.COMPILED, reason="numba is not installed: plain Python takes minutes")
@pytest.mark.parametrize(("exponent", "n"), [(0.0, 64), (1.0, 16), (1.0, 64), (1.5, 8), (1.5, 64)])
@pytest.mark.parametrize("size", [10_000, 60_000])
def test_batches_are_as_even_as_their_oracle_allows(exponent: float, n: int, size: int) -> None:
    """Per-batch imbalance within 1.15 of the same batch's bound; uniform batches are those of plain hash."""
    stream = stream_of(exponent, 1, Dose(180_000, 60_000))
    router, rows = BatchRouter(n, stream.seed), stream.rows
    late = np.concatenate([router.route(rows[at : at + size]) for at in range(0, len(rows), size)])[60_000:]
    bound = bound_of(stream, n, size, size, batches=()).window
    assert window_imbalance(late, n, size, size).mean() <= 1.15 * bound.mean()
    if exponent == 0.0:
        assert late.tolist() == make_router("hash", n).route(rows[60_000:]).tolist()
