"""The driver's part in the rounds: which batches report, who is waited for, and what a slow or absent service does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from tests.servers import free_ports
from tests.spark.streaming_learning.plain import Clock, Plain, let_go, slow_service
from unskew.client import Client, testing
from unskew.client.testing import Embedded
from unskew.core.rounds.sync_schedule import SyncSchedule
from unskew.core.stream_spec import StreamSpec
from unskew.spark.service_link import ServiceLink
from unskew.spark.streaming.round_participant import RoundParticipant

N = 32


@pytest.fixture(scope="module")
def service() -> Iterator[Embedded]:
    with testing.embedded() as running:
        yield running


@pytest.fixture
def client(service: Embedded) -> Iterator[Client]:
    with service.client(timeout=60.0) as made, let_go():
        yield made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def run(apps: list[Plain], clock: Clock, batch: int) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    """A batch of each, and what was said of it answered."""
    found = [app.batch(batch) for app in apps]
    for app in apps:
        assert app.syncs.settle(60)
    clock.now += apps[0].interval
    return found


def splits(placed: list[tuple[np.ndarray, np.ndarray]]) -> dict[int, int]:
    """Keys on more than one partition, and their rows."""
    keys = np.concatenate([one for one, _ in placed])
    where = np.concatenate([one for _, one in placed])
    pairs = np.unique(np.stack([keys, where.astype(np.uint64)]), axis=1)
    key, fragments = np.unique(pairs[0], return_counts=True)
    counts = np.bincount(np.searchsorted(key, keys))
    return dict(zip(key[fragments > 1].tolist(), counts[fragments > 1].tolist(), strict=True))


def test_a_sync_is_due_where_a_batch_is_nearest_to_it() -> None:
    """DSYNC is in seconds; batches come when they come."""
    cadence = SyncSchedule.of(10.0).after(1.0)
    assert not SyncSchedule.of(10.0).due(0.0, float("-inf"), 10.0)  # the first of a life says nothing of later ones
    assert cadence.due(0.0, float("-inf"), 10.0)
    assert [cadence.due(t, 0.0, 10.0) for t in (1.0, 4.9, 5.0, 9.8, 30.0)] == [False, False, True, True, True]
    assert [cadence.due(t, 0.0, 20.0) for t in (10.0, 14.9, 19.9)] == [False, False, True]


def test_slow_batches_need_a_longer_dsync() -> None:
    """A round is open for one and a half: a batch must not take more than half of one. One slow batch is not enough,
    and the first of a life does not count."""
    cadence = SyncSchedule.of(10.0).after(60.0).after(60.0)
    assert cadence.needs == 10.0
    assert cadence.after(1.0).after(60.0).needs == 10.0
    assert cadence.after(8.0).needs == 16.0
    assert SyncSchedule.of(10.0).after(1.0).after(6.0).after(6.0).needs == 10.0  # within a quarter


def test_two_applications_learn_one_table_and_split_no_key_that_is_hot_to_one_only(
    client: Client, clock: Clock
) -> None:
    """Hot keys of their own, half of the rows each: a round has both, and what is hot is hot in all rows."""
    apps = [Plain(client, "both", N, own, interval=2.0) for own in (0, 1)]
    for app in apps:
        app.syncs.meet(60)
    for batch in range(8):
        placed = run(apps, clock, batch)
        together = splits([*placed[0], *placed[1]])
        if batch >= 3:
            assert apps[0].syncs.answer is not None
            assert apps[0].syncs.answer.version == apps[1].syncs.answer.version
            assert apps[0].syncs.answer.records == 20_000
            hot = [rows for rows in together.values() if rows >= 20_000 / N]
            assert len(hot) == 6
            assert len(together) == len(hot)


def test_one_round_that_lacks_an_application_changes_nothing_two_do(client: Client, clock: Clock) -> None:
    """A driver that stands still for a moment, or is slow, must not have its neighbour's own keys split; one that is
    gone must not be waited for."""
    apps = [Plain(client, "lacks", N, own, interval=2.0) for own in (0, 1)]
    for app in apps:
        app.syncs.meet(60)
    for batch in range(5):
        run(apps, clock, batch)
    before = apps[0].bound(5)
    assert before.records == 20_000
    for batch, records in ((5, 20_000), (6, 10_000)):
        run(apps[:1], clock, batch)
        assert apps[0].bound(batch + 1).records == records
    assert apps[0].bound(7).version[1] == before.version[1] + 2


def test_a_round_does_not_wait_for_tasks_that_are_gone(client: Client, clock: Clock) -> None:
    """Eight tasks, then two: the next round is done with what there is, not when leases of 15 s or more have ended."""
    app = Plain(client, "fewer", N, 0, tasks=8, rows=1_000)
    app.syncs.meet(60)
    took, records = [], []
    for batch, tasks in enumerate((8, 8, 2, 2, 5)):
        app.tasks = tasks
        began = time.monotonic()
        run([app], clock, batch)
        took.append(time.monotonic() - began)
        records.append(0 if app.syncs.answer is None else app.syncs.answer.records)
    assert records == [0, 8_000, 8_000, 2_000, 5_000]
    assert max(took[1:]) < 12.0


def test_a_query_that_comes_late_finds_what_was_learned(client: Client, clock: Clock) -> None:
    """Its first batch is bound to the newest table; and what was hot without it has to be hot with it."""
    first = Plain(client, "late", N, 0)
    first.syncs.meet(60)
    for batch in range(4):
        placed = run([first], clock, batch)
    alone = splits(placed[0])
    second = Plain(client, "late", N, 1)
    second.syncs.meet(60)
    assert second.bound(0).version == first.bound(0).version > (0, 0)
    for batch in range(4, 9):
        placed = run([first, second], clock, batch)
    rows = sum(len(keys) for app in placed for keys, _ in app)
    after = splits([*placed[0], *placed[1]])
    assert min(after.values()) >= rows / N
    assert len(set(after) & set(alone)) < len(alone)


def test_dsync_grows_where_the_service_is_slow_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fig. 14b: merges that take four times as long, which is more than a DSYNC; then as before."""
    interval, work = 0.4, 0.15
    with slow_service(monkeypatch) as (target, slow), Client(target) as client, let_go():
        apps = [Plain(client, "slow", N, own, rows=500, interval=interval) for own in (0, 1)]
        for app in apps:
            app.syncs.meet(60)
        seen = []
        for phase, (seconds, wanted) in enumerate(((work, 1), (4 * work, 2), (work, 1))):
            slow.seconds = seconds
            end = time.monotonic() + 180.0
            dsync = -1.0
            while not (dsync >= 2 * interval if wanted > 1 else dsync == interval):
                assert time.monotonic() < end, (phase, seen)
                began = time.monotonic()
                for app in apps:
                    app.batch(len(seen))
                dsync = apps[0].syncs.dsync
                seen.append(dsync)
                time.sleep(max(interval - (time.monotonic() - began), 0.0))  # the trigger
    assert all(one == other or one == 2 * other or other == 2 * one for one, other in pairwise(seen))


