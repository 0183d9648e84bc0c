"""GrpcConnections of a port, as the system lists them: strangers and callers, and who is closed."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from unskew.core.fairness.surplus import surplus
from unskew.service.grpc.connections import GrpcConnections

Pairs = list[tuple[socket.socket, socket.socket]]


def test_whoever_has_the_most_loses_its_oldest() -> None:
    holders = {1: "a", 2: "a", 3: "b", 4: "a", 5: "c", 6: "a", 7: "b"}
    assert [sorted(surplus(holders, most)) for most in (7, 5, 3, 0)] == [[], [1, 2], [1, 2, 3, 4], list(range(1, 8))]


@pytest.fixture
def port() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        yield listening


def connected(port: socket.socket, count: int, address: str, stack: contextlib.ExitStack) -> Pairs:
    """The callers' ends and this process's own."""
    found = []
    for _ in range(count):
        caller = stack.enter_context(socket.create_connection(port.getsockname(), 5, (address, 0)))
        found.append((caller, stack.enter_context(port.accept()[0])))
    return found


def name_of(pair: tuple[socket.socket, socket.socket]) -> str:
    return "ipv4:{}:{}".format(*pair[0].getsockname())


def still_open(pairs: Pairs) -> int:
    """How many the service has not shut."""
    found = 0
    for caller, _ in pairs:
        caller.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            caller.recv(1)
            continue
        found += 1
    return found


def test_strangers_have_a_quarter_and_callers_all_else(port: socket.socket) -> None:
    closed: list[int] = []
    connections = GrpcConnections(64, lambda: closed.append(1))
    number = port.getsockname()[1]
    with contextlib.ExitStack() as stack:
        callers = connected(port, 30, "127.0.0.1", stack)
        for pair in callers:
            connections.called(name_of(pair), "etl")
        elsewhere = connected(port, 2, "127.0.0.2", stack)
        flood = connected(port, 40, "127.0.0.3", stack)
        connections.look(number)
        assert (still_open(callers), still_open(elsewhere), still_open(flood)) == (30, 2, 14)
        assert still_open(flood[-14:]) == 14
        assert len(closed) == 26
        connections.look(number + 1)  # another port's are left alone
        assert still_open(callers) == 30


def test_one_identity_leaves_room_for_another(port: socket.socket) -> None:
    connections = GrpcConnections(64, lambda: None)
    with contextlib.ExitStack() as stack:
        greedy, other = connected(port, 60, "127.0.0.1", stack), connected(port, 4, "127.0.0.1", stack)
        for pair in greedy:
            connections.called(name_of(pair), "greedy")
        for pair in other:
            connections.called(name_of(pair), "other")
        connections.look(port.getsockname()[1])
        assert (still_open(greedy), still_open(other)) == (56, 4)
