"""KIP's Algorithm 1 by hand, our choices where it leaves one, and the gate before a switch of plans."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram, Tail
from unskew.core.plan.plan import Plan
from unskew.core.planners.base import Feedback
from unskew.core.planners.gate import Gate
from unskew.core.planners.registry import make_planner

N = 4
HOSTS = 4096


def key(partition: int, number: int, n: int = N) -> int:
    """A key hash on the ``number``-th host of those that plain hashing gives to ``partition``."""
    return (partition * HOSTS // n + number) << 52


def histogram(rows: dict[int, int]) -> Histogram:
    return Histogram.from_counts(np.array(list(rows), np.uint64), np.array(list(rows.values()), np.int64))


def homes(plan: Plan, *keys: int) -> list[int]:
    return plan.place(np.array(keys, np.uint64)).tolist()


def listed(plan: Plan) -> set[int]:
    return set(plan.hot.hashes.tolist())


A, B, C, D = key(0, 1), key(0, 2), key(1, 3), key(2, 4)
X, Y, Z = key(0, 10), key(0, 11), key(3, 12)
EXAMPLE = histogram({A: 40, B: 25, C: 11, D: 9, X: 7, Y: 4, Z: 4})


def test_the_listing_line_by_line():
    """100 rows, N = 4, lambda 1, epsilon 0. MAXLOAD = max(25, 40) = 40; HOSTLOAD = 15/4096, 3.75 a partition.
    a: hash place 0, 40 <= 40. b: 0 is full, to the least loaded, 1. c: 1, 25 + 11 <= 40. d: 2. With the hosts the
    loads are 43.75, 39.75, 12.75, 3.75: all 1024 hosts leave 0, the first 68 for the first partition with room,
    1 (0.25 / HOSTLOAD = 68.3), the others for the next, 2."""
    planner = make_planner("kip", N, factor=1, slack=0, as_published=True)
    plan = planner.plan(EXAMPLE)
    assert homes(plan, A, B, C, D) == [0, 1, 1, 2]
    tail = np.arange(HOSTS) // 1024
    tail[:68], tail[68:1024] = 1, 2
    assert plan.tail.tolist() == tail.tolist()


def test_a_key_heavier_than_a_mean_partition_is_alone():
    """a and b are at or above the mean of 25 and share with nothing. c cannot go where it hashes, to b; it goes
    to 2, d joins it there, and the hosts of x 7, y 4 and z 4 are dealt to 3."""
    plan = make_planner("kip", N, factor=1, slack=0).plan(EXAMPLE)
    assert homes(plan, A, B, C, D) == [0, 1, 2, 2]
    assert plan.loads(EXAMPLE).tolist() == [40, 25, 20, 15]
    assert not np.isin(plan.tail, [0, 1]).any()


def test_more_heavy_keys_than_partitions_leave_one_partition_to_the_rest():
    heavy = {key(0, i, 2): 100 for i in range(2)}
    rows = histogram({**heavy, key(1, 9, 2): 1})
    plan = make_planner("kip", 2, factor=1).plan(rows)
    assert sorted(plan.loads(rows).tolist()) == [100, 101]


def test_a_key_stays_where_it_was_though_its_hash_place_is_free():
    """b, once driven from 0 by a, does not go home when a is gone."""
    planner = make_planner("kip", N, factor=1, gate=False)
    first = planner.plan(EXAMPLE)
    calm = histogram({B: 15, C: 15, D: 15, Z: 15, **{key(p, 20): 14 for p in range(N)}})
    second = planner.plan(calm, first)
    assert homes(first, B) == homes(second, B) == [1]
    assert second.explain(B).reason == "stays where it was"


def test_a_key_that_fits_no_longer_falls_back_to_its_hash_place():
    """c was driven from 1 to 2 by b. Then d, on 2, fills it: c fits there no longer, but at home it does."""
    planner = make_planner("kip", N, factor=1, slack=0, gate=False, as_published=True)
    before = planner.plan(histogram({A: 40, B: 30, C: 20, D: 10}))
    assert homes(before, A, B, C, D) == [0, 1, 2, 2]
    after = planner.plan(histogram({A: 20, B: 20, C: 20, D: 40}), before)
    assert homes(after, A, B, C, D) == [0, 1, 1, 2]
    assert after.explain(C).reason.startswith("placed where it hashes")


def test_a_key_that_fits_nowhere_of_its_own_goes_to_the_least_loaded():
    """Three keys of one hash place, MAXLOAD 30: the second goes to 1, the third to 2, and says why."""
    rows = histogram({A: 30, B: 30, X: 30, Z: 30})
    plan = make_planner("kip", N, factor=1, slack=0, as_published=True).plan(rows)
    places = homes(plan, A, B, X)
    assert sorted(places) == [0, 1, 2]
    moved = [k for k, place in zip((A, B, X), places, strict=True) if place != 0]
    assert {plan.explain(k).reason for k in moved} == {"placed on the least loaded partition"}


def even_tail(rows_per_host: int = 1) -> Tail:
    return Tail(np.full(HOSTS, rows_per_host), np.full(HOSTS, 1))


def with_tail(rows: np.ndarray) -> Histogram:
    return Histogram(np.zeros(0, np.uint64), np.zeros(0, np.int64), Tail(rows, np.minimum(rows, 1)))


def test_hosts_leave_only_the_partition_that_is_over_and_only_until_it_is_not():
    """Partition 0 has twice the mean; it gives up what is over 1.2 means, and nobody else moves a host."""
    rows = np.full(HOSTS, 800)
    before = make_planner("hash", N).plan(with_tail(rows))
    rows[:1024] = 4000
    today = with_tail(rows)
    plan = make_planner("kip", N, gate=False, slack=0.2).plan(today, before)
    moved = np.flatnonzero(plan.tail != before.tail)
    assert len(moved)
    assert moved.max() < 1024
    limit = 1.2 * today.total / N
    assert 0.99 * limit <= plan.loads(today)[0] <= 1.01 * limit
    assert plan.loads(today).max() <= 1.01 * limit


def test_counting_noise_moves_no_host():
    """Hosts that differ by chance only are not chased: a partition 30 % over by luck keeps what it has."""
    rng = np.random.default_rng(2)
    n = 256
    before = make_planner("hash", n).plan(Histogram.empty())
    lucky = with_tail(rng.poisson(0.5, 8192) + 0)
    worst = before.loads(lucky).max() / (lucky.total / n)
    plan = make_planner("kip", n, gate=False, slack=0.2).plan(lucky, before)
    assert worst > 1.3
    assert plan.moved_share(before, lucky) < 0.01


def test_hosts_that_relieve_most_for_their_state_leave_first():
    """All hosts of partition 0 weigh the same today; those with little state go."""
    rows = np.full(HOSTS, 8)
    before = make_planner("hash", N).plan(with_tail(rows))
    rows[:1024] = 40
    state = np.full(HOSTS, 100)
    state[450:1024] = 3
    plan = make_planner("kip", N, gate=False, host_loads="exact").plan(
        with_tail(rows), before, Feedback(state=with_tail(state))
    )
    moved = np.flatnonzero(plan.tail != before.tail)
    assert len(moved)
    assert moved.min() >= 450


def test_hosts_without_state_are_dealt_anew_and_move_nothing():
    """Half of the hosts are empty: keys that nobody has seen yet will come to the lightest partitions, and no row
    of state has moved for it."""
    rows = np.zeros(HOSTS, np.int64)
    rows[::2] = 8
    rows[:1024:2] = 9
    today = with_tail(rows)
    before = make_planner("hash", N).plan(today)
    plan = make_planner("kip", N, gate=False).plan(today, before)
    assert plan.moved_share(before, today) == 0.0
    empty = np.bincount(plan.tail[1::2], minlength=N)
    assert empty[0] < empty[1:].min()


def test_a_key_that_cools_keeps_its_place_while_the_list_has_room():
    """b cools below the top lambda * N = 4 keys. It stays on 1, and with keep = 1 it goes home to 0."""
    first = make_planner("kip", N, factor=1, slack=0).plan(EXAMPLE)
    cooled = histogram({B: 1, C: 20, D: 20, Z: 20, X: 20})
    kept = make_planner("kip", N, factor=1, gate=False).plan(cooled, first)
    home = make_planner("kip", N, factor=1, gate=False, keep=1).plan(cooled, first)
    assert B in listed(kept)
    assert homes(kept, B) == homes(first, B)
    assert B not in listed(home)


def test_the_list_of_kept_keys_is_bounded():
    rng = np.random.default_rng(3)
    planner = make_planner("kip", N, gate=False)
    plan = None
    for _ in range(30):
        keys = rng.integers(0, 2**63, 200).astype(np.uint64)
        plan = planner.plan(Histogram.from_counts(keys, rng.integers(1, 50, 200)), plan)
        assert len(plan.hot) <= 2 * 2 * N


def test_weights_scale_what_a_partition_may_hold():
    rows = histogram({key(p, i): 10 for p in range(N) for i in range(200)})
    weights = [1.0, 1.0, 2.0, 4.0]
    plan = make_planner("kip", N, weights=weights).plan(rows)
    assert plan.loads(rows) / rows.total == pytest.approx(np.array(weights) / 8, rel=0.05)


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"factor": -1}, "factor"),
        ({"slack": 2}, "slack"),
        ({"host_loads": "none"}, "host_loads"),
        ({"keep": 0}, "keep"),
    ],
)
def test_a_bad_parameter_is_named(parameters: dict[str, object], name: str):
    with pytest.raises(ConfigError, match=name):
        make_planner("kip", N, **parameters)


# -- the gate -----------------------------------------------------------------------------------------------


def drifted(share: float, rows: int = 4000) -> Histogram:
    """An even stream of which ``share`` of all rows has moved into one cold key of partition 0."""
    cold = {key(p, i): int(rows * (1 - share) / 400) for p in range(N) for i in range(100, 200)}
    return histogram({**cold, **({key(0, 50): int(rows * share)} if share else {})})


def test_an_unchanged_stream_keeps_the_very_plan():
    planner = make_planner("kip", N)
    plan = planner.plan(drifted(0.0))
    decision = planner.decide(drifted(0.0), plan)
    assert decision.plan is plan
    assert not decision.changed
    assert decision.reason.startswith("no gain worth a move")


def test_a_gain_is_weighed_against_the_state_that_must_move():
    """The same gain: taken while the state is one batch, refused while moving a row costs 50 batches' worth."""
    plan = make_planner("hash", N).plan(drifted(0.0))
    skewed = drifted(0.4)
    cheap = make_planner("kip", N).decide(skewed, plan)
    dear = make_planner("kip", N, migration_cost=50.0).decide(skewed, plan)
    assert cheap.changed
    assert dear.plan is plan
    assert dear.reason.startswith("moving costs more than it gains")


