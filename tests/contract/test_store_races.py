"""REPORT, SEAL and COMMIT by several replicas at once, some of whose answers are lost on the way back, on a real Redis:
what they are told and what is there in the end is what the memory store says in one order of the same calls.

A call whose answer was lost is sent again by the link, so it is done twice, with others between: the model does that
too, in every order, until one fits."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from redis.exceptions import ConnectionError  # noqa: A004  # Redis's own

from tests.contract.backends import LIMITS
from tests.property.checked_rounds.replicated_store import at_once as now
from tests.servers import Server
from unskew.core.rounds.round_log import Commit, ReportKey
from unskew.service.stores import open_store
from unskew.service.stores.memory import MemoryStore
from unskew.service.stores.ports import Store
from unskew.service.stores.redis.store import RedisStore

STREAM = "clicks"


@dataclass(frozen=True)
class Call:
    """``lost``: the first answer never arrives. ``number`` is the report's seq, the epoch sealed or merged."""

    verb: str
    agent: str
    number: int
    lost: bool

    def on(self, store: Store, names: tuple[ReportKey, ...]) -> Awaitable[Any]:
        if self.verb == "report":
            return store.report(STREAM, ReportKey(self.agent, 1 + self.number // 3, self.number), b"", 60.0)
        if self.verb == "seal":
            return store.seal(STREAM, self.number)
        return store.commit(STREAM, Commit(self.number, b"answer", names, b"%d" % self.number))


calls = st.builds(
    Call,
    st.sampled_from(["report", "report", "seal", "commit"]),
    st.sampled_from("ab"),
    st.integers(1, 6),
    st.booleans(),
)


class Lossy:
    """A client whose answers are lost when that is asked for: what was asked is done all the same."""

    def __init__(self, client: Any) -> None:
        self._client, self.lose = client, False

    async def execute_command(self, *words: Any, **options: Any) -> Any:
        found = await self._client.execute_command(*words, **options)
        if self.lose:
            self.lose = False
            raise ConnectionError("the answer was lost")
        return found

    async def aclose(self) -> None:
        await self._client.aclose()


async def state(store: Store) -> Any:
    view = await store.round(STREAM)
    sealed = [[one.key for one in await store.sealed(STREAM, epoch)] for epoch in range(1, view.open)]
    members = [(one.agent, one.merged) for one in view.members]
    seen = view.open, view.merged, view.opened is None, sorted(view.reported), members, view.keep
    return seen, sealed, await store.answer(STREAM)


def forked(store: MemoryStore) -> MemoryStore:
    other = MemoryStore(time.time, LIMITS)
    other._streams = copy.deepcopy(store._streams)
    return other


class Races(RuleBasedStateMachine):
    server: Server

    def __init__(self) -> None:
        super().__init__()
        self.server.ask("FLUSHALL")
        self.loop = asyncio.new_event_loop()
        self.model = MemoryStore(time.time, LIMITS)
        now(self.model.put_stream(STREAM, b""))
        self.stores, self.links = [], []
        for _ in range(3):
            store = open_store(f"{self.server.url}?timeout=5&deadline=10", limits=LIMITS)
            assert isinstance(store, RedisStore)
            self.links.append(Lossy(store._client._client))
            store._client._client = self.links[-1]
            self.stores.append(store)
        self.loop.run_until_complete(self.stores[0].put_stream(STREAM, b""))

    def teardown(self) -> None:
        for store in self.stores:
            self.loop.run_until_complete(store.close())
        self.loop.close()

    @rule(some=st.lists(calls, min_size=1, max_size=3))
    def at_once(self, some: list[Call]) -> None:
        """Merges are of what is sealed before, or of what will not be: a commit of other reports is refused."""
        merged = now(self.model.round(STREAM)).merged
        names = tuple(one.key for one in now(self.model.sealed(STREAM, merged + 1)))
        told, found = self.loop.run_until_complete(self._really(some, names))
        for model in self._orders(some, names, told):
            if now(state(model)) == found:
                self.model = model
                return
        raise AssertionError(f"no order of {some} gives {told} and {found}, from {now(state(self.model))}")

    async def _really(self, some: list[Call], names: tuple[ReportKey, ...]) -> tuple[list[Any], Any]:
        for call, link in zip(some, self.links, strict=False):
            link.lose = call.lost
        told = await asyncio.gather(*(call.on(store, names) for call, store in zip(some, self.stores, strict=False)))
        return list(told), await state(self.stores[0])

    def _orders(self, some: list[Call], names: tuple[ReportKey, ...], told: list[Any]) -> Iterator[MemoryStore]:
        """The model after each order in which every caller is told what it was told."""
        steps = [at for at, call in enumerate(some) for _ in range(1 + call.lost)]
        for order in sorted(set(permutations(steps))):
            model, said = forked(self.model), [None] * len(some)
            for at in order:
                said[at] = now(some[at].on(model, names))  # type: ignore[arg-type]
            if said == told:
                yield model


@pytest.fixture
def races(empty_redis: Server) -> type[Races]:
    Races.server = empty_redis
    return Races


def run(machine: type[Races], examples: int, steps: int) -> None:
    # Shrinking would try the same race again, and it comes out otherwise.
    dose = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        phases=(Phase.reuse, Phase.generate),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    run_state_machine_as_test(machine, settings=dose)


def test_calls_at_once_are_as_if_one_after_another(races: type[Races]) -> None:
    """A small dose."""
    run(races, 8, 25)


@pytest.mark.long
def test_calls_at_once_are_as_if_one_after_another_for_long(races: type[Races]) -> None:
    """The full one."""
    run(races, 100, 40)
