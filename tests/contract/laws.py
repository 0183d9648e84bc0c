"""What holds for every store, each law on a fresh state. ``LAWS`` is the suite; a name says what the law says."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from tests.contract.backends import Backend
from unskew.core.errors import ConfigError
from unskew.core.plan.plan import Version
from unskew.core.rounds.round_digests import begun, digests_after
from unskew.core.rounds.round_log import Commit, ReportKey, ReportOutcome
from unskew.service.errors import ConflictError, LimitError, NotFoundError, QuotaError, UnavailableError
from unskew.service.stores.limits import MOST_INCARNATION, Limits
from unskew.service.stores.ports import Store
from unskew.service.stores.records import Marks, News, PartKey, PartOutcome, PlanOutcome, PlanRecord, StreamRecord

Law = Callable[[Backend], Awaitable[None]]
LAWS: dict[str, Law] = {}
LEASE = 60.0
BIG = 2**62


def law(check: Law) -> Law:
    LAWS[check.__name__] = check
    return check


def part(
    part: int, parts: int, run: int = 0, batch: int = 3, source: str = "app:query", kind: str = "histogram"
) -> PartKey:
    return PartKey(kind, source, batch, run, part, parts)


def plan(incarnation: int, number: int, purpose: str = "", digest: str = "") -> PlanRecord:
    digest = digest or f"digest-{number}"
    return PlanRecord(Version(incarnation, number), digest, f"plan {number} {digest}".encode(), purpose)


async def with_stream(backend: Backend, name: str = "clicks", limits: Limits | None = None) -> tuple[Store, int]:
    store = backend.open() if limits is None else backend.open(limits)
    record, _ = await store.put_stream(name, b"spec")
    return store, record.incarnation


async def merge(store: Store, epoch: int, stream: str = "clicks") -> Commit:
    """Seal and merge as any replica would."""
    assert await store.seal(stream, epoch)
    commit = committed(epoch, tuple(report.key for report in await store.sealed(stream, epoch)))
    assert await store.commit(stream, commit)
    return commit


def committed(epoch: int, names: tuple[ReportKey, ...]) -> Commit:
    return Commit(epoch, f"answer {epoch}".encode(), names, f"keep {epoch}".encode())


# -- streams


@law
async def a_stream_is_created_once_and_changed_in_place(backend: Backend) -> None:
    store = backend.open()
    first, created = await store.put_stream("clicks", b"one\x00\r\n")
    assert created
    assert first.spec == b"one\x00\r\n"
    assert abs(first.incarnation / 1e6 - first.created) < 1e-3
    changed, again = await backend.open().put_stream("clicks", b"two")
    assert not again
    assert (changed.name, changed.spec) == ("clicks", b"two")
    assert (changed.incarnation, changed.created) == (first.incarnation, first.created)
    assert await store.stream("clicks") == changed
    assert await store.stream("views") is None


@law
async def streams_are_listed_by_name_in_pages(backend: Backend) -> None:
    store = backend.open()
    names = [f"s{number:03}" for number in range(120)] + ["a:b/c._-d", "A"]
    for name in names:
        await store.put_stream(name, b"")
    seen: list[str] = []
    while page := [record.name for record in await store.streams(seen[-1] if seen else "", 50)]:
        assert len(page) <= 50
        seen += page
    assert seen == sorted(names)
    await store.delete_stream("A")
    assert [record.name for record in await store.streams("", 2)] == ["a:b/c._-d", "s000"]


@law
async def a_deleted_stream_is_gone_with_all_it_had_and_comes_back_newer(backend: Backend) -> None:
    store, incarnation = await with_stream(backend)
    await store.put_part("clicks", part(0, 1), b"counts")
    await store.put_plan("clicks", plan(incarnation, 1, "batch:1"), None)
    await store.report("clicks", ReportKey("ann", 1, 1), b"report", LEASE)
    await merge(store, 1)
    await store.report("clicks", ReportKey("ann", 1, 2), b"report", LEASE)
    await store.note("clicks", "plan", b"note", 9)
    assert await store.delete_stream("clicks")
    assert not await store.delete_stream("clicks")
    assert await store.stream("clicks") is None
    for _ in range(2):  # while it is gone, and put anew
        assert await store.parts("clicks", "histogram", 3) == ()
        assert await store.part_keys("clicks", "histogram", 3) == ()
        assert await store.batches("clicks", "histogram", None, 9) == ()
        assert await store.plan("clicks") is None
        assert await store.plan_for("clicks", "batch:1") is None
        assert await store.answer("clicks") is None
        assert await store.sealed("clicks", 2) == ()
        assert await store.notes("clicks", "plan", 9) == ()
        record, _ = await store.put_stream("clicks", b"spec")
        assert record.incarnation > incarnation
    view = await store.round("clicks")
    assert (view.open, view.merged, view.opened, view.reported, view.members, view.keep) == (1, 0, None, {}, (), b"")
    assert await store.report("clicks", ReportKey("ann", 1, 1), b"report", LEASE) is ReportOutcome.STORED


@law
async def a_new_incarnation_is_at_least_the_floor(backend: Backend) -> None:
    store, incarnation = await with_stream(backend)
    floor = incarnation + 3_000_000_000
    same, created = await store.put_stream("clicks", b"spec", floor)
    assert (same.incarnation, created) == (incarnation, False)
    new, created = await store.put_stream("views", b"spec", floor)
    assert (new.incarnation, created) == (floor, True)
    await store.delete_stream("views")
    newer, _ = await store.put_stream("views", b"spec")
    assert newer.incarnation > floor
    for wrong in (-1, MOST_INCARNATION):
        with pytest.raises(ConfigError, match="incarnation"):
            await store.put_stream("others", b"", wrong)
    assert await store.stream("others") is None


@law
async def an_owner_has_at_most_so_many_streams_at_once(backend: Backend) -> None:
    """Of its own making: what it changes is not counted, what anybody deletes makes room."""
    store, other = backend.open(), backend.open()
    for name in ("a", "b"):
        record, created = await store.put_stream(name, b"", owner="ann", most=2)
        assert (record.owner, created) == ("ann", True)
    await store.put_stream("of bob", b"", owner="bob", most=2)
    with pytest.raises(LimitError, match="ann has created 2 streams"):
        await other.put_stream("c", b"", owner="ann", most=2)
    assert await store.stream("c") is None
    for name, owner in (("a", "ann"), ("of bob", "bob")):  # to change them is no creation
        record, created = await other.put_stream(name, b"changed", owner="ann", most=2)
        assert (record.owner, record.spec, created) == (owner, b"changed", False)
    await other.put_stream("c", b"", owner="ann", most=3)
    await other.put_stream("d", b"", owner="ann")
    for name in ("a", "d"):
        assert await other.delete_stream(name)
    with pytest.raises(LimitError):
        await store.put_stream("d", b"", owner="ann", most=2)
    await other.delete_stream("b")
    record, created = await store.put_stream("b", b"", owner="ann", most=2)
    assert (record.owner, created) == ("ann", True)


@law
async def replicas_together_create_no_more_streams_than_an_owner_may_have(backend: Backend) -> None:
    replicas = [backend.open() for _ in range(4)]

    async def created(number: int) -> bool:
        for _ in range(10):  # twenty at once on a busy machine: what was not answered in time is asked again
            try:
                await replicas[number % 4].put_stream(f"s{number}", b"", owner="ann", most=5)
            except LimitError:
                return False
            except UnavailableError:
                continue
            return True
        raise AssertionError(f"s{number}: ten times no answer")

    found = await asyncio.gather(*(created(number) for number in range(20)))
    assert sum(found) == 5
    assert len(await replicas[0].streams("", 100)) == 5


@law
async def what_needs_a_stream_is_refused_where_there_is_none(backend: Backend) -> None:
    store = backend.open()
    for asked in (
        store.put_part("clicks", part(0, 1), b""),
        store.put_plan("clicks", plan(1, 1), None),
        store.report("clicks", ReportKey("ann", 1, 1), b"", LEASE),
        store.round("clicks"),
        store.seal("clicks", 1),
        store.commit("clicks", committed(1, ())),
        store.note("clicks", "plan", b"", 9),
    ):
        with pytest.raises(NotFoundError, match="clicks"):
            await asked
    assert await store.stream("clicks") is None
    assert not await store.streams("", 10)


# -- parts of batches


@law
async def parts_come_back_in_the_order_of_their_keys(backend: Backend) -> None:
    store, _ = await with_stream(backend)
    keys = [part(n, 12, source=source) for n in range(12) for source in ("app:query", "b b", "app")]
    random.Random(7).shuffle(keys)
    for key in keys:
        assert await store.put_part("clicks", key, repr(key).encode()) is PartOutcome.STORED
    await store.put_part("clicks", part(0, 1, batch=4), b"another batch")
    await store.put_part("clicks", part(0, 1, kind="work"), b"another kind")
    found = await store.parts("clicks", "histogram", 3)
    assert [one.key for one in found] == sorted(keys) == list(await store.part_keys("clicks", "histogram", 3))
    assert all(one.data == repr(one.key).encode() for one in found)
    assert [one.data for one in await store.parts("clicks", "work", 3)] == [b"another kind"]


@law
async def a_repeated_part_stays_as_it_was(backend: Backend) -> None:
    store, _ = await with_stream(backend)
    assert await store.put_part("clicks", part(1, 2), b"first") is PartOutcome.STORED
    assert await backend.open().put_part("clicks", part(1, 2), b"second") is PartOutcome.REPEATED
    assert [one.data for one in await store.parts("clicks", "histogram", 3)] == [b"first"]


@law
async def a_run_with_another_number_of_parts_leaves_no_remains(backend: Backend) -> None:
    store, _ = await with_stream(backend)
    for number in range(4):
        await store.put_part("clicks", part(number, 4), b"old")
    await store.put_part("clicks", part(0, 1, source="other"), b"other")
    await store.put_part("clicks", part(0, 1, source="4 app:query"), b"a name with a space")
    assert await store.put_part("clicks", part(1, 2, run=10), b"new") is PartOutcome.STORED
    assert await store.put_part("clicks", part(3, 4, run=9), b"late") is PartOutcome.OLDER
    assert await store.put_part("clicks", part(0, 2, run=10), b"new") is PartOutcome.STORED
    found = await store.parts("clicks", "histogram", 3)
    assert [one.data for one in found] == [b"a name with a space", b"new", b"new", b"other"]
    assert [one.key for one in found] == list(await store.part_keys("clicks", "histogram", 3))
    assert {one.key.parts for one in found if one.key.source == "app:query"} == {2}


@law
async def a_run_has_one_number_of_parts(backend: Backend) -> None:
    """Else rows that two splits of the same batch report would count twice."""
    store, _ = await with_stream(backend)
    await store.put_part("clicks", part(0, 4), b"one")
    with pytest.raises(ConflictError, match="4 parts, not 8"):
        await store.put_part("clicks", part(0, 8), b"two")
    assert [one.key for one in await store.parts("clicks", "histogram", 3)] == [part(0, 4)]


@law
async def the_latest_batches_are_listed_and_the_last_reported_are_kept(backend: Backend) -> None:
    store, _ = await with_stream(backend)
    for batch in (7, -1, 3, 12, 5, 12):
        await store.put_part("clicks", part(0, 1, batch=batch), b"")
    assert await store.batches("clicks", "histogram", None, 9) == (12, 7, 5, 3, -1)
    assert await store.batches("clicks", "histogram", 12, 2) == (7, 5)
    assert await store.batches("clicks", "work", None, 9) == ()
    # A query that starts again from 0 is heard, whatever numbers were there before: the batch longest silent goes.
    await store.put_part("clicks", part(0, 1, run=1, batch=7), b"")
    for batch in (0, 1):
        await store.put_part("clicks", part(0, 1, batch=batch), b"")
    assert await store.batches("clicks", "histogram", None, 9) == (12, 7, 5, 1, 0)
    assert await store.parts("clicks", "histogram", 3) == ()


@law
async def a_batch_has_another_mark_after_each_report_to_it(backend: Backend) -> None:
    """And no other batch has; what changes nothing leaves it. Whoever looks sees what anybody reported."""
    store, incarnation = await with_stream(backend)
    assert await store.marks("clicks", ("work", "histogram")) == Marks(incarnation, {"work": {}, "histogram": {}})
    await store.put_part("clicks", part(0, 2, kind="work"), b"one")
    await store.put_part("clicks", part(0, 1, batch=-4, kind="work"), b"two")
    await store.put_part("clicks", part(0, 1), b"of another kind")
    before = (await backend.open().marks("clicks", ("work",))).of["work"]
    assert sorted(before) == [-4, 3]
    assert await store.put_part("clicks", part(0, 2, kind="work"), b"repeated") is PartOutcome.REPEATED
    assert (await store.marks("clicks", ("work",))).of["work"] == before
    await backend.open().put_part("clicks", part(1, 2, kind="work"), b"three")
    after = (await store.marks("clicks", ("work",))).of["work"]
    assert after[-4] == before[-4]
    assert after[3] not in before.values()
    await store.put_part("clicks", part(0, 1, run=2, kind="work"), b"again")
    assert (await store.marks("clicks", ("work",))).of["work"][3] not in (*before.values(), after[3])
    await store.delete_stream("clicks")
    assert await store.marks("clicks", ("work",)) is None
    again, _ = await store.put_stream("clicks", b"")
    assert (await store.marks("clicks", ("work",))).incarnation == again.incarnation != incarnation


@law
async def parts_are_replaced_and_keep_their_names(backend: Backend) -> None:
    """Once, by whoever saw them as they are; what came meanwhile stays, and another run is no longer theirs."""
    store, _ = await with_stream(backend)
    other = backend.open()
    for number in range(3):
        await store.put_part("clicks", part(number, 9), b"%d" % number)
    await store.put_part("clicks", part(0, 9, source="other"), b"other")
    seen = await store.source_parts("clicks", "histogram", 3, "app:query")
    assert [one.data for one in seen.parts] == [b"0", b"1", b"2"]
    assert await other.source_parts("clicks", "histogram", 3, "app:query") == seen
    await other.put_part("clicks", part(5, 9), b"5")
    merged = {one.key: b"012" if one is seen.parts[0] else b"" for one in seen.parts}
    assert await store.replace_parts("clicks", seen, merged)
    assert not await other.replace_parts("clicks", seen, merged), "it was done"
    found = await other.parts("clicks", "histogram", 3)
    assert [one.data for one in found] == [b"012", b"", b"", b"5", b"other"]
    for number in range(3):
        assert await other.put_part("clicks", part(number, 9), b"again") is PartOutcome.REPEATED
    assert await store.parts("clicks", "histogram", 3) == found
    again = await store.source_parts("clicks", "histogram", 3, "app:query")
    assert again.mark != seen.mark
    await store.put_part("clicks", part(0, 9, run=1), b"rerun")
    assert not await other.replace_parts("clicks", again, merged), "they are of another run"
    assert not await store.replace_parts("clicks", replace(seen, mark=""), merged), "the same"
    assert [one.data for one in await store.parts("clicks", "histogram", 3)] == [b"rerun", b"other"]


async def kept(store: Store, stream: str = "clicks") -> object:
    """All that reports and plans change in a stream."""
    numbers = await store.batches(stream, "histogram", None, 99)
    parts = [await store.parts(stream, "histogram", number) for number in numbers]
    return parts, await store.batch_sizes(stream, "histogram"), await store.plan(stream)


@law
async def a_batch_has_so_many_parts_sources_and_bytes(backend: Backend) -> None:
    """Over all replicas; what is refused changes nothing, what is repeated or replaced counts once."""
    limits = Limits(parts=3, sources=2, stream_bytes=1000)
    store, _ = await with_stream(backend, limits=limits)
    other = backend.open(limits)
    for number, replica in enumerate((store, other, store, other, store)):
        assert await replica.put_part("clicks", part(number // 2, 9), b"x") is (
            PartOutcome.REPEATED if number % 2 else PartOutcome.STORED
        )
    before = await kept(store)
    for key, data, bound in (
        (part(7, 9), b"", "has 3 parts, all that it may have"),
        (part(0, 9, source="other"), b"", "has 3 parts"),
        (part(0, 1, batch=4), b"x" * 900, "more than the 1,000 that it may have"),
    ):
        with pytest.raises(QuotaError, match=bound):
            await other.put_part("clicks", key, data)
        assert await kept(other) == before
    assert await other.put_part("clicks", part(0, 1, run=1), b"all at once") is PartOutcome.STORED
    assert await store.put_part("clicks", part(0, 1, source="b"), b"") is PartOutcome.STORED
    before = await kept(store)
    with pytest.raises(QuotaError, match="has 2 sources, all that it may have"):
        await store.put_part("clicks", part(0, 1, source="c"), b"")
    assert await kept(other) == before


@law
async def batches_that_were_longest_silent_make_room(backend: Backend) -> None:
    limits = Limits(stream_bytes=1000)
    store, _ = await with_stream(backend, limits=limits)
    for number, batch in enumerate((5, 6, 7, 5)):
        await store.put_part("clicks", part(number, 4, batch=batch), b"x" * 120)
    assert await backend.open(limits).put_part("clicks", part(0, 1, batch=9), b"x" * 200) is PartOutcome.STORED
    sizes = await store.batch_sizes("clicks", "histogram")
    assert sorted(sizes) == [5, 7, 9]
    assert sum(sizes.values()) <= 1000
    await store.put_part("clicks", part(0, 1, batch=1), b"x" * 880)
    assert await store.batches("clicks", "histogram", None, 9) == (1,)
    assert await store.parts("clicks", "histogram", 5) == ()


@law
async def an_owner_keeps_so_many_bytes(backend: Backend) -> None:
    """Of all its streams, over all replicas; a deleted stream makes room, a retry takes none, older batches of the
    same stream make room where there is no other. Others are not concerned."""
    limits = Limits(owner_bytes=2000, own_owner_bytes={"bob": 900}.get)
    store, other = backend.open(limits), backend.open(limits)
    for name, owner in (("a", "ann"), ("b", "ann"), ("of bob", "bob")):
        await store.put_stream(name, b"", owner=owner)
    for batch in range(3):
        for _ in range(4):
            await (store, other)[batch % 2].put_part("a", part(0, 1, batch=batch), b"x" * 400)
    before = await kept(store, "a"), await kept(store, "b")
    with pytest.raises(QuotaError, match=r"that ann has created hold 1,521 bytes .* may hold 2,000: 507 more"):
        await other.put_part("b", part(0, 1), b"x" * 400)
    assert (await kept(other, "a"), await kept(other, "b")) == before
    assert await other.put_part("of bob", part(0, 1), b"x" * 400) is PartOutcome.STORED
    with pytest.raises(QuotaError, match="may hold 900: "):
        await store.put_part("of bob", part(1, 2, source="b"), b"x" * 500)
    assert await other.put_part("a", part(0, 1, batch=4), b"x" * 400) is PartOutcome.STORED
    assert await store.batches("a", "histogram", None, 9) == (4, 2, 1)
    record = await store.stream("b")
    assert record is not None
    large = replace(plan(record.incarnation, 1), data=b"x" * 600)
    with pytest.raises(QuotaError, match="may hold 2,000"):
        await store.put_plan("b", large, None)
    assert await store.plan("b") is None
    await other.delete_stream("a")
    for batch in range(3):
        await store.put_part("b", part(0, 1, batch=batch), b"x" * 400)


@law
async def replicas_together_keep_no_more_than_an_owner_may(backend: Backend) -> None:
    limits = Limits(owner_bytes=3000)
    replicas = [backend.open(limits) for _ in range(2)]
    streams = [f"s{number}" for number in range(4)]
    for name in streams:
        await replicas[0].put_stream(name, b"", owner="ann")

    async def put(number: int) -> None:
        for store in (replicas[number % 2], replicas[(number + 1) % 2]):  # each is sent again, to another
            with contextlib.suppress(QuotaError):
                await store.put_part(streams[number % 4], part(number, 99), b"x" * 200)

    await asyncio.gather(*(put(number) for number in range(40)))
    sizes = [sum((await replicas[0].batch_sizes(name, "histogram")).values()) for name in streams]
    assert 2000 < sum(sizes) <= 3000


@law
async def an_answer_that_was_merged_after_lost_rounds_is_refused(backend: Backend) -> None:
    """Its reports are those of the round, and what it goes on from is not: the rounds of another incarnation, or others
    than are here."""
    store, incarnation = await with_stream(backend)
    for epoch in (1, 2):
        await store.report("clicks", ReportKey("ann", 1, epoch), b"", LEASE)
        assert await store.seal("clicks", epoch)
        before = (await store.round("clicks")).digests
        names = tuple(report.key for report in await store.sealed("clicks", epoch))
        mine = replace(committed(epoch, names), after=before, digests=digests_after(before, epoch, names))
        for other in (begun(incarnation - 1), digests_after(before, epoch, [])):
            assert await store.commit("clicks", replace(mine, after=other)) is None
        assert await store.commit("clicks", mine) == mine
        assert await store.commit("clicks", mine) == mine, "its sender did not get the answer"
        view, last = await store.round("clicks"), await store.answer("clicks")
        assert last is not None
        assert view.digests == last.digests == mine.digests
    renewed = await store.renew_stream(await _existing(store), 0.0)
    assert renewed is not None
    assert (await store.round("clicks")).digests == begun(renewed[0].incarnation)


async def _existing(store: Store) -> StreamRecord:
    record = await store.stream("clicks")
    assert record is not None
    return record


@law
async def a_store_says_how_much_is_in_use(backend: Backend) -> None:
    """Of a cluster the fullest node does."""
    store, _ = await with_stream(backend)
    await store.put_part("clicks", part(0, 1), b"x" * 900)
    await store.ping()
    used, most = store.used_bytes()
    assert used > 900
    assert most >= 0


@law
async def a_stream_knows_so_many_agents(backend: Backend) -> None:
    limits = Limits(agents=2)
    store, _ = await with_stream(backend, limits=limits)
    for agent in ("ann", "bob", "ann"):
        await store.report("clicks", ReportKey(agent, 1, 1), b"", LEASE)
    with pytest.raises(QuotaError, match="knows 2 agents, all that it may have"):
        await backend.open(limits).report("clicks", ReportKey("cyd", 1, 1), b"", LEASE)
    view = await store.round("clicks")
    assert [one.agent for one in view.members] == ["ann", "bob"] == sorted(view.reported)
    assert await store.report("clicks", ReportKey("bob", 1, 2), b"", LEASE) is ReportOutcome.STORED


@law
async def a_round_has_so_many_bytes(backend: Backend) -> None:
    """What is refused changes nothing; a new life takes the place of the old one; the next round is empty."""
    limits = Limits(stream_bytes=1000)
    store, _ = await with_stream(backend, limits=limits)
    await store.report("clicks", ReportKey("ann", 1, 1), b"x" * 600, LEASE)
    before = await store.round("clicks")
    other = backend.open(limits)
    for key in (ReportKey("bob", 1, 1), ReportKey("ann", 1, 2)):
        with pytest.raises(QuotaError, match=r"with these 500 bytes .* more than the 1,000"):
            await other.report("clicks", key, b"x" * 500, LEASE)
    assert replace(await other.round("clicks"), now=before.now) == before
    assert await other.report("clicks", ReportKey("ann", 1, 1), b"x" * 600, LEASE) is ReportOutcome.REPEATED
    assert await other.report("clicks", ReportKey("ann", 2, 1), b"x" * 300, LEASE) is ReportOutcome.STORED
    assert await other.report("clicks", ReportKey("bob", 1, 1), b"x" * 700, LEASE) is ReportOutcome.STORED
    await merge(store, 1)
    assert await store.report("clicks", ReportKey("bob", 1, 2), b"x" * 1000, LEASE) is ReportOutcome.STORED


@law
async def old_plans_make_room_and_the_latest_stays(backend: Backend) -> None:
    limits = Limits(stream_bytes=1600)  # a quarter of it for plans
    store, incarnation = await with_stream(backend, limits=limits)
    last = None
    for number in range(1, 7):
        record = replace(plan(incarnation, number, f"batch:{number}"), data=b"x" * 150)
        assert await store.put_plan("clicks", record, last) is PlanOutcome.STORED
        last = record.version
    kept = [number for number in range(1, 7) if await store.plan_for("clicks", f"batch:{number}")]
    assert kept == [5, 6]
    await store.put_plan("clicks", replace(plan(incarnation, 7), data=b"x" * 900), last)
    latest = await store.plan("clicks")
    assert latest is not None
    assert latest.version.number == 7


@law
async def numbers_beyond_the_precision_of_a_double_are_kept_apart(backend: Backend) -> None:
    store, incarnation = await with_stream(backend)
    for run in (BIG, BIG + 1):
        assert await store.put_part("clicks", part(0, 1, run=run, batch=BIG + 5), b"") is PartOutcome.STORED
    assert await store.put_part("clicks", part(0, 1, run=BIG, batch=BIG + 5), b"") is PartOutcome.OLDER
    assert await store.batches("clicks", "histogram", None, 1) == (BIG + 5,)
    assert await store.put_plan("clicks", plan(incarnation, BIG), None) is PlanOutcome.STORED
    assert (
        await store.put_plan("clicks", plan(incarnation, BIG + 1), Version(incarnation, BIG + 1))
        is PlanOutcome.NOT_NEXT
    )
    assert await store.put_plan("clicks", plan(incarnation, BIG + 1), Version(incarnation, BIG)) is PlanOutcome.STORED
    for seq in (BIG, BIG + 1):
        assert await store.report("clicks", ReportKey("ann", BIG, seq), b"", LEASE) is ReportOutcome.STORED
    assert (await merge(store, 1)).names == (ReportKey("ann", BIG, BIG), ReportKey("ann", BIG, BIG + 1))
    assert await store.report("clicks", ReportKey("ann", BIG, BIG + 1), b"", LEASE) is ReportOutcome.MERGED


@law
async def data_is_bytes_of_any_size(backend: Backend) -> None:
    store, incarnation = await with_stream(backend)
    data = random.Random(7).randbytes(3_000_000)
    await store.put_part("clicks", part(0, 1), data)
    await store.put_plan("clicks", PlanRecord(Version(incarnation, 1), "d", data), None)
    await store.report("clicks", ReportKey("ann", 1, 1), data, LEASE)
    await store.seal("clicks", 1)
    await store.commit("clicks", Commit(1, data, (ReportKey("ann", 1, 1),), data))
    (stored,), latest, last = (
        await store.parts("clicks", "histogram", 3),
        await store.plan("clicks"),
        await store.answer("clicks"),
    )
    assert latest is not None
    assert last is not None
    assert stored.data == latest.data == last.answer == last.keep == data


# -- notes


@law
async def the_last_notes_of_each_kind_are_kept_in_the_order_they_came(backend: Backend) -> None:
    """With when they came. What is asked to be kept is what was said last."""
    store, incarnation = await with_stream(backend)
    for number in range(9):
        await store.note("clicks", "plan", b"%d \x00\r\n" % number, 5)
    await backend.open().note("clicks", "round", b"", 5)
    notes = await backend.open().notes("clicks", "plan", 99)
    assert [note.data for note in notes] == [b"%d \x00\r\n" % number for number in range(4, 9)]
    assert incarnation / 1e6 <= notes[0].at <= notes[-1].at < incarnation / 1e6 + 60.0
    assert [note.data for note in await store.notes("clicks", "plan", 2)] == [b"7 \x00\r\n", b"8 \x00\r\n"]
    assert [note.data for note in await store.notes("clicks", "round", 2)] == [b""]
    assert await store.notes("clicks", "batch", 2) == ()
    for _ in range(2):  # sent again, because its answer was lost
        await store.note("clicks", "plan", b"9", 2)
    assert [note.data for note in await store.notes("clicks", "plan", 99)] == [b"8 \x00\r\n", b"9"]


# -- plans


@law
async def plans_follow_one_another_and_are_found_by_version_and_purpose(backend: Backend) -> None:
    store, incarnation = await with_stream(backend)
    assert await store.plan("clicks") is None
    first, second = plan(incarnation, 1, "batch:1"), plan(incarnation, 2)
    assert await store.put_plan("clicks", first, None) is PlanOutcome.STORED
    assert await store.put_plan("clicks", second, first.version) is PlanOutcome.STORED
    other = backend.open()
    assert await other.plan("clicks") == second
    assert await other.plan("clicks", first.version) == first
    assert await other.plan("clicks", Version(incarnation, 3)) is None
    assert await other.plan_for("clicks", "batch:1") == first
    assert await other.plan_for("clicks", "batch:2") is None


@law
async def a_plan_that_does_not_follow_changes_nothing(backend: Backend) -> None:
    store, incarnation = await with_stream(backend)
    first = plan(incarnation, 1, "batch:1")
    await store.put_plan("clicks", first, None)
    assert await store.put_plan("clicks", first, None) is PlanOutcome.STORED, "the same again"
    for wrong, after, outcome in (
        (plan(incarnation, 2, "batch:1"), first.version, PlanOutcome.PURPOSE_TAKEN),
        (plan(incarnation, 2), None, PlanOutcome.NOT_NEXT),
        (plan(incarnation, 3), Version(incarnation, 2), PlanOutcome.NOT_NEXT),
        (plan(incarnation, 1, digest="another"), first.version, PlanOutcome.NOT_NEXT),
        (plan(incarnation, 1, digest="another"), None, PlanOutcome.NOT_NEXT),
        (plan(incarnation + 1, 1), first.version, PlanOutcome.NOT_NEXT),  # of another life of the stream
    ):
        assert await store.put_plan("clicks", wrong, after) is outcome, wrong
    assert await store.plan("clicks") == first
    assert await store.plan("clicks", Version(incarnation, 2)) is None


@law
async def the_same_routes_for_another_purpose_are_another_plan(backend: Backend) -> None:
    """Two planners at once, for two batches, may make the same of them: the second has yet to bind its own."""
    store, incarnation = await with_stream(backend)
    first, other = plan(incarnation, 1, "batch:1", digest="d"), plan(incarnation, 1, "batch:2", digest="d")
    assert await store.put_plan("clicks", first, None) is PlanOutcome.STORED
    for second in (other, plan(incarnation, 1, digest="d")):
        assert await store.put_plan("clicks", second, None) is PlanOutcome.NOT_NEXT
    assert await store.plan_for("clicks", "batch:2") is None
    assert await store.plan("clicks") == first


@law
async def the_latest_plans_are_kept_and_a_dropped_one_frees_its_purpose(backend: Backend) -> None:
    store, incarnation = await with_stream(backend)
    last = None
    for number in range(1, 9):
        await store.put_plan("clicks", plan(incarnation, number, f"batch:{number}"), last)
        last = Version(incarnation, number)
    kept = [n for n in range(1, 9) if await store.plan("clicks", Version(incarnation, n)) is not None]
    assert kept == [4, 5, 6, 7, 8]
    assert [n for n in range(1, 9) if await store.plan_for("clicks", f"batch:{n}") is not None] == kept
    assert await store.put_plan("clicks", plan(incarnation, 9, "batch:1"), last) is PlanOutcome.STORED


@law
async def advice_stays_with_its_plan_and_what_it_was_learned_from_with_the_latest(backend: Backend) -> None:
    """Each plan that is asked for again has the advice that it had; scores are of use to the next plan only."""
    store, incarnation = await with_stream(backend)
    first = replace(plan(incarnation, 1, "batch:1"), advice=b"same \x00", ways=b"of batch 0 \x00")
    second = replace(plan(incarnation, 2, "batch:2"), advice=b"hash", ways=b"of batches 0 and 1")
    assert await store.put_plan("clicks", first, None) is PlanOutcome.STORED
    found = await backend.open().plan("clicks")
    assert found is not None
    assert (found.advice, found.ways) == (first.advice, first.ways)
    other = replace(first, advice=b"another")
    assert await store.put_plan("clicks", other, None) is PlanOutcome.PURPOSE_TAKEN, "it was made from other batches"
    assert await store.put_plan("clicks", second, first.version) is PlanOutcome.STORED
    assert await store.put_plan("clicks", second, first.version) is PlanOutcome.STORED, "the same again"
    kept = [await store.plan("clicks"), await store.plan_for("clicks", "batch:1")]
    assert [(one.advice, one.ways) for one in kept if one] == [(b"hash", second.ways), (b"same \x00", b"")]


@law
async def of_many_planners_one_makes_the_plan_of_a_batch(backend: Backend) -> None:
    store, incarnation = await with_stream(backend)
    replicas = [backend.open() for _ in range(8)]
    plans = [plan(incarnation, 1, "batch:1", digest=f"of replica {n}") for n in range(8)]
    outcomes = await asyncio.gather(*(one.put_plan("clicks", p, None) for one, p in zip(replicas, plans, strict=True)))
    assert sorted(outcome.name for outcome in outcomes) == ["PURPOSE_TAKEN"] * 7 + ["STORED"]
    assert await store.plan("clicks") == plans[outcomes.index(PlanOutcome.STORED)]


# -- rounds


@law
async def a_report_opens_the_round_and_renews_its_agents_lease(backend: Backend) -> None:
    store, incarnation = await with_stream(backend)
    before = await store.round("clicks")
    assert (before.open, before.merged, before.opened, before.incarnation) == (1, 0, None, incarnation)
    await store.report("clicks", ReportKey("bob", 1, 1), b"", 5.0)
    await store.report("clicks", ReportKey("ann", 1, 1), b"", LEASE)
    view = await backend.open().round("clicks")
    assert view.opened is not None
    assert before.now <= view.opened <= view.now
    assert set(view.reported) == {"ann", "bob"}
    assert view.opened == view.reported["bob"] <= view.reported["ann"]
    assert [(one.agent, one.merged) for one in view.members] == [("ann", None), ("bob", None)]
    assert abs(view.members[0].lease - view.reported["ann"] - LEASE) < 1e-3
    await store.report("clicks", ReportKey("ann", 1, 1), b"", 1.0)  # a lease does not shrink
    assert (await store.round("clicks")).members == view.members


@law
async def a_report_counts_once_wherever_it_is(backend: Backend) -> None:
    store, _ = await with_stream(backend)
    name = ReportKey("ann", 1, 1)
    assert await store.report("clicks", name, b"one", LEASE) is ReportOutcome.STORED
    assert await store.report("clicks", name, b"two", LEASE) is ReportOutcome.REPEATED
    await store.seal("clicks", 1)
    assert await store.report("clicks", name, b"two", LEASE) is ReportOutcome.REPEATED
    (stored,) = await store.sealed("clicks", 1)
    assert (stored.key, stored.data) == (name, b"one")
    await store.commit("clicks", committed(1, (name,)))
    assert await store.report("clicks", name, b"two", LEASE) is ReportOutcome.MERGED
    assert await store.report("clicks", ReportKey("ann", 1, 2), b"", LEASE) is ReportOutcome.STORED
    await merge(store, 2)
    view = await store.round("clicks")
    assert (view.open, view.merged, view.reported) == (3, 2, {})
    assert [one.merged for one in view.members] == [ReportKey("ann", 1, 2)]
    assert await store.report("clicks", name, b"two", 10 * LEASE) is ReportOutcome.OLDER
    assert (await store.round("clicks")).members == view.members, "an old message is no sign of life"


@law
async def what_comes_after_the_seal_counts_in_the_next_round(backend: Backend) -> None:
    store, _ = await with_stream(backend)
    await store.report("clicks", ReportKey("ann", 1, 1), b"a", LEASE)
    assert not await store.seal("clicks", 2), "it is not open yet"
    assert await store.sealed("clicks", 1) == (), "it is not sealed"
    assert await store.seal("clicks", 1)
    assert await backend.open().seal("clicks", 1), "it is closed now"
    view = await store.round("clicks")
    assert (view.open, view.merged, view.opened, view.reported) == (2, 0, None, {})
    await store.report("clicks", ReportKey("bob", 1, 1), b"b", LEASE)
    assert [report.data for report in await store.sealed("clicks", 1)] == [b"a"]
    await merge(store, 1)
    assert await store.sealed("clicks", 1) == (), "it is merged"
    assert set((await store.round("clicks")).reported) == {"bob"}
    assert [name.agent for name in (await merge(store, 2)).names] == ["bob"]


@law
async def a_round_without_a_report_stays_open(backend: Backend) -> None:
    """What a sealer saw in it may be lost since: a round without an answer would hold up all that come after."""
    store, _ = await with_stream(backend)
    assert not await store.seal("clicks", 1)
    await store.report("clicks", ReportKey("ann", 1, 1), b"", LEASE)
    await merge(store, 1)
    assert not await store.seal("clicks", 2)
    view = await store.round("clicks")
    assert (view.open, view.merged) == (2, 1)


@law
async def rounds_are_merged_once_in_their_order_with_all_their_reports(backend: Backend) -> None:
    store, _ = await with_stream(backend)
    names = [(ReportKey("ann", 1, 1), ReportKey("bob", 1, 1)), (ReportKey("ann", 1, 2),)]
    assert not await store.commit("clicks", committed(1, ()))
    for epoch, reports in enumerate(names, 1):
        for name in reports:
            await store.report("clicks", name, b"", LEASE)
        assert not await store.commit("clicks", committed(epoch, reports)), "it is still open"
        await store.seal("clicks", epoch)
    assert not await store.commit("clicks", committed(2, names[1])), "the one before is not merged"
    for wrong in ((), names[0][:1], (*names[0], *names[1]), names[1], (names[0][0], ReportKey("bob", 2, 1))):
        assert not await store.commit("clicks", committed(1, wrong)), "not what is in it"
    assert await store.answer("clicks") is None
    assert await store.commit("clicks", committed(1, names[0]))
    other = Commit(1, b"another", names[0], b"")
    assert await backend.open().commit("clicks", other), "somebody has merged it"
    assert await store.answer("clicks") == committed(1, names[0])
    assert await store.commit("clicks", committed(2, names[1]))
    assert await store.answer("clicks") == committed(2, names[1])
    assert (await store.round("clicks")).keep == b"keep 2"


@law
async def sealed_reports_are_the_same_for_everybody_in_the_order_of_their_keys(backend: Backend) -> None:
    store, _ = await with_stream(backend)
    keys = [ReportKey(agent, session, 9) for agent in ("ann", "an", "a b", "ann:2") for session in (2,)]
    keys += [ReportKey("cyd", 10, 1), ReportKey("cyd", 10, 2), ReportKey("cyd", 10, 10)]
    for key in keys:
        await store.report("clicks", key, repr(key).encode(), LEASE)
    await store.seal("clicks", 1)
    found = await store.sealed("clicks", 1)
    assert [report.key for report in found] == sorted(keys)
    assert all(report.data == repr(report.key).encode() for report in found)
    assert await backend.open().sealed("clicks", 1) == found


@law
async def an_agents_new_life_takes_the_place_of_the_old_one_in_the_open_round_only(backend: Backend) -> None:
    store, _ = await with_stream(backend)
    await store.report("clicks", ReportKey("ann", 1, 1), b"", LEASE)
    await store.seal("clicks", 1)
    for seq in (2, 3):
        await store.report("clicks", ReportKey("ann", 1, seq), b"", LEASE)
    await store.report("clicks", ReportKey("anna", 1, 1), b"", LEASE)
    assert await store.report("clicks", ReportKey("ann", 2, 1), b"", LEASE) is ReportOutcome.STORED
    assert await store.report("clicks", ReportKey("ann", 1, 3), b"", LEASE) is ReportOutcome.OLDER
    assert [report.key for report in await store.sealed("clicks", 1)] == [ReportKey("ann", 1, 1)]
    await merge(store, 1)
    assert (await merge(store, 2)).names == (ReportKey("ann", 2, 1), ReportKey("anna", 1, 1))


@law
async def a_later_report_of_the_same_life_gives_up_nothing_that_was_taken(backend: Backend) -> None:
    store, _ = await with_stream(backend)
    for seq in (1, 2):
        assert await store.report("clicks", ReportKey("ann", 1, seq), b"", LEASE) is ReportOutcome.STORED
    assert set((await store.round("clicks")).reported) == {"ann"}
    assert await store.report("clicks", ReportKey("ann", 1, 1), b"", LEASE) is ReportOutcome.REPEATED
    assert (await merge(store, 1)).names == (ReportKey("ann", 1, 1), ReportKey("ann", 1, 2))


@law
async def a_silent_agent_is_forgotten_but_not_while_its_report_is_under_way(backend: Backend) -> None:
    store, _ = await with_stream(backend, limits=Limits(forget=1e-6))
    await store.report("clicks", ReportKey("ann", 1, 1), b"", 0.0)
    await store.report("clicks", ReportKey("bob", 1, 1), b"", LEASE)
    await store.seal("clicks", 1)
    await store.report("clicks", ReportKey("cyd", 1, 1), b"", 0.0)
    await asyncio.sleep(0.002)
    await merge(store, 1)
    assert [one.agent for one in (await store.round("clicks")).members] == ["bob", "cyd"]


# -- news, loss, races


@law
async def changes_wake_every_listener_of_every_replica(backend: Backend) -> None:
    store, incarnation = await with_stream(backend)
    listeners = [store.news(), backend.open().news()]
    heard: list[set[News]] = [set(), set()]

    async def listen(number: int) -> None:
        async for news in listeners[number]:
            heard[number].add(news)

    async def change() -> None:
        number = 0
        while not all(wanted <= one for one in heard):  # a wake-up may be lost: changes go on
            number += 1
            await store.put_stream("clicks", f"spec {number}".encode())
            last = await store.plan("clicks")
            await store.put_plan("clicks", plan(incarnation, number), last.version if last else None)
            await store.report("clicks", ReportKey("ann", 1, number), b"", LEASE)
            await merge(store, number)
            await asyncio.sleep(0.01)

    wanted = {News("clicks", "plan"), News("clicks", "round"), News("clicks", "stream")}
    tasks = [asyncio.create_task(listen(number)) for number in range(2)]
    await asyncio.wait_for(change(), 60.0)
    await backend.close()
    await asyncio.wait_for(asyncio.gather(*tasks), 60.0)  # closing a store ends its listeners


@law
async def after_a_loss_of_everything_streams_start_a_newer_life_that_old_work_cannot_enter(backend: Backend) -> None:
    store, incarnation = await with_stream(backend)
    for agent in ("ann", "bob"):
        await store.report("clicks", ReportKey(agent, 1, 1), b"", LEASE)
    await store.seal("clicks", 1)
    names = tuple(report.key for report in await store.sealed("clicks", 1))
    backend.wipe()
    store = backend.open()
    assert await store.stream("clicks") is None
    assert await store.streams("", 9) == ()
    record, created = await store.put_stream("clicks", b"spec")
    assert created
    assert record.incarnation > incarnation
    assert await store.put_plan("clicks", plan(incarnation, 1), None) is PlanOutcome.NOT_NEXT
    await store.report("clicks", ReportKey("bob", 1, 1), b"", LEASE)
    await store.seal("clicks", 1)
    assert not await store.commit("clicks", committed(1, names)), "the merge of the old life"
    assert await store.commit("clicks", committed(1, names[1:]))


@law
async def a_lost_stream_is_put_back_once_in_a_newer_life(backend: Backend) -> None:
    store, incarnation = await with_stream(backend)
    seen, _ = await store.put_stream("clicks", b"spec two", owner="ann")
    backend.wipe()
    stores = [backend.open() for _ in range(4)]
    found = await asyncio.gather(*(one.renew_stream(seen, 1.0) for one in stores))
    assert None not in found
    assert len({one[0].incarnation for one in found if one}) == 1
    assert sum(one[1] for one in found if one) == 1
    record = found[0][0] if found[0] else seen
    assert (record.spec, record.owner) == (b"spec two", seen.owner)
    assert record.incarnation > incarnation
    assert await stores[0].stream("clicks") == record
    assert [one.name for one in await stores[0].streams("", 9)] == ["clicks"]
    assert await stores[1].renew_stream(seen, 1.0, record.incarnation + 5) == (record, False), "its life is newer"


@law
async def a_stream_whose_latest_part_was_lost_begins_anew_with_the_settings_that_are_there(backend: Backend) -> None:
    store, incarnation = await with_stream(backend)
    seen = await store.stream("clicks")
    assert seen is not None
    await store.put_plan("clicks", plan(incarnation, 1, "batch:1"), None)
    await store.put_part("clicks", part(0, 1), b"counts")
    await store.report("clicks", ReportKey("ann", 1, 1), b"", LEASE)
    await merge(store, 1)
    await store.put_stream("clicks", b"changed")
    floor = incarnation + 3_000_000_000
    renewed = await store.renew_stream(seen, 1.0, floor)
    assert renewed is not None
    assert (renewed[0].spec, renewed[0].incarnation, renewed[1]) == (b"changed", floor, True)
    assert await store.plan("clicks") is None
    assert await store.parts("clicks", "histogram", 3) == ()
    view = await store.round("clicks")
    assert (view.incarnation, view.open, view.merged, view.members) == (floor, 1, 0, ())


@law
async def what_was_deleted_or_seen_long_ago_is_not_put_back(backend: Backend) -> None:
    """Also where the store had lost it before: whoever deletes it means it."""
    store, _ = await with_stream(backend)
    seen = await store.stream("clicks")
    assert seen is not None
    await store.delete_stream("clicks")
    assert await store.renew_stream(seen, 1.0) is None
    backend.wipe()
    store = backend.open()
    assert await store.renew_stream(seen, 1e6) is None, "nobody knows what was since"
    assert not await store.delete_stream("clicks")
    assert await store.renew_stream(seen, 1.0) is None
    assert await store.stream("clicks") is None
    new, created = await store.put_stream("clicks", b"")
    assert created
    assert new.incarnation > seen.incarnation
    assert await store.renew_stream(seen, 1.0) == (new, False)


@law
async def no_report_is_lost_or_in_two_rounds_whoever_seals_and_merges(backend: Backend) -> None:
    rounds = await race(backend, reporters=16, reports=25, mergers=4)
    assert rounds > 3


async def race(backend: Backend, *, reporters: int, reports: int, mergers: int) -> int:
    """Reporters that repeat themselves, and as many sealers and committers as there are replicas; how many rounds."""
    store, _ = await with_stream(backend)
    acknowledged: list[ReportKey] = []
    merged: dict[int, tuple[ReportKey, ...]] = {}
    busy = reporters

    async def reporter(number: int) -> None:
        nonlocal busy
        mine, rng = backend.open(), random.Random(number)
        for seq in range(1, reports + 1):
            key = ReportKey(f"agent {number}", 1, seq)
            outcome = await mine.report("clicks", key, b"x", LEASE)
            assert outcome is ReportOutcome.STORED
            acknowledged.append(key)
            if rng.random() < 0.5:
                again = await mine.report("clicks", key, b"x", LEASE)
                assert again in (ReportOutcome.REPEATED, ReportOutcome.MERGED)
            await asyncio.sleep(0)
        busy -= 1

    async def merger() -> None:
        mine = backend.open()
        while True:
            done, view = busy == 0, await mine.round("clicks")
            if view.reported:
                await mine.seal("clicks", view.open)
            for epoch in range(view.merged + 1, view.open + 1):
                last, names = await mine.answer("clicks"), tuple(one.key for one in await mine.sealed("clicks", epoch))
                await asyncio.sleep(0)
                if not names or (last.epoch if last else 0) != epoch - 1:
                    continue  # somebody was faster
                total = int(last.keep if last else b"0") + len(names)
                if await mine.commit("clicks", Commit(epoch, b"", names, b"%d" % total)):
                    assert merged.setdefault(epoch, names) == names
            if done and not view.reported and view.merged + 1 == view.open:
                return
            await asyncio.sleep(0)

    await asyncio.gather(*(reporter(n) for n in range(reporters)), *(merger() for _ in range(mergers)))
    counted = [name for names in merged.values() for name in names]
    assert len(acknowledged) == reporters * reports
    assert sorted(counted) == sorted(acknowledged)
    view = await store.round("clicks")
    assert sorted(merged) == list(range(1, view.merged + 1))
    assert int(view.keep) == len(acknowledged)
    assert {one.merged for one in view.members} == {ReportKey(f"agent {n}", 1, reports) for n in range(reporters)}
    return view.merged
