"""The laws of a store on Redis behind Sentinels and on a cluster; and what holds when these move or lose things.

Redis replicates behind its answers: a failover may lose what was acknowledged. Then the store is in an older state, and
what was decided on the lost one does not fit it: it is refused, or is done anew. It is never taken for something else.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from redis.asyncio.cluster import NodesManager

from tests.contract.backends import Backend, UrlBackend
from tests.contract.laws import LAWS, LEASE, committed, merge, plan
from tests.doses import some_of
from tests.servers import MASTER, Cluster, Sentinels, Server, wait_for
from unskew.core.plan.plan import Version
from unskew.core.rounds.round_log import Commit, ReportKey, ReportOutcome
from unskew.service.errors import UnavailableError
from unskew.service.stores import open_store
from unskew.service.stores.ports import Store
from unskew.service.stores.records import PlanOutcome
from unskew.service.stores.redis.store import RedisStore

# All laws and one failover belong to `make test`. The other failovers are long: each takes seconds of waiting.
pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("redis-topologies")]

WAIT = 90.0
PACE = 0.02


@pytest.fixture
async def whole(sentinels: Sentinels) -> AsyncIterator[Sentinels]:
    """Both servers up and in step, before and after: a test may kill one."""
    sentinels.master().ask("FLUSHALL")
    yield sentinels
    sentinels.restore()


@pytest.fixture(params=["sentinel", "cluster"])
async def backend(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[Backend]:
    if request.param == "sentinel":
        sentinels: Sentinels = request.getfixturevalue("sentinels")
        made = UrlBackend(sentinels.url, lambda: sentinels.master().ask("FLUSHALL"))
    else:
        cluster: Cluster = request.getfixturevalue("cluster")
        made = UrlBackend(cluster.url, cluster.flush)
    made.wipe()
    yield made
    await made.close()


# Forty writes at once through two new replicas. On a cluster and a machine that is so busy that the slots cannot be
# read within a timeout, redis-py closes all connections, and none of the writes gets through. In the small dose the law
# is held on memory and on one Redis (``tests/contract``).
CROWDED = "replicas_together_keep_no_more_than_an_owner_may"


@pytest.mark.parametrize("law", some_of(LAWS, *(set(LAWS) - {CROWDED})))
async def test_store(law: str, backend: Backend) -> None:
    """What the law's name says, on a state of its own."""
    await LAWS[law](backend)


