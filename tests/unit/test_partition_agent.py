"""What one task decides for its partition: a function of the pin, its number, and its rows as a multiset."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planning import key_hashes
from unskew.core import Histogram, make_planner
from unskew.core.dalton.qtable import QTable
from unskew.core.errors import ConfigError, PlanError
from unskew.core.plan.plan import Plan
from unskew.core.rounds.merge import merge
from unskew.core.rounds.messages import Answer, Report
from unskew.core.rounds.partition_agent import (
    PartitionRouting,
    RoutingChoice,
    bounded,
    decide,
    distinct_hashes,
    report_of,
)
from unskew.simulate.key_streams import zipf_keys
from unskew.wire import report_from_message, report_to_message

U64 = np.ndarray
KEYS = key_hashes(400, 7)


def zipf(rng: np.random.Generator, rows: int, exponent: float = 1.4, keys: U64 = KEYS) -> U64:
    return keys[zipf_keys(rng, rows, len(keys), exponent)]


def placed(decided: PartitionRouting, keys: U64, spread: U64) -> Counter[tuple[int, int, int]]:
    return Counter(zip(keys.tolist(), spread.tolist(), decided.partitions.tolist(), strict=True))


def split_plan(keys: U64, n: int) -> Plan:
    plan = make_planner("prompt", n).plan(Histogram.from_hashes(keys))
    assert plan.splits
    return plan


def learned(n: int, rng: np.random.Generator) -> tuple[QTable, int]:
    """A global table as a round leaves it, and GL."""
    bound = RoutingChoice(n, table=QTable.empty(n), alike=True)
    keys = zipf(rng, 4_000)
    first = decide(bound, keys, rng.integers(0, 2**64, len(keys), dtype=np.uint64))
    assert first.table is not None
    return first.table, len(keys)


# -- exactness


@settings(max_examples=60)
@given(data=st.data())
def test_any_order_of_the_rows_places_the_same_multiset(data: st.DataObject) -> None:
    """Plans and learning, rows told apart or not, many of them the same: a task that runs again may be given its rows
    in another order."""
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    n, rows = data.draw(st.integers(1, 9)), data.draw(st.sampled_from([0, 1, 7, 500, 3_000]))
    keys = zipf(rng, rows)
    spread = rng.integers(0, data.draw(st.sampled_from([1, 3, 100, 2**64])), rows, dtype=np.uint64) ^ keys
    alike = data.draw(st.booleans())
    bound = RoutingChoice(n, batch=data.draw(st.integers(0, 5)), alike=alike)
    kind = data.draw(st.sampled_from(["plan", "first batch", "later"]))
    if kind == "plan":
        bound = replace(bound, plan=make_planner("prompt", n).plan(Histogram.from_hashes(zipf(rng, 3_000))))
    elif kind == "later":
        table, records = learned(n, rng)
        bound = replace(bound, table=table, records=records, version=(3, 1))
    other = rng.permutation(rows)
    once, again = decide(bound, keys, spread), decide(bound, keys[other], spread[other])
    assert placed(once, keys, spread) == placed(again, keys[other], spread[other])
    assert once.histogram == again.histogram
    assert once.table == again.table
    assert len(once.partitions) == rows
    assert rows == 0 or (once.partitions.min() >= 0 and once.partitions.max() < n)


@pytest.mark.parametrize("learning", [True, False])
def test_rows_that_cannot_be_told_to_be_the_same_stay_together(learning: bool) -> None:
    """Two rows with one spread hash may be different rows: which came first must not matter, so both go one way."""
    rng = np.random.default_rng(1)
    keys = zipf(rng, 5_000)
    spread = keys ^ rng.integers(0, 40, len(keys), dtype=np.uint64)
    bound = RoutingChoice(8) if learning else RoutingChoice(8, split_plan(zipf(rng, 5_000), 8))
    pairs = {(key, value, where) for key, value, where in placed(decide(bound, keys, spread), keys, spread)}
    assert len(pairs) == len({(key, value) for key, value, _ in pairs})


def test_a_words_only_partition_is_spread_where_rows_are_told_apart() -> None:
    """Equal rows go by their n-th occurrence: a word of half the rows is on many partitions, evenly."""
    rng = np.random.default_rng(2)
    keys = np.where(rng.random(20_000) < 0.5, KEYS[0], KEYS[rng.integers(0, 400, 20_000)])
    plan = split_plan(keys, 8)
    out = decide(RoutingChoice(8, plan, alike=True), keys, keys).partitions
    assert np.bincount(out, minlength=8).max() < 1.15 * len(keys) / 8
    together = decide(RoutingChoice(8, plan), keys, keys).partitions
    assert np.bincount(together, minlength=8).max() > 0.5 * len(keys)
    learned = decide(RoutingChoice(8, alike=True), keys, keys).partitions
    assert np.bincount(learned, minlength=8).max() < 1.3 * len(keys) / 8


def test_rows_told_apart_by_hand() -> None:
    """The first of equal ones keeps its hash; the n-th has the same one in any order, and no two are alike."""
    spread = np.array([7, 9, 7, 7, 9, 1], np.uint64)
    out = distinct_hashes(spread)
    assert (out[0], out[1], out[5]) == (7, 9, 1)
    assert len(set(out.tolist())) == 6
    assert sorted(distinct_hashes(spread[::-1].copy()).tolist()) == sorted(out.tolist())
    assert distinct_hashes(np.array([7, 7], np.uint64))[1] in out.tolist()
    unique = np.array([3, 2, 1], np.uint64)
    assert distinct_hashes(unique) is unique


def test_a_plan_places_distinct_rows_as_everywhere_else() -> None:
    """The executor face and the native face agree on rows that are there once."""
    rng = np.random.default_rng(3)
    keys, spread = zipf(rng, 5_000), rng.integers(0, 2**64, 5_000, dtype=np.uint64)
    plan = split_plan(keys, 6)
    for alike in (True, False):
        out = decide(RoutingChoice(6, plan, alike=alike), keys, spread).partitions
        assert (out == plan.route(keys, spread)).all()


def test_another_seed_takes_other_partitions() -> None:
    """A key's sequence is of its hash and the pin's seed, in any process; its hash partition is the first of it."""
    keys = np.repeat(KEYS[:1], 8_000)
    spread = np.random.default_rng(10).integers(0, 2**64, len(keys), dtype=np.uint64)
    half = np.where(np.arange(len(keys)) % 4 == 0, keys, key_hashes(len(keys), 11))

    def taken(bound: RoutingChoice) -> frozenset[int]:
        return frozenset(decide(bound, half, spread).partitions[half == KEYS[0]].tolist())

    bound = RoutingChoice(64, alike=True)
    assert taken(bound) == taken(pickle.loads(pickle.dumps(bound))) == taken(replace(bound, batch=4, version=(3, 1)))
    assert taken(bound) != taken(replace(bound, seed=8))


# -- routers that see every row


@pytest.mark.parametrize("router", ["wchoices", "dchoices", "cam", "pk2", "hash"])
@pytest.mark.parametrize("alike", [True, False])
def test_a_router_places_the_same_multiset_in_any_order(router: str, alike: bool) -> None:
    """Rows that are there twice included, whether they may stand for each other or not."""
    rng = np.random.default_rng(13)
    keys, n = zipf(rng, 3_000), 6
    spread = keys ^ rng.integers(0, 200, len(keys), dtype=np.uint64)
    pin, other = RoutingChoice(n, alike=alike, router=router), rng.permutation(len(keys))
    once, again = decide(pin, keys, spread), decide(pin, keys[other], spread[other])
    assert placed(once, keys, spread) == placed(again, keys[other], spread[other])
    assert once.table is None
    if not alike:
        pairs = set(placed(once, keys, spread))
        assert len(pairs) == len({pair[:2] for pair in pairs})


def test_routers_that_see_every_row_are_even_where_a_key_is_hot() -> None:
    """38 % of the rows have one key: 2.3 of six partitions. cAM keeps it whole, and puts little else beside it."""
    rng = np.random.default_rng(14)
    keys = zipf(rng, 20_000, 1.5)
    spread = rng.integers(0, 2**64, len(keys), dtype=np.uint64)
    for router, most in (("wchoices", 1.01), ("dchoices", 1.02), ("cam", 2.5), ("hash", 3.5)):
        out = decide(RoutingChoice(6, alike=True, router=router), keys, spread).partitions
        assert np.bincount(out, minlength=6).max() * 6 / len(keys) < most


def test_a_router_keeps_keys_whole_where_nothing_tells_rows_apart() -> None:
    keys = zipf(np.random.default_rng(15), 3_000)
    out = decide(RoutingChoice(6, router="wchoices"), keys).partitions
    assert len(set(zip(keys.tolist(), out.tolist(), strict=True))) == len(set(keys.tolist()))
    assert len(decide(RoutingChoice(6, router="wchoices"), keys[:0]).partitions) == 0


@pytest.mark.parametrize(
    ("router", "instead"), [("dalton", "learn=True"), ("cg", "policy cg"), ("w-choices", "wchoices")]
)
def test_routers_that_need_more_than_a_partition_are_refused(router: str, instead: str) -> None:
    with pytest.raises(ConfigError, match=instead):
        RoutingChoice(6, router=router)


# -- what is learned


def hot_here(others: float) -> tuple[U64, U64, RoutingChoice]:
    """Half of a partition is one key that the table has, a fifth another one that it lacks; ``others`` are the rows of
    other applications for one of these."""
    rng = np.random.default_rng(4)
    keys = rng.choice(KEYS, 4_000)
    keys[:2_000], keys[2_000:2_800] = KEYS[0], KEYS[1]
    table = QTable.of(KEYS[:1], np.full((1, 8), -0.5), [50_000], np.ones((1, 8), bool))
    pin = RoutingChoice(8, table=table, records=int(100_000 * (1 + others)), version=(1, 1), alike=True)
    return keys, rng.integers(0, 2**64, 4_000, dtype=np.uint64), pin


def test_a_key_that_no_round_has_seen_is_split_in_the_batch_that_it_comes_with() -> None:
    """By this partition's own counts, though the global table lacks it."""
    keys, spread, pin = hot_here(others=0.0)
    out = decide(pin, keys, spread).partitions
    assert np.bincount(out, minlength=8).max() < 1.1 * len(keys) / 8
    assert len(set(out[keys == KEYS[1]].tolist())) > 1


