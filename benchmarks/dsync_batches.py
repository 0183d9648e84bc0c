"""DSYNC of applications that learn in batches, on a real service (Dalton, Fig. 14b), and rounds whose tasks are gone.

Two applications without Spark, with the driver and the tasks of one (``unskew.spark.streaming.round_participant``). The
service's merges take 0.6 of a batch's interval, twice that, four times, and 0.6 again. DSYNC after each batch, in
intervals: the paper's is 1, 2, 4, 1. Below: seconds from a batch's end to its answer, where the number of tasks
changes.

Run: ``python -m benchmarks.dsync_batches`` (2 minutes)
"""

from __future__ import annotations

import time
from itertools import count, islice

import pytest

from tests.spark.streaming_learning.plain import Clock, Plain, let_go, slow_service
from unskew.client import Client, testing

N, INTERVAL, WORK = 32, 0.5, 0.3
PHASES = ((1, 16), (2, 20), (4, 30), (1, 60))
TASKS = (8, 8, 8, 2, 2, 8, 3)


def script(patch: pytest.MonkeyPatch) -> None:
    with slow_service(patch) as (target, slow), Client(target) as client, let_go():
        apps = [Plain(client, "slow", N, own, rows=500, interval=INTERVAL) for own in (0, 1)]
        for app in apps:
            app.syncs.meet(10)
        number = count()
        for times, batches in PHASES:
            slow.seconds, seen = times * WORK, []
            for batch in islice(number, batches):
                began = time.monotonic()
                for app in apps:
                    app.batch(batch)
                seen.append(round(apps[0].syncs.dsync / INTERVAL))
                time.sleep(max(INTERVAL - (time.monotonic() - began), 0.0))  # the trigger
            print(f"merges of {slow.seconds:.1f} s: {''.join(map(str, seen))}", flush=True)


def gone(patch: pytest.MonkeyPatch) -> None:
    clock, interval = Clock(patch), 2.0
    with testing.embedded() as service, service.client() as client, let_go():
        app = Plain(client, "gone", N, 0, rows=500, interval=interval)
        app.syncs.meet(10)
        for batch, tasks in enumerate(TASKS):
            app.tasks = tasks
            app.batch(batch)
            began = time.monotonic()
            app.syncs.settle(30)
            print(f"{tasks} tasks: {time.monotonic() - began:.2f} s", flush=True)
            clock.now += interval


def main() -> None:
    with pytest.MonkeyPatch.context() as patch:
        script(patch)
    with pytest.MonkeyPatch.context() as patch:
        gone(patch)


if __name__ == "__main__":
    main()
