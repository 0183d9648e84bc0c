"""Reports of a round as one state: by hand, and against the same cell by cell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.core.dalton.qtable import UNTRIED, QTable
from unskew.core.errors import ConfigError, HistogramError
from unskew.core.rounds.merge import Pool, merge
from unskew.core.rounds.messages import Answer, Report
from unskew.core.sketches.frequent import FrequentItems

Rows = dict[int, tuple[list[float], list[int]]]  # key -> values, held


def report(
    agent: str,
    seen: dict[int, int],
    rows: Rows | None = None,
    *,
    n: int = 2,
    capacity: int = 64,
    seq: int = 1,
    loads: list[int] | None = None,
) -> Report:
    """An agent that saw these tuples a key since its last report; ``table.rows`` are of the same tuples."""
    rows = rows or {}
    keys = np.array(list(rows), np.uint64)
    values = np.array([row[0] for row in rows.values()], np.float64).reshape(len(rows), n)
    held = np.array([row[1] for row in rows.values()], np.bool_).reshape(len(rows), n)
    table = QTable.of(keys, values, [seen.get(key, 0) for key in rows], held)
    frequent = FrequentItems(capacity).update(np.array(list(seen), np.uint64), np.array(list(seen.values()), np.int64))
    return Report(agent, 1, seq, table, frequent.total, frequent, np.array(loads or [0] * n), 20.0, longer=False)


def answer(pool: Pool) -> Answer:
    return Answer(1, (("a", 1, 1),), pool.table, pool.records, pool.unsure, pool.loads, 20.0, pool.split)


def held(*keys: int, n: int = 2) -> Answer:
    """The answer to a round before, whose table had these keys."""
    seen = dict.fromkeys(keys, 1000)
    return answer(merge([report("a", seen, n=n)]))


def test_cells_are_means_weighted_by_the_tuples_of_each_agent() -> None:
    """(30 x -0.2 + 10 x -0.6) / 40; the second worker was tried by one agent only, so its value stands."""
    pool = merge(
        [
            report("a", {7: 30}, {7: ([-0.2, -1.0], [1, 1])}, loads=[20, 10]),
            report("b", {7: 10}, {7: ([-0.6, UNTRIED], [1, 0])}, loads=[4, 6]),
        ]
    )
    assert pool.table.hashes.tolist() == [7]
    assert pool.table.values.tolist() == [[pytest.approx(-0.3), -1.0]]
    assert (pool.table.rows.tolist(), pool.records, pool.loads.tolist()) == ([40], 40, [24, 16])
    assert pool.unsure == frozenset()


def test_untried_cells_count_as_minus_two_only_where_asked_for() -> None:
    """The comparison that FIDELITY wants: (30 x -1.0 + 10 x -2) / 40."""
    pair = [
        report("a", {7: 30}, {7: ([-0.2, -1.0], [1, 1])}),
        report("b", {7: 10}, {7: ([-0.6, UNTRIED], [1, 0])}),
    ]
    assert merge(pair, untried="included").table.values.tolist() == [[pytest.approx(-0.3), pytest.approx(-1.25)]]
    with pytest.raises(ConfigError, match="left out"):
        merge(pair, untried="halved")  # type: ignore[arg-type]


def test_an_agent_without_the_row_weighs_nothing_but_its_tuples_count() -> None:
    """FIDELITY: the agent without a row adds to neither sum. The key's tuples are all that the summary knows of."""
    pool = merge([report("a", {7: 30}, {7: ([-0.2, -0.4], [1, 1])}), report("b", {7: 25, 8: 5})])
    assert pool.table.values.tolist() == [[-0.2, -0.4]]
    assert pool.table.rows.tolist() == [55]


def test_agents_weigh_the_same_where_no_row_has_a_tuple() -> None:
    """Rows that lived on without tuples in the interval are all that is known of a key that others find hot."""
    pool = merge(
        [
            report("a", {8: 1}, {7: ([-0.2, UNTRIED], [1, 0])}),
            report("b", {8: 1}, {7: ([-0.6, -0.5], [1, 1])}),
            report("c", {7: 50}),
        ]
    )
    assert pool.table.values.tolist() == [[pytest.approx(-0.4), -0.5]]


def test_top_n_lists_would_miss_this_hot_key() -> None:
    """FIDELITY's counter-example: n = 2, 76 of 100 at one agent and third with 26 at the other; 102 >= 200 / 2."""
    pool = merge([report("1", {9: 76, 50: 24}), report("2", {1: 28, 2: 27, 9: 26, 3: 19})])
    assert pool.table.hashes.tolist() == [9]
    assert pool.table.rows.tolist() == [102]


def test_a_key_hot_at_one_agent_but_not_in_all_is_dropped() -> None:
    """30 of 40 here, 30 of 240 in all: under GL / 2, so nobody may split it after this round; but it may be split."""
    rows: Rows = {5: ([-0.1, -0.3], [1, 1])}
    others = dict.fromkeys(range(100, 120), 10)
    pool = merge([report("a", {5: 30, 6: 10}, rows), report("b", others)], held(5))
    assert len(pool.table) == 0
    assert pool.unsure == frozenset()
    assert pool.split.tolist() == [5]


