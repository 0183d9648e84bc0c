"""Queues by hand and against brute force; and CG's experiments on them, each in a small dose."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from papers.grouping_events import GroupingRules
from papers.replay import (
    Capacities,
    Grouped,
    Routing,
    Slot,
    Sources,
    StageCosts,
    Trace,
    arrivals,
    replay,
    serve,
    stages,
)
from tests.planning import key_hashes
from unskew.core import make_router
from unskew.core.errors import ConfigError
from unskew.core.grouping.signals import SignalRules
from unskew.core.kernels import base as kernels
from unskew.core.keys.hashing import mix
from unskew.simulate.key_streams import zipf_keys


class Fixed:
    """Sends rows where it was told, and remembers what it hears."""

    def __init__(self, workers: list[int]) -> None:
        self.workers, self.slots = np.array(workers, np.int32), list[Slot]()
        self.at = 0

    def route(self, keys: np.ndarray, times: np.ndarray) -> np.ndarray:
        self.at += len(keys)
        return self.workers[self.at - len(keys) : self.at]

    def observe(self, slot: Slot) -> None:
        self.slots.append(slot)


def none(rows: int) -> np.ndarray:
    return np.zeros(rows, np.uint64)


# -- queues -------------------------------------------------------------------------------------------------


def test_first_come_first_served_by_hand() -> None:
    """Two rows a second: three that come at once are done after 0.5, 1 and 1.5 s, one at 5 s at 5.5 s. The other worker
    has its own queue."""
    trace = replay(Fixed([0, 0, 0, 1, 0]), none(5), [0.0, 0.0, 0.0, 0.0, 5.0], Capacities([2.0, 4.0]))
    assert (trace.times + trace.latency).tolist() == [0.5, 1.0, 1.5, 0.25, 5.5]
    assert trace.arrived.tolist() == [[3, 1], [0, 0], [0, 0], [0, 0], [0, 0], [1, 0]]
    assert trace.queue[:, 0].tolist() == [1, 0, 0, 0, 0, 0]
    assert trace.utilisation[:2, 0].tolist() == [1.5, 0.5]
    assert trace.throughput == 5 / 6


def test_a_capacity_that_changes_counts_for_rows_that_wait() -> None:
    """One row a second until t = 2, then four: of five rows at 0 the third is done at 2.25, the last at 2.75."""
    trace = replay(Fixed([0] * 5), none(5), np.zeros(5), Capacities([[1.0], [4.0]], [0.0, 2.0]), slot=0.5)
    assert trace.latency.tolist() == [1.0, 2.0, 2.25, 2.5, 2.75]
    trace = replay(Fixed([0] * 5), none(5), np.zeros(5), Capacities([[4.0], [1.0]], [0.0, 0.5]))
    assert trace.latency.tolist() == [0.25, 0.5, 1.5, 2.5, 3.5]


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.floats(0.0, 1.5)), min_size=1, max_size=60),
    rates=st.lists(st.lists(st.floats(0.3, 9.0), min_size=3, max_size=3), min_size=1, max_size=3),
    slot=st.sampled_from([0.3, 1.0, 2.5]),
)
def test_slots_say_what_the_rows_say(rows: list[tuple[int, float]], rates: list[list[float]], slot: float) -> None:
    """Queue lengths are the rows not finished at a slot's end; finish times are one row of work apart or more; and how
    the stream is cut into slots changes no finish time."""
    times = np.cumsum([gap for _, gap in rows])
    capacities = Capacities(rates, [3.0 * k for k in range(len(rates))])
    routing = Fixed([worker for worker, _ in rows])
    trace = replay(routing, none(len(rows)), times, capacities, slot)
    finished = times + trace.latency
    ends = (np.arange(len(trace.arrived)) + 1) * slot
    for worker in range(3):
        own = trace.workers == worker
        waiting = [int(((times[own] < end) & (finished[own] > end + 1e-6)).sum()) for end in ends]
        assert np.abs(trace.queue[:, worker] - waiting).max() <= (np.abs(finished[own][:, None] - ends) < 1e-5).sum()
        assert (np.diff(finished[own]) > 0).all()
    assert trace.arrived.sum() == len(rows)
    assert [one.number for one in routing.slots] == list(range(len(ends)))
    whole = replay(Fixed([worker for worker, _ in rows]), none(len(rows)), times, capacities, 1e6)
    assert np.allclose(whole.latency, trace.latency, rtol=0, atol=1e-9)


@pytest.mark.skipif(not kernels.COMPILED, reason="numba is not installed here: there is nothing to compare with")
def test_queues_are_the_same_compiled_and_plain() -> None:
    rng = np.random.default_rng(3)
    out, times = rng.integers(0, 4, 2_000).astype(np.int32), np.sort(rng.random(2_000) * 40)
    capacities = Capacities(rng.random((3, 4)) * 20 + 1, [0.0, 7.0, 25.0])
    results = []
    for loop in (serve, serve.py_func):  # type: ignore[attr-defined]  # where compiled it has one
        level, finished = np.zeros(4), np.empty(2_000)
        loop(out, times, capacities.since, capacities.work_done, capacities.rates, level, finished)
        results.append(finished.tobytes() + level.tobytes())
    assert results[0] == results[1]


def test_no_rows_take_no_time() -> None:
    trace = replay(Fixed([]), none(0), np.zeros(0), Capacities([1.0, 1.0]))
    assert trace.arrived.shape == trace.queue.shape == trace.utilisation.shape == (0, 2)


def test_sources_are_dealt_rows_in_turn_wherever_slots_end() -> None:
    """Three shuffles that start together: rows 0, 3, 6 ... are the first one's."""
    sources = Sources([make_router("shuffle", 5, seed=0) for _ in range(3)])
    trace = replay(sources, key_hashes(100), arrivals(100, 7.0), Capacities([5.0] * 5))
    assert trace.workers.tolist() == [i // 3 % 5 for i in range(100)]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda: Capacities([1.0, 0.0]), "rates"),
        (lambda: Capacities([[1.0], [1.0]]), "rates"),
        (lambda: Capacities([[1.0], [1.0]], [0.0, 0.0]), "since"),
        (lambda: Capacities([1.0], [1.0]), "since"),
        (lambda: replay(Fixed([0, 0]), none(2), [1.0, 0.5], Capacities([1.0])), "times"),
        (lambda: replay(Fixed([0]), none(1), [0.0], Capacities([1.0]), slot=0.0), "slot"),
        (lambda: replay(Fixed([3]), none(1), [0.0], Capacities([1.0])), "capacities"),
        (lambda: arrivals(5, 0.0), "rate"),
        (lambda: Sources([]), "routers"),
        (lambda: Grouped.of(4, sources=0), "routers"),
        (lambda: Grouped([make_router("porc", 4)], Grouped.of(4).machine), "routers"),
        (lambda: StageCosts(combine=-1.0), "combine"),
        (lambda: StageCosts(reducers=0), "reducers"),
        (lambda: stages(none(2), np.zeros(2, np.int32), np.array([1, 0]), StageCosts(), 1), "slides"),
        (lambda: stages(none(1), np.zeros(1, np.int32), np.zeros(1, np.int64), StageCosts(), 2, [1.0]), "speeds"),
    ],
)
def test_wrong_values_are_refused_by_name(wrong, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        wrong()


# -- the pace of a dataflow ---------------------------------------------------------------------------------


def test_stages_by_hand() -> None:
    """Two slides, two workers, one reducer: slide 0 has keys a, b on worker 0 and a on worker 1 (4 rows), slide 1 has b
    on worker 1 (1 row). Rows cost 1 s at two partitioners, 2 s at a worker, a partial aggregate 10 s."""
    keys = np.array([1, 2, 1, 1, 2], np.uint64)
    workers = np.array([0, 0, 1, 0, 1], np.int32)
    slides = np.array([7, 7, 7, 7, 8])
    costs = StageCosts(partition=1.0, combine=2.0, reduce=10.0, partitioners=2)
    got = stages(keys, workers, slides, costs, 2)
    assert got.rows.tolist() == [4, 1]
    assert got.partition.tolist() == [[2.0, 2.0], [1.0, 0.0]]
    assert got.combine.tolist() == [[6.0, 2.0], [0.0, 2.0]]
    assert got.reduce.tolist() == [[30.0], [10.0]]
    assert got.throughput.tolist() == [4 / 30, 1 / 10]
    assert (got.bottleneck, got.sustained) == ("reduce", 5 / 40)
    assert stages(keys, workers, slides, costs, 2, [3.0, 1.0]).combine.tolist() == [[2.0, 2.0], [0.0, 2.0]]


def test_a_window_sends_what_it_still_holds_and_forwarding_only_what_is_split() -> None:
    """The same with windows of two slides: at the end of slide 1 there are a on 0 and 1, b on 0 and 1. Forwarded are b
    at slide 0 and, without a window, b at slide 1."""
    keys = np.array([1, 2, 1, 1, 2], np.uint64)
    workers = np.array([0, 0, 1, 0, 1], np.int32)
    slides = np.array([0, 0, 0, 0, 1])
    sent = [
        stages(keys, workers, slides, StageCosts(reduce=1.0, window=window, forward=forward), 2).reduce[:, 0].tolist()
        for window, forward in ((1, False), (2, False), (1, True), (2, True))
    ]
    assert sent == [[3, 1], [3, 4], [2, 0], [2, 4]]


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 2)), max_size=40),
    window=st.integers(1, 4),
    reducers=st.integers(1, 3),
    forward=st.booleans(),
)
def test_partial_aggregates_are_those_of_each_window(
    rows: list[tuple[int, int, int]], window: int, reducers: int, forward: bool
) -> None:
    """Against brute force: at each slide's end, the distinct (key, worker) pairs of the last slides, by key."""
    keys = np.array([key for key, _, _ in rows], np.uint64)
    workers = np.array([worker for _, worker, _ in rows], np.int32)
    slides = np.cumsum([gap for _, _, gap in rows], dtype=np.int64)
    got = stages(keys, workers, slides, StageCosts(reduce=1.0, reducers=reducers, window=window, forward=forward), 3)
    first = int(slides[0]) if rows else 0
    for number, sent in enumerate(got.reduce.tolist()):
        inside = (slides - first <= number) & (slides - first > number - window)
        pairs = {*zip(keys[inside].tolist(), workers[inside].tolist(), strict=True)}
        expected = [0] * reducers
        for key in {key for key, _ in pairs}:
            many = sum(other == key for other, _ in pairs)
            at = (int(mix(np.array([key], np.uint64), 0x5EED)[0]) >> 32) * reducers >> 32
            expected[at] += many if many > 1 or not forward else 0
        assert sent == expected


