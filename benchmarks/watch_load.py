"""Many callers in one process, for ``service_watchers``. Told what to do by lines of JSON on stdin, and answers each by
one on stdout.

``watchers`` are ``unskew.client.Client.watch`` with a callback, each in a thread of its own as a user's would be.
``light`` ones are a coroutine each, which takes the bytes of a plan and notes when they came: a thousand threads in one
process take longer to wake up than the service takes to send. ``agents`` are a coroutine each: they send a report, wait
for its round, and report again after DSYNC, as ``Agent`` does, without the router. Real callers are in many processes;
here some share a channel, and so a connection.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import threading
import time
from collections import defaultdict
from typing import Any

import grpc
import numpy as np

from unskew.client import Client
from unskew.client.background import Backoff
from unskew.core.dalton.qtable import QTable
from unskew.core.errors import UnskewError
from unskew.core.plan.plan import Plan
from unskew.core.rounds.messages import Report
from unskew.core.sketches.frequent import FrequentItems
from unskew.v1 import partitioner_pb2 as pb
from unskew.v1.partitioner_pb2_grpc import PartitionerServiceStub
from unskew.wire import report_to_message

AGAIN = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.RESOURCE_EXHAUSTED}


def say(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


# -- watchers ---------------------------------------------------------------------------------------------------


def watchers(given: argparse.Namespace) -> None:
    threading.stack_size(512 << 10)
    came: dict[str, list[float]] = defaultdict(list)
    ended: list[str] = []

    def seen(plan: Plan) -> None:
        came[plan.digest].append(time.monotonic())

    def over(why: UnskewError) -> None:
        ended.append(str(why))

    clients = [Client(given.target) for _ in range(given.channels)]
    watches = [client.watch(given.stream, seen, on_end=over) for client in clients for _ in range(given.streams)]
    say({"watches": len(watches)})
    for line in sys.stdin:
        asked = json.loads(line)
        times = sorted(came.get(asked["digest"], ()))
        say({"came": times, "ended": ended[:3], "lost": len(ended), "connects": sum(w.connects for w in watches)})


class Light:
    """Watches that begin again as ``Client.watch`` does."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._came: dict[str, list[float]] = defaultdict(list)
        self._connects = 0
        self._ended: list[str] = []

    async def run(self) -> None:
        stubs = [PartitionerServiceStub(channel) for channel in channels(self._given)]
        tasks = [asyncio.ensure_future(self._watch(stub)) for stub in stubs for _ in range(self._given.streams)]
        say({"watches": len(tasks)})
        while line := await asyncio.to_thread(sys.stdin.readline):
            came = sorted(self._came.get(json.loads(line)["digest"], ()))
            say({"came": came, "ended": self._ended[:3], "lost": len(self._ended), "connects": self._connects})

    async def _watch(self, stub: Any) -> None:
        backoff, have = Backoff(), ""
        while True:
            self._connects += 1
            try:
                async for plan in stub.WatchPlans(pb.WatchPlansRequest(stream=self._given.stream, if_none_match=have)):
                    self._came[plan.digest].append(time.monotonic())
                    have = plan.digest
                    backoff.reset()
            except grpc.RpcError as why:
                if why.code() not in AGAIN:
                    self._ended.append(f"{why.code()} {why.details()}")
                    return
            await asyncio.sleep(backoff.next())


def channels(given: argparse.Namespace) -> list[grpc.aio.Channel]:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 2000)]
    return [grpc.aio.insecure_channel(given.target, options) for _ in range(given.channels)]


# -- agents -----------------------------------------------------------------------------------------------------


def report(rows: int, workers: int) -> pb.SyncReport:
    rng = np.random.default_rng(5)
    keys = np.sort(rng.integers(0, 2**63, rows).astype(np.uint64))
    counts = rng.integers(1, 1000, rows)
    held = np.zeros((rows, workers), np.bool_)
    held[:, :2] = True
    table = QTable(keys, rng.uniform(-1, 1, (rows, workers)), counts, held)
    frequent = FrequentItems(2 * rows, keys, counts, 0, int(counts.sum()))
    return report_to_message(
        Report("a", 1, 1, table, int(counts.sum()), frequent, rng.integers(0, 1000, workers), 20.0, longer=False)
    )


class Agents:
    def __init__(self, given: argparse.Namespace) -> None:
        self._given, self._rng = given, random.Random(1)
        self.answered = self.failed = self.waiting = 0
        self.epoch = 0

    async def run(self) -> None:
        tasks = [
            asyncio.ensure_future(self._agent(PartitionerServiceStub(channel), f"{number}-{at}"))
            for number, channel in enumerate(channels(self._given))
            for at in range(self._given.streams)
        ]
        say({"agents": len(tasks)})
        while line := await asyncio.to_thread(sys.stdin.readline):
            json.loads(line)
            say({"answered": self.answered, "failed": self.failed, "waiting": self.waiting, "epoch": self.epoch})

    async def _agent(self, stub: Any, name: str) -> None:
        mine = report(self._given.rows, self._given.workers)
        mine.agent, mine.session, mine.dsync_seconds = name, time.time_ns(), self._given.dsync
        await asyncio.sleep(self._rng.uniform(0, self._given.dsync))
        known = (0, 0)
        while True:
            began = time.monotonic()
            known = await self._answer(stub, mine, known)
            mine.seq += 1
            await asyncio.sleep(max(0.0, began + mine.dsync_seconds - time.monotonic()))

    async def _answer(self, stub: Any, mine: pb.SyncReport, known: tuple[int, int]) -> tuple[int, int]:
        """Repeat the same report until it is answered."""
        while True:
            wait = min(mine.dsync_seconds, 10.0)
            asked = pb.SyncRequest(
                stream=self._given.stream, report=mine, wait_seconds=wait, incarnation=known[0], epoch=known[1]
            )
            self.waiting += 1
            try:
                found = await stub.Sync(asked, timeout=wait + 5.0)
            except grpc.RpcError:
                self.failed += 1
                await asyncio.sleep(self._rng.uniform(0.2, 1.5))
                continue
            finally:
                self.waiting -= 1
            if found.HasField("answer"):
                self.answered += 1
                self.epoch = max(self.epoch, found.answer.epoch)
                mine.dsync_seconds = found.answer.dsync_seconds
                return found.answer.incarnation, found.answer.epoch


def arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser()
    options.add_argument("kind", choices=("watchers", "light", "agents"))
    options.add_argument("target")
    options.add_argument("stream")
    options.add_argument("--channels", type=int, default=100)
    options.add_argument("--streams", type=int, default=10)
    options.add_argument("--rows", type=int, default=64)
    options.add_argument("--workers", type=int, default=16)
    options.add_argument("--dsync", type=float, default=5.0)
    return options.parse_args()


if __name__ == "__main__":
    chosen = arguments()
    if chosen.kind == "watchers":
        watchers(chosen)
    else:
        asyncio.run((Light if chosen.kind == "light" else Agents)(chosen).run())