def test_a_key_that_only_all_agents_together_find_hot_gets_a_new_row() -> None:
    """Under half at either, 90 of 170 in all: a row that nobody has tried."""
    pool = merge([report("a", {4: 45, 5: 40}), report("b", {4: 45, 6: 40})])
    assert pool.table.hashes.tolist() == [4]
    assert pool.table.values.tolist() == [[UNTRIED, UNTRIED]]
    assert pool.table.held.tolist() == [[False, False]]


def test_fragments_are_those_of_all_agents() -> None:
    """Also of an agent whose window still holds the key though its interval does not."""
    pool = merge(
        [
            report("a", {7: 30}, {7: ([-0.2, UNTRIED], [1, 0])}),
            report("b", {8: 1}, {7: ([UNTRIED, -0.5], [0, 1])}),
        ]
    )
    assert pool.table.held.tolist() == [[True, True]]
    assert pool.table.held.sum(axis=1).tolist() == [2]


def test_both_sides_of_the_threshold_are_over_the_same_span() -> None:
    """One agent reports 100 tuples, a late one 300 of three intervals: f = 190 against GL / 2 = 200, not against half
    of an interval's tuples. Twenty more of the key at either agent make it 210 against 210: hot."""
    late = {3: 130, **dict.fromkeys(range(100, 117), 10)}
    assert len(merge([report("a", {3: 60, 4: 40}), report("b", late)]).table) == 0
    for here, there in ((80, 130), (60, 150)):
        pool = merge([report("a", {3: here, 4: 40}), report("b", {**late, 3: there})])
        assert pool.table.hashes.tolist() == [3]


def small(capacity: int) -> Report:
    """GL = 40, n = 4: hot from 10 on. With two counters the summary is off by 6: it has 9 tuples of key 1, 2 of
    key 2, and 6 at most of any other."""
    return report("a", {1: 15, 2: 8, 3: 6, 4: 6, 5: 5}, n=4, capacity=capacity)


def test_keys_within_the_summarys_error_stay_only_where_they_were() -> None:
    """Key 1 has between 9 and 15: unknown. It stays if the table had it, and agents are told to keep theirs. Key 2 has
    8 at most and key 3 has 6: surely cold, whatever the table had."""
    pool = merge([small(2)])
    assert (pool.table.hashes.tolist(), pool.unsure) == ([], {1})
    pool = merge([small(2)], held(1, 2, 3, n=4), renew=1.0)
    assert (pool.table.hashes.tolist(), pool.unsure) == ([1], {1})
    assert pool.table.rows.tolist() == [9]
    pool = merge([small(8)], held(2, n=4), renew=1.0)
    assert (pool.table.hashes.tolist(), pool.unsure) == ([1], frozenset())


def test_a_hot_key_stays_hot_down_to_half_of_the_threshold() -> None:
    """GL / n is 50: key 1 has 30. It stays where it was hot, and does not come in where it was not; key 2 has 20."""
    seen = {1: 30, 2: 20, **dict.fromkeys(range(3, 13), 5)}
    one = report("a", seen, {}, n=2)
    assert merge([one], held(1, 2)).table.hashes.tolist() == [1]
    assert merge([one], held(1, 2), renew=1.0).table.hashes.tolist() == []
    assert merge([one]).table.hashes.tolist() == []


def test_a_summary_of_fewer_keys_than_workers_cannot_call_anything_cold() -> None:
    """One counter for n = 4: any key may have reached GL / 4, so those that somebody has a row for are unsure too."""
    seen = {1: 15, 2: 13, 3: 12}
    rows: Rows = {3: ([-0.5] * 4, [1, 0, 0, 0])}
    pool = merge([report("a", seen, rows, n=4, capacity=1)], held(2, n=4))
    assert (pool.table.hashes.tolist(), pool.unsure) == ([2], {1, 2, 3})


def test_a_round_without_tuples_keeps_the_table() -> None:
    """GL = 0 makes every f >= GL / n: that says nothing, so what was hot stays, with the rows that there are."""
    pool = merge([report("a", {}, {7: ([-0.2, -0.3], [1, 0]), 8: ([-0.2, -0.3], [1, 0])})], held(7))
    assert pool.records == 0
    assert pool.table.hashes.tolist() == [7]
    assert pool.table.values.tolist() == [[-0.2, -0.3]]
    assert pool.unsure == {7, 8}


def test_what_cannot_be_one_round_is_refused() -> None:
    """No report, one twice, other numbers of workers."""
    with pytest.raises(HistogramError, match="without a report"):
        merge([])
    with pytest.raises(HistogramError, match=r"\('a', 1, 1\) is there twice"):
        merge([report("a", {1: 1}), report("a", {2: 1})])
    with pytest.raises(ConfigError, match="workers"):
        merge([report("a", {1: 1}, n=2), report("b", {1: 1}, n=3)])
    with pytest.raises(ConfigError, match="workers"):
        merge([report("a", {1: 1}, n=2)], held(1, n=3))


