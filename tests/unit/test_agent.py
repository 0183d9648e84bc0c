"""A cooperating partitioner alone in the hands of a test: what it reports, when, and what it makes of answers."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from typing import Any, Protocol

import numpy as np
import pytest
from numpy.typing import NDArray

from unskew.core.dalton import row_loop as kernels
from unskew.core.dalton.qtable import UNTRIED, QTable
from unskew.core.errors import ConfigError, PlanError
from unskew.core.rounds.agent import (
    Action,
    Agent,
    AgentSettings,
    AgentTick,
    Answered,
    Event,
    Routed,
    SendReport,
    Tuples,
)
from unskew.core.rounds.merge import merge
from unskew.core.rounds.messages import Answer, Report

U64 = NDArray[np.uint64]
N = 4
DSYNC = 10.0
HOT = np.uint64(7)
GREEDY = {"epsilon": 0.0}


class Handles(Protocol):
    """An agent, or what stands before one."""

    def handle(self, event: Event, now: float) -> tuple[Action, ...]: ...


def agent(name: str = "ann", **more: Any) -> Agent:
    return Agent(AgentSettings(**{"name": name, "workers": N, "dsync": DSYNC, **more}))


def u64(*keys: int) -> U64:
    return np.array(keys, np.uint64)


def stream(rng: np.random.Generator, rows: int, share: float, key: int = int(HOT)) -> U64:
    """So large a share of one key, the rest of keys that hardly come twice."""
    rare = rng.integers(1_000, 1 << 60, rows, dtype=np.uint64)
    return np.where(np.arange(rows) < round(share * rows), np.uint64(key), rare)[rng.permutation(rows)]


def routed(of: Handles, keys: U64, now: float, times: NDArray[np.float64] | None = None) -> list[int]:
    first = of.handle(Tuples(keys, times), now)[0]
    assert isinstance(first, Routed)
    return first.workers.tolist()


def report_of(of: Handles, now: float) -> Report:
    (sent,) = of.handle(AgentTick(), now)
    assert isinstance(sent, SendReport)
    return sent.report


def answer(epoch: int, *reports: Report, dsync: float = DSYNC, table: QTable | None = None) -> Answer:
    pool = merge(reports)
    names = tuple(sorted(report.name for report in reports))
    table = pool.table if table is None else table
    return Answer(epoch, names, table, pool.records, pool.unsure, pool.loads, dsync, pool.split)


def global_table(*keys: int, values: Any = UNTRIED, held: Any = 0) -> QTable:
    shape = (len(keys), N)
    of = (np.broadcast_to(np.asarray(part), shape) for part in (np.asarray(values, np.float64), held))
    return QTable.of(u64(*keys), next(of), np.full(len(keys), 10), next(of))


def row(of: Agent, key: np.uint64 = HOT) -> int:
    with np.errstate(over="ignore"):
        return int(kernels.row_of(key, of.learner.rows))


def hot_row(of: Agent, key: np.uint64 = HOT) -> NDArray[np.float64]:
    assert row(of, key) >= 0
    return of.learner.rows.values[row(of, key)].copy()


class TestReports:
    def test_it_prepares_until_a_dsync_has_passed_and_awaits_from_its_report_on(self):
        ann = agent()
        assert not ann.awaiting
        assert [type(action) for action in ann.handle(Tuples(u64(1, 2)), 5.0)] == [Routed]
        assert ann.handle(AgentTick(), 14.9) == ()
        assert not ann.awaiting
        sent = report_of(ann, 15.0)
        assert ann.awaiting
        assert sent.name == ("ann", 1, 1)
        ann.handle(Answered(answer(1, sent)), 15.0)
        assert not ann.awaiting

    def test_tuples_are_routed_before_the_report_that_falls_due_with_them(self):
        ann = agent()
        ann.handle(AgentTick(), 0.0)
        first, second = ann.handle(Tuples(u64(1, 2, 3)), DSYNC)
        assert isinstance(first, Routed)
        assert isinstance(second, SendReport)
        assert second.report.records == 3

    def test_a_report_has_what_came_in_the_interval_not_what_is_left_after_its_reset(self):
        """In the authors' code every SYNC carries 1 record and 1 key."""
        ann = agent(parameters=GREEDY)
        keys = stream(np.random.default_rng(1), 400, 0.5)
        routed(ann, keys, 0.0)
        sent = report_of(ann, DSYNC)
        assert sent.records == 400 == sent.frequent.total
        assert sent.frequent.lower(u64(7)).tolist() == [200]
        assert sent.table.rows[np.searchsorted(sent.table.hashes, HOT)] == 200
        assert (sent.table.values != UNTRIED).any()
        assert sent.loads.sum() == 400
        assert sent.dsync == DSYNC

    @pytest.mark.parametrize("answered", [(), (0, 1, 2, 3, 4, 5), (1, 4)])
    def test_reports_count_every_tuple_once(self, answered: tuple[int, ...]):
        """However late the answers are, the reports together are the tuples before the last of them."""
        ann, rng, seen, now = agent(capacity=1 << 12), np.random.default_rng(2), [], 0.0
        ann.handle(AgentTick(), now)
        total, counted, keys = 0, Counter[int](), Counter[int]()
        for step in range(12):
            some = rng.integers(0, 60, 37, dtype=np.uint64)
            keys.update(some.tolist())
            total, now = total + len(some), now + DSYNC
            (_, sent) = ann.handle(Tuples(some), now)
            assert isinstance(sent, SendReport)
            if not seen or sent.report.name != seen[-1][0].name:
                seen.append((sent.report, total, Counter(keys)))
                counted.update(
                    dict(zip(sent.report.frequent.hashes.tolist(), sent.report.frequent.counts, strict=True))
                )
            if step % 6 in answered and ann.awaiting:
                ann.handle(Answered(answer(step + 1, sent.report)), now)
        assert len(seen) == {0: 1, 6: 12, 2: 5}[len(answered)]
        _, before, expected = seen[-1]
        assert sum(report.records for report, _, _ in seen) == before
        assert counted == expected

    def test_the_tuples_of_a_hot_key_are_those_since_the_last_report_too(self):
        ann = agent(parameters=GREEDY)
        routed(ann, stream(np.random.default_rng(1), 400, 0.5), 0.0)
        first = report_of(ann, DSYNC)
        for beat in (2, 3):  # an interval ends each time, the report does not
            routed(ann, stream(np.random.default_rng(beat), 400, 0.5), beat * DSYNC - 1)
            report_of(ann, beat * DSYNC)
        ann.handle(Answered(answer(1, first)), 3 * DSYNC)
        second = report_of(ann, 4 * DSYNC)
        assert second.records == 800
        assert second.table.rows[np.searchsorted(second.table.hashes, HOT)] == 400

    def test_a_summary_has_no_more_keys_than_its_capacity_and_says_its_error(self):
        ann = agent(capacity=4)
        routed(ann, np.arange(40, dtype=np.uint64), 0.0)
        sent = report_of(ann, DSYNC)
        assert len(sent.frequent.hashes) <= 4
        assert 0 < sent.frequent.error <= 40 // 5
        assert sent.records == 40

    def test_a_report_is_sent_again_unchanged_each_dsync_until_it_is_answered(self):
        ann = agent()
        routed(ann, u64(1, 2, 3), 0.0)
        sent = report_of(ann, DSYNC)
        bits = pickle.dumps(sent)
        for beat in range(2, 6):
            routed(ann, u64(4, 5), beat * DSYNC - 1)
            assert ann.handle(AgentTick(), beat * DSYNC - 0.5) == ()
            assert report_of(ann, beat * DSYNC) is sent
        assert pickle.dumps(sent) == bits
        ann.handle(Answered(answer(1, sent)), 5 * DSYNC)
        assert report_of(ann, 6 * DSYNC).name == ("ann", 1, 2)

    @pytest.mark.parametrize("missed", [0, 1, 3])
    def test_a_longer_dsync_is_asked_for_only_where_the_answer_was_missing_when_the_next_report_was_due(self, missed):
        ann = agent()
        sent = report_of_first(ann)
        assert not sent.longer
        for beat in range(missed):
            report_of(ann, (2 + beat) * DSYNC)
        answered = (2 + missed) * DSYNC - 0.1
        ann.handle(Answered(answer(1, sent)), answered)
        following = report_of(ann, answered + DSYNC)
        assert following.longer == (missed > 0)
        ann.handle(Answered(answer(2, following)), answered + DSYNC)
        assert not report_of(ann, answered + 2 * DSYNC).longer

    def test_the_next_report_is_due_a_dsync_after_the_round_was_complete(self):
        ann = agent()
        ann.handle(Answered(answer(1, report_of_first(ann), dsync=20.0), age=3.0), 12.0)
        assert ann.dsync == 20.0
        assert ann.handle(AgentTick(), 28.9) == ()
        assert report_of(ann, 29.0).dsync == 20.0

    def test_a_leap_of_the_clock_costs_one_report_and_no_time(self):
        ann = agent(dsync=1e-6)
        ann.handle(AgentTick(), 0.0)
        assert report_of(ann, 1e18).seq == 1


