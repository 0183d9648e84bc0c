"""The memory store and Redis side by side under whatever Hypothesis thinks of: they answer alike.

Times are each store's own and are left out, and versions are counted from each stream's own incarnation.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.servers import Server
from unskew.core.plan.plan import Version
from unskew.core.rounds.round_log import Commit, ReportKey
from unskew.service.errors import ServiceError
from unskew.service.stores import open_store
from unskew.service.stores.limits import Limits
from unskew.service.stores.ports import Store
from unskew.service.stores.records import PartKey, PlanRecord

FEW = Limits(plans=5, batches=5, stream_bytes=4800, owner_bytes=1100, parts=3, sources=2, agents=2)
Ask = Callable[[Store], Awaitable[Any]]

streams = st.sampled_from(["clicks", "views"])
part_keys = st.builds(
    lambda kind, source, batch, run, parts, part: PartKey(kind, source, batch, run, part % parts, parts),
    st.sampled_from(["histogram", "work"]),
    st.sampled_from(["app", "app:q", "q app"]),
    st.integers(-1, 9),
    st.integers(0, 2),
    st.integers(1, 2),
    st.integers(0, 1),
)
report_keys = st.builds(ReportKey, st.sampled_from(["ann", "ann 1", "bob"]), st.integers(1, 3), st.integers(1, 4))
epochs = st.integers(1, 5)
data = st.binary(max_size=3)
numbers = st.integers(1, 9)
purposes = st.sampled_from(["", "batch:1", "batch:2", "batch:3"])


class Side:
    """One of the two stores, and what it says in words that both share."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.incarnations: dict[str, int] = {}

    async def put_stream(self, name: str, spec: bytes) -> Any:
        record, created = await self.store.put_stream(name, spec)
        assert created == (self.incarnations.get(name) != record.incarnation)
        self.incarnations[name] = record.incarnation
        return record.spec, created

    async def put_plan(self, name: str, number: int, after: int, purpose: str, digest: str) -> Any:
        base = self.incarnations.get(name, 1)
        record = PlanRecord(Version(base, number), digest, digest.encode(), purpose)
        return await self.store.put_plan(name, record, Version(base, after) if after else None)

    async def plans(self, name: str) -> Any:
        base = self.incarnations.get(name, 1)
        found = [await self.store.plan(name), *[await self.store.plan(name, Version(base, n)) for n in range(1, 10)]]
        found += [await self.store.plan_for(name, f"batch:{n}") for n in (1, 2, 3)]
        return [one and (one.version.number, one.digest, one.data, one.purpose) for one in found]

    async def rounds(self, name: str) -> Any:
        view = await self.store.round(name)
        members = [(one.agent, one.merged) for one in view.members]
        sealed = [
            [(one.key, one.data) for one in await self.store.sealed(name, epoch)] for epoch in range(1, view.open)
        ]
        state = view.open, view.merged, view.opened is None, sorted(view.reported), members, view.keep
        return state, sealed, await self.store.answer(name)

    async def merge(self, name: str) -> Any:
        """The next round, by what is sealed."""
        epoch = (await self.store.round(name)).merged + 1
        names = tuple(one.key for one in await self.store.sealed(name, epoch))
        return await self.store.commit(name, Commit(epoch, b"answer", names, b"%d" % epoch))

    async def notes(self, name: str, kind: str) -> Any:
        return [note.data for note in await self.store.notes(name, kind, 2)]

    async def replace_parts(self, name: str, key: PartKey, *, outdated: bool) -> Any:
        """All of the source into its first part, as a replica would that saw them now, or before somebody else did."""
        seen = await self.store.source_parts(name, key.kind, key.batch, key.source)
        whole = b"".join(part.data for part in seen.parts)
        data = {part.key: b"" if at else whole for at, part in enumerate(seen.parts)}
        if not data:
            return None
        first = await self.store.replace_parts(name, seen, data)
        return first, await self.store.replace_parts(name, seen, data) if outdated else None

    async def listed(self) -> Any:
        return [(one.name, one.spec) for one in await self.store.streams("", 9)]