# -- laws

N = 3
value = st.one_of(st.just(UNTRIED), st.floats(-1.5, 1.0), st.just(2.0))
row = st.tuples(st.lists(value, min_size=N, max_size=N), st.lists(st.integers(0, 1), min_size=N, max_size=N))
content = st.tuples(
    st.dictionaries(st.integers(0, 9), st.integers(0, 30), max_size=8), st.dictionaries(st.integers(0, 9), row)
)

few = st.integers(1, 12)


@st.composite
def rounds(draw: st.DrawFn, capacity: st.SearchStrategy[int] = few) -> tuple[list[Report], Answer]:
    """Reports of up to five agents, and a table before them."""
    parts = draw(st.lists(content, min_size=1, max_size=5))
    sizes = [draw(capacity) for _ in parts]
    reports = [
        report(f"agent {i}", seen, rows, n=N, capacity=size, seq=i + 1, loads=[i, 0, 7])
        for i, ((seen, rows), size) in enumerate(zip(parts, sizes, strict=True))
    ]
    return reports, held(*draw(st.sets(st.integers(0, 9), max_size=N)), n=N)


def bits(pool: Pool) -> list[object]:
    table = pool.table
    arrays = (table.hashes, table.values, table.rows, table.held, pool.loads, pool.split)
    return [*(array.tobytes() for array in arrays), pool.records, pool.unsure]


@given(rounds(), st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(drawn: tuple[list[Report], Answer], random: object) -> None:
    """Anyone may redo the merge of a sealed round: the same bits."""
    reports, before = drawn
    first = bits(merge(reports, before))
    random.shuffle(reports)  # type: ignore[attr-defined]
    assert bits(merge(iter(reports), before)) == first


def plainly(reports: list[Report], key: int, worker: int) -> float:
    """The weighted mean of one cell, as FIDELITY writes it."""
    cells = [
        (float(r.table.rows[at]), float(r.table.values[at, worker]))
        for r in reports
        for at in np.flatnonzero(r.table.hashes == key)
        if r.table.values[at, worker] != UNTRIED
    ]
    weights = [weight for weight, _ in cells]
    if not cells:
        return UNTRIED
    if not sum(weights):
        weights = [1.0] * len(cells)
    return sum(w * q for w, (_, q) in zip(weights, cells, strict=True)) / sum(weights)


@given(rounds(capacity=st.just(64)))
def test_exact_summaries_give_the_keys_and_means_of_the_definition(drawn: tuple[list[Report], Answer]) -> None:
    """Hot exactly where n f(k) >= GL, or half of that where the key was hot; each cell as FIDELITY writes it."""
    reports, before = drawn
    pool = merge(reports, before)
    was_hot = set(before.table.hashes.tolist())
    total = {key: sum(int(r.frequent.lower(np.array([key], np.uint64))[0]) for r in reports) for key in range(10)}
    if pool.records:
        assert pool.table.hashes.tolist() == [
            key
            for key in range(10)
            if N * total[key] >= pool.records or (key in was_hot and total[key] and 2 * N * total[key] >= pool.records)
        ]
        assert pool.table.rows.tolist() == [total[key] for key in pool.table.hashes.tolist()]
    for at, key in enumerate(pool.table.hashes.tolist()):
        expected = [plainly(reports, key, worker) for worker in range(N)]
        assert pool.table.values[at].tolist() == pytest.approx(expected)


@given(rounds())
def test_the_table_is_bounded_whatever_the_summaries_can_say(drawn: tuple[list[Report], Answer]) -> None:
    """Theorem 3.4: at most n keys with GL / n, so 2 n with half of it. With those that stay because nobody can say, at
    most 3 n; each of these was in the table before, and none is called cold."""
    reports, before = drawn
    for _ in range(3):  # fed back, it must not grow either
        pool = merge(reports, before)
        keys = set(pool.table.hashes.tolist())
        assert len(keys - pool.unsure) <= 2 * N
        assert len(keys) <= 3 * N
        assert keys & pool.unsure <= set(before.table.hashes.tolist())
        before = answer(pool)


def test_what_was_hot_without_others_has_to_be_hot_with_them() -> None:
    """Half of the threshold is enough to stay hot (decision 11), but not when a round has half as many tuples again:
    then they are of agents that were not there, and their keys are none that counts vary by."""
    before = answer(merge([report("a", {1: 30, 2: 30, 3: 40}, n=4)]))
    one = report("a", {1: 30, 2: 30, 3: 40}, n=4)
    assert before.table.hashes.tolist() == [1, 2, 3]
    for others, left in ((40, [1, 2, 3]), (60, [3, 9])):
        seen = merge([one, report("b", {9: others}, n=4)], before).table.hashes.tolist()
        assert [key for key in seen if key != 9 or others == 60] == left