def test_more_state_makes_the_same_move_dearer():
    plan = make_planner("hash", N).plan(drifted(0.0))
    skewed = drifted(0.4)
    heavy = Histogram(skewed.hashes, skewed.counts * 1000)
    assert make_planner("kip", N).plan(skewed, plan) is not plan
    assert make_planner("kip", N).plan(skewed, plan, Feedback(state=heavy)) is plan


def test_a_move_that_costs_nothing_is_taken_where_it_evens_the_others():
    """One key of half of the rows holds the largest load up whatever is done; the others may still be placed better."""
    rows = histogram({key(0, 1): 4000, **{key(1, i): 100 for i in range(30)}, **{key(2, i): 100 for i in range(10)}})
    plan = make_planner("hash", N).plan(rows)
    kept = make_planner("kip", N, migration_cost=100.0).decide(rows, plan)
    free = make_planner("kip", N).decide(rows, plan, Feedback(state=Histogram.empty()))
    assert kept.plan is plan
    assert free.changed
    assert free.reason.startswith("moves nothing that is kept")
    assert free.plan.loads(rows).max() == plan.loads(rows).max()
    assert free.plan.loads(rows).var() < plan.loads(rows).var()


def test_a_move_without_a_price_still_has_to_gain():
    """State that moves for nothing is moved all the same: only what moves no state is free."""
    planner = make_planner("kip", N, migration_cost=0)
    plan = planner.plan(drifted(0.01))
    assert planner.decide(drifted(0.02), plan).plan is plan


