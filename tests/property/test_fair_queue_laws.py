"""Laws of the fair queue and the token buckets, over any run of arrivals, ends and departures."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from unskew.core.fairness.fair_queue import FairQueue
from unskew.core.fairness.token_bucket import TokenBuckets

SMALL, LARGEST = 10, 4000
COSTS = st.one_of(st.integers(1, SMALL), st.integers(SMALL + 1, LARGEST))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abc"), COSTS),
        st.tuples(st.just("end"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("leave"), st.integers(0, 20), st.just(0)),
    ),
    max_size=120,
)


@given(STEPS, st.integers(1, 3))
def test_every_job_begins_once_and_no_slot_is_idle(steps: list[tuple[str, object, int]], slots: int) -> None:
    """Work conserving: where nothing more can begin, all slots are taken, or nothing waits that may have the free one.
    Nobody starves: once arrivals end, all that waits has begun after finitely many ends."""
    queue: FairQueue[int] = FairQueue(slots, SMALL, 1000)
    waiting: dict[int, int] = {}
    running: dict[int, int] = {}

    def fill() -> None:
        while (job := queue.begin()) is not None:
            running[job] = waiting.pop(job)
        large, small = sum(cost > SMALL for cost in running.values()), any(c <= SMALL for c in waiting.values())
        assert len(running) <= slots + 1
        assert large <= slots
        assert not small or len(running) == slots + 1
        assert all(cost <= SMALL for cost in waiting.values()) or len(running) >= slots
        assert len(queue) == len(waiting)

    for number, (what, which, cost) in enumerate(steps):
        if what == "put":
            assert queue.put(str(which), cost, number)
            waiting[number] = cost
        elif what == "end" and running:
            job = list(running)[int(str(which)) % len(running)]
            del running[job]
            queue.end(job)
        elif what == "leave" and waiting:
            job = list(waiting)[int(str(which)) % len(waiting)]
            del waiting[job]
            queue.end(job)
        fill()
    while running:
        job = next(iter(running))
        del running[job]
        queue.end(job)
        fill()
    assert not waiting


@given(st.lists(st.integers(SMALL + 1, LARGEST), min_size=3, max_size=300), st.integers(1, 3), st.data())
def test_a_small_job_waits_for_small_ones_only(large: list[int], slots: int, data: st.DataObject) -> None:
    """Beside any number of large ones, of whomever: it begins at once, or after those small ones that came before."""
    queue: FairQueue[str] = FairQueue(slots, SMALL, 10_000)
    for number, cost in enumerate(large):
        queue.put(data.draw(st.sampled_from("abc")), cost, f"large {number}")
    while queue.begin() is not None:
        pass
    queue.put("small", 1, "small 0")
    assert queue.begin() == "small 0"
    for number in range(1, 4):
        queue.put("small", 1, f"small {number}")
    for number in range(3):
        assert queue.begin() is None
        queue.end(f"small {number}")
        assert queue.begin() == f"small {number + 1}"


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(SMALL + 1, LARGEST)), max_size=200), st.integers(1, 3))
def test_who_waits_all_the_time_has_an_equal_share(jobs: list[tuple[str, int]], slots: int) -> None:
    """While both wait, what they have begun differs by no more than a job of each."""
    queue: FairQueue[int] = FairQueue(slots, SMALL, 10_000)
    left = Counter(name for name, _ in jobs)
    most = Counter[str]()
    for number, (name, cost) in enumerate(jobs):
        queue.put(name, cost, number)
        most[name] = max(most[name], cost)
    begun = Counter[str]()
    while all(left[name] for name in "ab") and (job := queue.begin()) is not None:
        name, cost = jobs[job]
        begun[name] += cost
        left[name] -= 1
        queue.end(job)
        assert abs(begun["a"] - begun["b"]) <= most["a"] + most["b"]


@given(
    st.floats(0.1, 1000.0), st.floats(0.0, 5.0), st.lists(st.floats(0.0, 0.5), min_size=1, max_size=200), st.booleans()
)
def test_no_more_is_taken_than_the_rate_and_a_burst(rate: float, seconds: float, gaps: list[float], wait: bool) -> None:
    """In any run; and whoever waits as long as it is told gets its token then."""
    buckets, now, taken = TokenBuckets(rate, seconds), 0.0, 0
    for gap in gaps:
        now += gap
        told = buckets.take("etl", now)
        if told and wait:
            now += told * (1 + 1e-9)
            assert buckets.take("etl", now) == 0.0
            told = 0.0
        taken += not told
        assert taken <= max(rate * seconds, 1.0) + rate * now + 1e-3
