"""Who calls the service in these figures: one caller of both faces, and a service process to call."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import httpx
from grpc_health.v1 import health_pb2_grpc

from tests.service.processes import Process
from tests.service.test_outages import Caller
from unskew.v1.partitioner_pb2_grpc import PartitionerServiceStub

__all__ = ["caller", "paced"]


@contextlib.contextmanager
def caller(service: Process) -> Iterator[Caller]:
    """One who asks this process over gRPC and REST."""
    options = [("grpc.enable_retries", 0)]
    with (
        grpc.insecure_channel(f"127.0.0.1:{service.grpc}", options=options) as channel,
        httpx.Client(base_url=service.url(""), trust_env=False, timeout=60) as web,
    ):
        yield Caller(service, PartitionerServiceStub(channel), health_pb2_grpc.HealthStub(channel), web)  # type: ignore[arg-type]  # its ports are all that is used


def paced(call: Callable[[int], Any], times: int, pause: float) -> list[tuple[Any, float]]:
    """The call so many times, with a pause between: each answer, or error, and its seconds."""
    found: list[tuple[Any, float]] = []
    for number in range(times):
        time.sleep(pause)
        began = time.monotonic()
        try:
            answer = call(number)
        except (grpc.RpcError, httpx.HTTPError) as why:
            answer = why
        found.append((answer, time.monotonic() - began))
    return found
