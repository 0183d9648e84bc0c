"""The median time of REST calls, one at a time: the page's documents, a histogram of 10,000 keys, plans and rounds.

With ``--against`` another checkout's server runs beside this one, and each call is made to both, in turn: the order
changes from call to call, so that other load on the machine meets both alike. The ratio is that of the two medians.
Everything goes over public HTTP, so that any two checkouts can be compared. Target: at most 1.10 for each case.

Run ``python -m benchmarks.rest_documents --against ../other [--calls 300] [--only NAME]``. The other checkout needs its
own ``.venv``.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unskew.v1 import partitioner_pb2 as pb

MARK = 1.10
KEYS, STREAMS, BATCHES = 10_000, 30, 40
_PATH = "/v1/streams/page%2Fclicks"
_JSON, _PROTOBUF = "application/json", "application/x-protobuf"
Bodies = Callable[[int], bytes]


class Connection:
    """One kept connection, read by hand: a client library takes longer than most of the calls."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, method: str, path: str, body: bytes = b"", kind: str = _JSON, accept: str = _JSON) -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nhost: x\r\naccept: {accept}\r\ncontent-type: {kind}\r\n"
        self._socket.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        answer = b""
        while (end := answer.find(b"\r\n\r\n")) < 0:
            answer += self._more()
        at = answer.lower().find(b"content-length:")
        size = int(answer[at + 15 :].split(b"\r\n", 1)[0])
        pieces, left = [answer[end + 4 :]], size - (len(answer) - end - 4)
        while left > 0:
            pieces.append(self._more())
            left -= len(pieces[-1])
        if not answer.startswith(b"HTTP/1.1 2"):
            raise SystemExit(f"{method} {path}: {answer[:60]!r} {b''.join(pieces)[:400]!r}")
        return b"".join(pieces)

    def _more(self) -> bytes:
        data = self._socket.recv(1 << 20)
        if not data:
            raise SystemExit("the server closed the connection")
        return data


@dataclass(frozen=True)
class Case:
    name: str
    method: str
    path: str
    bodies: Bodies = lambda _number: b""
    kind: str = _JSON
    accept: str = _JSON

    def call(self, connection: Connection, number: int) -> bytes:
        return connection.call(self.method, self.path, self.bodies(number), self.kind, self.accept)


# -- what is sent -----------------------------------------------------------------------------------------------


def histogram(keys: int, seed: int = 3) -> dict[str, Any]:
    hashes = np.random.default_rng(seed).integers(0, 2**64, keys, np.uint64)
    counts = (1_000_000 / np.arange(1, keys + 1)).astype(int) + 1
    return {"hashes": [str(one) for one in hashes.tolist()], "counts": counts.tolist()}


def json_histogram(keys: int) -> Bodies:
    """Each call reports a part of its own."""
    rest = json.dumps(histogram(keys)).encode()[1:]
    return lambda number: b'{"source":"bench","batch":%d,"part":%d,"parts":256,' % divmod(number, 256) + rest


def protobuf_histogram(keys: int) -> Bodies:
    given = histogram(keys)
    packed = {name: np.array([int(one) for one in given[name]], "<u8").tobytes() for name in ("hashes", "counts")}

    def body(number: int) -> bytes:
        batch, part = divmod(number, 256)
        message = pb.ReportHistogramRequest(part=pb.Part(source="bytes", batch=batch, part=part, parts=256), **packed)
        return message.SerializeToString()

    return body


def sync(rows: int, workers: int) -> Bodies:
    """One agent; each call is its next report."""
    rng = np.random.default_rng(5)
    keys = [str(one) for one in np.sort(rng.integers(0, 2**64, rows, np.uint64)).tolist()]
    counts = rng.integers(1, 1000, rows).tolist()
    table = {
        "workers": workers,
        "hashes": keys,
        "values": rng.uniform(-1, 1, (rows, workers)).tolist(),
        "rows": counts,
        "held": [sorted({at % workers, (at + 1) % workers}) for at in range(rows)],
    }
    frequent = {"capacity": 2 * rows, "hashes": keys, "counts": counts, "total": sum(counts)}
    loads = rng.integers(0, 1000, workers).tolist()
    given = {"table": table, "records": sum(counts), "frequent": frequent, "loads": loads, "dsync_seconds": 20.0}
    rest = json.dumps(given).encode()[1:]
    session = time.time_ns()
    return lambda number: b'{"wait_seconds":5,"report":{"agent":"a","session":%d,"seq":%d,%s}' % (session, number, rest)


SPEC = json.dumps({"partitions": 64, "policy": "auto", "parameters": {}, "key_types": ["string"]}).encode()


