"""Which plan a batch is bound to, whatever the service does."""

from __future__ import annotations

import threading
import time
from typing import Any

import grpc
import numpy as np
import pytest

from tests.client.service_in_test import Running, ServiceInTest, fails, free_port, plan_of, until
from unskew.client import Breaker, Client, Fetched, Ladder
from unskew.client.ladder import HASH, LAST, NEWEST, LatestPlan, choose
from unskew.core.errors import ConfigError
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Plan
from unskew.core.planners import make_planner
from unskew.v1 import partitioner_pb2 as pb

PLAIN = plan_of(0, incarnation=0)


class TestTheDecision:
    def test_the_newest_plan_is_taken(self) -> None:
        """Also where no other is known, and where the service could not ask its store: the reason says that."""
        chosen = choose(LatestPlan(Fetched(plan_of(3))), None, PLAIN)
        assert (chosen.plan, chosen.rung) == (plan_of(3), NEWEST)
        stale = choose(LatestPlan(Fetched(plan_of(3), stale=True)), plan_of(2), PLAIN)
        assert stale.rung == NEWEST
        assert "could not ask its store" in stale.reason

    def test_without_an_answer_it_is_the_last_one_known_and_then_plain_hashing(self) -> None:
        """The reason says what went wrong and what is used instead."""
        last = choose(LatestPlan(None, "no answer"), plan_of(2), PLAIN)
        assert (last.plan, last.rung) == (plan_of(2), LAST)
        assert last.reason == "no answer; version 1.2 is the last one known"
        plain = choose(LatestPlan(None, "no answer"), None, PLAIN)
        assert (plain.plan, plain.rung) == (PLAIN, HASH)
        assert plain.reason.startswith("no answer; ")

    def test_a_service_that_is_behind_does_not_turn_a_batch_back(self) -> None:
        """Only a newer plan is adopted; one of a newer incarnation is newer."""
        assert choose(LatestPlan(Fetched(plan_of(2))), plan_of(5), PLAIN).rung == LAST
        assert choose(LatestPlan(Fetched(plan_of(1, incarnation=2))), plan_of(5), PLAIN).rung == NEWEST

    def test_a_plan_that_does_not_fit_is_never_used(self) -> None:
        """Another number of partitions, or keys of other types: not from the service, and not as the last one."""
        other = plan_of(9, partitions=8)
        assert choose(LatestPlan(Fetched(other)), plan_of(2), PLAIN).rung == LAST
        chosen = choose(LatestPlan(Fetched(other)), other, PLAIN)
        assert chosen.rung == HASH
        assert "8 partitions, not for 4" in chosen.reason
        typed = Plan(4, plan_of(3).tail, plan_of(3).hot, ("string",), plan_of(3).info)
        assert choose(LatestPlan(Fetched(typed)), None, PLAIN, ("string",)).rung == NEWEST
        refused = choose(LatestPlan(Fetched(typed)), None, PLAIN, ("bigint",))
        assert refused.rung == HASH
        assert "keys of string, not of bigint" in refused.reason


