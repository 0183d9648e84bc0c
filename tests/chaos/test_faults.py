"""32 agents, three replicas, one Redis, and every fault that is to be expected: the multi-process test.

After each fault all live agents come to one version with one table, every round was merged once and every report that
was acknowledged is in exactly one, to the tuple; and the rows after the fault are spread as they are by the same agents
in one process without any fault (``scenario``, ``ledger``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests import servers
from tests.chaos.conftest import World
from tests.chaos.fleet import AOF, Fleet, Replicas, wipe
from tests.chaos.ledger import Diary, Round, wrong
from tests.chaos.proxy import Delay, FaultProxy, HalfOpen, Mode, ProxyLoop, Reset, Truncate
from tests.chaos.scenario import LONG, PATIENT, Outcome, check, check_balance, kill_in_mid_round, stall, through
from tests.servers import MASTER, Sentinels, wait_for

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("chaos")]


def in_trouble(fleet: Fleet) -> None:
    """Somebody's call has failed."""
    before = {number: told["failed"] for number, told in fleet.status().items()}
    fleet.until("a call that fails", lambda told: any(told[n]["failed"] > before[n] for n in before), PATIENT)


def test_a_replica_is_killed_in_mid_round(world: World, tmp_path: Path) -> None:
    """SIGKILL between seal and merge; later it comes back, empty, and is as good as the others."""
    replica = world.replicas.all[1]

    def fault(fleet: Fleet) -> None:
        kill_in_mid_round(fleet, replica, world.redis)
        fleet.go_on(2, PATIENT)
        world.replicas.start()

    check(through(tmp_path, "killed replica", LONG, world.replicas, fault), world.redis.aof)


def test_redis_is_restarted_with_its_data(world: World, tmp_path: Path) -> None:
    """SIGKILL, seconds of nothing, and all goes on where it was: the same incarnation, the next epoch."""

    def fault(fleet: Fleet) -> None:
        world.redis.kill()
        in_trouble(fleet)
        world.redis.start()

    outcome = through(tmp_path, "restarted Redis", LONG, world.replicas, fault)
    rounds = check(outcome, world.redis.aof, uncounted=len(world.replicas.all))
    assert len({one.epoch[0] for one in rounds}) == 1


def test_redis_is_restarted_without_its_data(world: World, tmp_path: Path) -> None:
    """The replicas put the stream again, once: a newer incarnation, which all agents adopt; within each every report
    counts once."""
    kept: list[Path] = []

    def fault(fleet: Fleet) -> None:
        world.redis.kill()
        kept.append(wipe(world.redis))
        in_trouble(fleet)
        world.redis.start()

    outcome = through(tmp_path, "wiped Redis", LONG, world.replicas, fault)
    rounds = check(outcome, *kept, world.redis.aof, uncounted=len(world.replicas.all))
    first, second = sorted({one.epoch[0] for one in rounds})
    assert first < second == outcome.version[0]


def test_agents_are_killed_and_one_of_the_names_comes_back(world: World, tmp_path: Path) -> None:
    """The others wait for no longer than a lease; a new life of a name is another session and counts anew."""

    def fault(fleet: Fleet) -> None:
        at = fleet.status()[5]["batch"]
        for number in (5, 17, 31):
            fleet.kill(number)
        fleet.go_on(2, PATIENT)
        fleet.add([5], begin=at + 2)

    outcome = through(tmp_path, "killed agents", LONG, world.replicas, fault)
    check(outcome, world.redis.aof)
    assert len(outcome.live) == LONG.agents - 2
    assert len({diary.session for diary in outcome.diaries if diary.name == "agent-0005"}) == 2


MODES: list[Mode] = [Delay(0.15), Reset(), HalfOpen(), Truncate(10_000)]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: type(mode).__name__)
def test_the_network_stalls(mode: Mode, world: World, tmp_path: Path) -> None:
    """Between agents and all replicas, then between all replicas and Redis."""

    def during(fleet: Fleet, proxies: Sequence[FaultProxy]) -> None:
        if isinstance(mode, Delay):
            stall(fleet, mode, proxies, lambda: fleet.go_on(2, PATIENT))
        else:
            stall(fleet, mode, proxies, lambda: in_trouble(fleet))
            fleet.go_on(2, PATIENT)

    def fault(fleet: Fleet) -> None:
        during(fleet, world.replicas.fronts)
        during(fleet, world.replicas.backs)

    outcome = through(tmp_path, f"stall {type(mode).__name__}", LONG, world.replicas, fault)
    check(outcome, world.redis.aof, uncounted=len(world.replicas.all))