def cases() -> list[Case]:
    built = json.dumps({"histogram": histogram(KEYS)}).encode()
    protobuf = {"kind": _PROTOBUF, "accept": _PROTOBUF}
    return [
        Case("page: overview of a stream", "GET", f"{_PATH}/overview"),
        Case("page: list of 30 streams", "GET", "/v1/overview"),
        Case("PUT stream", "PUT", _PATH, lambda _number: SPEC),
        Case("GET stream", "GET", _PATH),
        Case("GET plan of 10,000 keys, JSON", "GET", f"{_PATH}/plans/latest"),
        Case("GET plan of 10,000 keys, bytes", "GET", f"{_PATH}/plans/latest", accept=_PROTOBUF),
        Case("POST histogram 10, JSON", "POST", f"{_PATH}/histograms", json_histogram(10)),
        Case("POST histogram 10,000, JSON", "POST", f"{_PATH}/histograms", json_histogram(KEYS)),
        Case("POST histogram 10,000, bytes", "POST", f"{_PATH}/histograms", protobuf_histogram(KEYS), **protobuf),
        Case("POST plan 10,000, JSON", "POST", "/v1/streams/built/plans", lambda _number: built),
        Case("POST sync 64 x 64, JSON", "POST", "/v1/streams/wide/sync", sync(64, 64)),
    ]


def prepare(connection: Connection) -> None:
    """Streams, a plan of 10,000 keys, and a history of as many batches as the page shows."""
    for number in range(STREAMS):
        connection.call("PUT", f"/v1/streams/page%2F{number:02}", SPEC)
    connection.call("PUT", _PATH, SPEC)
    connection.call("PUT", "/v1/streams/wide", SPEC)
    connection.call("PUT", "/v1/streams/built", SPEC)
    for batch in range(BATCHES):
        part = {"source": "app", "batch": batch}
        body = {**part, **histogram(KEYS if batch == BATCHES - 1 else 100, batch // 10)}
        connection.call("POST", f"{_PATH}/histograms", json.dumps(body).encode())
        connection.call("POST", f"{_PATH}/plans", json.dumps({"batch": batch, "fresh": True}).encode())
        work = [{"partition": at, "rows": 100 + at, "seconds": 0.5} for at in range(64)]
        times = {"interval_seconds": 10, "processing_seconds": 3.5, "map_seconds": 1.5, "reduce_seconds": 2}
        body = {**part, "partitions": work, **times}
        connection.call("POST", f"{_PATH}/batches", json.dumps(body).encode())


# -- the comparison ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def serving(root: Path) -> Iterator[Connection]:
    """A server of this checkout, in memory; killed by its pid at the end."""
    ports = [flag for name in ("http", "grpc", "metrics") for flag in (f"--{name}-port", "0")]
    python = sys.executable if root == Path.cwd() else str(root / ".venv/bin/python")
    bare = {name: value for name, value in os.environ.items() if not name.startswith("UNSKEW_")}
    command = [python, "-m", "unskew.service", *ports, "--log-level", "warning"]
    process = subprocess.Popen(
        command, cwd=root, env=bare, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"the server of {root.name} did not start")
        yield Connection(json.loads(line)["http"])
    finally:
        process.kill()
        process.wait()


def measure(case: Case, connections: list[Connection], calls: int) -> list[float]:
    """The median milliseconds of each."""
    times: list[list[float]] = [[] for _ in connections]
    for number in range(-(calls // 10) - 1, calls):
        order = list(enumerate(connections))
        body = case.bodies(number + 2 * calls)
        for at, connection in order if number % 2 else reversed(order):
            started = time.perf_counter()
            connection.call(case.method, case.path, body, case.kind, case.accept)
            if number >= 0:  # those before warm up
                times[at].append(time.perf_counter() - started)
    return [statistics.median(one) * 1e3 for one in times]


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--against", type=Path, help="another checkout, with its .venv")
    options.add_argument("--calls", type=int, default=300)
    options.add_argument("--only", default="")
    given = options.parse_args()
    roots = [Path.cwd(), *([given.against.resolve()] if given.against else [])]
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(serving(root)) for root in roots]
        for connection in connections:
            prepare(connection)
        names = ("here ms", "other ms", "ratio")[: 1 if len(roots) == 1 else 3]
        print(f"{'p50 of a call':34}{'bytes':>9}" + "".join(f"{name:>10}" for name in names))
        worst = 0.0
        for case in cases():
            if given.only not in case.name:
                continue
            size = len(case.call(connections[0], 1))
            medians = measure(case, connections, given.calls)
            ratio = [medians[0] / medians[1]] if len(medians) > 1 else []
            worst = max(worst, *ratio, 0.0)
            print(f"{case.name:34}{size:9,}" + "".join(f"{one:10.3f}" for one in itertools.chain(medians, ratio)))
    if len(roots) > 1:
        print(f"the highest ratio is {worst:.2f}; target {MARK:.2f} or less: {'met' if worst <= MARK else 'NOT met'}")


if __name__ == "__main__":
    main()
