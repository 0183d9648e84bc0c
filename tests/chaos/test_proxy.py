"""The fault proxy does what each of its modes says, and is a plain wire otherwise."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.chaos.proxy import Delay, FaultProxy, HalfOpen, ProxyLoop, Reset, Truncate
from tests.servers import wait_for


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that sends everything back; its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    opened: list[socket.socket] = []

    def serve(one: socket.socket) -> None:
        with one, suppress(OSError):
            while data := one.recv(65536):
                one.sendall(data)

    def accept() -> None:
        with suppress(OSError):
            while True:
                opened.append(listener.accept()[0])
                threading.Thread(target=serve, args=(opened[-1],), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(60.0)


@pytest.fixture
def loop() -> Iterator[ProxyLoop]:
    made = ProxyLoop()
    yield made
    made.close()


@pytest.fixture
def proxy(loop: ProxyLoop, echo: int) -> FaultProxy:
    return loop.proxy(echo)


def connect(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), 60.0)


def asked(wire: socket.socket, data: bytes) -> bytes:
    """Send; as much of it as comes back."""
    sender = threading.Thread(target=wire.sendall, args=(data,), daemon=True)
    sender.start()
    back = b""
    while len(back) < len(data) and (some := wire.recv(65536)):
        back += some
    sender.join(60.0)
    return back


def received(wire: socket.socket) -> int:
    """Bytes until its end."""
    count = 0
    with suppress(ConnectionResetError):
        while some := wire.recv(65536):
            count += len(some)
    return count


def is_reset(wire: socket.socket) -> bool:
    try:
        wire.recv(1)
    except ConnectionResetError:
        return True
    return False


def turns_away(proxy: FaultProxy) -> bool:
    """Whether a new connection ends with RST, be it before or after it is made."""
    try:
        with connect(proxy) as wire:
            return is_reset(wire)
    except ConnectionResetError:
        return True


def test_it_is_a_plain_wire_without_a_fault(proxy: FaultProxy) -> None:
    """More than fits into any buffer, byte for byte; and when one end closes so does the other."""
    data = bytes(range(256)) * 16_384
    with connect(proxy) as wire:
        assert asked(wire, data) == data
        wire.shutdown(socket.SHUT_WR)
        assert wire.recv(1) == b""
    wait_for("closed", lambda: proxy.connections == 0)


def seconds(wire: socket.socket) -> float:
    """That an answer takes."""
    began = time.monotonic()
    assert asked(wire, b"b") == b"b"
    return time.monotonic() - began


def test_delay_puts_every_answer_off_and_ends_with_the_fault(loop: ProxyLoop, proxy: FaultProxy) -> None:
    """Once each way, and in order; afterwards the same connection is quick."""
    with connect(proxy) as wire:
        with loop.fault(Delay(0.1), proxy):
            began = time.monotonic()
            assert asked(wire, b"a" * 200_000 + b"z")[-1:] == b"z"
            assert time.monotonic() - began >= 0.2
        assert any(seconds(wire) < 0.2 for _ in range(20))  # on a busy machine not each of them


def test_reset_ends_what_is_open_and_what_comes(loop: ProxyLoop, proxy: FaultProxy) -> None:
    """With RST, not with an end; new connections work again after it."""
    with connect(proxy) as wire:
        assert asked(wire, b"a") == b"a"
        with loop.fault(Reset(), proxy):
            assert is_reset(wire)
            assert turns_away(proxy)
    with connect(proxy) as wire:
        assert asked(wire, b"b") == b"b"


def test_half_open_swallows_and_never_tells(loop: ProxyLoop, proxy: FaultProxy) -> None:
    """Old and new connections alike. One that lost bytes stays deaf; one that lost none, and a new one, work."""
    with connect(proxy) as wire, connect(proxy) as idle:
        assert asked(wire, b"a") == asked(idle, b"a")
        with loop.fault(HalfOpen(), proxy), connect(proxy) as late:
            for one in (wire, late):
                one.settimeout(0.2)
                one.sendall(b"lost")
                with pytest.raises(TimeoutError):
                    one.recv(1)
        wire.sendall(b"lost too")
        with pytest.raises(TimeoutError):
            wire.recv(1)
        assert asked(idle, b"b") == b"b"
    with connect(proxy) as wire:
        assert asked(wire, b"c") == b"c"


def test_truncate_cuts_within_a_message(loop: ProxyLoop, proxy: FaultProxy) -> None:
    """So many bytes each way pass, and then the connection ends: the open one, and a new one."""
    with connect(proxy) as wire:
        assert asked(wire, b"a" * 5000) == b"a" * 5000
        with loop.fault(Truncate(1000), proxy), connect(proxy) as late:
            for one in (wire, late):
                assert asked(one, b"b" * 900) == b"b" * 900
                one.sendall(b"c" * 900)
                assert received(one) <= 100
    with connect(proxy) as wire:
        assert asked(wire, b"c" * 5000) == b"c" * 5000


def test_traffic_is_held_right_behind_a_request(loop: ProxyLoop, proxy: FaultProxy) -> None:
    """The request arrives, its answer and all else does not; after the release nothing is missing."""
    with connect(proxy) as wire, connect(proxy) as other:
        held = loop.call(lambda: proxy.hold_after(b"SEAL"))
        assert asked(wire, b"before") == b"before"
        assert not held.is_set()
        wire.sendall(b"..SE")
        assert wire.recv(4) == b"..SE"
        wire.sendall(b"AL..")
        assert held.wait(60.0)
        wire.settimeout(0.2)
        other.settimeout(0.2)
        other.sendall(b"more")
        for one in (wire, other):
            with pytest.raises(TimeoutError):
                one.recv(1)
        wire.settimeout(60.0)
        other.settimeout(60.0)
        loop.call(proxy.release)
        assert wire.recv(4) == b"AL.."
        assert other.recv(4) == b"more"


def test_a_target_that_is_gone_is_a_connection_that_ends(loop: ProxyLoop, proxy: FaultProxy) -> None:
    """And one that moved is found at its new port."""
    where = proxy.target
    with socket.create_server(("127.0.0.1", 0)) as closed:
        proxy.target = "127.0.0.1", closed.getsockname()[1]
    assert turns_away(proxy)
    proxy.target = where
    with connect(proxy) as wire:
        assert asked(wire, b"a") == b"a"