def report_of_first(of: Agent, keys: U64 | None = None) -> Report:
    routed(of, u64(1, 2, 3) if keys is None else keys, 0.0)
    return report_of(of, DSYNC)


class TestRewards:
    """Eq. 5 on the global table, in one map a cell: against a list of rewards that is played back."""

    @pytest.mark.parametrize("keep", [False, True])
    @pytest.mark.parametrize("quantum", [1, 3])
    @pytest.mark.parametrize("again", [False, True])
    def test_rewards_met_while_awaiting_are_played_back_on_the_global_values(self, keep, quantum, again):
        of = {"keep_untried": keep, "quantum": quantum, "split_cap": None, "epsilon": 0.3}
        ann, rng = agent(parameters=of, window=500, slide=50), np.random.default_rng(5)
        sent = report_of_first(ann, stream(rng, 300, 0.6))
        rewards = played(ann, stream(rng, 250, 0.5), DSYNC + 1)
        assert len({worker for worker, _ in rewards}) > 1
        values = np.array([-0.7, UNTRIED, 0.25, UNTRIED])
        if again:  # an answer that this report came too late for, then the one that has it
            ann.handle(
                Answered(answer(1, report_of_first(agent("bob")), table=global_table(7, values=-0.5))), DSYNC + 1
            )
            rewards += played(ann, stream(rng, 50, 0.5), DSYNC + 1)
        ann.handle(Answered(answer(2, sent, table=global_table(7, values=values))), DSYNC + 2)
        assert hot_row(ann) == pytest.approx(replayed(values, rewards, keep, quantum), abs=1e-12)

    def test_rewards_that_are_in_a_report_are_not_added_to_its_answer(self):
        ann = agent(parameters={"split_cap": None})
        sent = report_of_first(ann, stream(np.random.default_rng(5), 300, 0.6))
        values = np.array([-0.7, UNTRIED, 0.25, UNTRIED])
        ann.handle(Answered(answer(1, sent, table=global_table(7, values=values))), DSYNC)
        assert hot_row(ann).tolist() == values.tolist()

    def test_what_was_merged_goes_into_the_next_report_once(self):
        """The kept rewards begin anew with each report, not with each answer."""
        ann, rng = agent(parameters={"split_cap": None}), np.random.default_rng(5)
        ann.handle(Answered(answer(1, report_of_first(ann, stream(rng, 300, 0.6)))), DSYNC)
        played(ann, stream(rng, 200, 0.5), DSYNC + 1)
        second = report_of(ann, 2 * DSYNC)
        assert second.table.take(u64(7)).values[0].tolist() == hot_row(ann).tolist()
        later = played(ann, stream(rng, 100, 0.5), 2 * DSYNC + 1)
        ann.handle(Answered(answer(2, second, table=global_table(7, values=-0.4))), 2 * DSYNC + 1)
        assert hot_row(ann) == pytest.approx(replayed(np.full(N, -0.4), later, keep=False, quantum=1), abs=1e-12)

    def test_a_worker_that_nobody_had_tried_has_only_the_rewards_met_since(self):
        ann = agent(parameters={"split_cap": None})
        sent = report_of_first(ann, stream(np.random.default_rng(5), 300, 0.6))
        (worker, reward), *_ = rewards = played(ann, np.full(1, HOT), DSYNC + 1)
        assert len(rewards) == 1
        ann.handle(Answered(answer(1, sent, table=global_table(7))), DSYNC + 1)
        assert hot_row(ann)[worker] == pytest.approx(reward, abs=1e-12)
        assert (np.delete(hot_row(ann), worker) == UNTRIED).all()


