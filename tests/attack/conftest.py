"""Two replicas of one Redis that the lies are told to: the first logs JSON and sends traces, the second logs text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import redis

from tests.attack.hostile_names import IDENTITIES
from tests.attack.victim import ATTACKER, VICTIM
from tests.servers import Server, single
from tests.service.faces import digest_of
from tests.service.processes import Process, process
from tests.service.test_telemetry import Collector, collector
from unskew.client import Client

__all__ = ["Pair"]


def _tokens() -> str:
    named = {VICTIM: "somebody", ATTACKER: "attacker"} | {f"token-{n}": name for n, name in enumerate(IDENTITIES)}
    rows = [{"sha256": digest_of(t), "identity": name, "role": "admin", "streams": ["*"]} for t, name in named.items()]
    return json.dumps({"tokens": rows})


@dataclass
class Pair:
    """``warm`` and ``cold``: where streams are put and used, and a replica that has not read them yet."""

    server: Server
    warm: Process
    cold: Process
    folders: tuple[Path, Path]
    traces: Collector
    redis: redis.Redis = field(init=False)

    def __post_init__(self) -> None:
        self.redis = redis.Redis("127.0.0.1", self.server.port)

    def client(self, service: Process, token: str = VICTIM) -> Client:
        return Client(f"grpc://127.0.0.1:{service.grpc}", token=token, timeout=20)

    @property
    def log(self) -> str:
        return "".join((folder / "log").read_text() for folder in self.folders)

    def clean(self) -> None:
        """No bug was met, and both replicas are alive."""
        assert "unexpected error" not in self.log
        assert (self.warm.run.poll(), self.cold.run.poll()) == (None, None)


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folders = tmp_path_factory.mktemp("warm"), tmp_path_factory.mktemp("cold")
    with collector() as traces, single(tmp_path_factory.mktemp("redis"), "maxmemory 200mb") as server:
        tracing = {"OTEL_EXPORTER_OTLP_ENDPOINT": traces.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        to = "--store", f"{server.url}?timeout=5&deadline=10"  # a busy machine is no attack
        with (
            process(folders[0], *to, "--log-format", "json", UNSKEW_TOKENS=_tokens(), **tracing) as warm,
            process(folders[1], *to, "--log-format", "text", UNSKEW_TOKENS=_tokens()) as cold,
        ):
            yield Pair(server, warm, cold, folders, traces)
