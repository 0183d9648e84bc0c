"""Consistent Grouping by hand: signals, queues, pairings, probes; and the router that its map is for."""

from __future__ import annotations

import numpy as np
import pytest

from papers.grouping import Grouping
from papers.grouping_events import (
    Aggregate,
    GroupingRules,
    GroupingTick,
    Ignored,
    Moved,
    WorkerJoined,
    WorkerLeft,
)
from tests.planning import key_hashes
from tests.property.test_router_laws import stream
from unskew.core import make_router, quality
from unskew.core.errors import ConfigError
from unskew.core.grouping.signals import Signal, SignalRules, sense
from unskew.core.routers.base import Router
from unskew.core.routers.cg import ConsistentGrouping

BINARY = GroupingRules(SignalRules(as_published=True))


def grouping(router: Router) -> ConsistentGrouping:
    assert isinstance(router.algorithm, ConsistentGrouping)
    return router.algorithm


def signals(machine: Grouping, at: float, **kinds: str) -> list[Moved]:
    """Binary signals ``w3="busy"`` at this time, in the order given; the moves that they cause."""
    moves = []
    for name, kind in kinds.items():
        for action in machine.handle(Signal(int(name[1:]), at, kind), at):  # type: ignore[arg-type]
            assert isinstance(action, Moved)
            moves.append(action)
    return moves


def held(machine: Grouping) -> list[int]:
    return np.bincount(machine.owners()).tolist()


# -- what a worker says -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("utilisation", "kind"), [(0.0, "idle"), (0.74, "idle"), (0.75, "fine"), (0.85, "fine"), (0.86, "busy")]
)
def test_a_worker_is_busy_above_and_idle_below_the_thresholds(utilisation: float, kind: str) -> None:
    """CG section 7, Q2: 0.85 and 0.75."""
    assert sense(SignalRules(), 1, utilisation, at=3.0).kind == kind


def test_a_signal_says_how_far_the_worker_is_from_the_middle() -> None:
    """At twice the load it would be rid of half, at half of it it would bear as much again; as published, nothing."""
    assert sense(SignalRules(), 1, 1.6, at=3.0).share == pytest.approx(0.5)
    assert sense(SignalRules(), 1, 0.4, at=3.0).share == pytest.approx(1.0)
    assert {sense(BINARY.signals, 1, used, at=3.0).share for used in (0.0, 0.4, 0.8, 1.6)} == {0.0}


# -- pairings -----------------------------------------------------------------------------------------------


def test_one_virtual_worker_moves_per_pairing_in_the_order_of_arrival() -> None:
    """Busy 3 came before busy 1, idle 5 before idle 4: 3 gives one to 5, 1 gives one to 4, each its oldest."""
    machine = Grouping(6, alpha=2)
    assert signals(machine, 1.0, w3="busy", w1="busy") == []
    assert machine.waiting() == ((3, 1), ())
    moves = signals(machine, 1.0, w5="idle", w4="idle", w0="idle")
    assert [(move.giver, move.taker, move.virtual, move.version) for move in moves] == [
        (3, 5, (3,), 1),
        (1, 4, (1,), 2),
    ]
    assert machine.waiting() == ((), (0,))
    assert held(machine) == [2, 1, 2, 1, 3, 3]


def test_nothing_moves_without_a_partner() -> None:
    """5.2.1: a virtual worker leaves only where somebody takes it."""
    machine = Grouping(4, alpha=3)
    assert signals(machine, 1.0, w0="busy", w1="busy", w2="busy") == []
    assert signals(Grouping(4, alpha=3), 1.0, w0="idle", w1="idle") == []


def test_a_share_is_so_many_pairings() -> None:
    """Busy 0 would be rid of half of its 10, idle 1 would bear 3 more of its 10, idle 2 the rest and more."""
    machine = Grouping(3, alpha=10)
    machine.handle(Signal(0, 1.0, "busy", 0.5), 1.0)
    (first,) = machine.handle(Signal(1, 1.0, "idle", 0.3), 1.0)
    (second,) = machine.handle(Signal(2, 1.0, "idle", 9.0), 1.0)
    assert (first.virtual, second.virtual) == ((0, 3, 6), (9, 12))
    assert machine.waiting() == ((), (2,))


def test_what_was_got_within_the_slot_counts() -> None:
    """0 gave 3 of its 10 on a signal of the last slot; that it is still busy was measured before, so that its share of
    half asks for 2 more, not for 3 of the 7 that are left."""
    machine = Grouping(3, alpha=10)
    machine.handle(Signal(0, 1.0, "busy", 0.5), 1.0)
    machine.handle(Signal(1, 2.0, "idle", 0.3), 2.0)
    machine.handle(Signal(0, 2.0, "busy", 0.5), 2.0)
    (last,) = machine.handle(Signal(2, 2.0, "idle", 9.0), 2.0)
    assert len(last.virtual) == 2


