"""When a replica looks at the rounds next: urgent news now, the rest a little later, and together."""

from __future__ import annotations

import pytest

from unskew.core.rounds.wake_ups import WakeUps

NEVER = float("inf")
WAITING = (
    WakeUps(look_at=0.0, used=0.0)
    .before_look()
    .after_look(frozenset("abc"), frozenset("ab"), (3, 2), 2.0)
    .after_wait(30.0, 100.0)
)


def test_a_report_waits_for_others_and_the_last_one_that_is_missing_does_not() -> None:
    """A hundredth of a DSYNC; those that come after the first do not put the look off."""
    assert WAITING.look_at == 130.0
    first = WAITING.after_report("a", 101.0)
    assert first.look_at == pytest.approx(101.02)
    assert first.after_report("d", 101.01).look_at == first.look_at
    assert first.after_report("b", 101.01).look_at == 101.01
    assert WAITING.after_report("d", 101.0).look_at == pytest.approx(101.02)


def test_the_delay_is_bounded_where_dsync_is_long() -> None:
    long = WAITING.after_look(frozenset("ab"), frozenset("ab"), (3, 2), 3_600.0)
    assert long.after_report("a", 101.0).look_at == pytest.approx(101.05)


def test_news_that_this_replica_has_do_not_wake_it() -> None:
    """Most are of what it did itself. Others are urgent where an agent waits for an answer."""
    assert WAITING.after_news((3, 2), 101.0, waiting=True) is WAITING
    assert WAITING.after_news((4, 2), 101.0, waiting=True).look_at == 101.0
    assert WAITING.after_news((4, 2), 101.0, waiting=False).look_at == pytest.approx(101.02)
    assert WAITING.after_news(None, 101.0, waiting=True).look_at == 101.0
    assert WAITING.after_merge(3).after_news((4, 3), 101.0, waiting=True).look_at == 130.0


def test_what_comes_during_a_look_is_looked_at_after_it() -> None:
    looking = WAITING.before_look()
    assert looking.look_at == NEVER
    assert looking.after_wait(5.0, 102.0).look_at == 107.0
    assert looking.after_report("b", 101.0).after_report("a", 101.0).after_wait(5.0, 102.0).look_at == 101.0


def test_a_seal_makes_everybody_missing_again() -> None:
    """The reports that come while the store is asked are of the next round."""
    sealing = WAITING.before_look().after_report("a", 101.0).before_look().before_seal()
    assert (sealing.missing, sealing.unreported) == (frozenset("abc"), 3)
    assert sealing.after_report("a", 102.0).look_at == pytest.approx(102.02)


def test_a_driver_is_idle_when_no_agent_has_come_for_some_rounds() -> None:
    """Half a minute at least; never while an agent waits."""
    used = WAITING._replace(used=100.0)
    assert not used.is_idle(130.0, 9.0, waiting=False)
    assert used.is_idle(130.1, 9.0, waiting=False)
    assert not used.is_idle(130.1, 9.0, waiting=True)
    assert not used.is_idle(189.0, 90.0, waiting=False)
    assert not used.after_use(125.0).is_idle(130.1, 9.0, waiting=False)