class Twins(RuleBasedStateMachine):
    server: Server

    def __init__(self) -> None:
        super().__init__()
        self.server.ask("FLUSHALL")
        self.loop = asyncio.new_event_loop()
        url = f"{self.server.url}?timeout=5&deadline=10"
        self.sides = Side(open_store("memory", clock=time.time, limits=FEW)), Side(open_store(url, limits=FEW))

    def teardown(self) -> None:
        for side in self.sides:
            self.loop.run_until_complete(side.store.close())
        self.loop.close()

    def both(self, ask: Callable[[Side], Awaitable[Any]]) -> Any:
        memory, other = (self.loop.run_until_complete(_said(ask(side))) for side in self.sides)
        assert memory == other
        return memory

    @rule(name=streams, spec=data)
    def put_stream(self, name: str, spec: bytes) -> None:
        self.both(lambda side: side.put_stream(name, spec))
        self.both(lambda side: side.listed())

    @rule(name=streams)
    def delete_stream(self, name: str) -> None:
        self.both(lambda side: side.store.delete_stream(name))
        self.both(lambda side: side.listed())

    @rule(name=streams, key=part_keys, value=data)
    def put_part(self, name: str, key: PartKey, value: bytes) -> None:
        self.both(lambda side: side.store.put_part(name, key, value))
        self.both(lambda side: side.store.parts(name, key.kind, key.batch))
        self.both(lambda side: side.store.part_keys(name, key.kind, key.batch))
        self.both(lambda side: _order(side.store, name))

    @rule(name=streams, key=part_keys, outdated=st.booleans())
    def replace_parts(self, name: str, key: PartKey, outdated: bool) -> None:
        self.both(lambda side: side.replace_parts(name, key, outdated=outdated))
        self.both(lambda side: side.store.parts(name, key.kind, key.batch))
        self.both(lambda side: side.store.batch_sizes(name, key.kind))

    @rule(name=streams, kind=st.sampled_from(["histogram", "work"]), before=st.none() | st.integers(-1, 9))
    def batches(self, name: str, kind: str, before: int | None) -> None:
        self.both(lambda side: side.store.batches(name, kind, before, 3))

    @rule(name=streams, number=numbers, after=st.integers(0, 8), purpose=purposes, digest=st.sampled_from("ab"))
    def put_any_plan(self, name: str, number: int, after: int, purpose: str, digest: str) -> None:
        self.both(lambda side: side.put_plan(name, number, after, purpose, digest))
        self.both(lambda side: side.plans(name))

    @rule(name=streams, purpose=purposes)
    def put_next_plan(self, name: str, purpose: str) -> None:
        latest = self.both(lambda side: side.plans(name))[0]
        after = latest[0] if latest else 0
        self.both(lambda side: side.put_plan(name, after + 1, after, purpose, "a"))

    @rule(name=streams, key=report_keys, value=data)
    def report(self, name: str, key: ReportKey, value: bytes) -> None:
        self.both(lambda side: side.store.report(name, key, value, 60.0))
        self.both(lambda side: side.rounds(name))

    @rule(name=streams, kind=st.sampled_from(["plan", "round"]), value=data, keep=st.integers(1, 3))
    def note(self, name: str, kind: str, value: bytes, keep: int) -> None:
        self.both(lambda side: side.store.note(name, kind, value, keep))
        self.both(lambda side: side.notes(name, kind))

    @rule(name=streams, epoch=epochs)
    def seal(self, name: str, epoch: int) -> None:
        self.both(lambda side: side.store.seal(name, epoch))
        self.both(lambda side: side.rounds(name))

    @rule(name=streams)
    def merge(self, name: str) -> None:
        self.both(lambda side: side.merge(name))
        self.both(lambda side: side.rounds(name))

    @rule(name=streams, epoch=epochs, names=st.lists(report_keys, max_size=2, unique=True))
    def commit(self, name: str, epoch: int, names: list[ReportKey]) -> None:
        self.both(lambda side: side.store.commit(name, Commit(epoch, b"any", tuple(names), b"")))
        self.both(lambda side: side.rounds(name))


async def _order(store: Store, name: str) -> list[tuple[str, int]] | None:
    """Batches by when they were reported to last: marks are a store's own, their order is not."""
    found = await store.marks(name, ("histogram", "work"))
    marked = [] if found is None else [(mark, kind, n) for kind, of in found.of.items() for n, mark in of.items()]
    return None if found is None else [(kind, number) for _, kind, number in sorted(marked)]


async def _said(asked: Awaitable[Any]) -> Any:
    """The answer, or the refusal in words."""
    try:
        return await asked
    except ServiceError as error:
        return type(error).__name__, error.message


@pytest.fixture
def twins(empty_redis: Server) -> type[Twins]:
    Twins.server = empty_redis
    return Twins


def run(machine: type[Twins], examples: int, steps: int) -> None:
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    dose = settings(max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=slow)
    run_state_machine_as_test(machine, settings=dose)


def test_memory_and_redis_answer_alike(twins: type[Twins]) -> None:
    """A small dose."""
    run(twins, 25, 40)


@pytest.mark.long
def test_memory_and_redis_answer_alike_for_long(twins: type[Twins]) -> None:
    """The full one."""
    run(twins, 400, 80)
