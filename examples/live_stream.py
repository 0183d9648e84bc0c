"""A job without Spark, to try a service: batches of skewed keys, with other hot keys every 20 batches, and plans.

For each batch it does what a job does: route the rows by the present plan, report how often each key came and how full
each partition was, ask for the next plan. Beside it two agents learn where to send the same keys, row by row.

    unskew serve                       # in another terminal; then open http://127.0.0.1:8080
    python examples/live_stream.py [batches] [target] [seconds between batches]
"""

from __future__ import annotations

import sys
import time

import numpy as np

from unskew.client import Agent, Client
from unskew.core import Histogram, hash_keys, quality
from unskew.core.stream_spec import BatchWork, Part, Work
from unskew.simulate.key_streams import drifting

ROWS, KEYS, PARTITIONS, CHANGE = 50_000, 20_000, 16, 20


def main(batches: int = 120, target: str = "grpc://127.0.0.1:8081", pause: float = 1.0) -> None:
    rng = np.random.default_rng(7)
    users = np.array([f"user-{number}" for number in range(KEYS)])
    keys = drifting(rng, batches * ROWS, KEYS, 1.3, CHANGE * ROWS, 50).reshape(batches, ROWS)
    first = int(1000 * time.time())  # batches of a second run count as later ones
    with Client(target) as client:
        client.put_stream("clicks", partitions=PARTITIONS, policy="balanced", key_types=("string",), history=3)
        client.put_stream("clicks-learned", partitions=PARTITIONS, policy="dalton", dsync=2.0)
        agents = [Agent("clicks-learned", client, workers=PARTITIONS, dsync=2.0, name=f"agent-{n}") for n in range(2)]
        plan = None
        for number in range(batches):
            began = time.monotonic()
            hashes = hash_keys(users[keys[number]])
            spread = hash_keys(np.arange(ROWS))
            routed = (hashes % np.uint64(PARTITIONS)).astype(np.int32) if plan is None else plan.route(hashes, spread)
            for agent, share in zip(agents, np.array_split(hashes, len(agents)), strict=True):
                agent.route(share)
            part = Part("live-stream/clicks", first + number)
            client.report_histogram("clicks", part, Histogram.from_hashes(hashes))
            client.report_batch("clicks", part, work_of(routed, pause), None if plan is None else plan.version)
            by = "hash" if plan is None else f"plan {plan.version.number}"
            print(f"batch {number:3}  {by:9} imbalance {quality.imbalance(routed, PARTITIONS):.2f}", flush=True)
            plan = client.build_plan("clicks", first + number + 1).plan
            time.sleep(max(0.0, pause - (time.monotonic() - began)))
        for agent in agents:
            agent.close()


def work_of(routed: np.ndarray, interval: float) -> BatchWork:
    """How full each partition was, and what it took: spread evenly, rows fill 80 % of the interval."""
    rows = np.bincount(routed, minlength=PARTITIONS).tolist()
    cost = 0.8 * interval * PARTITIONS / ROWS
    longest = cost * max(rows)
    work = tuple(Work(partition, count, seconds=cost * count) for partition, count in enumerate(rows))
    return BatchWork(work, interval, longest, longest / 10, longest)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(*(kind(text) for kind, text in zip((int, str, float), arguments, strict=False)))
