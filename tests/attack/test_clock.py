"""The wrong clock, of a replica or of its store, an hour and years off, in both directions, and a jump in mid-run:
rounds end, versions go up, tokens end by the clock that the replica has, and rates do not notice."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from itertools import count

import pytest

from tests.attack.victim import VICTIM
from tests.attack.wrong_clock import Clock, redis_by
from tests.doses import some_of
from tests.planning import some_histogram
from tests.servers import Server, wait_for
from tests.service.faces import digest_of, report
from tests.service.processes import Process, process
from unskew.client import Client, NoAccessError
from unskew.client.results import Built
from unskew.core.rounds.next_step import Seal, next_step
from unskew.core.rounds.replica import ReplicaState, RoundTiming
from unskew.core.rounds.round_log import Member, RoundView
from unskew.core.rounds.rules import RoundRules

pytestmark = pytest.mark.xdist_group("attack")

HOUR, YEAR = 3600, 365 * 86_400
PARTITIONS, RATE = 8, 50
ENDING = "token-that-ends-tomorrow"
_numbers = count(1)


@dataclass
class Clocked:
    """A replica and its store, each with a clock of its own."""

    service: Process
    server: Server
    replicas: Clock
    stores: Clock
    log: str

    def client(self, token: str = VICTIM) -> Client:
        return Client(f"grpc://127.0.0.1:{self.service.grpc}", token=token, timeout=30)


@pytest.fixture(scope="module")
def clocked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clocked]:
    folder = tmp_path_factory.mktemp("clocked")
    replicas, stores = Clock.at(folder / "replicas"), Clock.at(folder / "stores")
    tomorrow = (datetime.now(timezone.utc) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    tokens = f"{digest_of(VICTIM)} somebody admin *\n{digest_of(ENDING)} ending admin * {tomorrow}\n"
    flags = "--max-calls-per-second", str(RATE)
    with redis_by(stores, folder) as server:
        to = "--store", f"{server.url}?timeout=5&deadline=10"
        with process(folder, *to, *flags, UNSKEW_TOKENS=tokens, **replicas.environment) as service:
            yield Clocked(service, server, replicas, stores, str(folder / "log"))


@pytest.fixture(autouse=True)
def right_again(clocked: Clocked) -> Iterator[None]:
    yield
    for clock in (clocked.replicas, clocked.stores):
        clock.shift(0)


def sync(client: Client, stream: str, agent: str, wait: float) -> tuple[int, int] | None:
    """The round that this report is in, if it was merged in time."""
    sent = replace(report(PARTITIONS, agent), seq=next(_numbers), dsync=1.0)
    answer = client.sync(stream, sent, wait=wait, timeout=wait + 30.0).answer
    return None if answer is None else answer.version


JUMPS = {
    "the store an hour back": (0, -HOUR), "the store an hour on": (0, HOUR),
    "the replica an hour back": (-HOUR, 0), "the replica an hour on": (HOUR, 0),
    "both an hour back": (-HOUR, -HOUR), "both a year on": (YEAR, YEAR),
    "apart by two hours": (HOUR, -HOUR), "the replica ten years back": (-10 * YEAR, 0),
    "the store a year back": (0, -YEAR),
}  # fmt: skip


@pytest.mark.parametrize("name", some_of(JUMPS, "the store an hour back", "apart by two hours"))
def test_a_jump_in_mid_run_holds_up_no_round_and_no_version(clocked: Clocked, name: str) -> None:
    """One agent waits for another, which does not come again, while the clock jumps: its round ends as ever. So do the
    next ones, with the clock as it is now, and after it is right again."""
    stream, (replicas, stores) = f"jumped-{next(_numbers)}", JUMPS[name]
    with clocked.client() as client, clocked.client() as other:
        client.put_stream(stream, partitions=PARTITIONS, dsync=1.0, dsync_min=1.0, dsync_max=1.0)
        versions = [client.build_plan(stream, histogram=some_histogram(1000, 50)).plan.version]
        both = threading.Thread(target=sync, args=(other, stream, "silent", 20.0))
        both.start()
        rounds = [sync(client, stream, "alive", 20.0)]
        both.join(60)
        jump = threading.Timer(0.3, lambda: (clocked.replicas.shift(replicas), clocked.stores.shift(stores)))
        jump.start()
        for _ in range(2):
            rounds.append(sync(client, stream, "alive", 20.0))
            seed = next(_numbers)
            versions.append(client.build_plan(stream, histogram=some_histogram(1000, 50, seed=seed)).plan.version)
            versions.append(client.get_plan(stream).plan.version)
        jump.join()
        for clock in (clocked.replicas, clocked.stores):
            clock.shift(0)
        rounds.append(sync(client, stream, "alive", 20.0))
        versions.append(client.get_plan(stream).plan.version)
    assert None not in rounds, rounds
    assert rounds == sorted(rounds)  # type: ignore[type-var]  # none is None
    assert versions == sorted(versions)
    with open(clocked.log) as log:  # noqa: PTH123
        assert "unexpected error" not in log.read()


@pytest.mark.parametrize("back", some_of([HOUR, YEAR], HOUR))
def test_what_is_put_again_by_an_older_clock_is_newer_all_the_same(clocked: Clocked, back: int) -> None:
    """A stream that was deleted, or lost, while the store's clock is behind what it was: numbers never go down."""
    stream = f"again-{next(_numbers)}"
    with clocked.client() as client:
        client.put_stream(stream, partitions=PARTITIONS)
        first = client.build_plan(stream, histogram=some_histogram(1000, 50)).plan.version
        clocked.stores.shift(-back)
        client.delete_stream(stream)
        client.put_stream(stream, partitions=PARTITIONS)
        second = client.build_plan(stream, histogram=some_histogram(1000, 50)).plan.version
        clocked.server.ask("FLUSHALL")
        built: list[Built] = []

        def made_anew() -> bool:
            """The last known plan is an answer, too, while Redis is slow."""
            built[:] = [client.build_plan(stream, histogram=some_histogram(1000, 50, seed=9))]
            return not built[0].stale

        wait_for("a plan", made_anew)
    assert first < second < built[0].plan.version


def test_tokens_end_by_the_replicas_clock_and_rates_do_not_notice(clocked: Clocked) -> None:
    with clocked.client(ENDING) as ending, clocked.client() as client:
        list(ending.list_streams())
        for shift in (2 * 86_400, -HOUR, HOUR, -YEAR, 0):
            clocked.replicas.shift(shift)
            if shift > 86_400:
                with pytest.raises(NoAccessError):
                    list(ending.list_streams())
            else:
                list(ending.list_streams())
            began = time.monotonic()
            for _ in range(RATE // 5):  # within the rate, whatever the clock did; refusals would be told late
                list(client.list_streams())
            assert time.monotonic() - began < 20


def test_a_round_that_was_opened_in_the_future_is_sealed() -> None:
    """The clock went back while it was open: it would be waited for until the clock is where it was."""
    state = ReplicaState.begin(RoundRules(2, dsync=1.0), RoundTiming(5.0, 0.25, 0.25))
    members = (Member("a", 4000.0, None), Member("b", 4000.0, None))
    view = RoundView(400.0, 1, 1, 0, 3999.0, {"a": 3999.0}, members)
    assert next_step(view, state.after_look(view, 0.0, frozenset()), 0.0) == Seal(1)