async def in_time(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Ask until there is an answer: what a caller does with UNAVAILABLE."""
    end = time.monotonic() + WAIT
    while True:
        try:
            return await ask()
        except UnavailableError:
            assert time.monotonic() < end, "it does not recover"
            await asyncio.sleep(0.05)


# -- agents and replicas that go on whatever happens


class World:
    """Agents that send a report until it is merged, replicas that seal and merge. ``keep`` has the whole history."""

    def __init__(self, url: str) -> None:
        self.stores = [open_store(url) for _ in range(3)]
        self.stop = self.leaving = False
        self.done: dict[str, int] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def agent(self, name: str) -> None:
        store, seq = self.stores[0], 0
        while not self.leaving:
            seq += 1
            key = ReportKey(name, 1, seq)
            while await in_time(lambda key=key: store.report("clicks", key, b"", LEASE)) is not ReportOutcome.MERGED:
                await asyncio.sleep(PACE)
            self.done[name] = seq

    async def replica(self, store: Store) -> None:
        while not self.stop:
            await in_time(lambda: self.turn(store))
            await asyncio.sleep(PACE)

    async def turn(self, store: Store) -> None:
        view = await store.round("clicks")
        if view.reported and view.open == view.merged + 1:
            await store.seal("clicks", view.open)
        epoch, last = view.merged + 1, await store.answer("clicks")
        names = tuple(report.key for report in await store.sealed("clicks", epoch))
        if names and (last.epoch if last else 0) == epoch - 1:
            history = json.loads(last.keep) if last else []
            history += [[name.agent, name.seq] for name in names]
            await store.commit("clicks", Commit(epoch, b"", names, json.dumps(history).encode()))

    async def until(self, count: int) -> None:
        """Every agent has had so many more reports merged."""
        goal = {name: done + count for name, done in self.done.items()}
        end = time.monotonic() + WAIT
        while any(self.done[name] < wanted for name, wanted in goal.items()):
            assert time.monotonic() < end, (self.done, goal)
            for task in self.tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.01)

    async def through(self, trouble: Callable[[], Awaitable[None]]) -> list[list[Any]]:
        """Work, trouble, work; the history that the store has in the end."""
        await self.stores[0].put_stream("clicks", b"")
        self.done = {f"agent {number}": 0 for number in range(6)}
        working = [asyncio.create_task(self.agent(name)) for name in self.done]
        merging = [asyncio.create_task(self.replica(store)) for store in self.stores[1:]]
        self.tasks = working + merging
        try:
            await self.until(5)
            await trouble()
            await self.until(5)
            self.leaving = True
            await asyncio.wait_for(asyncio.gather(*working), WAIT)  # what they have under way is still merged
            self.stop = True
            await asyncio.gather(*merging)
            last = await self.stores[0].answer("clicks")
            assert last is not None
            return list(json.loads(last.keep))
        finally:
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)
            for store in self.stores:
                await store.close()


async def fail_over(topology: Sentinels, cause: Callable[[Server], object]) -> None:
    old = topology.master()
    cause(old)
    await asyncio.to_thread(topology.failed_over, old)


@pytest.mark.long
async def test_work_goes_on_through_a_planned_failover(whole: Sentinels) -> None:
    """Same stores, no restart: nothing is merged twice, and what follows the failover is all there."""
    world = World(whole.url)
    history = await world.through(
        lambda: fail_over(whole, lambda _: whole.sentinels[0].ask("SENTINEL", "FAILOVER", MASTER))
    )
    assert len({tuple(name) for name in history}) == len(history)
    assert all([name, done] in history for name, done in world.done.items())


async def test_work_goes_on_when_the_master_is_killed(whole: Sentinels) -> None:
    """The same with SIGKILL: what Redis had not replicated is sent again by whoever has no answer."""
    world = World(whole.url)
    history = await world.through(lambda: fail_over(whole, lambda old: old.kill()))
    assert len({tuple(name) for name in history}) == len(history)
    assert all([name, done] in history for name, done in world.done.items())


@pytest.mark.long
async def test_work_on_acknowledged_writes_that_a_failover_lost_is_refused_or_done_anew(whole: Sentinels) -> None:
    """Plan 2, a report, a seal and a merge are acknowledged by a master that nobody follows, and then it dies."""
    store = open_store(whole.url)
    record, _ = await store.put_stream("clicks", b"")
    first, second = plan(record.incarnation, 1), plan(record.incarnation, 2, "batch:2")
    ann, bob, cyd = (ReportKey(agent, 1, 1) for agent in ("ann", "bob", "cyd"))
    await store.put_plan("clicks", first, None)
    await store.report("clicks", ann, b"", LEASE)
    wait_for("replication", lambda: _in_step(whole))
    _cut_off(whole)
    assert await store.put_plan("clicks", second, first.version) is PlanOutcome.STORED
    await store.report("clicks", bob, b"", LEASE)
    lost = await merge(store, 1)
    assert lost.names == (ann, bob)

    await fail_over(whole, lambda old: old.kill())
    assert await in_time(lambda: store.plan("clicks")) == first
    assert await store.put_plan("clicks", plan(record.incarnation, 3), second.version) is PlanOutcome.NOT_NEXT
    assert await store.answer("clicks") is None
    assert await store.report("clicks", cyd, b"", LEASE) is ReportOutcome.STORED
    await store.seal("clicks", 1)
    assert not await store.commit("clicks", lost), "a merge of reports that are not there"
    assert await store.commit("clicks", committed(1, (ann, cyd)))
    assert await store.report("clicks", bob, b"", LEASE) is ReportOutcome.STORED, "sent again, as nothing names it"
    assert (await merge(store, 2)).names == (bob,)
    assert (
        await store.put_plan("clicks", plan(record.incarnation, 2, digest="new"), first.version) is PlanOutcome.STORED
    )
    found = await store.plan("clicks", Version(record.incarnation, 2))
    assert found is not None
    assert found.digest == "new"
    await store.close()


def _in_step(topology: Sentinels) -> bool:
    master, replica = topology.master().info("replication"), topology.replica().info("replication")
    return bool(master["master_repl_offset"] == replica["slave_repl_offset"])


def _cut_off(topology: Sentinels) -> None:
    """The replica cannot log in at its master any more."""
    replica = topology.replica()
    replica.ask("CONFIG", "SET", "masterauth", "not this")
    topology.master().ask("CLIENT", "KILL", "TYPE", "replica")
    wait_for("cut off", lambda: replica.info("replication")["master_link_status"] == "down")


@pytest.mark.long
async def test_a_sentinel_that_is_gone_or_hangs_is_passed_over(whole: Sentinels) -> None:
    """Two of three are out of reach, and a new store still finds the master, however many ask at once; and it does not
    forget the others."""
    gone, hanging = whole.sentinels[:2]
    gone.kill()
    hanging.pause()
    try:
        store = open_store(whole.url)
        assert isinstance(store, RedisStore)
        found = await asyncio.gather(*(in_time(store.ping) for _ in range(20)))
        assert len(found) == 20
        known = store._client._sentinel
        assert known is not None
        assert len({one.get_connection_kwargs()["port"] for one in known.sentinels}) == 3
        await store.close()
    finally:
        hanging.resume()
        gone.start()


# -- cluster


def _owner(cluster: Cluster, stream: str) -> Server:
    found = [node for node in cluster.nodes if node.ask("KEYS", f"{{unskew:{stream}}}:*")]
    assert len(found) == 1, "one node has all of a stream"
    return found[0]


async def test_streams_are_spread_over_a_cluster_and_each_is_on_one_node(cluster: Cluster) -> None:
    """The hash tag at work."""
    cluster.flush()
    store = open_store(cluster.url)
    for number in range(24):
        await store.put_stream(f"s{number}", b"")
        await store.report(f"s{number}", ReportKey("ann", 1, 1), b"", LEASE)
        await merge(store, 1, f"s{number}")
    assert len({_owner(cluster, f"s{number}").port for number in range(24)}) == 3
    assert len(await store.streams("", 100)) == 24
    await store.close()


async def test_who_gives_up_reading_the_slots_ends_no_other_command(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command under way waits for its answer, however many others leave while the slots are read anew."""
    store = open_store(f"{cluster.url}?timeout=30&deadline=60")
    assert isinstance(store, RedisStore)
    client: Any = store._client._client
    await store.ping()
    slow = asyncio.ensure_future(client.execute_command("BLPOP", "{unskew:slow}", 0))
    await in_time(lambda: _blocked(cluster))
    going, read = asyncio.Event(), NodesManager.initialize

    async def slowly(*args: Any, **named: Any) -> None:
        await going.wait()
        await read(*args, **named)

    monkeypatch.setattr(NodesManager, "initialize", slowly)
    client._initialize = True
    leaving = asyncio.ensure_future(client.execute_command("GET", "{unskew:slow}:other"))
    await asyncio.sleep(0)
    while not client._lock.locked():
        await asyncio.sleep(0.01)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    going.set()
    await client.execute_command("RPUSH", "{unskew:slow}", "found")
    assert list(await slow) == [b"{unskew:slow}", b"found"]
    await store.close()


async def _blocked(cluster: Cluster) -> None:
    if not any(node.info("clients")["blocked_clients"] for node in cluster.nodes):
        raise UnavailableError("nobody waits yet")


@pytest.mark.long
async def test_a_slot_that_moves_takes_its_stream_along(cluster: Cluster) -> None:
    """Resharding: the same store follows, with the state that was there."""
    cluster.flush()
    store = open_store(cluster.url)
    await store.put_stream("clicks", b"")
    await store.report("clicks", ReportKey("ann", 1, 1), b"", LEASE)
    source = _owner(cluster, "clicks")
    target = next(node for node in cluster.nodes if node is not source)
    slot = source.ask("CLUSTER", "KEYSLOT", "{unskew:clicks}")
    await asyncio.to_thread(_move, cluster, slot, source, target)
    assert await in_time(lambda: store.report("clicks", ReportKey("ann", 1, 1), b"", LEASE)) is ReportOutcome.REPEATED
    assert _owner(cluster, "clicks") is target
    assert (await merge(store, 1)).names == (ReportKey("ann", 1, 1),)
    await asyncio.to_thread(_move, cluster, slot, target, source)
    await store.close()


def _move(cluster: Cluster, slot: int, source: Server, target: Server) -> None:
    ids = {node.port: node.ask("CLUSTER", "MYID").decode() for node in (source, target)}
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source.port])
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target.port])
    moving = source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1000)
    source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *moving)
    for node in (target, source, *cluster.nodes):
        node.ask("CLUSTER", "SETSLOT", slot, "NODE", ids[target.port])


@pytest.mark.long
async def test_a_node_that_comes_back_empty_starts_its_streams_anew(cluster: Cluster) -> None:
    """While it is away that is said; after that its streams are put again and are newer, and the others are there."""
    cluster.flush()
    store = open_store(cluster.url)
    records = {}
    for number in range(24):
        records[f"s{number}"], _ = await store.put_stream(f"s{number}", b"")
    node = _owner(cluster, "s0")
    lost = {name for name in records if _owner(cluster, name) is node}
    assert 0 < len(lost) < 24
    assert node.process is not None
    node.process.send_signal(signal.SIGKILL)
    node.process.wait()
    with pytest.raises(UnavailableError):
        await store.stream("s0")
    node.start()
    for name, record in records.items():
        found = await in_time(lambda name=name: store.stream(name))
        assert found == (None if name in lost else record)
        again, created = await in_time(lambda name=name: store.put_stream(name, b""))
        assert created == (name in lost)
        assert (again.incarnation > record.incarnation) == (name in lost)
    await store.close()
