"""A job as users have them, over gRPC with the client and over REST without: run by a release, against a service.

Run as a program, so that another release than the tests' own can run it: it imports only what both have.
"""

from __future__ import annotations

import base64
import json
import sys
import urllib.error
import urllib.request
from typing import Any

import numpy as np

import unskew.client
from unskew.client import Client
from unskew.core import Histogram
from unskew.core.dalton.qtable import QTable
from unskew.core.rounds.messages import Report
from unskew.core.sketches.frequent import FrequentItems
from unskew.core.stream_spec import BatchWork, Part, Work
from unskew.wire import plan_from_bytes, plan_to_bytes

KEYS = np.array([5, 42, 2**63 + 1, 2**64 - 1], np.uint64)
COUNTS = np.array([9_000, 400, 350, 250], np.int64)


def report(workers: int, agent: str) -> Report:
    """One agent's first report: two hot keys, of which one is on two workers."""
    held = np.zeros((2, workers), np.bool_)
    held[0, :2] = True
    table = QTable(KEYS[[0, 2]], np.linspace(-1, 1, 2 * workers).reshape(2, workers), np.array([8, 2]), held)
    frequent = FrequentItems(4).update(np.repeat(KEYS[[0, 2]], [8, 2]))
    return Report(agent, 1, 1, table, 10, frequent, np.arange(workers), 20.0, longer=False)


def over_grpc(target: str, stream: str) -> dict[str, Any]:
    """Every verb of the client."""
    part = Part("app/query", 1)
    with Client(target, timeout=60) as client:
        client.put_stream(stream, partitions=4, policy="balanced", dsync=5.0, dsync_min=1.0)
        taken = client.report_histogram(stream, part, Histogram.from_counts(KEYS, COUNTS))
        built = client.build_plan(stream, batch=2)
        plan = built.plan
        latest = client.get_plan(stream)
        with client.watch(stream) as watch:
            watched = next(iter(watch))
        work = BatchWork(tuple(Work(p, rows=2_500, seconds=1.0) for p in range(4)), 2.0, 1.0, 0.5, 0.5)
        scale = [client.report_batch(stream, part, work, plan.version), client.get_scale(stream).zone >= 0]
        synced = client.sync(stream, report(4, "a1"), wait=10)
        found = {
            "streams": [info.name for info in client.list_streams()],
            "version": str(client.get_stream(stream).version) == str(plan.version),
            "taken": [taken.rows, taken.repeated],
            "outcome": built.outcome,
            "same": [latest.plan.digest, client.get_plan(stream, plan.version).plan.digest, watched.digest],
            "not again": latest.cached,
            "explained": bool(client.explain(stream, 5)),
            "scale": scale,
            "merged": synced.merged,
            **routed(plan),
        }
        client.delete_stream(stream)
    return found


def over_rest(base: str, stream: str) -> dict[str, Any]:
    """The requests of docs/quickstart-service.md, as any language would send them."""
    here = f"{base}/v1/streams/{stream}"
    asked(here, "PUT", {"partitions": 4, "policy": "balanced"})
    histogram = {"hashes": [str(key) for key in KEYS], "counts": COUNTS.tolist(), "source": "app/query", "batch": 1}
    taken = asked(f"{here}/histograms", "POST", histogram)
    built = asked(f"{here}/plans", "POST", {"batch": 2})
    with opened(f"{here}/plans/latest", accept="application/x-protobuf") as answer:
        plan, etag = plan_from_bytes(answer.read()), answer.headers["etag"]
    work = [{"partition": p, "rows": 2500, "seconds": 1.0} for p in range(4)]
    asked(f"{here}/batches", "POST", {"source": "app/query", "batch": 1, "partitions": work})
    found = {
        "streams": [one["name"] for one in asked(f"{base}/v1/streams")["streams"]],
        "taken": [int(taken["rows"]), taken["repeated_report"]],
        "outcome": built["outcome"],
        "not modified": status(f"{here}/plans/latest", etag),
        "scale": sorted(asked(f"{here}/scale")),
        "explained": sorted(asked(f"{here}/explain?hash=5")),
        **routed(plan),
    }
    asked(here, "DELETE")
    return found


def routed(plan: Any) -> dict[str, Any]:
    """Where the plan sends rows, and its bytes."""
    spread = (np.arange(64, dtype=np.uint64) << np.uint64(58)).repeat(len(KEYS))
    routes = plan.route(np.tile(KEYS, 64), spread)
    return {"routes": routes.tolist(), "digest": plan.digest, "plan": base64.b64encode(plan_to_bytes(plan)).decode()}


def opened(url: str, method: str = "GET", body: object = None, **headers: str) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    if data is not None:
        request.add_header("content-type", "application/json")
    return urllib.request.urlopen(request, timeout=60)


def asked(url: str, method: str = "GET", body: object = None) -> Any:
    try:
        with opened(url, method, body) as answer:
            return json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as why:
        raise RuntimeError(f"{method} {url}: {why.code} {why.read().decode()}") from None


def status(url: str, etag: str) -> int:
    try:
        with opened(url, **{"if-none-match": etag}) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as why:
        return why.code


if __name__ == "__main__":
    face, address = sys.argv[1:]
    done = over_grpc(address, "by-grpc") if face == "grpc" else over_rest(address, "by-rest")
    sys.stdout.write(json.dumps({"home": unskew.client.__file__, **done}) + "\n")