def test_everybody_keeps_one() -> None:
    """Who has nothing gets no rows, and could never signal again."""
    machine = Grouping(2, alpha=3)
    for slot in range(1, 9):
        signals(machine, float(slot), w0="busy", w1="idle")
    assert held(machine) == [1, 5]
    assert machine.waiting() == ((), (1,))


def test_there_is_a_time_slot_between_the_signals_of_a_worker() -> None:
    """What comes sooner, twice or late changes nothing; the next slot's signal counts."""
    machine = Grouping(2, alpha=8, rules=GroupingRules(slot=10.0, patience=1))
    assert machine.handle(Signal(0, 100.0, "busy"), 100.0) == ()
    for at in (100.0, 109.0, 95.0, 20.0):
        (ignored,) = machine.handle(Signal(0, at, "idle"), 109.5)
        assert isinstance(ignored, Ignored)
    assert machine.waiting() == ((0,), ())
    assert machine.handle(Signal(0, 110.0, "fine"), 111.0) == ()
    assert machine.waiting() == ((), ())


def test_a_worker_that_falls_silent_waits_no_more() -> None:
    """After ``patience`` slots without a word an idle worker may be dead: it gets nothing."""
    machine = Grouping(3, alpha=4, rules=GroupingRules(slot=1.0, patience=2, aggregate=None))
    signals(machine, 1.0, w0="idle")
    machine.handle(GroupingTick(), 3.0)
    assert machine.waiting() == ((), (0,))
    machine.handle(GroupingTick(), 3.1)
    assert machine.waiting() == ((), ())


def test_who_stays_busy_without_a_partner_gives_to_who_reported_busy_longest_ago() -> None:
    """6.1.2: to 0 and 2 in turn, which never did; when they have, to 1, which did in slot 1 and is fine again. Of two
    that did, to the one for which it is longer ago."""
    machine = Grouping(4, alpha=5)
    assert signals(machine, 1.0, w1="busy", w3="busy") == []
    assert [(move.giver, move.taker) for move in signals(machine, 2.0, w1="fine", w3="busy")] == [(3, 0)]
    assert signals(machine, 3.0, w3="busy") == []
    assert [(move.giver, move.taker) for move in signals(machine, 4.0, w3="busy")] == [(3, 2)]
    assert signals(machine, 5.0, w3="busy") == []
    assert [(move.giver, move.taker) for move in signals(machine, 6.0, w0="busy", w2="busy", w3="busy")] == [(3, 1)]
    machine = Grouping(3, alpha=5)
    signals(machine, 1.0, w1="busy")
    signals(machine, 2.0, w1="fine", w2="busy")
    signals(machine, 3.0, w2="fine", w0="busy")
    assert [(move.giver, move.taker) for move in signals(machine, 4.0, w0="busy")] == [(0, 1)]


def test_a_share_is_probed_for_with_one_virtual_worker_each() -> None:
    """Who would be rid of 4 of its 8 and finds nobody idle gives one to each that is not busy, up to 4; first to
    2, since the other busy one has just given one to 1."""
    machine = Grouping(4, alpha=8)
    for at in (1.0, 2.0):
        machine.handle(Signal(3, at, "busy"), at)
        moves = machine.handle(Signal(0, at, "busy", 0.5), at)
    assert [(move.giver, move.taker, len(move.virtual)) for move in moves if isinstance(move, Moved)] == [
        (0, 2, 1),
        (0, 1, 1),
    ]
    assert machine.waiting() == ((0,), ())


def test_where_all_are_busy_nothing_moves() -> None:
    """Overload is no imbalance."""
    machine = Grouping(3, alpha=5)
    for slot in range(1, 6):
        assert signals(machine, float(slot), w0="busy", w1="busy", w2="busy") == []


# -- workers come and go ------------------------------------------------------------------------------------


def test_a_joiner_gets_its_even_share_in_proportion() -> None:
    """From 7, 2 and 3 (the last one of each stays) a fourth worker gets 3 of the 12, mostly of the richest."""
    machine = Grouping(3, alpha=4)
    for slot in range(1, 4):
        signals(machine, float(slot), w0="idle", w1="busy" if slot < 3 else "fine", w2="busy" if slot == 3 else "fine")
    assert held(machine) == [7, 2, 3]
    moves = machine.handle(WorkerJoined(9, at=50.0), now=4.0)
    assert [len(move.virtual) for move in moves if isinstance(move, Moved)] == [2, 1]
    assert np.bincount(machine.owners(), minlength=10).tolist() == [5, 2, 2, 0, 0, 0, 0, 0, 0, 3]


