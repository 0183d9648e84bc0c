"""A replica that lies: of an older state, another incarnation, or none of ours that only publishes. The store takes
nothing that is not next, and no news make anybody route wrongly or wait longer than a look at the store."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from itertools import count

import pytest

from tests.attack.conftest import Pair
from tests.attack.lies import NEWS
from tests.planning import some_histogram
from tests.service.faces import report
from unskew.client import Client
from unskew.core.errors import ConfigError
from unskew.core.plan.plan import Version
from unskew.core.rounds.round_log import Commit, ReportKey
from unskew.service.stores import open_store
from unskew.service.stores.records import PlanOutcome, PlanRecord, StreamRecord

pytestmark = pytest.mark.xdist_group("attack")

STREAM, WORKERS = "told-lies", 8
_numbers = count(1)


@pytest.fixture(scope="module")
def told(pair: Pair) -> Pair:
    with pair.client(pair.warm) as client:
        client.put_stream(STREAM, partitions=WORKERS, dsync=1.0, dsync_min=1.0, dsync_max=1.0)
        client.build_plan(STREAM, histogram=some_histogram(1000, 50))
    return pair


def merged(client: Client) -> tuple[int, int]:
    """An honest report, and the round that it is in."""
    answer = client.sync(STREAM, replace(report(WORKERS, "honest"), seq=next(_numbers), dsync=1.0), wait=30.0)
    assert answer.answer is not None
    return answer.answer.version


def test_foreign_news_change_no_plan_and_lose_no_round(told: Pair) -> None:
    """Published all the while, as fast as one connection can."""
    over = threading.Event()

    def publish() -> None:
        channels = [name.decode() for name in told.redis.pubsub_channels()]
        while not over.is_set():
            for channel in channels:
                for news in NEWS:
                    told.redis.publish(channel, news.replace("STREAM", STREAM))
            over.wait(0.005)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        with told.client(told.warm) as warm, told.client(told.cold) as cold:
            versions, plans = [], []
            for client in (warm, cold, warm, cold):
                versions.append(merged(client))
                plans.append(client.get_plan(STREAM).plan)
                started = time.monotonic()
                built = client.build_plan(STREAM, histogram=some_histogram(1000, 50, seed=len(plans))).plan
                assert time.monotonic() - started < 20
                assert built.version >= plans[-1].version
    finally:
        over.set()
        thread.join(60)
    assert versions == sorted(set(versions))
    assert [plan.version for plan in plans] == sorted(plan.version for plan in plans)
    assert {plan.info.stream for plan in plans} == {STREAM}
    told.clean()


def test_a_replica_of_another_state_is_refused_by_the_store(told: Pair) -> None:
    """Plans of an older or another incarnation or number, rounds that are not sealed or have other reports in them,
    reports of a stream that is gone."""

    async def lie() -> None:
        store = open_store(f"{told.server.url}?timeout=5&deadline=10")
        try:
            record, plan = await store.stream(STREAM), await store.plan(STREAM)
            assert record is not None
            assert plan is not None
            inc, number = plan.version.incarnation, plan.version.number
            for version in (
                Version(inc - 1, number + 1), Version(inc + 10**9, 1), Version(inc, number), Version(inc, 0),
                Version(inc + 1, number + 1),
            ):  # fmt: skip
                for after in (None, plan.version, Version(inc, number - 1)):
                    forged = PlanRecord(version, "0" * 64, plan.data)
                    assert await store.put_plan(STREAM, forged, after) is not PlanOutcome.STORED, (version, after)
            view = await store.round(STREAM)
            liar = ReportKey("liar", 1, 1)
            for epoch in (view.merged, view.merged + 1, view.open, view.open + 7, 2**40):
                valid = await store.commit(STREAM, Commit(epoch, b"forged", (liar,), b""))
                assert valid is None or valid.answer != b"forged"
            assert not await store.seal(STREAM, view.open + 1)
            older = StreamRecord(STREAM, record.spec, record.created, inc - 10**6, record.owner)
            renewed = await store.renew_stream(older, 0.0)
            assert renewed is not None
            assert (renewed[0].incarnation, renewed[1]) == (inc, False)
            for floor in (-1, 2**63):
                with pytest.raises(ConfigError, match="microseconds since 1970"):
                    await store.put_stream(STREAM, record.spec, floor)
        finally:
            await store.close()

    with told.client(told.warm) as client:
        before = merged(client)
        kept = client.get_plan(STREAM).plan
        asyncio.run(lie())
        assert merged(client) > before
        assert client.get_plan(STREAM).plan.version == kept.version
    told.clean()
