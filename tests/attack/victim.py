"""The service that is attacked, in a process of its own, and somebody else who uses it in the meantime."""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

import grpc
import httpx

from tests.planning import some_histogram
from tests.service.faces import digest_of
from tests.service.processes import Process, process
from unskew.client import Client
from unskew.v1 import partitioner_pb2 as pb
from unskew.v1.partitioner_pb2_grpc import PartitionerServiceStub

__all__ = ["ATTACKER", "STREAM", "VICTIM", "Others", "Victim", "victim"]

STREAM, ATTACKER, VICTIM = "clicks", "token-of-the-attacker", "token-of-somebody-else"
_TOKENS = f"{digest_of(VICTIM)} somebody admin *\n{digest_of(ATTACKER)} attacker admin *\n"
_MEGABYTE = 1 << 20


@dataclass
class Others:
    """Somebody who asks for the plan and reports a batch over gRPC, and asks over HTTP on a new connection each time,
    20 times a second."""

    grpc_port: int
    http_port: int
    ca: Path | None = None  # of a service with TLS
    took: list[tuple[float, float]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def run(self, over: threading.Event) -> None:
        headers = {"authorization": f"Bearer {VICTIM}"}
        url = f"{'https' if self.ca else 'http'}://localhost:{self.http_port}/v1/streams/{STREAM}"
        verify = ssl.create_default_context(cafile=None if self.ca is None else str(self.ca))
        with self._channel() as channel:
            stub, batch = PartitionerServiceStub(channel), 0
            get_plan, report_batch = stub.GetPlan, stub.ReportBatch
            while not over.wait(0.05):
                batch += 1
                report = pb.ReportBatchRequest(
                    stream=STREAM, part=pb.Part(source="somebody/query", batch=batch, parts=1)
                )
                self._timed(
                    lambda report=report: report_batch(  # type: ignore[misc]  # the report of this time
                        report, metadata=tuple(headers.items()), timeout=5, wait_for_ready=True
                    )
                )
                self._timed(
                    lambda: get_plan(
                        pb.GetPlanRequest(stream=STREAM),
                        metadata=tuple(headers.items()),
                        timeout=5,
                        wait_for_ready=True,
                    )
                )
                named = {"headers": headers, "timeout": 5, "trust_env": False, "verify": verify}
                self._timed(lambda named=named: httpx.get(url, **named).raise_for_status())  # type: ignore[misc]

    def _channel(self) -> grpc.Channel:
        target = f"localhost:{self.grpc_port}"
        if self.ca is None:
            return grpc.insecure_channel(target)
        return grpc.secure_channel(target, grpc.ssl_channel_credentials(self.ca.read_bytes()))

    def _timed(self, call: Callable[[], object]) -> None:
        started = time.monotonic()
        try:
            call()
        except (grpc.RpcError, httpx.HTTPError) as why:
            self.failed.append(str(why)[:200])
        self.took.append((started, time.monotonic() - started))

    def p99(self, since: float, until: float = float("inf")) -> float:
        """Of the calls that began then."""
        took = [seconds for started, seconds in self.took if since <= started < until]
        return quantiles(took, n=100)[98] if len(took) > 1 else float("inf")

    def p50(self, since: float, until: float = float("inf")) -> float:
        return median(seconds for started, seconds in self.took if since <= started < until)


@dataclass
class Victim:
    """A replica with the stream and a plan, and two credentials: ``VICTIM`` and ``ATTACKER``, both admins."""

    process: Process
    folder: Path
    others: Others
    idle: int

    @property
    def grpc(self) -> int:
        return self.process.grpc

    @property
    def http(self) -> int:
        return self.process.http

    @property
    def memory(self) -> int:
        """Megabytes that are resident now."""
        return self._status("VmRSS")

    @property
    def peak(self) -> int:
        """The most since ``forget_peak``."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        (self._proc / "clear_refs").write_text("5")

    @property
    def descriptors(self) -> int:
        return sum(1 for _ in (self._proc / "fd").iterdir())

    @property
    def log_lines(self) -> int:
        return len((self.folder / "log").read_text().splitlines())

    def healthy(self) -> bool:
        """On a new connection."""
        with contextlib.suppress(httpx.HTTPError):
            found = httpx.get(self.process.url("/healthz"), timeout=3, trust_env=False)
            return found.is_success
        return False

    @property
    def _proc(self) -> Path:
        return Path("/proc", str(self.process.run.pid))

    def _status(self, name: str) -> int:
        lines = (self._proc / "status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024 // _MEGABYTE


@contextlib.contextmanager
def victim(folder: Path, *flags: str, ca: Path | None = None, **more: str) -> Iterator[Victim]:
    """The service with somebody who uses it; ``idle`` is its memory before anything is done to it. ``ca``: the
    authority of its certificate, where it has one."""
    over = threading.Event()
    with process(folder, *flags, UNSKEW_TOKENS=_TOKENS, **more) as running:
        scheme = "grpc" if ca is None else "grpcs"
        with Client(f"{scheme}://localhost:{running.grpc}", token=VICTIM, ca=ca) as client:
            client.put_stream(STREAM, partitions=8)
            client.build_plan(STREAM, histogram=some_histogram())
        others = Others(running.grpc, running.http, ca)
        thread = threading.Thread(target=others.run, args=(over,), daemon=True)
        thread.start()
        time.sleep(1.0)
        found = Victim(running, folder, others, 0)
        found.idle = found.memory
        try:
            yield found
        finally:
            over.set()
            thread.join(30)