def test_a_leavers_virtual_workers_go_to_those_that_are_not_busy() -> None:
    machine = Grouping(4, alpha=6)
    signals(machine, 1.0, w1="busy")
    moves = machine.handle(WorkerLeft(0, at=1.5), now=1.5)
    assert [(move.giver, move.taker, len(move.virtual)) for move in moves if isinstance(move, Moved)] == [
        (0, 2, 3),
        (0, 3, 3),
    ]
    assert machine.workers == (1, 2, 3)
    (ignored,) = machine.handle(Signal(0, 9.0, "idle"), 9.0)
    assert isinstance(ignored, Ignored)


def test_old_news_of_workers_is_ignored() -> None:
    """A leaving that was overtaken by the worker's return, a return that was overtaken by its leaving."""
    machine = Grouping(2, alpha=4)
    assert machine.handle(WorkerJoined(0, at=5.0), 5.0) == ()
    for event in (WorkerLeft(0, at=4.0), WorkerJoined(0, at=5.0), Signal(0, 4.9, "idle")):
        assert isinstance(machine.handle(event, 6.0)[0], Ignored)
    assert isinstance(machine.handle(WorkerLeft(0, at=7.0), 7.0)[0], Moved)
    assert isinstance(machine.handle(WorkerJoined(0, at=6.5), 7.5)[0], Ignored)
    assert isinstance(machine.handle(WorkerJoined(0, at=8.0), 8.0)[0], Moved)


def test_the_last_worker_cannot_leave_and_there_may_not_be_more_than_virtual_ones() -> None:
    lonely = Grouping(1, alpha=1)
    assert isinstance(lonely.handle(WorkerLeft(0, at=1.0), 1.0)[0], Ignored)
    assert isinstance(lonely.handle(WorkerJoined(1, at=1.0), 1.0)[0], Ignored)
    assert lonely.workers == (0,)


# -- periodic aggregation -----------------------------------------------------------------------------------


def test_partial_states_are_merged_on_a_schedule() -> None:
    """Every 60 s from the first event on; what was missed is one merge, and the schedule stays where it was."""
    machine = Grouping(2, alpha=2, rules=GroupingRules(aggregate=60.0))
    assert machine.handle(GroupingTick(), 1000.0) == ()
    assert machine.wake == 1060.0
    assert machine.handle(GroupingTick(), 1059.9) == ()
    assert machine.handle(GroupingTick(), 1060.0) == (Aggregate(1),)
    assert machine.handle(GroupingTick(), 1250.0) == (Aggregate(2),)
    assert machine.wake == 1300.0
    silent = Grouping(2, alpha=2, rules=GroupingRules(aggregate=None))
    assert silent.handle(GroupingTick(), 1e9) == ()
    assert silent.wake is None


def test_a_merge_that_is_due_comes_before_the_move() -> None:
    machine = Grouping(2, alpha=2, rules=GroupingRules(aggregate=1.0))
    signals(machine, 1.0, w0="busy")
    assert [type(action) for action in machine.handle(Signal(1, 2.0, "idle"), 2.0)] == [Aggregate, Moved]