def played(of: Agent, keys: U64, now: float) -> list[tuple[int, float]]:
    """Route one by one; of each decision for the hot key the worker, and the reward that its value tells of."""
    step, replace = float(of.learner.rule.step), of.learner.rule.replace
    out = []
    for key in keys:
        before = hot_row(of)
        (worker,) = routed(of, np.array([key]), now)
        moved = np.flatnonzero(hot_row(of) != before)
        if key == HOT and len(moved):
            assert moved.tolist() == [worker]
            old, new = before[worker], hot_row(of)[worker]
            out.append((worker, new if replace and old == UNTRIED else (new - old) / step + old))
    return out


def replayed(values: NDArray[np.float64], rewards: list[tuple[int, float]], keep: bool, quantum: int) -> list[float]:
    out, step = values.tolist(), 1.0 - 0.9**quantum
    for worker, reward in rewards:
        first = out[worker] == UNTRIED and not keep
        out[worker] = reward if first else out[worker] + step * (reward - out[worker])
    return out


class TestAnswers:
    def test_an_answer_that_comes_twice_changes_nothing_the_second_time(self):
        ann = agent()
        got = Answered(answer(1, report_of_first(ann, stream(np.random.default_rng(3), 300, 0.6))))
        ann.handle(got, DSYNC)
        routed(ann, stream(np.random.default_rng(4), 100, 0.6), DSYNC + 1)
        before = canonical(ann)
        assert ann.handle(got, DSYNC + 2) == ()
        assert canonical(ann) == before

    def test_an_older_answer_than_the_last_changes_nothing(self):
        ann, bob = agent(), agent("bob")
        mine, theirs = report_of_first(ann), report_of_first(bob)
        ann.handle(Answered(answer(5, mine)), DSYNC)
        before = canonical(ann)
        ann.handle(Answered(answer(4, theirs, dsync=80.0)), DSYNC + 1)
        assert canonical(ann) == before
        assert ann.version[1] == 5

    def test_an_answer_without_its_report_is_taken_and_it_awaits_on(self):
        ann, bob = agent(), agent("bob")
        sent, theirs = report_of_first(ann), report_of_first(bob, stream(np.random.default_rng(1), 300, 0.6))
        ann.handle(Answered(answer(1, theirs)), DSYNC)
        assert (ann.version[1], ann.awaiting) == (1, True)
        assert ann.learner.hot_keys().tolist() == [7]
        assert ann.learner.rows.loads.tolist() == theirs.loads.tolist()
        assert report_of(ann, 2 * DSYNC) is sent

    def test_an_answer_to_an_earlier_life_does_not_end_the_wait(self):
        old, new = agent(session=1), agent(session=2)
        dead, sent = report_of_first(old), report_of_first(new)
        new.handle(Answered(answer(1, dead)), DSYNC)
        assert (new.version[1], new.awaiting) == (1, True)
        new.handle(Answered(answer(2, sent)), DSYNC)
        assert not new.awaiting

    def test_an_answer_that_is_not_newer_but_has_its_report_ends_the_wait_only(self):
        """A reducer that went on from an older state has merged the report under an old epoch: to send it on would
        bring the same answer for ever."""
        ann, bob = agent(), agent("bob")
        sent = report_of_first(ann)
        ann.handle(Answered(answer(6, report_of_first(bob))), DSYNC)
        table = ann.learner.table()
        ann.handle(Answered(answer(5, sent, dsync=80.0, table=global_table(9, values=-0.1))), DSYNC + 1)
        assert (ann.version[1], ann.awaiting, ann.dsync) == (6, False, DSYNC)
        assert ann.learner.table() == table
        assert report_of(ann, 2 * DSYNC).seq == 2

    def test_an_answer_for_another_number_of_workers_is_refused_and_changes_nothing(self):
        ann, other = agent(), agent("bob", workers=N + 1)
        report_of_first(ann)
        before = canonical(ann)
        with pytest.raises(PlanError, match=f"{N + 1} workers, agent ann has {N}"):
            ann.handle(Answered(answer(1, report_of_first(other))), DSYNC)
        assert canonical(ann) == before

    def test_answers_before_the_first_tuple_are_taken(self):
        ann = agent()
        ann.handle(Answered(answer(3, report_of_first(agent("bob"), stream(np.random.default_rng(1), 300, 0.6)))), 4.0)
        assert ann.version[1] == 3
        assert ann.learner.hot_keys().tolist() == [7]
        assert ann.handle(Tuples(u64(7)), 50.0)[1:] == ()
        assert report_of(ann, 60.0).records == 1


