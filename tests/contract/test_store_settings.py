"""The URL of a store, and the breaker before it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.core.errors import ConfigError
from unskew.service.stores import open_store
from unskew.service.stores.address import Address, RedisTls, read_address
from unskew.service.stores.breaker import Breaker
from unskew.service.stores.memory import MemoryStore

HIDDEN = "pa55word"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("", Address("memory")),
        ("memory", Address("memory")),
        ("memory://", Address("memory")),
        ("redis://h", Address("single", (("h", 6379),))),
        ("redis://h:1/2", Address("single", (("h", 1),), db=2)),
        ("redis://[::1]:7", Address("single", (("::1", 7),))),
        ("rediss://u:p%40%2Fx@h:1", Address("single", (("h", 1),), username="u", password="p@/x", tls=RedisTls())),
        ("redis://:p@h", Address("single", (("h", 6379),), password="p")),
        ("redis+sentinel://a,b:2,c/main/3", Address("sentinel", (("a", 26379), ("b", 2), ("c", 26379)), "main", 3)),
        ("redis+cluster://u:p@a:1,b:2", Address("cluster", (("a", 1), ("b", 2)), username="u", password="p")),
        (
            "rediss+cluster://a?ca=/ca.pem&check_host=no",
            Address(
                "cluster",
                (("a", 6379),),
                tls=RedisTls("/ca.pem", check_host=False),
                options={"ca": "/ca.pem", "check_host": "no"},
            ),
        ),
    ],
)
def test_urls_say_where_the_store_is(url: str, address: Address) -> None:
    """All three kinds of Redis, with their hosts, user, database, TLS and options."""
    assert read_address(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "http://h",
        "redis",
        "redis://",
        "redis://h:99999",
        "redis://h:0",
        "redis://h:x",
        "redis://h/one",
        "redis://h/1/2",
        "redis://h?colour=red",
        "redis+sentinel://h",
        "redis+cluster://a,,b",
        "redis+cluster://a/1",
        f"redis://u:{HIDDEN}@h:x",
        f"{HIDDEN}@h",
    ],
)
def test_a_wrong_url_is_refused_without_repeating_the_password(url: str) -> None:
    """The message says which forms there are."""
    with pytest.raises(ConfigError) as raised:
        read_address(url)
    assert HIDDEN not in str(raised.value)


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("ttl=5", "ttl"),
        ("ttl=x", "ttl"),
        ("timeout=0", "timeout"),
        ("timeout=2&deadline=1", "deadline"),
        ("connections=0", "connections"),
        ("prefix=a{b", "prefix"),
        ("prefix=", "prefix"),
    ],
)
def test_options_out_of_range_are_refused_by_name(option: str, named: str) -> None:
    """Before anything is connected."""
    with pytest.raises(ConfigError, match=named):
        open_store(f"redis://h?{option}")


def test_a_password_is_not_shown() -> None:
    """Neither by the address nor by what is made of it."""
    assert HIDDEN not in repr(read_address(f"redis://u:{HIDDEN}@h?sentinel_password={HIDDEN}"))


def test_without_a_url_the_store_is_in_memory() -> None:
    """So the service runs with nothing else."""
    assert isinstance(open_store(), MemoryStore)


def test_the_breaker_opens_after_failures_in_a_row_and_probes_one_at_a_time() -> None:
    """A success between starts the count anew; each failed probe doubles the rest."""
    breaker = Breaker(failures=2, rest=1.0, most=3.0)
    breaker.failed(breaker.enter(0.0), 0.0)
    breaker.succeeded(breaker.enter(0.0))
    breaker.failed(breaker.enter(0.0), 0.0)
    assert not breaker.open
    breaker.failed(breaker.enter(0.0), 0.0)
    for now, until in ((1.0, 3.0), (3.0, 6.0), (6.0, 9.0)):
        assert breaker.enter(now - 0.1) is None
        probe = breaker.enter(now)
        assert probe is not None
        assert breaker.enter(now) is None
        breaker.failed(probe, now)
        assert breaker.enter(until - 0.1) is None
    breaker.succeeded(breaker.enter(9.0))
    assert not breaker.open
    assert breaker.enter(9.0) is not None


def test_a_probe_that_was_given_up_makes_room_for_another() -> None:
    """A caller that is cancelled says nothing about the store."""
    breaker = Breaker(failures=1, rest=1.0)
    breaker.failed(breaker.enter(0.0), 0.0)
    breaker.abandoned(breaker.enter(1.0))
    assert breaker.enter(1.0) is not None


@given(
    st.lists(st.tuples(st.sampled_from(["ask", "succeed", "fail", "give up", "wait"]), st.integers(0, 5)), max_size=60)
)
def test_the_breaker_never_shuts_for_good_and_never_lets_two_probes_through(steps: list[tuple[str, int]]) -> None:
    """Whatever comes back in whatever order: one at a time while open, and after a rest somebody may ask again."""
    breaker, now = Breaker(failures=3, rest=1.0, most=4.0), 0.0
    asking: list[tuple[int | None, bool]] = []
    for step, which in steps:
        if step == "ask":
            probe, ticket = breaker.open, breaker.enter(now)
            assert probe or ticket is not None
            assert not (probe and ticket is not None and any(probing for _, probing in asking))
            asking += [] if ticket is None else [(ticket, probe)]
        elif step == "wait":
            now += 0.5
        elif asking:
            ticket, _ = asking.pop(which % len(asking))
            if step == "succeed":
                breaker.succeeded(ticket)
            elif step == "fail":
                breaker.failed(ticket, now)
            else:
                breaker.abandoned(ticket)
    for ticket, _ in asking:
        breaker.abandoned(ticket)
    assert breaker.enter(now + 4.0) is not None
