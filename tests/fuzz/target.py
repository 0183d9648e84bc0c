"""The service under fuzz as the tests see it: its ports, a look at what it holds, and the judges of growth."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

__all__ = ["DEADLINE", "SERVICE", "Look", "Target", "started"]

ROOT = Path(__file__).resolve().parents[2]
SERVICE = "unskew.v1.PartitionerService"
DEADLINE = 60.0  # seconds; what takes longer hangs


@dataclass(frozen=True)
class Look:
    """What the service holds. ``objects`` are those that Python's collector looks after; ``kept``: entries by container
    of the service's own; ``said``: what it logged as an error, or warned of."""

    memory: int
    objects: int
    tasks: int
    threads: int
    files: int
    kept: dict[str, int]
    series: int
    calls: int
    said: list[str]


@dataclass
class Target:
    process: subprocess.Popen[str]
    http: int
    grpc: int
    channel: grpc.Channel = field(init=False)

    def __post_init__(self) -> None:
        options = [("grpc.enable_retries", 0), ("grpc.max_receive_message_length", -1)]
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.grpc}", options=options)

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.http}"

    def look(self) -> Look:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("look\n")
        self.process.stdin.flush()
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return Look(**found)

    def unary(self, verb: str, data: bytes, **options: Any) -> grpc.Future:
        """A call of one message, begun."""
        method = self.channel.unary_unary(f"/{SERVICE}/{verb}", None, None)
        return method.future(data, timeout=DEADLINE, **options)

    def healthy(self) -> bool:
        """Whether the service says so, and lists its streams."""
        asked = health_pb2.HealthCheckRequest(service=SERVICE)
        state = health_pb2_grpc.HealthStub(self.channel).Check(asked, timeout=DEADLINE).status
        self.unary("ListStreams", b"").result(DEADLINE)
        return bool(state == health_pb2.HealthCheckResponse.SERVING)


@contextlib.contextmanager
def started(store: str) -> Iterator[Target]:
    """The service over this store, in a process of its own; ended by closing its input, or killed."""
    command = [sys.executable, "-m", "tests.fuzz.served", store]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            ports = json.loads(process.stdout.readline())
            target = Target(process, ports["http"], ports["grpc"])
            try:
                yield target
            finally:
                target.channel.close()
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(DEADLINE) == 0, "the service did not end well"
        finally:
            if process.poll() is None:
                process.kill()
