"""REST beside FastAPI's own empty endpoint with the same JSON: rates under load, medians one by one.

The peer is a bare FastAPI app on uvicorn, with the service's own uvicorn settings, whose endpoints have no model: they
take the request's JSON as a ``dict``, if there is one, and return as a ``dict`` the very JSON that the service answers.
(That is the faster way: a ``JSONResponse`` of the same ``dict`` is as fast for small answers and slower for numbers.)
Ours checks every value, asks the engine (memory store), and does what was asked: every sync is a new report, every
histogram a part of a batch.

One load generator for both, raw HTTP/1.1 over kept connections, by short turns. Each figure is that of its best turn:
other load on the machine only ever takes away. Target: ours not below half of the bare rate.

Run ``python -m benchmarks.service_rest [--seconds 0.3] [--turns 12] [--connections 8] [--only NAME]``.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.serving import child, processor_seconds, serving

MARK = 0.5
_PATH = "/v1/streams/clicks"


# -- the bare app -----------------------------------------------------------------------------------------------


def bare(documents: dict[str, Any]) -> None:
    """Serve ``GET`` and ``POST /<name>``: each answers with the document of that name."""
    import uvicorn
    from fastapi import FastAPI

    app = FastAPI(openapi_url=None)

    def add(name: str, document: dict[str, Any]) -> None:
        async def get() -> dict[str, Any]:
            return document

        async def post(body: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001 - it declares a body, as ours do
            return document

        app.add_api_route(f"/{name}", get, methods=["GET"])
        app.add_api_route(f"/{name}", post, methods=["POST"])

    for name, document in documents.items():
        add(name, document)

    async def main() -> None:
        config = uvicorn.Config(
            app, port=0, lifespan="off", log_config=None, access_log=False, server_header=False, ws="none"
        )
        server = uvicorn.Server(config)
        task = asyncio.ensure_future(server.serve())
        while not server.started:
            await asyncio.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        print(json.dumps({"http": port}), flush=True)
        await task

    asyncio.run(main())


# -- the load ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A request, made anew for each call, and how the answer is known to be right."""

    name: str
    method: str
    path: str
    bodies: Callable[[int], Iterator[bytes]]
    code: int = 200


class Caller(asyncio.Protocol):
    """One connection: the next request as soon as the answer to the last is here."""

    def __init__(self, head: str, bodies: Iterator[bytes], until: float) -> None:
        self._head, self._bodies, self._until = head, bodies, until
        self._got = bytearray()
        self._need = -1
        self.took: list[float] = []
        self.codes: set[int] = set()
        self.last = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        body = next(self._bodies)
        self._began = time.perf_counter()
        self._transport.write(self._head.format(len(body)).encode() + body)

    def data_received(self, data: bytes) -> None:
        self._got += data
        if self._need < 0:
            end = self._got.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._got[:end]).lower()
            self.codes.add(int(head[9:12]))
            at = head.find(b"content-length:")
            self._start = end + 4
            self._need = self._start + int(head[at + 15 :].split(b"\r\n", 1)[0])
        if len(self._got) < self._need:
            return
        now = time.perf_counter()
        self.took.append(now - self._began)
        self.last = bytes(self._got[self._start : self._need])
        self._got.clear()
        self._need = -1
        if now < self._until:
            self._ask()
        else:
            self._transport.close()

    def connection_lost(self, why: Exception | None) -> None:  # noqa: ARG002 - the protocol's form
        if not self.done.done():
            self.done.set_result(None)


@dataclass(frozen=True)
class Turn:
    """What one turn gave: calls a second, processor time of the server for each, the median call."""

    rate: float
    processor: float
    median: float