def test_a_key_that_is_hot_to_this_application_only_stays_where_its_hash_puts_it() -> None:
    """1.6 of an even share of this partition, 0.8 of one in the rows of both applications. The table's key is split."""
    keys, spread, pin = hot_here(others=1.0)
    out = decide(pin, keys, spread).partitions
    assert set(out[keys == KEYS[1]].tolist()) == set(decide(RoutingChoice(8), KEYS[1:2]).partitions.tolist())
    assert len(set(out[keys == KEYS[0]].tolist())) >= 4


def test_a_key_of_which_the_round_knows_no_row_is_no_measure_of_it() -> None:
    """One that it is unsure of: nothing says then how large this application's part is."""
    keys, spread, pin = hot_here(others=0.0)
    unsure = replace(pin, table=QTable.of(KEYS[:1], np.full((1, 8), -0.5), [0], np.ones((1, 8), bool)))
    assert np.bincount(decide(unsure, keys, spread).partitions, minlength=8).max() < 1.1 * len(keys) / 8


def test_tasks_that_see_other_rows_of_a_key_take_the_same_partitions() -> None:
    """16 tasks of one batch: a key that fills 25 of 64 partitions is on few more in all, the others stay as whole."""
    rng = np.random.default_rng(12)
    on: dict[int, set[int]] = {}
    for _ in range(16):
        keys = zipf(rng, 6_000, 1.5)
        out = decide(RoutingChoice(64, alike=True), keys, rng.integers(0, 2**64, len(keys), dtype=np.uint64))
        for key, partition in zip(keys.tolist(), out.partitions.tolist(), strict=True):
            on.setdefault(key, set()).add(partition)
    counts = Counter(zipf(np.random.default_rng(12), 96_000, 1.5).tolist())
    (heaviest, rows), *_ = counts.most_common(1)
    need = rows * 64 / 96_000
    assert need <= len(on[heaviest]) < 1.6 * need
    assert np.mean([len(partitions) for partitions in on.values()]) < 1.5  # of 400 keys 60 are hot


