"""Failovers of Redis under load: is a round lost that was answered, without a new incarnation, or one merged twice?

Two replicas of the service and agents of the real client learn on one stream, while the master of its data fails over
again and again: as planned, by SIGKILL, and by SIGKILL after its follower was cut off for two rounds, so that rounds
that were answered are lost for certain. After each failover every agent has to be answered twice.

An agent's answer is in the books if the store has the digest of its round (``core.rounds.round_digests``), which is of
the reports of that round and of all before it; each round is read as it is merged, so that a report that is in two of
those which the store still has is seen.

Target: 0 rounds lost without a new incarnation, 0 reports merged twice, nobody waits for ever.

Run ``python -m benchmarks.failovers [--times 100] [--kind sentinel cluster]``; it needs redis-server (``make redis``).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.serving import serving
from tests.servers import MASTER, Followed, Sentinels, Server, cluster, followed, sentinels, wait_for
from unskew.client import Agent, Client
from unskew.client.results import Synced
from unskew.core.rounds.round_digests import SeenRound, digest_of
from unskew.core.rounds.round_log import ReportKey, RoundView
from unskew.service.errors import ServiceError
from unskew.service.stores import open_store
from unskew.service.stores.ports import Store

STREAM, WORKERS, AGENTS, DSYNC = "clicks", 4, 6, 0.3
CAUSES = ("planned", "killed", "cut off and killed")
_PATIENT = 300.0
_HASTY = 3_000  # milliseconds: a follower that was cut off for ten times as long is not promoted

Topology = Sentinels | Followed


class Witness(Agent):
    """An agent that remembers what it was answered."""

    def __init__(self, *args: Any, **named: Any) -> None:
        self.answered: list[SeenRound] = []
        super().__init__(*args, **named)

    def take(self, synced: Synced) -> None:
        before = self.waiting
        super().take(synced)
        if synced.answer is not None and before is not None and self.waiting is not before:
            self.answered.append(synced.answer.seen)


@dataclass
class Books:
    """What was read of the rounds, and what was found wrong. ``str`` is the figures."""

    rounds: dict[SeenRound, tuple[ReportKey, ...]] = field(default_factory=dict)
    incarnations: set[int] = field(default_factory=set)
    lost: int = 0
    doubled: int = 0
    answers: int = 0

    def __str__(self) -> str:
        return (
            f"{len(self.rounds):,} rounds and {self.answers:,} answers read, {len(self.incarnations)} incarnations; "
            f"answers of rounds lost without a new incarnation: {self.lost}, reports merged twice: {self.doubled}"
        )

    async def read(self, store: Store) -> None:
        """The rounds, as they are merged."""
        while True:
            with contextlib.suppress(ServiceError):
                view, last = await store.round(STREAM), await store.answer(STREAM)
                if last is not None:
                    seen = SeenRound(view.incarnation, last.epoch, digest_of(last.digests, last.epoch))
                    self.rounds[seen] = last.names
            await asyncio.sleep(DSYNC / 10)

    def judge(self, view: RoundView, answered: list[SeenRound]) -> None:
        """Answers since the last failover, by the rounds that the store has now."""
        self.incarnations.add(view.incarnation)
        self.answers += len(answered)
        version = view.incarnation, view.merged
        self.lost += sum(one.incarnation >= version[0] and one.is_lost(version, view.digests) for one in answered)
        kept = [
            names
            for seen, names in self.rounds.items()
            if seen.incarnation == version[0] and seen.digest == digest_of(view.digests, seen.epoch)
        ]
        self.doubled += sum(count > 1 for count in Counter(name for names in kept for name in names).values())


@contextlib.contextmanager
def agents_at(target: str) -> Iterator[list[Witness]]:
    """At work in a thread, until the end."""
    with contextlib.ExitStack() as stack:
        made = [
            stack.enter_context(Witness(STREAM, target, workers=WORKERS, name=f"agent-{n}", dsync=DSYNC, timeout=2.0))
            for n in range(AGENTS)
        ]
        stop, rng = threading.Event(), np.random.default_rng(5)

        def work() -> None:
            while not stop.wait(DSYNC / 10):
                for agent in made:
                    agent.route(rng.zipf(1.5, 64).astype(np.uint64))

        thread = threading.Thread(target=work)
        thread.start()
        stack.callback(thread.join)
        stack.callback(stop.set)
        yield made


def go_on(agents: list[Witness], answers: int) -> None:
    """Until each of them has had so many answers more."""
    goals = [len(agent.answered) + answers for agent in agents]
    wait_for("answers", lambda: all(len(a.answered) >= g for a, g in zip(agents, goals, strict=True)), _PATIENT)


def cut_off(topology: Topology) -> None:
    """The follower cannot log in at its master any more."""
    replica = topology.replica()
    replica.ask("CONFIG", "SET", "masterauth", "not this")
    topology.master().ask("CLIENT", "KILL", "TYPE", "replica")
    wait_for("cut off", lambda: replica.info("replication")["master_link_status"] == "down")


def fail_over(topology: Topology, cause: str, meanwhile: Callable[[], None]) -> None:
    old = topology.master()
    if cause == "planned":
        wait_for("a planned failover", lambda: hand_over(topology, old), _PATIENT)
    else:
        if cause != "killed":
            cut_off(topology)
            meanwhile()
        old.kill()
    topology.failed_over(old, _HASTY)


def hand_over(topology: Topology, old: Server) -> bool:
    """Ask for it; a busy machine gives up in the middle, and has to be asked again."""
    if isinstance(topology, Sentinels):
        topology.sentinels[0].ask("SENTINEL", "FAILOVER", MASTER)
    else:
        topology.replica().ask("CLUSTER", "FAILOVER")
    with contextlib.suppress(pytest.fail.Exception):
        wait_for("a planned failover", lambda: topology.master() is not old, 15.0)
    return topology.master() is not old


async def run(topology: Topology, url: str, times: int) -> Books:
    """So many failovers."""
    books, store = Books(), open_store(url)
    with serving("--store", url) as one, serving("--store", url) as two:
        target = f"ipv4:{one.target},{two.target}"
        with Client(target) as client:
            at = {"dsync": DSYNC, "dsync_min": DSYNC, "dsync_max": DSYNC}
            client.put_stream(STREAM, partitions=WORKERS, policy="dalton", **at)
        reading = asyncio.create_task(books.read(store))
        with agents_at(target) as agents:
            await asyncio.to_thread(go_on, agents, 2)
            for number in range(times):
                began = [len(agent.answered) for agent in agents]
                cause = CAUSES[number % len(CAUSES)]
                await asyncio.to_thread(fail_over, topology, cause, lambda: go_on(agents, 2))
                await asyncio.to_thread(go_on, agents, 2)
                told = [seen for agent, at in zip(agents, began, strict=True) for seen in list(agent.answered[at:])]
                books.judge(await view_of(store), told)
                await asyncio.to_thread(topology.restore)
                if (number + 1) % 10 == 0:
                    print(f"  {number + 1}: {books}", flush=True)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    await store.close()
    return books


async def view_of(store: Store) -> RoundView:
    end = time.monotonic() + _PATIENT
    while True:
        try:
            return await store.round(STREAM)
        except ServiceError:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(DSYNC)


@contextlib.asynccontextmanager
async def topology_of(kind: str, folder: Path) -> AsyncIterator[tuple[Topology, str]]:
    with contextlib.ExitStack() as stack:
        if kind == "sentinel":
            made = stack.enter_context(sentinels(folder))
            yield made, made.url
            return
        whole = stack.enter_context(cluster(folder))
        (folder / "follower").mkdir()
        node = await _owner(whole.nodes, whole.url)
        yield stack.enter_context(followed(whole, node, folder / "follower")), whole.url


async def _owner(nodes: list[Server], url: str) -> Server:
    """The node that has the stream."""
    store = open_store(url)
    await store.put_stream(STREAM, b"")
    found = next(node for node in nodes if node.ask("KEYS", f"{{unskew:{STREAM}}}:*"))
    await store.delete_stream(STREAM)
    await store.close()
    return found


async def measured(kind: str, times: int) -> bool:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        async with topology_of(kind, Path(folder)) as (topology, url):
            books = await run(topology, url, times)
    print(f"{kind}: {times} failovers in {time.monotonic() - began:.0f} s, {books}", flush=True)
    return not books.lost and not books.doubled


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("--times", type=int, default=100, help="failovers of each kind (100)")
    arguments.add_argument("--kind", nargs="+", default=["sentinel", "cluster"], choices=["sentinel", "cluster"])
    given = arguments.parse_args()
    logging.getLogger("unskew").setLevel(logging.ERROR)  # of agents whose calls fail, as they should here
    kept = [asyncio.run(measured(kind, given.times)) for kind in given.kind]
    raise SystemExit(0 if all(kept) else 1)


if __name__ == "__main__":
    main()