async def load(port: int, pid: int, case: Case, path: str, connections: int, seconds: float) -> tuple[Turn, bytes]:
    head = f"{case.method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\naccept: application/json\r\n" + (
        "content-type: application/json\r\ncontent-length: {}\r\n\r\n" if case.method == "POST" else "\r\n"
    )
    loop = asyncio.get_running_loop()
    spent, began = processor_seconds(pid), time.perf_counter()
    callers = [Caller(head, case.bodies(number), began + seconds) for number in range(connections)]
    for caller in callers:
        await loop.create_connection(lambda one=caller: one, "127.0.0.1", port)
    await asyncio.gather(*(caller.done for caller in callers))
    wall, spent = time.perf_counter() - began, processor_seconds(pid) - spent
    took = [one for caller in callers for one in caller.took]
    wrong = {code for caller in callers for code in caller.codes} - {case.code, 200}
    if wrong or not took:
        raise SystemExit(f"{case.name} at {path}: answers {wrong or 'none'}: {callers[0].last[:300]!r}")
    return Turn(len(took) / wall, spent / len(took), statistics.median(took)), callers[0].last


# -- the cases --------------------------------------------------------------------------------------------------


def hashes(count: int) -> list[str]:
    return [str(one) for one in np.random.default_rng(3).integers(0, 2**64, count, np.uint64).tolist()]


def histogram(keys: int) -> dict[str, Any]:
    counts = (100_000 / np.arange(1, keys + 1)).astype(int) + 1
    return {"hashes": hashes(keys), "counts": counts.tolist()}


def report(rows: int, workers: int) -> dict[str, Any]:
    """A report of so many hot rows, over so many workers."""
    rng = np.random.default_rng(5)
    keys = sorted(hashes(rows), key=int)
    values = rng.uniform(-1, 1, (rows, workers)).tolist()
    counts = rng.integers(1, 1000, rows).tolist()
    table = {
        "workers": workers,
        "hashes": keys,
        "values": values,
        "rows": counts,
        "held": [sorted({at % workers, (at + 1) % workers}) for at in range(rows)],
    }
    frequent = {"capacity": 2 * rows, "hashes": keys, "counts": counts, "total": sum(counts)}
    loads = rng.integers(0, 1000, workers).tolist()
    return {"table": table, "records": sum(counts), "frequent": frequent, "loads": loads, "dsync_seconds": 20.0}


def repeated(document: dict[str, Any] | None = None) -> Callable[[int], Iterator[bytes]]:
    body = b"" if document is None else json.dumps(document).encode()
    return lambda _number: itertools.repeat(body)


_SESSION = itertools.count(time.time_ns())


def syncs(given: dict[str, Any]) -> Callable[[int], Iterator[bytes]]:
    """Each connection is an agent, and each call its next report."""
    rest = json.dumps(given).encode()[1:]

    def bodies(number: int) -> Iterator[bytes]:
        session = next(_SESSION)
        for seq in itertools.count(1):
            yield b'{"report":{"agent":"a%d","session":%d,"seq":%d,' % (number, session, seq) + rest + b"}"

    return bodies


def parts(given: dict[str, Any]) -> Callable[[int], Iterator[bytes]]:
    """Each call is a part of its own, of a batch that all connections share."""
    rest = json.dumps(given).encode()[1:]

    def bodies(number: int) -> Iterator[bytes]:
        for at in itertools.count():
            yield b'{"source":"app","batch":%d,"part":%d,"parts":256,' % (at % 8, number) + rest

    return bodies


def cases() -> list[Case]:
    return [
        Case("GET stream", "GET", _PATH, repeated()),
        Case("GET plan, 16 hot keys", "GET", f"{_PATH}/plans/latest", repeated()),
        Case("POST histogram, 10 keys", "POST", f"{_PATH}/histograms", parts(histogram(10))),
        Case("POST histogram, 1,000 keys", "POST", f"{_PATH}/histograms", parts(histogram(1000))),
        Case("POST histogram, 10,000 keys", "POST", f"{_PATH}/histograms", parts(histogram(10_000))),
        Case("POST sync, 16 x 16", "POST", f"{_PATH}/sync", syncs(report(16, 16))),
        Case("POST sync, 64 x 16", "POST", f"{_PATH}/sync", syncs(report(64, 16))),
        Case("POST sync, 64 x 64", "POST", "/v1/streams/wide/sync", syncs(report(64, 64))),
    ]