def test_a_service_that_is_away_costs_a_batch_nothing_and_is_asked_again(clock: Clock) -> None:
    """Nobody there: no batch is due, so tasks do not even try. Then it comes, on the same port."""
    (port,) = free_ports(1)
    with Client(f"grpc://127.0.0.1:{port}", timeout=20.0) as client, let_go():
        app = Plain(client, "away", N, 0, rows=500)
        app.syncs.meet(0.0)
        for batch in range(3):
            began = time.monotonic()
            app.batch(batch)
            assert time.monotonic() - began < 15.0  # a call that nobody answers takes 20
            assert app.syncs.settle(60)
            clock.now += 1.0
        assert app.syncs.answer is None
        with testing.embedded(grpc_port=port):
            end = time.monotonic() + 180.0
            while app.syncs.answer is None:
                assert time.monotonic() < end
                clock.now += 60.0
                app.batch(batch := batch + 1)
                assert app.syncs.settle(60)


def test_a_batch_that_failed_holds_nobody_up(client: Client, clock: Clock) -> None:
    """It never said that it ended: the next one closes its round. And who is closed says nothing more."""
    app = Plain(client, "failed", N, 0, rows=500, interval=1.0)
    app.syncs.meet(60)
    run([app], clock, 0)
    assert app.syncs.due()
    assert not app.syncs.settle(0.3)
    clock.now += 1.0
    assert not app.syncs.due()
    assert app.syncs.settle(60)
    assert app.syncs.due()
    app.syncs.close()
    assert app.syncs.settle(60)
    clock.now += 1.0
    assert not app.syncs.due()


def test_a_stream_of_another_number_of_partitions_is_told(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    client.put_stream("other", partitions=5)
    syncs = RoundParticipant(ServiceLink(client), "other", StreamSpec(N), "q", 5.0)
    syncs.meet(60)
    assert "partitions: 32 is not allowed; use 5, as stream other has" in caplog.text
    assert syncs.answer is None


def test_a_stream_of_other_keys_is_told(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """Rows of the one would be learned from by the hashes of the other."""
    client.put_stream("ints", partitions=N, key_types=("int",))
    syncs = RoundParticipant(ServiceLink(client), "ints", StreamSpec(N, key_types=("bigint",)), "q", 5.0)
    syncs.meet(60)
    assert "stream ints is for keys of type (int), these are of (bigint)" in caplog.text
    assert syncs.answer is None


def test_the_slowest_query_of_a_stream_says_how_long_a_dsync_is_at_least(client: Client, clock: Clock) -> None:
    """A lease of three outlives two of its batches."""
    for source, interval, wanted in (("a", 0.5, 0.5), ("b", 2.0, 2.0), ("c", 0.75, 2.0)):
        RoundParticipant(ServiceLink(client), "paces", StreamSpec(N), source, interval).meet(60)
        assert client.get_stream("paces").spec.dsync_min == wanted
    app = Plain(client, "paces", N, 1, rows=500, interval=0.75)
    app.syncs.meet(60)
    due = []
    for _ in range(9):
        due.append(app.syncs.due())
        app.syncs.ended(0.1)
        app.syncs.settle(30)
        clock.now += 0.75
    assert due.count(True) in (2, 3)