# -- Sentinel


@pytest.fixture(scope="module")
def sentinels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sentinels]:
    with servers.sentinels(tmp_path_factory.mktemp("sentinels"), *AOF) as topology:
        yield topology


@pytest.fixture(scope="module")
def behind(sentinels: Sentinels, proxies: ProxyLoop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    """Replicas of the service that ask the Sentinels where the master is."""
    replicas = Replicas(tmp_path_factory.mktemp("behind"), proxies, 3, None, sentinels.url)
    try:
        yield replicas.start()
    finally:
        replicas.close()


@pytest.fixture
def whole(sentinels: Sentinels) -> Sentinels:
    """Both servers up, ``master_link_status:up``, and what they write from now on is in the files that they have."""
    sentinels.restore()
    wait_for("files", lambda: all(_written(server) for server in sentinels.servers), PATIENT)
    return sentinels


def _written(server: servers.Server) -> bool:
    told = server.info("persistence")
    return not (told["aof_rewrite_in_progress"] or told["aof_rewrite_scheduled"] or told["loading"])


def test_a_planned_failover(whole: Sentinels, behind: Replicas, tmp_path: Path) -> None:
    """``SENTINEL FAILOVER``: the old master takes writes for a moment more, and then follows the new one."""
    old = whole.master()
    kept = _linked(old, tmp_path)

    def fault(_fleet: Fleet) -> None:
        whole.sentinels[0].ask("SENTINEL", "FAILOVER", MASTER)
        whole.failed_over(old)

    check_failover(through(tmp_path, "planned failover", LONG, behind, fault), whole, kept)


def test_the_master_is_killed(whole: Sentinels, behind: Replicas, tmp_path: Path) -> None:
    """SIGKILL; Sentinels find out, and promote the replica."""
    old = whole.master()
    kept = _linked(old, tmp_path)

    def fault(_fleet: Fleet) -> None:
        old.kill()
        whole.failed_over(old)

    check_failover(through(tmp_path, "killed master", LONG, behind, fault), whole, kept)


def test_a_failover_loses_rounds_that_were_answered(whole: Sentinels, behind: Replicas, tmp_path: Path) -> None:
    """Nobody followed the master when it merged its last rounds: the same numbers are used again with other content.
    What was lost is lost, all else counts once, and nobody waits for ever for a round that is no more."""
    old, follower = whole.master(), whole.replica()
    kept = _linked(old, tmp_path)

    def fault(fleet: Fleet) -> None:
        follower.ask("CONFIG", "SET", "masterauth", "not this")
        old.ask("CLIENT", "KILL", "TYPE", "replica")
        wait_for("cut off", lambda: follower.info("replication")["master_link_status"] == "down")
        fleet.go_on(2, PATIENT)
        old.kill()
        whole.failed_over(old)

    lost = check_failover(through(tmp_path, "lost rounds", LONG, behind, fault), whole, kept)
    assert len(lost) >= 2


def _linked(server: servers.Server, folder: Path) -> Path:
    """Second names for its files: a server throws them away when it begins to follow another."""
    kept = folder / f"aof-{server.port}"
    kept.mkdir()
    for path in server.aof.glob("*.incr.aof"):
        (kept / path.name).hardlink_to(path)
    return kept


def check_failover(outcome: Outcome, topology: Sentinels, before: Path) -> list[Round]:
    """The new master's books are right, but for what only the old one had: those rounds. Redis answers before its
    replicas have what it answered."""
    written = outcome.fleet.rounds(topology.master().aof)
    lost = [one for one in outcome.fleet.rounds(before) if one not in written]
    diaries = [_without(diary, lost, written) for diary in outcome.diaries]
    assert wrong(written, diaries, outcome.live) == []
    assert written[-1].epoch == outcome.version
    check_balance(outcome, len(written))
    return lost


def _without(diary: Diary, lost: list[Round], written: list[Round]) -> Diary:
    """A diary without the answers of lost rounds, and without the reports in them that no other round has."""
    gone = {name for one in lost for name in one.names} - {name for one in written for name in one.names}
    kept = {seq for seq in diary.posted if (diary.name, diary.session, seq) not in gone}
    tables = {(one.epoch, one.digest) for one in lost}
    return replace(
        diary,
        posted={seq: diary.posted[seq] for seq in kept},
        acked=diary.acked & kept,
        adopted={version: table for version, table in diary.adopted.items() if (version, table) not in tables},
    )