def test_slow_drift_adds_up_until_it_pays():
    """Each step is a hundredth and never worth a move by itself. The comparison is with the accepted plan, so the
    steps add up; a baseline that moved along would never switch."""
    planner = make_planner("kip", N, slack=0.02)
    accepted = planner.plan(drifted(0.0))
    plan, switched_at = accepted, None
    for step in range(1, 40):
        plan = planner.plan(drifted(step / 100), accepted)
        if plan is not accepted:
            switched_at = step
            break
    assert switched_at is not None
    assert switched_at > 1
    assert plan.loads(drifted(switched_at / 100)).max() < accepted.loads(drifted(switched_at / 100)).max()


def test_the_gain_is_of_the_worst_partition_not_of_an_average():
    """One partition of 64 at 3.6 times its share: an average over the cluster hides it, the gate does not."""
    n = 64
    rows = {key(p, i, n): 100 for p in range(n) for i in range(20)}
    for i in range(20):
        rows[key(5, i, n)] = 360
    plan = make_planner("hash", n).plan(histogram(rows))
    decision = make_planner("kip", n).decide(histogram(rows), plan)
    assert decision.changed
    assert "3.46 ->" in decision.reason


def test_a_plan_for_another_number_of_partitions_always_switches():
    rows = drifted(0.0)
    wide = make_planner("kip", 8).plan(rows)
    decision = make_planner("kip", N, migration_cost=1e9).decide(rows, wide)
    assert decision.changed
    assert decision.plan.partitions == N
    assert decision.reason == "from 8 to 4 partitions"


@pytest.mark.parametrize(
    ("arguments", "name"),
    [({"horizon": 0}, "horizon"), ({"cost": -1}, "migration_cost"), ({"least": 1}, "least_gain")],
)
def test_a_gate_that_cannot_be_is_refused_by_name(arguments: dict[str, float], name: str):
    with pytest.raises(ConfigError, match=name):
        Gate(**arguments)