# -- CG's experiments ---------------------------------------------------------------------------------------

N, RATE, SLOTS = 10, 20_000, 60
LOAD = 0.8
STRONG = np.array([5.0] * 3 + [1.0] * 7)


def sized(relative: np.ndarray) -> np.ndarray:
    """Rows a second, so that the stream is 80 % of what all can do."""
    return relative / relative.sum() * RATE / LOAD


def run(routing: Routing, capacities: Capacities, slots: int = SLOTS, exponent: float = 1.0, seed: int = 1) -> Trace:
    """A Zipf stream whose heaviest key has about 8 % (Wikipedia's has 9.3 %)."""
    rows = RATE * slots
    keys = key_hashes(100_000, seed)[zipf_keys(np.random.default_rng(seed), rows, 100_000, exponent)]
    return replay(routing, keys, arrivals(rows, RATE), capacities)


def band(relative: np.ndarray, alpha: int) -> float:
    """0.85 - 0.75, and what one virtual worker is on the smallest worker."""
    return 0.10 + LOAD * relative.sum() / (len(relative) * alpha) / relative.min()


@pytest.mark.parametrize("alpha", [10, 100])
def test_figure_8(alpha: int) -> None:
    """Three of ten workers are five times as strong, 80 % load: CG finds them within ten slots, stays in the band, and
    no queue grows. Key grouping and shuffling are out of it, and their queues grow without end."""
    trace = run(Grouped.of(N, alpha=alpha), Capacities(sized(STRONG)))
    assert trace.spread[0] > 0.4
    assert trace.spread[10:].max() <= band(STRONG, alpha)
    assert abs(trace.queue_slope(10)) <= 0.0005 * RATE
    assert trace.queue[10:].max() <= 0.02 * RATE
    for name in ("hash", "shuffle"):
        other = run(Sources([make_router(name, N)]), Capacities(sized(STRONG)))
        assert other.spread[10:].min() > 2.0
        assert other.queue_slope(10) > 0.03 * RATE
        assert other.latencies()[-1] > 10 * trace.latencies()[-1]