class TestAdoption:
    def test_a_key_that_is_hot_here_but_not_for_all_is_not_split_after_one_round(self):
        """30 % here, 15 % of all, with GL / n = 25 %."""
        ann, bob = agent(), agent("bob", number=1)
        routed(ann, stream(np.random.default_rng(1), 1000, 0.3), 0.0)
        routed(bob, stream(np.random.default_rng(2), 1000, 0.0), 0.0)
        assert ann.learner.hot_keys().tolist() == [7]
        reports = [report_of(one, DSYNC) for one in (ann, bob)]
        for one in (ann, bob):
            one.handle(Answered(answer(1, *reports)), DSYNC)
        assert ann.learner.hot_keys().tolist() == []
        keys = stream(np.random.default_rng(3), 1000, 0.3)
        workers = np.array(routed(ann, keys, DSYNC + 1))[keys == HOT]
        assert set(workers.tolist()) == set(ann.learner.homes(u64(7)).tolist())

    def test_a_key_of_which_the_summaries_cannot_say_is_kept(self):
        ann = agent()
        sent = report_of_first(ann, stream(np.random.default_rng(1), 1000, 0.5))
        values = hot_row(ann)
        pool = answer(1, sent, table=QTable.empty(N))
        for unsure, kept in ((frozenset({7}), [7]), (frozenset(), [])):
            of = Answer(1 + len(kept), pool.merged, pool.table, 1000, unsure, pool.loads, DSYNC)
            one = copy.deepcopy(ann)
            one.handle(Answered(of), DSYNC)
            assert one.learner.hot_keys().tolist() == kept
            if kept:
                assert hot_row(one).tolist() == values.tolist()

    def test_a_key_that_is_hot_only_for_all_has_an_untried_row_for_this_interval_and_the_next(self):
        ann = agent(parameters=GREEDY)
        sent = report_of_first(ann, stream(np.random.default_rng(1), 1000, 0.0))
        ann.handle(Answered(answer(1, sent, table=global_table(9))), DSYNC)
        home = int(ann.learner.homes(u64(9))[0])
        assert ann.learner.hot_keys().tolist() == [9]
        assert (hot_row(ann, np.uint64(9)) == UNTRIED).all()
        assert routed(ann, u64(9), DSYNC + 1) == [home]
        assert hot_row(ann, np.uint64(9))[home] > UNTRIED
        assert ann.learner.rows.entry[row(ann, np.uint64(9)), kernels.UNTIL] > ann.learner.now.tally[0]
        report_of(ann, 2 * DSYNC)
        assert ann.learner.hot_keys().tolist() == [9]
        report_of(ann, 3 * DSYNC)
        assert ann.learner.hot_keys().tolist() == []

    def test_more_hot_keys_than_it_has_rows_for_find_room(self):
        ann = agent(workers=16)
        sent = report_of_first(ann)
        keys, values = np.arange(100, 140, dtype=np.uint64), np.linspace(-1, 1, 640).reshape(40, 16)
        table = QTable(keys, values, np.ones(40, np.int64), np.zeros((40, 16), np.bool_))
        ann.handle(Answered(Answer(1, (sent.name,), table, 3, frozenset(), sent.loads, DSYNC)), DSYNC)
        assert ann.learner.table() == QTable(keys, values, np.zeros(40, np.int64), table.held)

    @pytest.mark.parametrize(("dsync", "share", "hot"), [(20.0, 0.2, []), (10.0, 0.2, []), (5.0, 0.3, [7])])
    def test_hot_is_measured_over_the_same_span_on_both_sides(self, dsync, share, hot):
        """f >= L / n: where DSYNC doubles there come twice as many tuples, and L is twice GL. Unscaled, 20 % of the
        tuples would be called hot (n = 4) in the second half of the interval, and 30 % not in one half as long."""
        ann, rows = agent(parameters=GREEDY), 1000
        sent = report_of_first(ann, stream(np.random.default_rng(1), rows, 0.0))
        ann.handle(Answered(answer(1, sent, dsync=dsync)), DSYNC)
        assert ann.learner.span == rows * dsync / DSYNC
        routed(ann, stream(np.random.default_rng(2), round(rows * dsync / DSYNC), share), DSYNC + dsync - 0.1)
        assert ann.learner.hot_keys().tolist() == hot

    def test_a_late_answer_makes_the_interval_longer_and_its_load_too(self):
        """The answer came 0.9 DSYNC after the report: the interval it came into is of 1.9."""
        ann, rows = agent(parameters=GREEDY), 1000
        first = report_of_first(ann, stream(np.random.default_rng(1), rows, 0.0))
        ann.handle(Answered(answer(1, first)), DSYNC)
        routed(ann, stream(np.random.default_rng(2), rows, 0.0), 2 * DSYNC - 1)
        sent = report_of(ann, 2 * DSYNC)
        ann.handle(Answered(answer(2, sent)), 2.9 * DSYNC)
        assert ann.learner.span == 1.9 * rows
        routed(ann, stream(np.random.default_rng(3), round(1.9 * rows), 0.2), 3.8 * DSYNC)
        assert ann.learner.hot_keys().tolist() == []
        assert report_of(ann, 3.9 * DSYNC).seq == 3
        assert ann.learner.span == rows

    def test_the_loads_and_fragments_of_the_others_count_with_its_own(self):
        ann, bob = agent(window=1000, slide=100), agent("bob", number=1, window=1000, slide=100)
        reports = []
        for one, seed in ((ann, 1), (bob, 2)):
            routed(one, stream(np.random.default_rng(seed), 900, 0.6), 0.0)
            reports.append(report_of(one, DSYNC))
        ann.handle(Answered(answer(1, *reports)), DSYNC)
        used = ann.learner.rows.used[row(ann)] != kernels.NEVER
        theirs = reports[1].table.take(u64(7)).held[0]
        assert ann.learner.rows.loads.tolist() == reports[1].loads.tolist()
        assert ann.learner.rows.books[kernels.OTHERS] == 900
        assert (ann.learner.rows.away[row(ann)] != 0).tolist() == (theirs & ~used).tolist()
        assert ann.learner.rows.entry[row(ann), kernels.HELD] == (theirs | used).sum()

    def test_fragments_of_others_are_let_go_of_where_the_next_answer_does_not_name_them(self):
        """Of a key in its table, and of one that the agent keeps only because nobody can say."""
        ann = agent(parameters=GREEDY, window=1000, slide=100)
        sent, held = report_of_first(ann, np.full(50, HOT)), np.ones((2, N), np.bool_)
        ann.handle(Answered(answer(1, sent, table=global_table(7, 9, values=-0.5, held=held))), DSYNC)
        following = report_of(ann, 2 * DSYNC)
        table, loads = global_table(7, values=-0.5), following.loads
        got = Answer(2, (following.name,), table, 50, frozenset({9}), loads, DSYNC)
        ann.handle(Answered(got), 2 * DSYNC)
        assert ann.learner.hot_keys().tolist() == [7, 9]
        assert not ann.learner.rows.away.any()
        assert ann.learner.rows.entry[row(ann, np.uint64(9)), kernels.HELD] == 0
        assert ann.learner.rows.entry[row(ann), kernels.HELD] == following.table.take(u64(7)).held.sum(axis=1)[0]

    def test_as_published_it_knows_of_no_loads_and_fragments_but_its_own(self):
        ann, bob = agent(lonely=True), agent("bob", number=1, lonely=True)
        reports = []
        for one, seed in ((ann, 1), (bob, 2)):
            routed(one, stream(np.random.default_rng(seed), 900, 0.6), 0.0)
            reports.append(report_of(one, DSYNC))
        ann.handle(Answered(answer(1, *reports)), DSYNC)
        assert not ann.learner.rows.loads.any()
        assert not ann.learner.rows.away.any()
        assert ann.learner.rows.books[kernels.ECHO] == 0

    def test_fragments_of_others_are_not_reported_back_to_them(self):
        """Else two agents would keep a fragment alive for ever that both have let go of."""
        ann = agent(parameters=GREEDY, window=1000, slide=100)
        sent = report_of_first(ann, np.full(50, HOT))
        held = np.ones((1, N), np.bool_)
        ann.handle(Answered(answer(1, sent, table=global_table(7, values=-0.5, held=held))), DSYNC)
        assert ann.learner.rows.entry[row(ann), kernels.HELD] == N
        used = ann.learner.rows.used[row(ann)] != kernels.NEVER
        assert report_of(ann, 2 * DSYNC).table.held.tolist() == [used.tolist()]
        assert used.sum() < N


