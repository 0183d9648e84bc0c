"""When the breaker lets a call through; the clock is the test's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.core.breaker import CLOSED, HALF_OPEN, OPEN, Breaker
from unskew.core.errors import ConfigError


def opened(**settings: float) -> Breaker:
    """A breaker that opened at 0."""
    breaker = Breaker(failures=2, cooldown=1.0, **settings)
    breaker.failure(0.0)
    breaker.failure(0.0)
    return breaker


def test_it_opens_after_so_many_failures_in_a_row() -> None:
    """A success in between begins the count anew."""
    breaker = Breaker(failures=3)
    for _ in range(2):
        breaker.failure(0.0)
    breaker.success()
    for _ in range(2):
        breaker.failure(0.0)
        assert breaker.state(0.0) == CLOSED
        assert breaker.allow(0.0)
    breaker.failure(0.0)
    assert breaker.state(0.0) == OPEN
    assert not breaker.allow(0.0)


def test_after_the_cooldown_one_may_ask_and_the_others_wait() -> None:
    """Half open, the probe is one call; ``wait`` tells when to come back."""
    breaker = opened()
    assert not breaker.allow(0.9)
    assert breaker.wait(0.25) == 0.75
    assert breaker.state(1.0) == HALF_OPEN
    assert breaker.allow(1.0)
    assert not breaker.allow(1.5)
    breaker.success()
    assert breaker.state(1.5) == CLOSED
    assert breaker.wait(1.5) == 0.0
    assert breaker.allow(1.5)


def test_each_failed_probe_doubles_the_pause_up_to_the_longest() -> None:
    """1, 2, 4 and from then on the longest; one success ends it, and the next time begins with 1 again."""
    breaker = opened(longest=5.0)
    now, pauses = 0.0, []
    for _ in range(4):
        pauses.append(breaker.wait(now))
        now += breaker.wait(now)
        assert breaker.allow(now)
        breaker.failure(now)
    assert pauses == [1.0, 2.0, 4.0, 5.0]
    breaker.success()
    breaker.failure(now)
    breaker.failure(now)
    assert breaker.wait(now) == 1.0


def test_a_probe_that_never_tells_blocks_nobody_for_good() -> None:
    """Whoever asked may have been killed: after another pause the next one may."""
    breaker = opened()
    assert breaker.allow(1.0)
    assert not breaker.allow(1.9)
    assert breaker.allow(2.0)


def test_a_call_that_began_before_it_opened_does_not_prolong_the_pause() -> None:
    """Ten calls that fail together are one outage."""
    breaker = opened()
    for _ in range(10):
        breaker.failure(0.5)
    assert breaker.allow(1.0)


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.floats(0.01, 3.0), st.sampled_from(["ask", "good", "bad"])), max_size=60),
)
def test_the_pause_is_bounded_and_a_closed_one_always_lets_through(failures: int, steps: list) -> None:  # type: ignore[type-arg]
    """Whatever happens: nobody waits longer than ``longest``, and then one is let through."""
    breaker, now = Breaker(failures, cooldown=0.5, longest=4.0), 0.0
    for passed, what in steps:
        now += passed
        if what == "ask":
            assert breaker.allow(now) or breaker.wait(now) > 0.0
        elif what == "good":
            breaker.success()
            assert breaker.state(now) == CLOSED
        else:
            breaker.failure(now)
        assert breaker.wait(now) <= 4.0
        assert (breaker.state(now) == OPEN) <= (breaker.wait(now) > 0.0)
    assert breaker.allow(now + breaker.wait(now))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"failures": 0}, "failures"),
        ({"cooldown": 0.0}, "cooldown"),
        ({"cooldown": 9.0, "longest": 3.0}, "cooldown"),
        ({"probe_timeout": 0.0}, "probe_timeout"),
    ],
)
def test_settings_without_sense_are_refused(settings: dict[str, float], named: str) -> None:
    """By the name of the setting."""
    with pytest.raises(ConfigError, match=f"^{named}: "):
        Breaker(**settings)  # type: ignore[arg-type]


def test_a_ticket_of_before_it_opened_changes_nothing() -> None:
    """Calls run at once: what began before it opened says nothing about the time after, whatever its result."""
    breaker = Breaker(failures=1, cooldown=1.0)
    early, late = breaker.enter(0.0), breaker.enter(0.0)
    breaker.failure(0.0, early)
    breaker.success(late)
    assert breaker.state(0.0) == OPEN
    probe = breaker.enter(1.0)
    assert probe is not None
    breaker.failure(1.0, late)
    breaker.success(probe)
    assert breaker.state(1.0) == CLOSED


def test_a_probe_that_was_given_up_makes_room_for_another() -> None:
    """A caller that is cancelled says nothing about the service."""
    breaker = Breaker(failures=1, probe_timeout=math.inf)
    breaker.failure(0.0, breaker.enter(0.0))
    probe = breaker.enter(1.0)
    assert probe is not None
    assert not breaker.allow(1e9), "a probe under way is the only one, however long it takes"
    breaker.abandoned(probe)
    assert breaker.enter(1.0) not in (None, probe)


@given(
    st.lists(st.tuples(st.sampled_from(["ask", "succeed", "fail", "give up", "wait"]), st.integers(0, 5)), max_size=60)
)
def test_with_tickets_there_is_one_probe_at_a_time_and_always_a_next_one(steps: list[tuple[str, int]]) -> None:
    """Whatever comes back in whatever order: one at a time while open, and after the pause somebody may ask again."""
    breaker, now = Breaker(failures=3, cooldown=1.0, longest=4.0, probe_timeout=math.inf), 0.0
    calls: list[tuple[int, bool]] = []
    for step, which in steps:
        if step == "ask":
            probe, ticket = breaker.state(now) != CLOSED, breaker.enter(now)
            assert probe or ticket is not None
            assert not (probe and ticket is not None and any(probing for _, probing in calls))
            calls += [] if ticket is None else [(ticket, probe)]
        elif step == "wait":
            now += 0.5
        elif calls:
            ticket, _ = calls.pop(which % len(calls))
            if step == "succeed":
                breaker.success(ticket)
            elif step == "fail":
                breaker.failure(now, ticket)
            else:
                breaker.abandoned(ticket)
    for ticket, _ in calls:
        breaker.abandoned(ticket)
    assert breaker.enter(now + 4.0) is not None