def test_figure_8_as_published_gets_there_in_the_end() -> None:
    """One virtual worker a signal, alpha 10: slower, in the band most of the time, and no queue grows for good."""
    rules = GroupingRules(SignalRules(as_published=True))
    trace = run(Grouped.of(N, alpha=10, rules=rules), Capacities(sized(STRONG)), slots=120)
    assert trace.spread[10] > band(STRONG, 10)
    assert (trace.spread[60:] <= band(STRONG, 10)).mean() >= 0.9
    assert trace.queue[60:].max() <= 0.05 * RATE


@pytest.mark.parametrize(
    "then", [[5, 1, 1, 1, 5, 5, 1, 1, 1, 1], [3.0] * 3 + [13 / 7] * 7, [1, 1, 1, 1, 1, 1, 1, 5, 5, 5]]
)
def test_figure_12(then: list[float]) -> None:
    """Capacities change twice, their sum does not: two strong workers trade places with weak ones, the strong ones lose
    two fifths, or all three strong ones are others. CG is inside the band again within 20 slots and stays there."""
    phases = [STRONG, np.array(then), STRONG]
    capacities = Capacities([sized(relative) for relative in phases], [0.0, 40.0, 80.0])
    trace = run(Grouped.of(N), capacities, slots=120)
    for phase, relative in enumerate(phases):
        spread = trace.spread[40 * phase : 40 * (phase + 1)]
        assert spread[0] > band(relative, 100)
        assert spread[20:].max() <= band(relative, 100)
        assert trace.queue[40 * phase + 20 : 40 * (phase + 1)].max() <= 0.02 * RATE