class TestWithoutAnswers:
    """The reducer is gone: the agent is alone, and as good as a lone learner."""

    def silent(self, beats: int, seed: int = 4) -> Agent:
        """Two agents in step, then no answer any more; the hot key is another one from then on."""
        ann, bob = agent(window=400, slide=20, workers=8), agent("bob", number=1, window=400, slide=20, workers=8)
        rng, reports = np.random.default_rng(seed), []
        for one in (ann, bob):
            routed(one, stream(rng, 400, 0.6), 0.0)
            reports.append(report_of(one, DSYNC))
        ann.handle(Answered(answer(1, *reports)), DSYNC)
        for beat in range(1, beats):
            routed(ann, stream(rng, 400, 0.6, key=8), beat * DSYNC + 1)
            report_of(ann, (beat + 1) * DSYNC)
        return ann

    def test_hot_is_measured_by_its_own_load_after_an_interval_without_an_answer(self):
        ann = self.silent(2)
        assert ann.learner.span == 800  # GL: the answer came in the interval before
        ann = self.silent(3)
        assert ann.learner.span == 400
        assert report_of(ann, 4 * DSYNC).seq == 2

    def test_old_hot_keys_expire_and_new_ones_are_found(self):
        assert self.silent(5).learner.hot_keys().tolist() == [8]

    def test_balance_in_the_window_is_that_of_a_learner_that_was_always_alone(self):
        ann, alone, rng = self.silent(4), agent(window=400, slide=20, workers=8), np.random.default_rng(9)
        loads = []
        for one in (ann, alone):
            rng = np.random.default_rng(9)
            for beat in range(4, 24):
                routed(one, stream(rng, 400, 0.6, key=9), beat * DSYNC + 1)
                one.handle(AgentTick(), (beat + 1) * DSYNC)
            loads.append(np.bincount(routed(one, stream(rng, 400, 0.6, key=9), 300.0), minlength=8).max() / 50)
        assert loads[0] <= 1.15 * loads[1]

    def test_what_the_others_hold_is_let_go_of_as_new_tuples_come(self):
        """They are taken to do as it does; without an end to that, the loads of all times would weigh for ever."""
        for beats in (3, 10, 40):
            ann = self.silent(beats)
            assert ann.learner.rows.books[kernels.OTHERS] == ann.learner.rows.loads.sum() <= 400

    def test_it_needs_no_more_memory_the_longer_it_lasts(self):
        ann = agent(capacity=64)
        for beat in range(60):
            routed(ann, np.arange(1_000 * beat, 1_000 * beat + 1_000, dtype=np.uint64), beat * DSYNC)
        assert len(ann.learner.now.table) <= 4096
        assert ann._unreported is not None
        assert len(pickle.dumps(ann._unreported)) < 4_000


