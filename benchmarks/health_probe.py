"""Asks for health again and again, for ``service_health``; or is the bare peer that is asked.

``grpc TARGET`` and ``http PORT`` ask every two milliseconds until stdin ends, and then tell when each call began and
how long it took. ``bare`` is a grpc.aio server with nothing but the health service.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
import time
from collections.abc import Callable

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

PAUSE = 0.002


def over_grpc(target: str) -> Callable[[], None]:
    stub = health_pb2_grpc.HealthStub(grpc.insecure_channel(target))
    asked = health_pb2.HealthCheckRequest()

    def ask() -> None:
        assert stub.Check(asked, timeout=30).status == health_pb2.HealthCheckResponse.SERVING

    return ask


def over_http(port: str) -> Callable[[], None]:
    one = socket.create_connection(("127.0.0.1", int(port)))
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask() -> None:
        one.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        got = b""
        while not got.endswith(b"}"):
            got += one.recv(4096)
        assert got.startswith(b"HTTP/1.1 200")

    return ask


def probe(ask: Callable[[], None]) -> None:
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    ask()
    print(json.dumps({"ready": True}), flush=True)
    calls: list[tuple[float, float]] = []
    while not ended.wait(PAUSE):
        began = time.monotonic()
        ask()
        calls.append((began, time.monotonic() - began))
    print(json.dumps(calls), flush=True)


async def bare() -> None:
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(json.dumps({"grpc": port}), flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    if sys.argv[1] == "bare":
        asyncio.run(bare())
    else:
        probe({"grpc": over_grpc, "http": over_http}[sys.argv[1]](sys.argv[2]))