@pytest.mark.long
@pytest.mark.parametrize("sources", [1, 10, 100])
@pytest.mark.parametrize("exponent", [0.0, 1.5, 2.0])
def test_figure_12_for_any_skew_and_sources(exponent: float, sources: int) -> None:
    """Capacities that change at random, three times, for three streams: 20 slots are enough. Not at the beginning where
    each of a hundred sources has sent only a few rows a virtual worker (docs/decisions, 0009)."""
    rng = np.random.default_rng(7)
    for seed in range(3):
        phases = [STRONG, *(rng.permutation(STRONG) if one else rng.uniform(1.0, 5.0, N) for one in range(3))]
        capacities = Capacities([sized(relative) for relative in phases], [40.0 * one for one in range(4)])
        trace = run(Grouped.of(N, sources, seed=seed), capacities, 160, exponent, seed)
        for phase, relative in enumerate(phases):
            spread = trace.spread[40 * phase + 20 : 40 * (phase + 1)]
            if phase or sources < 100:
                assert (spread <= band(relative, 100)).mean() >= 0.95


def test_a_hundred_sources_do_as_well_as_one() -> None:
    """Fig. 10 with queues: sources that share no load, each with a hundredth of the rows. Their phases are what does
    it: where all take steps at once, slots are uneven and the band is never held."""
    even = run(Grouped.of(N, sources=100), Capacities(sized(STRONG)))
    assert even.spread[10:].max() <= band(STRONG, 100)
    together = run(Grouped.of(N, sources=100, phase=0.0), Capacities(sized(STRONG)))
    assert (together.spread[10:] > band(STRONG, 100)).mean() > 0.3


def test_rows_far_beyond_what_memory_of_slots_would_hold_take_seconds() -> None:
    """A million rows over a thousand slots: what is kept of a slot is a few numbers a worker."""
    keys = key_hashes(1_000)[np.arange(1_000_000) % 1_000]
    trace = replay(Grouped.of(N), keys, arrivals(1_000_000, 1_000.0), Capacities([125.0] * N))
    assert len(trace.spread) == 1_000
    assert abs(trace.throughput - 1_000.0) < 1.0
    assert trace.imbalance.max() < 1.5