class TestExploration:
    def test_agents_with_one_seed_explore_differently_by_their_number(self):
        keys = stream(np.random.default_rng(1), 2000, 0.6)
        first, again, second = (agent(number=number, workers=16) for number in (0, 0, 1))
        route = routed(first, keys, 0.0)
        assert routed(again, keys, 0.0) == route
        assert routed(second, keys, 0.0) != route


def canonical(value: Any) -> Any:
    """For comparing states to the bit: arrays as their bytes, values by their fields."""
    if isinstance(value, dict):
        return {key: canonical(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(part) for part in value]
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    return {name: canonical(part) for name, part in vars(value).items()} if hasattr(value, "__dict__") else repr(value)


class TestSettings:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("dsync", 0.0),
            ("dsync", float("inf")),
            ("dsync", float("nan")),
            ("capacity", 0),
            ("number", -1),
            ("session", 0),
        ],
    )
    def test_settings_that_cannot_work_are_refused_by_name(self, name, value):
        with pytest.raises(ConfigError, match=name):
            agent(**{name: value})

    @pytest.mark.parametrize("kind", ["sketch", "hybrid"])
    def test_a_store_that_cannot_list_its_keys_is_refused(self, kind):
        """A report is made of exact counts; without them the first SYNC would fail in the middle of the data."""
        with pytest.raises(ConfigError, match="frequencies"):
            agent(parameters={"frequencies": kind})

    def test_rewards_that_no_table_can_hold_are_refused(self):
        with pytest.raises(ConfigError, match="slide_weight"):
            agent(parameters={"slide_weight": 1.5})
        ann = agent(parameters={"slide_weight": 1.0}, window=400, slide=20)
        report = report_of_first(ann, np.full(400, HOT))
        assert (report.table.values > UNTRIED).any()