class TestWalking:
    def test_each_rung_in_turn(self, running: Running, client: Client, service: ServiceInTest) -> None:
        """Hash while there is no plan, the newest while there is a service, the last one when it is gone."""
        ladder = Ladder(client, "clicks", 4, timeout=60.0, breaker=Breaker(failures=100))
        service.streams["clicks"] = pb.StreamSpec(partitions=4)
        first = ladder.walk()
        assert first.rung == HASH
        assert "no such plan" in first.reason
        assert first.plan == make_planner("hash", 4).plan(Histogram.empty())
        service.publish("clicks", plan_of(1))
        assert (ladder.walk().rung, ladder.last) == (NEWEST, plan_of(1))
        running.stop()
        gone = ladder.walk()
        assert (gone.rung, gone.plan) == (LAST, plan_of(1))
        assert "'clicks'" in gone.reason

    def test_it_never_takes_longer_than_its_deadline(self, client: Client, service: ServiceInTest) -> None:
        """The service holds the call; the answer that comes late is the last one known of the next walk."""
        release = threading.Event()

        def late(request: Any, context: grpc.ServicerContext) -> Any:
            release.wait(60)
            return service.do_GetPlan(request, context)

        service.publish("clicks", plan_of(1))
        service.does["GetPlan"] = late
        ladder = Ladder(_Patient(client), "clicks", 4, timeout=0.2)  # type: ignore[arg-type]
        began = time.monotonic()
        chosen = ladder.walk()
        assert time.monotonic() - began < 30.0
        assert (chosen.rung, chosen.reason) == (
            HASH,
            "the service did not answer in 0.2 s; no other plan is known: plain hashing",
        )
        release.set()
        until(lambda: ladder.last == plan_of(1))

    def test_many_walks_ask_once(self, client: Client, service: ServiceInTest) -> None:
        """A service that hangs does not gather threads."""
        release = threading.Event()
        service.does["GetPlan"] = lambda request, context: (release.wait(60), pb.GetPlanResponse())[1]
        ladder = Ladder(_Patient(client), "clicks", 4, timeout=0.01)  # type: ignore[arg-type]
        assert {ladder.walk().rung for _ in range(10)} == {HASH}
        until(lambda: service.calls["GetPlan"] == 1)
        release.set()

    def test_a_service_that_keeps_failing_is_not_asked_for_a_while(
        self, client: Client, service: ServiceInTest
    ) -> None:
        """The breaker saves the wait; a refusal does not count, for it is an answer."""
        now = [0.0]
        breaker = Breaker(failures=2, cooldown=10.0)
        ladder = Ladder(client, "clicks", 4, timeout=60.0, breaker=breaker, clock=lambda: now[0])
        for _ in range(5):
            assert "NOT_FOUND" in ladder.walk().reason
        service.does["GetPlan"] = fails(grpc.StatusCode.ABORTED)
        for _ in range(2):
            assert "ABORTED" in ladder.walk().reason
        asked = service.calls["GetPlan"]
        assert "not asked for a while" in ladder.walk().reason
        assert service.calls["GetPlan"] == asked
        del service.does["GetPlan"]
        service.publish("clicks", plan_of(1))
        now[0] = 10.0
        assert ladder.walk().rung == NEWEST

    def test_bytes_that_are_no_plan_are_no_reason_to_fail(self, client: Client, service: ServiceInTest) -> None:
        """They are a reason to use another rung."""
        service.does["GetPlan"] = lambda request, context: pb.GetPlanResponse(plan=b"nonsense", digest="d")
        chosen = Ladder(client, "clicks", 4, timeout=60.0, last=plan_of(1)).walk()
        assert chosen.rung == LAST
        assert "not a plan of unskew" in chosen.reason

    def test_a_closed_client_is_no_reason_to_fail_either(self, client: Client) -> None:
        client.close()
        assert Ladder(client, "clicks", 4).walk().rung == HASH

    def test_after_a_fork_it_does_not_wait_for_the_threads_of_the_parent(
        self, client: Client, service: ServiceInTest
    ) -> None:
        """Forked while a question was open: the child asks by itself."""
        release = threading.Event()
        service.does["GetPlan"] = lambda request, context: (release.wait(60), pb.GetPlanResponse())[1]
        ladder = Ladder(_Patient(client), "clicks", 4, timeout=0.05, last=plan_of(1))  # type: ignore[arg-type]
        ladder.walk()
        assert ladder._open is not None
        ladder.after_fork()
        assert ladder._open is None
        assert ladder.walk().rung == LAST
        release.set()

    def test_what_makes_no_sense_is_refused_when_the_ladder_is_made(self, client: Client) -> None:
        """Walking never fails, so this has to."""
        with pytest.raises(ConfigError, match="timeout"):
            Ladder(client, "clicks", 4, timeout=0.0)
        with pytest.raises(ConfigError, match="partitions"):
            Ladder(client, "clicks", 0)

    def test_weights_hold_for_plain_hashing_too(self) -> None:
        """A machine of twice the capacity gets twice the keys."""
        with Client(f"127.0.0.1:{free_port()}") as client:
            plan = Ladder(client, "clicks", 2, weights=(1.0, 2.0), timeout=0.3).walk().plan
        shares = np.bincount(plan.tail) / len(plan.tail)
        assert shares.tolist() == pytest.approx([1 / 3, 2 / 3], abs=0.01)


class _Patient:
    """A client whose own deadline does not help: that of the ladder has to."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def get_plan(self, stream: str, *, timeout: float) -> Fetched:
        return self._client.get_plan(stream, timeout=60.0)