def test_without_spread_hashes_keys_stay_whole() -> None:
    """Nothing tells their rows apart."""
    keys = zipf(np.random.default_rng(5), 5_000)
    out = decide(RoutingChoice(8), keys).partitions
    assert len(set(zip(keys.tolist(), out.tolist(), strict=True))) == len(set(keys.tolist()))


def rounds(n: int, parts: int, rows: int, batches: int, exponent: float) -> list[tuple[float, int]]:
    """Imbalance of each batch and hot keys known to it, where partitions learn together."""
    rng, keys = np.random.default_rng(6), key_hashes(20_000, 7)
    answer: Answer | None = None
    told = []
    for batch in range(batches):
        bound = RoutingChoice(n, table=QTable.empty(n), batch=batch, alike=True)
        if answer is not None:
            bound = bound.after(answer)
        load, reports = np.zeros(n), []
        for part in range(parts):
            drawn = zipf(rng, rows, exponent, keys)
            done = decide(bound, drawn, rng.integers(0, 2**64, rows, dtype=np.uint64))
            load += np.bincount(done.partitions, minlength=n)
            reports.append(report_of(bound, done, agent=f"a/{part}", session=1, seq=batch + 1, dsync=20.0))
        told.append((float(load.max() / load.mean()), 0 if bound.table is None else len(bound.table)))
        pool = merge(reports, answer)
        names = tuple(one.name for one in reports)
        answer = Answer(batch + 1, names, pool.table, pool.records, pool.unsure, pool.loads, 20.0, pool.split)
    return told