# -- the comparison ---------------------------------------------------------------------------------------------


async def ask(port: int, method: str, path: str, document: Any = None) -> Any:
    """One call, for setting up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = b"" if document is None else json.dumps(document).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    answer = await reader.read()
    writer.close()
    head, _, rest = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 2"):
        raise SystemExit(f"{method} {path}: {answer[:400]!r}")
    return json.loads(rest)


async def prepared(port: int) -> None:
    for name, workers in (("clicks", 16), ("wide", 64)):
        await ask(port, "PUT", f"/v1/streams/{name}", {"partitions": workers, "policy": "balanced"})
    await ask(port, "POST", f"{_PATH}/plans", {"histogram": histogram(16)})


async def documents(port: int, pid: int, wanted: list[Case], connections: int) -> dict[str, Any]:
    """What the service answers: what the bare app is to answer too."""
    found = {}
    for number, case in enumerate(wanted):
        _, last = await load(port, pid, case, case.path, connections, 0.3)
        found[str(number)] = json.loads(last)
    return found


async def compare(given: argparse.Namespace, ours: tuple[int, int], bare: tuple[int, int], wanted: list[Case]) -> float:
    """The lowest ratio. ``ours`` and ``bare`` are port and pid."""
    names = ("ours", "bare", "ratio", "ours us", "bare us", "ours ms", "bare ms")
    print(f"{'':28}" + "".join(f"{name:>9}" for name in names))
    worst = float("inf")
    for number, case in enumerate(wanted):
        both = {"ours": (*ours, case, case.path), "bare": (*bare, case, f"/{number}")}
        busy: dict[str, list[Turn]] = {way: [] for way in both}
        alone: dict[str, list[Turn]] = {way: [] for way in both}
        for turn in range(given.turns + 1):
            for way in sorted(both, reverse=turn % 2 == 1):
                many, _ = await load(*both[way], given.connections, given.seconds)
                one, _ = await load(*both[way], 1, given.seconds / 3)
                if turn:  # the first warms up
                    busy[way].append(many)
                    alone[way].append(one)
        told = [max(one.rate for one in busy[way]) for way in both]
        told += [told[0] / told[1]]
        worst = min(worst, told[2])
        told += [min(one.processor for one in busy[way]) * 1e6 for way in both]
        told += [min(one.median for one in alone[way]) * 1e3 for way in both]
        digits = (0, 0, 2, 0, 0, 2, 2)
        row = "".join(f"{one:9,.{places}f}" for one, places in zip(told, digits, strict=True))
        print(f"{case.name:28}{row}", flush=True)
    return worst


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--seconds", type=float, default=0.3)
    options.add_argument("--turns", type=int, default=12)
    options.add_argument("--connections", type=int, default=8)
    options.add_argument("--only", default="")
    options.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.bare:
        bare(json.loads(sys.stdin.read()))
        return
    wanted = [case for case in cases() if given.only in case.name]
    print(f"calls a second on {given.connections} connections; processor of the server for each; ms of one call alone")
    with serving() as served:
        asyncio.run(prepared(served.http))
        answers = asyncio.run(documents(served.http, served.pid, wanted, given.connections))
        with child(["-m", "benchmarks.service_rest", "--bare"], json.dumps(answers)) as (peer, told):
            ours, theirs = (served.http, served.pid), (told["http"], peer.pid)
            worst = asyncio.run(compare(given, ours, theirs, wanted))
    print(f"the lowest ratio is {worst:.2f}; target {MARK} or more: {'met' if worst >= MARK else 'NOT met'}")


if __name__ == "__main__":
    main()
