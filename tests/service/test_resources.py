"""Bytes in flight, descriptors and log lines: bounded, and told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
from dataclasses import dataclass

import pytest

from unskew.core.errors import ConfigError
from unskew.core.fairness.token_bucket import TokenBuckets
from unskew.service.api.budget import ByteBudget, Reservation
from unskew.service.app import resources
from unskew.service.app.http_server import Connections, ListeningSocket
from unskew.service.app.logs import FloodGate
from unskew.service.app.resources import fitted
from unskew.service.app.settings import Settings, parse
from unskew.service.errors import LimitError


def test_an_identity_has_a_share_and_all_together_have_a_bound() -> None:
    budget = ByteBudget(100, 60)
    one, other, third = Reservation(budget, "one"), Reservation(budget, "one"), Reservation(budget, "other")
    with one, other, third:
        one.resize(40)
        with pytest.raises(LimitError, match=r"one or all callers together .* 60 and 100"):
            other.resize(21)
        other.resize(20)
        third.resize(40)
        with pytest.raises(LimitError):
            Reservation(budget, "a third").resize(1)
        assert (budget.taken, budget.of) == (100, {"one": 60, "other": 40})
        one.resize(10)
        third.resize(60)
    assert (budget.taken, budget.of) == (0, {})
    assert (budget.forget_peak(), budget.forget_peak()) == (100, 0)


def test_without_a_share_of_its_own_an_identity_has_no_more_than_is_left() -> None:
    """Alone half, the second one a third of it all; a credential may say otherwise."""
    budget = ByteBudget(100)
    one, other = Reservation(budget, "one"), Reservation(budget, "other")
    with one, other:
        one.resize(50)
        with pytest.raises(LimitError, match="than are allowed, 50 and 100"):
            one.resize(51)
        other.resize(25)
        with pytest.raises(LimitError):
            other.resize(26)
        Reservation(budget, "other", 40).resize(15)


def test_who_waits_for_room_gets_it_when_it_is_there() -> None:
    async def scene() -> None:
        budget = ByteBudget(100, 100)
        first, second, late = (Reservation(budget, name) for name in ("a", "b", "c"))
        first.resize(80)
        waits = asyncio.ensure_future(second.wait(50, 10))
        with pytest.raises(LimitError):
            await late.wait(50, 0.01)
        assert not waits.done()
        first.resize(50)
        await asyncio.wait_for(waits, 1)
        assert budget.of == {"a": 50, "b": 50}

    asyncio.run(scene())


def test_in_a_flood_of_connections_those_with_a_whole_request_are_taken() -> None:
    """Of the others an address gets so many a second; where there are few connections each gets all."""
    refused: list[str] = []
    limits = Connections(8, {}, refused.append, ByteBudget(1 << 20), new=TokenBuckets(1.0, 3.0))
    with ListeningSocket() as port, contextlib.ExitStack() as callers:
        port.bind(("127.0.0.1", 0))
        port.listen(64)
        port.settimeout(0.2)  # where it takes none there is none

        def taken(first: bytes, count: int = 10) -> int:
            for _ in range(count):
                one = callers.enter_context(socket.create_connection(port.getsockname()))
                one.sendall(first)
            found = 0
            with contextlib.suppress(TimeoutError):
                while True:
                    callers.enter_context(port.accept()[0])
                    found += 1
            return found

        assert taken(b"") == 10
        port.limits = limits
        assert taken(b"") == 10
        limits.waiting = dict.fromkeys(range(5))  # type: ignore[arg-type]  # as many connections as this
        assert 3 <= taken(b"GET / HTTP/1.1\r\nx: ") < 10
        assert refused
        assert taken(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n") == 10


@pytest.mark.parametrize("flags", [("--max-identity-bytes-in-flight", "300000000"), ("--max-body-bytes", "200000000")])
def test_limits_that_contradict_each_other_are_refused(flags: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"at most --max-.*bytes-in-flight"):
        parse(flags)


def test_there_are_no_more_connections_than_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The soft limit is raised to the hard one; what does not fit then is cut, each kind by the same share."""
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (256, 1250))
    monkeypatch.setattr(resource, "setrlimit", lambda _kind, limits: raised.append(limits))
    found = fitted(Settings())
    assert raised == [(1250, 1250)]
    assert (found.max_grpc_connections, found.max_http_connections) == (800, 200)
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (256, resource.RLIM_INFINITY))
    assert fitted(Settings()) == Settings()


def test_memory_is_left_alone_where_the_c_library_has_no_word_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    resources.give_back()
    monkeypatch.setattr(resources.ctypes, "CDLL", lambda _name: object())
    resources.give_back()
    resources.few_arenas()


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_flood_of_lines_is_cut_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Of one place, whatever its words; others and the audit log are whole."""
    clock = Clock()
    gate, log, audit = FloodGate(clock), logging.getLogger("unskew.some"), logging.getLogger("unskew.audit")
    caplog.handler.addFilter(gate)
    try:
        for number in range(200):
            log.warning("warned %d", number)
            audit.warning("changed")
        log.warning("another place")
        assert sum("warned" in text for text in caplog.messages) == 50
        assert caplog.messages.count("changed") == 200
        assert caplog.messages[-1] == "another place"
        gate.tell()
        assert caplog.messages[-1] == "another place"
        clock.now = 11.0
        gate.tell()
        gate.tell()
        assert caplog.messages[-1] == "150 more lines like those before were left out in 11 s"
        assert caplog.messages[-2] == "another place"
    finally:
        caplog.handler.removeFilter(gate)