def test_partitions_that_learn_together_are_even_from_the_first_batch_on() -> None:
    """Eight partitions of 2,000 rows for 64 workers, which plain hash makes 13.6 times as full as the mean."""
    imbalance, known = zip(*rounds(64, 8, 2_000, 6, 1.2), strict=True)
    assert known[0] == 0
    assert min(known[1:]) >= 6
    assert max(imbalance) < 1.4


def test_the_report_is_of_this_partition_and_the_same_when_made_again() -> None:
    """Rows, loads and counts are exact; it goes over the wire as it is."""

    def made() -> Report:
        rng = np.random.default_rng(7)
        keys = zipf(rng, 3_000)
        bound = RoutingChoice(8, alike=True)
        done = decide(bound, keys, rng.integers(0, 2**64, 3_000, dtype=np.uint64))
        return report_of(bound, done, agent="app/1", session=9, seq=4, dsync=5.0)

    report, again = made(), made()
    assert (report.name, report.records, int(report.loads.sum())) == (("app/1", 9, 4), 3_000, 3_000)
    assert int(report.frequent.counts.sum()) == 3_000
    assert report.table == again.table
    assert len(report.table) > 0
    assert report_to_message(report) == report_to_message(again)
    assert report_from_message(report_to_message(report)).table == report.table


def test_a_report_names_the_heavy_keys_and_counts_the_rest_by_host() -> None:
    """No row is lost."""
    histogram = Histogram.from_hashes(zipf(np.random.default_rng(8), 9_000))
    short = bounded(histogram, 8, listed=10)
    assert (len(short.hashes), short.total, short.keys) == (10, histogram.total, histogram.keys)
    assert (short.count(histogram.top(10)[0]) == histogram.top(10)[1]).all()
    assert bounded(histogram, 8) is histogram


def test_what_does_not_fit_is_refused() -> None:
    """A plan or a table for another number of partitions."""
    plan = split_plan(zipf(np.random.default_rng(9), 5_000), 4)
    with pytest.raises(PlanError, match="the plan is for 4 partitions, the batch for 8"):
        RoutingChoice(8, plan)
    with pytest.raises(ConfigError, match="a Q-table for 8"):
        RoutingChoice(8, table=QTable.empty(4))
    with pytest.raises(ConfigError, match="records"):
        RoutingChoice(8, records=-1)
