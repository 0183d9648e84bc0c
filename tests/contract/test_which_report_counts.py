"""Which report counts: ``tests/conformance/reports.json`` says it case by case. The rounds in core, the memory store
and the Lua script on a real Redis are all held to it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.backends import MemoryBackend, UrlBackend
from unskew.core.rounds.round_log import Commit, ReportKey, ReportOutcome, RoundLog, RoundView, StoredReport
from unskew.service.stores.ports import Store

CASES = json.loads((Path(__file__).parents[1] / "conformance" / "reports.json").read_text())["cases"]


class InCore:
    """The rounds alone, on a clock that stands still."""

    def __init__(self) -> None:
        self.log = RoundLog()

    async def report(self, key: ReportKey, lease: float) -> ReportOutcome:
        return self.log.report(key, b"", 1.0, lease)

    async def seal(self, epoch: int) -> bool:
        return self.log.seal(epoch) or epoch < self.log.open

    async def commit(self, commit: Commit) -> bool:
        return self.log.commit(commit, 1.0, 86_400.0)

    async def sealed(self, epoch: int) -> tuple[StoredReport, ...]:
        return self.log.sealed(epoch)

    async def view(self) -> RoundView:
        return self.log.view(1.0, 0)


class InStore:
    """A stream of a store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def report(self, key: ReportKey, lease: float) -> ReportOutcome:
        return await self.store.report("clicks", key, b"", lease)

    async def seal(self, epoch: int) -> bool:
        return await self.store.seal("clicks", epoch)

    async def commit(self, commit: Commit) -> bool:
        return await self.store.commit("clicks", commit) == commit

    async def sealed(self, epoch: int) -> tuple[StoredReport, ...]:
        return tuple(await self.store.sealed("clicks", epoch))

    async def view(self) -> RoundView:
        return await self.store.round("clicks")


Rounds = InCore | InStore


@pytest.fixture(params=["core", "memory", "redis"])
async def rounds(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[Rounds]:
    if request.param == "core":
        yield InCore()
        return
    if request.param == "memory":
        backend: MemoryBackend | UrlBackend = MemoryBackend()
    else:
        server = request.getfixturevalue("empty_redis")
        backend = UrlBackend(server.url, lambda: server.ask("FLUSHALL"))
    store = backend.open()
    await store.put_stream("clicks", b"spec")
    yield InStore(store)
    await backend.close()


async def done(rounds: Rounds, step: dict[str, Any]) -> None:
    """Do the step, and compare what it says."""
    if "report" in step:
        assert (await rounds.report(ReportKey(*step["report"]), step["lease"])).value == step["outcome"], step
    elif "seal" in step:
        assert await rounds.seal(step["seal"]) == step["closed"], step
    else:
        names = tuple(ReportKey(*name) for name in step["reports"])
        assert await rounds.commit(Commit(step["commit"], b"answer", names, b"")) == step["stands"], step


async def in_the_open_round(rounds: Rounds, view: RoundView) -> list[ReportKey]:
    """They are told when it is sealed: until then a store names the agents only."""
    assert await rounds.seal(view.open) == bool(view.reported)
    return [one.key for one in await rounds.sealed(view.open)]


@pytest.mark.anyio
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"].replace(" ", "_"))
async def test_which_report_counts(case: dict[str, Any], rounds: Rounds) -> None:
    for step in case["steps"]:
        await done(rounds, step)
    view = await rounds.view()
    assert sorted(view.live()) == case["live"]
    assert sorted(view.reported) == sorted({agent for agent, _, _ in case["open"]})
    unmerged = range(view.merged + 1, view.open)
    sealed = {str(epoch): [list(one.key) for one in await rounds.sealed(epoch)] for epoch in unmerged}
    assert sealed == case["sealed"]
    assert [list(key) for key in await in_the_open_round(rounds, view)] == case["open"]


def test_no_case_is_there_twice() -> None:
    """A case is its steps: two of one name or of the same steps would be one."""
    assert len({case["name"] for case in CASES}) == len(CASES)
    assert len({json.dumps(case["steps"]) for case in CASES}) == len(CASES)
