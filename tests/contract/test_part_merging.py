"""Parts are merged while they are reported through several replicas: each counts once, and what is kept stays small."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from tests.contract.backends import Backend
from tests.contract.laws import part, with_stream
from tests.servers import single
from unskew.core.histogram.histogram import Histogram
from unskew.core.rounds.round_log import ReportKey
from unskew.core.stream_spec import BatchWork, Part, StreamSpec, Work
from unskew.service.engine import part_merging
from unskew.service.engine.base import Tuning
from unskew.service.engine.engine import Engine
from unskew.service.errors import LimitError, QuotaError
from unskew.service.stores import open_store
from unskew.service.stores.limits import Limits
from unskew.service.stores.part_bytes import WORK, whole
from unskew.service.stores.ports import Store
from unskew.service.stores.records import StoredPart

pytestmark = pytest.mark.anyio

SPEC = StreamSpec(4, "kip", key_types=("bigint",))


@pytest.fixture
async def replicas(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Engine]]:
    """Two, which merge small parts too."""
    monkeypatch.setattr(part_merging, "_LEAST", 300)
    found = [Engine(backend.open(Limits())) for _ in range(2)]
    for engine in found:
        await engine.start()
    await found[0].put_stream("clicks", SPEC)
    yield found
    for engine in found:
        await engine.close()


def some(rng: random.Random) -> Histogram:
    keys = np.array(sorted(rng.sample(range(1, 60), rng.randint(1, 20))), np.uint64)
    histogram = Histogram.from_counts(keys, [rng.randint(1, 9) for _ in keys])
    spread = np.array([rng.randint(0, 5) for _ in keys]) if rng.random() < 0.3 else None
    return Histogram(histogram.hashes, histogram.counts, None, spread)


async def evidence(engine: Engine) -> Histogram | None:
    """What a plan for the batch would be made from."""
    batches = engine._batches
    cached = await engine._streams.get("clicks")
    wanted = await batches.wanted(cached, 1, fresh=True)
    return (await batches.evidence(cached, wanted)).histogram


@pytest.mark.parametrize("seed", range(8))
async def test_each_part_counts_once_however_it_was_merged(replicas: list[Engine], seed: int) -> None:
    """Retries with other data, through the other replica and at the same time; late parts; runs that replace others."""
    rng = random.Random(seed)
    counted: dict[str, tuple[int, dict[int, Histogram]]] = {}
    for _ in range(25):
        reports: list[tuple[Part, Histogram]] = []
        for _ in range(rng.randint(1, 6)):
            source, number = rng.choice(("app/a", "app/b")), rng.randrange(40)
            run, parts = counted.get(source, (0, {}))
            if rng.random() < 0.02:
                run, parts = run + 1, {}
            histogram = some(rng)
            counted[source] = run, {number: histogram} | parts
            reports.append((Part(source, 1, run, number, 40), histogram))
        for one, histogram in reports:  # the first says what counts
            await rng.choice(replicas).report_histogram("clicks", one, histogram)
        again = [(rng.choice(replicas), one) for one, _ in reports for _ in range(2)]
        repeated = await asyncio.gather(*(engine.report_histogram("clicks", one, some(rng)) for engine, one in again))
        assert all(repeated)
        expected = [histogram for _, parts in counted.values() for histogram in parts.values()]
        for engine in replicas:
            assert await evidence(engine) == expected[0].merge(*expected[1:])


async def test_parts_that_come_at_once_are_all_there(replicas: list[Engine]) -> None:
    """Merges of both replicas race with each other and with new parts."""
    rng = random.Random(5)
    reports = [(Part("app/a", 1, 0, number, 300), some(rng)) for number in range(300)]
    await asyncio.gather(*(replicas[number % 2].report_histogram("clicks", *one) for number, one in enumerate(reports)))
    expected = [histogram for _, histogram in reports]
    assert await evidence(replicas[0]) == expected[0].merge(*expected[1:])
    sizes = await replicas[1]._base.store.batch_sizes("clicks", "histogram")
    assert sizes[1] < 300 * 140 + 6000, "names, and a few times the histogram of 59 keys"


async def test_work_is_merged_too(replicas: list[Engine]) -> None:
    """Of many tasks: the sums are the same, times are the batch's."""
    for number in range(60):
        work = tuple(Work(partition, rows=number + partition, seconds=0.25) for partition in range(4))
        batch = BatchWork(work, interval=2.0 if number == 7 else 0.0)
        await replicas[number % 2].report_batch("clicks", Part("app/a", 1, 0, number, 60), batch)
    parts: list[StoredPart] = list(await replicas[0]._base.store.parts("clicks", WORK, 1))
    assert len(parts) == 60
    assert sum(len(one.data) for one in parts) < 60 * 20 + 1500
    found = whole(parts)
    assert [work.rows for work in found.work] == [sum(range(60)) + 60 * partition for partition in range(4)]
    assert (found.interval, found.work[0].seconds) == (2.0, 15.0)


