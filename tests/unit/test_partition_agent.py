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
    first = decide(bound, 0, keys, rng.integers(0, 2**64, len(keys), dtype=np.uint64))
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
    once, again = decide(bound, 2, keys, spread), decide(bound, 2, keys[other], spread[other])
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
    pairs = {(key, value, where) for key, value, where in placed(decide(bound, 0, keys, spread), keys, spread)}
    assert len(pairs) == len({(key, value) for key, value, _ in pairs})


def test_a_words_only_partition_is_spread_where_rows_are_told_apart() -> None:
    """Equal rows go by their n-th occurrence: a word of half the rows is on many partitions, evenly."""
    rng = np.random.default_rng(2)
    keys = np.where(rng.random(20_000) < 0.5, KEYS[0], KEYS[rng.integers(0, 400, 20_000)])
    plan = split_plan(keys, 8)
    out = decide(RoutingChoice(8, plan, alike=True), 0, keys, keys).partitions
    assert np.bincount(out, minlength=8).max() < 1.15 * len(keys) / 8
    together = decide(RoutingChoice(8, plan), 0, keys, keys).partitions
    assert np.bincount(together, minlength=8).max() > 0.5 * len(keys)
    learned = decide(RoutingChoice(8, alike=True), 0, keys, keys).partitions
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
        out = decide(RoutingChoice(6, plan, alike=alike), 4, keys, spread).partitions
        assert (out == plan.route(keys, spread)).all()


def test_random_numbers_are_of_the_pin_and_the_partition() -> None:
    """Another batch, partition, version or seed draws others; the same draws the same, in any process."""
    bound = RoutingChoice(8, batch=3, version=(1, 2))
    seeds = [bound.drawn(0), bound.drawn(1), replace(bound, batch=4).drawn(0), replace(bound, seed=8).drawn(0)]
    seeds += [replace(bound, version=(1, 3)).drawn(0), replace(bound, version=(2, 2)).drawn(0)]
    assert len(set(seeds)) == 6
    assert pickle.loads(pickle.dumps(bound)).drawn(0) == bound.drawn(0) == 10298150019178783974


# -- what is learned


def test_a_key_that_is_hot_here_only_is_not_split_once_the_whole_is_known() -> None:
    """Half of this partition, but a hundredth of the stream: before the first round it is split, after it is not."""
    rng = np.random.default_rng(4)
    keys = np.where(rng.random(4_000) < 0.5, KEYS[0], KEYS[rng.integers(0, 400, 4_000)])
    spread = rng.integers(0, 2**64, 4_000, dtype=np.uint64)
    alone = decide(RoutingChoice(8, alike=True), 0, keys, spread)
    assert len(set(alone.partitions[keys == KEYS[0]].tolist())) > 2
    other = QTable.of(KEYS[5:6], np.full((1, 8), -0.5), [50_000], np.ones((1, 8), bool))
    told = decide(RoutingChoice(8, table=other, records=200_000, version=(1, 1), alike=True), 0, keys, spread)
    assert len(set(told.partitions[keys == KEYS[0]].tolist())) == 1


def test_without_spread_hashes_keys_stay_whole() -> None:
    """Nothing tells their rows apart."""
    keys = zipf(np.random.default_rng(5), 5_000)
    out = decide(RoutingChoice(8), 0, keys).partitions
    assert len(set(zip(keys.tolist(), out.tolist(), strict=True))) == len(set(keys.tolist()))


def rounds(n: int, parts: int, rows: int, batches: int, exponent: float) -> list[tuple[float, int]]:
    """Imbalance of each batch and hot keys known to it, where partitions learn together."""
    rng, keys = np.random.default_rng(6), key_hashes(20_000, 7)
    answer: Answer | None = None
    told = []
    for batch in range(batches):
        bound = RoutingChoice(n, table=QTable.empty(n), batch=batch, alike=True)
        if answer is not None:
            bound = replace(bound, table=answer.table, records=answer.records, version=answer.version)
        load, reports = np.zeros(n), []
        for part in range(parts):
            drawn = zipf(rng, rows, exponent, keys)
            done = decide(bound, part, drawn, rng.integers(0, 2**64, rows, dtype=np.uint64))
            load += np.bincount(done.partitions, minlength=n)
            reports.append(report_of(bound, done, agent=f"a/{part}", session=1, seq=batch + 1, dsync=20.0))
        told.append((float(load.max() / load.mean()), 0 if bound.table is None else len(bound.table)))
        pool = merge(reports, answer)
        names = tuple(one.name for one in reports)
        answer = Answer(batch + 1, names, pool.table, pool.records, pool.unsure, pool.loads, 20.0, pool.split)
    return told


def test_partitions_that_learn_together_become_even() -> None:
    """Eight partitions of 2,000 rows for 64 workers see too little alone; what they learn together shows in the next
    batch. Plain hash has 13.6."""
    imbalance, known = zip(*rounds(64, 8, 2_000, 6, 1.2), strict=True)
    assert known[0] == 0
    assert min(known[1:]) >= 6
    assert imbalance[0] > 1.7
    assert np.mean(imbalance[2:]) < 0.85 * imbalance[0]


def test_the_report_is_of_this_partition_and_the_same_when_made_again() -> None:
    """Rows, loads and counts are exact; it goes over the wire as it is."""

    def made() -> Report:
        rng = np.random.default_rng(7)
        keys = zipf(rng, 3_000)
        bound = RoutingChoice(8, alike=True)
        done = decide(bound, 1, keys, rng.integers(0, 2**64, 3_000, dtype=np.uint64))
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
