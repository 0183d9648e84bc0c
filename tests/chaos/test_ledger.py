"""The checker finds what it is there for: each way to get a round or a report wrong, on books else right."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.chaos.agents import digest
from tests.chaos.inputs import Shape, imbalance, rows, simulated
from tests.chaos.ledger import Diary, Name, Round, commands, read_diary, rounds_of, wrong
from tests.servers import single
from unskew.core.dalton.qtable import QTable
from unskew.core.rounds.messages import Answer
from unskew.core.rounds.round_log import Commit, ReportKey
from unskew.service.stores import open_store
from unskew.wire.round_messages import answer_to_bytes

INC, AGENTS, ROUNDS = 1_000, ("ann", "bob", "cyd"), 4


def books() -> tuple[list[Round], list[Diary]]:
    """Three agents, four rounds; report ``seq`` of each has 10 x seq tuples and is in round ``seq``."""
    rounds = []
    for epoch in range(1, ROUNDS + 1):
        names: tuple[Name, ...] = tuple((agent, 7, epoch) for agent in AGENTS)
        rounds.append(Round((INC, epoch), names, frozenset(names), 30 * epoch, f"table {epoch}"))
    seqs = range(1, ROUNDS + 1)
    diaries = [
        Diary(agent, 7, {n: 10 * n for n in seqs}, set(seqs), {(INC, n): f"table {n}" for n in seqs})
        for agent in AGENTS
    ]
    return rounds, diaries


Books = tuple[list[Round], list[Diary]]


def merged_twice(rounds: list[Round], _: list[Diary]) -> None:
    """A report of round 2 is counted in round 3 as well."""
    twice = rounds[1].names[0]
    third = rounds[2]
    rounds[2] = replace(third, names=(twice, *third.names), held=third.held | {twice}, records=third.records + 20)


def lost_report(rounds: list[Round], _: list[Diary]) -> None:
    """A compare-and-set that overwrote somebody: bob's third report is acknowledged and in no round."""
    third = rounds[2]
    names = tuple(name for name in third.names if name[0] != "bob")
    rounds[2] = replace(third, names=names, held=frozenset(names), records=third.records - 30)


def round_twice(rounds: list[Round], _: list[Diary]) -> None:
    rounds.insert(2, rounds[1])


def round_left_out(rounds: list[Round], diaries: list[Diary]) -> None:
    del rounds[1]
    for diary in diaries:
        del diary.posted[2], diary.adopted[(INC, 2)]
        diary.acked.discard(2)


def broken_merge(rounds: list[Round], _: list[Diary]) -> None:
    """The names are right and the sum is not."""
    rounds[3] = replace(rounds[3], records=rounds[3].records + 1)


def named_but_not_held(rounds: list[Round], _: list[Diary]) -> None:
    rounds[0] = replace(rounds[0], held=rounds[0].held - {("ann", 7, 1)})


def nobodys_report(rounds: list[Round], _: list[Diary]) -> None:
    stranger = ("dan", 1, 1)
    rounds[0] = replace(rounds[0], names=(*rounds[0].names, stranger), held=rounds[0].held | {stranger})


def other_table(_: list[Round], diaries: list[Diary]) -> None:
    diaries[1].adopted[(INC, ROUNDS)] = "another"


def left_behind(_: list[Round], diaries: list[Diary]) -> None:
    del diaries[2].adopted[(INC, ROUNDS)]


def never_merged(_: list[Round], diaries: list[Diary]) -> None:
    diaries[0].posted[ROUNDS + 1] = 5


FAULTS: dict[str, tuple[Callable[[list[Round], list[Diary]], None], str]] = {
    "a report in two rounds": (merged_twice, "is in 2 rounds"),
    "an acknowledged report in no round": (lost_report, "was acknowledged and is in no round"),
    "a round merged twice": (round_twice, "was merged after"),
    "a round left out": (round_left_out, "was merged after"),
    "a sum that is not of its reports": (broken_merge, "its reports have"),
    "a report that the round did not hold": (named_but_not_held, "names other reports"),
    "a report that nobody made": (nobodys_report, "no agent made"),
    "another table under the same version": (other_table, "the store had"),
    "an agent that stayed behind": (left_behind, "the last round is"),
    "a report that was never merged": (never_merged, "are in no round"),
}


def test_right_books_are_right() -> None:
    """So that each of the others is wrong for its one fault; a dead agent need not be at the end."""
    rounds, diaries = books()
    assert wrong(rounds, diaries, AGENTS) == []
    left_behind(rounds, diaries)
    assert wrong(rounds, diaries, AGENTS[:2]) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str) -> None:
    """And said in words that name it."""
    rounds, diaries = books()
    breaks, said = FAULTS[fault]
    breaks(rounds, diaries)
    assert any(said in line for line in wrong(rounds, diaries, AGENTS))


