"""What is done to a replica, each with a dose: bodies that are held short of their end, slow requests, a flood."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import grpc
import numpy as np

from tests.attack.http2 import Attacker
from unskew.client import Client
from unskew.core.histogram.histogram import Histogram
from unskew.core.stream_spec import Part
from unskew.v1 import partitioner_pb2 as pb
from unskew.v1.partitioner_pb2_grpc import PartitionerServiceStub
from unskew.wire import histograms

__all__ = [
    "GET_PLAN", "GREETING", "LARGE", "LATEST", "Filled", "HeldBodies", "fill", "flood", "held_messages",
    "put_large_plan", "request", "slow_connections", "still_open", "unread_answers",
]  # fmt: skip

GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # with empty settings
GET_PLAN = "/unskew.v1.PartitionerService/GetPlan"
_SHORT = 100  # bytes that are missing at the end


@contextlib.contextmanager
def held_messages(
    port: int, streams: int, size: int, seconds: float, token: str = "", path: str = GET_PLAN
) -> Iterator[Attacker]:
    """Calls on one connection, each with a message that is held short of its end until the block is over."""
    attacker = Attacker(port)
    try:
        for _ in range(min(streams, attacker.most_streams)):
            attacker.open(path, size, size - _SHORT, token)
        attacker.push(seconds)
        yield attacker
    finally:
        attacker.close()


LARGE = "large"
LATEST = b"GET /v1/streams/large/plans/latest HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %b\r\n\r\n"


def put_large_plan(port: int, token: str) -> None:
    """A stream whose plan has nearly a megabyte."""
    hashes = np.unique(np.random.default_rng(1).integers(0, 2**64, 60_000, np.uint64))
    counts = Histogram.from_counts(hashes, 1 + np.arange(len(hashes)) % 1000)
    with Client(f"grpc://127.0.0.1:{port}", token=token, timeout=60) as client:
        client.put_stream(LARGE, partitions=8192, policy="balanced")
        client.build_plan(LARGE, histogram=counts)


@contextlib.contextmanager
def unread_answers(port: int, calls: int, seconds: float, token: str, path: str = GET_PLAN) -> Iterator[list[Attacker]]:
    """Calls whose large answers nobody takes, on as many connections as they need."""
    message = pb.GetPlanRequest(stream=LARGE).SerializeToString()
    attackers: list[Attacker] = []
    try:
        while calls:
            one = Attacker(port)
            attackers.append(one)
            at_once = min(calls, one.most_streams - 1)
            for _ in range(at_once):
                one.ask(path, message, token)
            calls -= at_once
        for one in attackers:
            one.push(seconds / len(attackers))
        yield attackers
    finally:
        for one in attackers:
            one.close()


def request(path: str, length: int, token: str = "", method: str = "POST") -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        "host: x",
        f"content-length: {length}",
        "content-type: application/x-protobuf",
    ]
    if token:
        lines.append(f"authorization: Bearer {token}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


@dataclass
class HeldBodies:
    """Requests over HTTP whose bodies are sent as fast as they are taken, and held short of their end."""

    sockets: list[socket.socket] = field(default_factory=list)
    sent: int = 0
    ended: int = 0

    def send(self, port: int, head: bytes, bodies: int, size: int, seconds: float) -> None:
        left: dict[socket.socket, int] = {}
        with selectors.DefaultSelector() as selector:
            for _ in range(bodies):
                one = socket.create_connection(("127.0.0.1", port), 10)
                one.sendall(head)
                one.setblocking(False)
                self.sockets.append(one)
                left[one] = size - _SHORT
                selector.register(one, selectors.EVENT_WRITE | selectors.EVENT_READ)
            end, piece = time.monotonic() + seconds, bytes(1 << 16)
            while left and time.monotonic() < end:
                for key, events in selector.select(0.1):
                    self._one(key.fileobj, events, left, piece, selector)  # type: ignore[arg-type]  # all are sockets

    def _one(
        self,
        one: socket.socket,
        events: int,
        left: dict[socket.socket, int],
        piece: bytes,
        selector: selectors.BaseSelector,
    ) -> None:
        try:
            if events & selectors.EVENT_READ:
                one.recv(1 << 16)
                raise ConnectionError  # answered before its body had come
            sent = one.send(piece[: left[one]])
        except BlockingIOError:
            return
        except OSError:
            self.ended += 1
            sent = left[one]
        else:
            self.sent += sent
        left[one] -= sent
        if not left[one]:
            selector.unregister(one)
            del left[one]

    def close(self) -> None:
        for one in self.sockets:
            one.close()


@contextlib.contextmanager
def slow_connections(port: int, count: int, first: bytes, source: str = "127.0.0.1") -> Iterator[list[socket.socket]]:
    """Connections from this address that send this and then nothing of use."""
    found: list[socket.socket] = []
    try:
        for _ in range(count):
            with contextlib.suppress(OSError):
                one = socket.create_connection(("127.0.0.1", port), 2, (source, 0))
                found.append(one)
                one.sendall(first)
        yield found
    finally:
        for one in found:
            one.close()


def still_open(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        while one.recv(1 << 16):
            pass
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def flood(port: int, seconds: float, first: bytes, keep: int = 4000, source: str = "127.0.0.1") -> int:
    """Open connections from this address as fast as they are taken and keep the newest; how many were opened."""
    kept: list[socket.socket] = []
    end, opened = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        try:
            one = socket.create_connection(("127.0.0.1", port), 1, (source, 0))
            kept.append(one)
            one.sendall(first)
            opened += 1
        except OSError:
            time.sleep(0.001)
        if len(kept) > keep:
            kept.pop(0).close()
    for one in kept:
        one.close()
    return opened


@dataclass
class Filled:
    """How many parts were taken, and how many of each refusal, with the last one's words; what became of the plan from
    them, and when it began."""

    taken: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    last: str = ""
    plan: str = ""
    seconds: float = 0.0


def fill(port: int, token: str, stream: str, parts: int, keys: int, batches: int = 4) -> Filled:
    """Report parts with keys of their own, as fast as they are taken, and have a plan made from all of them."""
    metadata = (("authorization", f"Bearer {token}"),)
    rng, found = np.random.default_rng(1), Filled()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = PartitionerServiceStub(channel)
        stub.PutStream(
            pb.PutStreamRequest(stream=stream, spec=pb.StreamSpec(partitions=8, policy="kip")), metadata=metadata
        )
        for number in range(parts):
            hashes = np.unique(rng.integers(1, 2**64 - 1, keys, np.uint64))
            histogram = Histogram(hashes, np.ones(len(hashes), np.int64))
            part = Part("attacker/query", number % batches, 0, number // batches, 1_000_000)
            try:
                chunks = histograms.chunks(histogram, stream, part)
                stub.ReportHistogram(chunks, metadata=metadata, timeout=30)
                found.taken += 1
            except grpc.RpcError as why:
                found.refused[why.code().name] += 1
                found.last = str(why.details())
        began = time.monotonic()
        try:
            stub.BuildPlan(pb.BuildPlanRequest(stream=stream, batch=batches), metadata=metadata, timeout=120)
            found.plan = "made"
        except grpc.RpcError as why:
            found.plan = why.code().name
        found.seconds = time.monotonic() - began
    return found
