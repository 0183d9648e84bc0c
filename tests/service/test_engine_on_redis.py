"""The tests of the engine once more, over a real Redis: each replica with its own connections to one server."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.servers import Server, single
from tests.service import (
    engines,
    test_engine_advice,
    test_engine_batches,
    test_engine_faults,
    test_engine_overview,
    test_engine_plans,
    test_engine_rounds,
    test_engine_watch,
    test_engine_ways,
)
from unskew.core.rounds.round_digests import NOTHING_SEEN
from unskew.core.stream_spec import StreamSpec
from unskew.service.engine.base import Tuning
from unskew.service.engine.engine import Engine
from unskew.service.stores import open_store
from unskew.service.stores.records import News


def _tests(*modules: ModuleType) -> dict[str, Callable[..., Any]]:
    return {
        name: test
        for module in modules
        for name, test in vars(module).items()
        if name.startswith("test_")
        and name not in MEMORY_ONLY
        and inspect.isfunction(test)
        and test.__module__ == module.__name__
        and not inspect.signature(test).parameters
    }


MEMORY_ONLY = {
    "test_what_cannot_be_read_of_a_round_does_not_hold_it_up": "spoils what is in the memory store",
    "test_a_stream_that_the_store_lost_begins_anew_above_its_old_numbers": "puts another memory store in its place",
    "test_dsync_doubles_where_the_reducer_is_slow_and_halves_where_it_is_idle": "sets the store's clock by hand",
}
EVERY = _tests(
    test_engine_advice,
    test_engine_batches,
    test_engine_faults,
    test_engine_overview,
    test_engine_plans,
    test_engine_rounds,
    test_engine_watch,
    test_engine_ways,
)


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with single(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def on_redis(redis_server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """Stores that a test of the engine makes are stores on this Redis, which is empty."""
    redis_server.ask("FLUSHALL")
    url = f"{redis_server.url}?timeout=5&deadline=10"
    monkeypatch.setattr(engines.Made, "store", lambda _clock: open_store(url))
    monkeypatch.setattr(engines.Made, "shared", False)
    return url


@pytest.mark.parametrize("name", EVERY)
def test_as_on_memory(name: str, on_redis: str) -> None:
    EVERY[name]()


class Deaf:
    """A store whose news are never heard: they are a wake-up only."""

    def __init__(self, url: str) -> None:
        self._store = open_store(url)

    def __getattr__(self, op: str) -> Any:
        return getattr(self._store, op)

    async def news(self) -> AsyncIterator[News]:
        await asyncio.Event().wait()
        yield News("", "")


@pytest.mark.parametrize("kind", [open_store, Deaf], ids=["with pub/sub", "without"])
def test_what_one_replica_makes_reaches_those_of_another(on_redis: str, kind: Callable[[str], Any]) -> None:
    """Watchers get its plans and agents its rounds: at once where news are heard, else when somebody looks again."""

    async def main() -> None:
        stores = [kind(on_redis) for _ in range(3)]
        poll = 120.0 if kind is open_store else 0.2
        replicas = [Engine(store, tuning=Tuning(poll=poll)) for store in stores]
        for engine in replicas:
            await engine.start()
        await replicas[0].put_stream("clicks", StreamSpec(4, "balanced", dsync=0.5, dsync_min=0.5))
        watches = [engine.watch_plans("clicks") for engine in replicas]
        waiting = [asyncio.ensure_future(anext(watch)) for watch in watches]
        await engines.until(lambda: all(_looked(engine) for engine in replicas))
        built = await replicas[1].build_plan("clicks", histogram=engines.skewed())
        found = await asyncio.wait_for(asyncio.gather(*waiting), 60.0)
        assert {one.digest for one in found} == {built.digest}
        for seq in range(1, 4):
            syncs = [
                engine.sync("clicks", engines.a_report(f"agent {at}", seq), 60.0, NOTHING_SEEN)
                for at, engine in enumerate(replicas)
            ]
            assert all(one.merged for one in await asyncio.gather(*syncs))
        assert len({(await engine.get_stream("clicks")).epoch for engine in replicas}) == 1
        for watch in watches:
            await watch.aclose()
        for engine in replicas:
            await engine.close()
        for store in stores:
            await store.close()

    engines.run(main())


def _looked(engine: Engine) -> bool:
    """Whether this replica has seen that there is no plan yet, so that only news, or its next look, tell of one."""
    channel = engine._watching._channels.get("clicks")
    return channel is not None and channel.read