def test_only_the_last_life_of_an_agent_has_to_be_at_the_end() -> None:
    """An agent that was killed, and its name in use again."""
    rounds, diaries = books()
    diaries.append(replace(diaries[0], session=8, posted={}, acked=set()))
    left_behind(rounds, diaries[:3])
    diaries[0].posted[ROUNDS + 1] = 5
    never = [line for line in wrong(rounds, diaries, AGENTS) if "ann" in line]
    assert never == []
    assert wrong(rounds, diaries[:3], AGENTS) != []


def test_an_incarnation_begins_at_one_and_may_count_again_what_the_one_before_had() -> None:
    """A store that was wiped knows of no report; but within one incarnation each counts once."""
    rounds, diaries = books()
    names = tuple((agent, 7, ROUNDS) for agent in AGENTS)
    rounds.append(Round((INC + 9, 1), names, frozenset(names), 30 * ROUNDS, "anew"))
    for diary in diaries:
        diary.adopted[(INC + 9, 1)] = "anew"
    assert wrong(rounds, diaries, AGENTS) == []
    rounds[-1] = replace(rounds[-1], epoch=(INC + 9, 2))
    assert any("was merged after" in line for line in wrong(rounds, diaries, AGENTS))


@pytest.mark.anyio
async def test_the_books_of_a_real_redis_are_read(tmp_path: Path) -> None:
    """Two rounds through the store; a file that a kill has cut short is read up to there."""
    table = QTable(np.array([5], np.uint64), np.array([[0.5, 1.0]]), np.array([3]), np.array([[True, False]]))
    with single(tmp_path, "appendonly yes", "appendfsync no") as redis:
        store = open_store(redis.url)
        record, _ = await store.put_stream("clicks", b"")
        for epoch in (1, 2):
            names = tuple(ReportKey(agent, 7, epoch) for agent in AGENTS)
            for name in names:
                await store.report("clicks", name, b"", 10.0)
            await store.seal("clicks", epoch)
            answer = Answer(epoch, (), table, 30 * epoch, frozenset(), np.array([1, 2]), 1.0)
            assert await store.commit("clicks", Commit(epoch, answer_to_bytes(answer), names, b"keep"))
        await store.close()
        found = rounds_of("clicks", commands(redis.aof))
    wanted = [tuple((agent, 7, epoch) for agent in AGENTS) for epoch in (1, 2)]
    assert [one.names for one in found] == wanted
    assert [one.held for one in found] == [frozenset(names) for names in wanted]
    assert [(one.epoch, one.records) for one in found] == [((record.incarnation, 1), 30), ((record.incarnation, 2), 60)]
    assert {one.digest for one in found} == {digest(table)}
    (path,) = redis.aof.glob("*.incr.aof")
    path.write_bytes(path.read_bytes()[:-40])
    assert rounds_of("clicks", commands(redis.aof))[0] == found[0]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_a_diary_that_a_kill_cut_short_is_read(tmp_path: Path) -> None:
    """All lines but the last, broken one."""
    lines = [
        {"what": "life", "name": "ann", "session": 7},
        {"what": "routed", "batch": 0, "loads": [1, 2]},
        {"what": "posted", "seq": 1, "records": 3},
        {"what": "adopted", "version": [INC, 1], "digest": "a"},
        {"what": "acked", "seq": 1},
    ]
    path = tmp_path / "diary"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"what": "pos')
    assert read_diary(path) == Diary("ann", 7, {1: 3}, {1}, {(INC, 1): "a"}, {0: [1, 2]})


def test_a_table_has_its_digest() -> None:
    """Any bit of it."""
    table = QTable(np.array([5], np.uint64), np.array([[0.5, 1.0]]), np.array([3]), np.array([[True, False]]))
    same = replace(table, values=table.values.copy())
    for other in (
        replace(table, values=np.array([[0.5, np.nextafter(1.0, 0)]])),
        replace(table, rows=np.array([4])),
        replace(table, held=np.array([[True, True]])),
        replace(table, hashes=np.array([6], np.uint64)),
    ):
        assert digest(other) != digest(table) == digest(same)


def test_the_simulation_is_of_the_same_rows_and_tells_a_fleet_from_none() -> None:
    """Every batch that was routed and no other; hash is far from it, so 5 % says something."""
    shape = Shape(agents=8)
    loads = simulated(shape, [24] * 7 + [8])
    assert (loads.sum(axis=2)[:7] == shape.batch).all()
    assert loads[7].sum() == 8 * shape.batch
    hashes = np.concatenate([rows(shape, agent, batch) for agent in range(8) for batch in range(24)])
    hashed = np.bincount(hashes % np.uint64(shape.workers), minlength=shape.workers)
    assert imbalance(hashed) > 1.5 * imbalance(loads[:, 8:].sum(axis=(0, 1)))