# -- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda: SignalRules(busy=0.5), "busy"),
        (lambda: GroupingRules(slot=0.0), "slot"),
        (lambda: GroupingRules(patience=0), "patience"),
        (lambda: GroupingRules(aggregate=-1.0), "aggregate"),
        (lambda: Signal(-1, 0.0, "busy"), "worker"),
        (lambda: Signal(True, 0.0, "busy"), "worker"),
        (lambda: Signal(1, float("nan"), "busy"), "at"),
        (lambda: Signal(1, 0.0, "tired"), "kind"),
        (lambda: Signal(1, 0.0, "busy", -0.1), "share"),
        (lambda: sense(SignalRules(), 1, -1.0, 0.0), "utilisation"),
        (lambda: Grouping(0), "workers"),
        (lambda: Grouping(2, alpha=0), "alpha"),
        (lambda: Grouping(2).handle(GroupingTick(), float("inf")), "now"),
        (lambda: Grouping.from_fields({**Grouping(2, 1).to_fields(), "virtual": 3}), "virtual_workers"),
    ],
)
def test_wrong_values_are_refused_by_name(wrong, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        wrong()


# -- the router ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [{}, {"window": 5_000, "slide": 300}, {"window": 700}])
def test_with_one_virtual_worker_each_cg_is_porc(window: dict[str, int]) -> None:
    """The log and the memo change no choice: row for row what ``porc`` decides."""
    keys = stream(30_000, 2_000, 1.3)
    assert np.array_equal(
        make_router("cg", 16, alpha=1, **window).route(keys), make_router("porc", 16, **window).route(keys)
    )


def test_the_router_starts_with_the_machines_map() -> None:
    for n, alpha in ((1, 1), (3, 7), (10, 100)):
        assert np.array_equal(grouping(make_router("cg", n, alpha=alpha)).owners, Grouping(n, alpha).owners())


def test_a_new_map_is_about_later_rows_only() -> None:
    """The virtual worker of a row is not the map's affair: only rows of worker 0, whose go to worker 3, are moved."""
    keys = stream(4_000)
    still, moved = make_router("cg", 4, alpha=8), make_router("cg", 4, alpha=8)
    first = moved.route(keys[:2_000])
    owners = grouping(moved).owners
    grouping(moved).adopt(np.where(owners == 0, 3, owners))
    undisturbed = still.route(keys)
    assert np.array_equal(first, undisturbed[:2_000])
    assert np.array_equal(moved.route(keys[2_000:]), np.where(undisturbed[2_000:] == 0, 3, undisturbed[2_000:]))


@pytest.mark.parametrize("owners", [np.zeros(7, np.int32), np.zeros(8), np.full(8, -1), np.full(8, 1 << 20)])
def test_a_map_that_does_not_fit_is_refused(owners: np.ndarray) -> None:
    router = make_router("cg", 4, alpha=2)
    with pytest.raises(ConfigError, match="owners"):
        grouping(router).adopt(owners)
    assert grouping(router).owners.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]


@pytest.mark.parametrize("epsilon", [0.01, 0.3])
@pytest.mark.parametrize("exponent", [0.5, 1.5])
def test_virtual_workers_are_bounded_at_every_moment(epsilon: float, exponent: float) -> None:
    """None ever holds more than ceil((1 + epsilon) x mean); with a phase, one row more at most."""
    keys, virtual = stream(30_000, 5_000, exponent), 160
    for phase in (0.0, 0.7):
        router = make_router("cg", 16, alpha=10, epsilon=epsilon, phase=phase)
        for rows in range(1_000, 30_001, 1_000):
            router.route(keys[rows - 1_000 : rows])
            most = grouping(router).loads.max()
            assert most <= np.ceil((1 + epsilon) * (rows / virtual + phase))


@pytest.mark.parametrize("bins", [10, 100, 1_000])
def test_table_1(bins: int) -> None:
    """CG, Table 1, epsilon 0.3: PoRC and CH-BL are off the mean by 0.3 on any number of workers, whatever the skew,
    where key grouping is by p1 n. The stream has Wikipedia's p1, 9.3 %."""
    keys = stream(200_000, 29_000, 1.0)
    rounding = bins / len(keys)
    for name in ("porc", "chbl"):
        off = quality.imbalance(make_router(name, bins, epsilon=0.3).route(keys), bins) - 1.0
        assert 0.25 <= off <= 0.3 + rounding
    virtual = make_router("cg", bins // 10, alpha=10, epsilon=0.3)
    virtual.route(keys)
    assert grouping(virtual).loads.max() / grouping(virtual).loads.mean() - 1.0 <= 0.3 + rounding
    assert quality.imbalance(make_router("hash", bins).route(keys), bins) - 1.0 >= 0.08 * bins


def test_the_window_is_all_that_is_kept() -> None:
    """The log has room for the rows of a window, not for those of the stream, and they are what the loads count."""
    router = make_router("cg", 8, window=3_000, slide=500)
    for _ in range(20):
        router.route(key_hashes(2_600))
    rows = grouping(router)._rows
    assert rows.load.sum() == rows.clock[2] <= 3_000
    assert rows.load.min() >= 0
    assert len(rows.log) == 4_096


def test_sources_send_a_key_to_the_same_virtual_workers() -> None:
    """Sources of one seed share no load and yet agree: four replicate keys hardly more than one does (Fig. 10)."""
    keys = stream(80_000, 5_000, 1.0)
    alone = quality.replication(keys, make_router("cg", 10, alpha=10).route(keys))
    out = np.empty(len(keys), np.int32)
    for number in range(4):
        out[number::4] = make_router("cg", 10, alpha=10, phase=number / 4).route(keys[number::4])
    assert quality.replication(keys, out) <= 1.1 * alone
    assert quality.imbalance(out, 10) <= 1.02