async def test_a_source_with_no_room_for_its_parts_has_room_once_they_are_merged(backend: Backend) -> None:
    """Below the size at which they are merged anyway."""
    engine = Engine(backend.open(Limits(stream_bytes=30_000)))
    await engine.start()
    await engine.put_stream("clicks", SPEC)
    keys = np.arange(1, 400, dtype=np.uint64)
    for number in range(20):
        await engine.report_histogram("clicks", Part("app/a", 1, 0, number, 20), Histogram.from_counts(keys, keys))
    found = await evidence(engine)
    assert found is not None
    assert found.total == 20 * int(keys.sum())
    wide = np.arange(1, 3000, dtype=np.uint64)
    with pytest.raises(QuotaError, match="more than the 30,000 that it may have"):
        await engine.report_histogram("clicks", Part("app/b", 1), Histogram.from_counts(wide, wide))
    await engine.close()


async def test_a_plan_is_made_from_so_many_bytes(backend: Backend) -> None:
    """The earliest batches are left out; where the last one is too much it is refused."""
    engine = Engine(backend.open(Limits()), tuning=Tuning(plan_bytes=20_000))
    await engine.start()
    await engine.put_stream("clicks", SPEC)
    keys = np.arange(1, 500, dtype=np.uint64)
    for batch in range(4):
        await engine.report_histogram("clicks", Part("app/a", batch), Histogram.from_counts(keys, keys))
    built = await engine.build_plan("clicks", 4)
    assert "2 batches, batch 2 to batch 3 (with the 2 before more than --max-plan-bytes)" in built.reason
    wide = np.arange(1, 3000, dtype=np.uint64)
    await engine.report_histogram("clicks", Part("app/a", 4), Histogram.from_counts(wide, wide))
    with pytest.raises(LimitError, match=r"batch 4 of stream 'clicks' has 48,\d+ bytes .* 20,000 at most"):
        await engine.build_plan("clicks", 5)
    await engine.close()


async def put_parts(store: Store, batch: int, size: int) -> None:
    for number in range(1000):
        await store.put_part("clicks", part(number, 1000, batch=batch), bytes(size))


async def refuses_the_large_first(store: Store) -> None:
    """Histograms and large plans stop, reports of batches and of agents go on."""
    await store.put_stream("clicks", b"")
    with pytest.raises(QuotaError, match=r"up to 80% only"):
        await put_parts(store, 4, 1 << 20)
    assert 5 < len(await store.part_keys("clicks", "histogram", 4)) < 30
    with pytest.raises(QuotaError, match=r"up to 90% only"):
        await put_parts(store, 5, 100_000)
    for number in range(20):
        await store.put_part("clicks", part(number, 100, kind="work"), bytes(10_000))
        await store.report("clicks", ReportKey(f"a{number}", 1, 1), bytes(10_000), 60.0)
    await store.ping()
    used, most = store.used_bytes()
    assert 0.8 * most < used < most


async def test_a_memory_store_that_is_nearly_full_refuses_the_large_first() -> None:
    await refuses_the_large_first(open_store("memory", limits=Limits(store_bytes=20 << 20)))


async def test_a_redis_that_is_nearly_full_refuses_the_large_first(tmp_path: Path) -> None:
    with single(tmp_path, "maxmemory 32mb", "maxmemory-policy noeviction") as server:
        store = open_store(f"{server.url}?timeout=5&deadline=10")
        await store.ping()
        await refuses_the_large_first(store)
        await store.close()


async def test_batches_of_the_release_before_are_counted_as_they_are(backend: Backend) -> None:
    """It does not write their sizes."""
    store, _ = await with_stream(backend)
    for number in range(3):
        await store.put_part("clicks", part(number, 9), b"x" * 50)
    before = await store.batch_sizes("clicks", "histogram")
    if hasattr(store, "_client"):
        await store._client.command("DEL", "{unskew:clicks}:u:histogram")
    assert await store.batch_sizes("clicks", "histogram") == before == {3: 3 * (50 + 11 + 96)}
