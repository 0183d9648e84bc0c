"""The URL of a store: what it may say, and what is refused."""

from __future__ import annotations

import pytest

from unskew.core.errors import ConfigError
from unskew.service.stores import open_store
from unskew.service.stores.address import Address, RedisTls, read_address
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
