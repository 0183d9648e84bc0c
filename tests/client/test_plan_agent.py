"""Routing by plans in any process: which plan is in force, what is told of the rows, and a service that is away."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.client.service_in_test import Running, ServiceInTest, fails, free_port, plan_of, until
from unskew.client import Breaker, Client, ClientClosedError, PlanAgent
from unskew.core.errors import ConfigError, KeyTypeError
from unskew.core.freshness.way_scores import WayChoice
from unskew.core.histogram.histogram import Histogram
from unskew.core.plan.plan import Version
from unskew.core.planners import make_planner
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire import plan_to_bytes

N = 4
SLOT = 0.1
FOREVER = 3600.0
CHILDREN = Path(__file__).with_name("forking.py")


def rows(count: int = 2_000, seed: int = 1) -> NDArray[np.uint64]:
    """A fifth of one key, the rest of many."""
    rng = np.random.default_rng(seed)
    rare = rng.integers(1, 2**63, count, dtype=np.uint64)
    return np.where(rng.random(count) < 0.2, np.uint64(7), rare)


@pytest.fixture
def stream(service: ServiceInTest) -> ServiceInTest:
    """A stream without a plan."""
    service.streams["clicks"] = pb.StreamSpec()
    return service


def asked(service: ServiceInTest) -> list[int]:
    return [request.batch for verb, request, _ in list(service.seen) if verb == "BuildPlan"]


class TestRouting:
    def test_before_the_first_plan_it_is_plain_hashing(self) -> None:
        """Nobody waits for a service that is not there."""
        with PlanAgent("clicks", f"127.0.0.1:{free_port()}", workers=N, slot=FOREVER, timeout=60.0) as agent:
            began = time.monotonic()
            plain = make_planner("hash", N).plan(Histogram.empty())
            assert agent.route(rows()).tolist() == plain.route(rows()).tolist()
            assert time.monotonic() - began < 30.0
            assert agent.status.rung == "hash"

    def test_a_plan_that_is_there_already_is_taken_at_once(self, running: Running, service: ServiceInTest) -> None:
        """An agent that starts anew does not route by hashing for a slot."""
        service.publish("clicks", plan_of(5))
        with PlanAgent("clicks", running.target, workers=N, slot=FOREVER) as agent:
            agent.route(rows())
            until(lambda: agent.status.version.number == 5)
            assert agent.route(rows()).tolist() == plan_of(5).route(rows()).tolist()

    def test_routing_is_a_function_of_the_plan_and_the_row(self, running: Running, service: ServiceInTest) -> None:
        """Whoever has the plan and the spread hash finds the same worker: rows by rows, or all at once."""
        split = make_planner("cg", N, alpha=4).plan(Histogram.from_hashes(rows()))
        service.publish("clicks", split)
        spread = np.random.default_rng(2).integers(0, 2**64, 2_000, dtype=np.uint64)
        with PlanAgent("clicks", running.target, workers=N, slot=FOREVER) as agent:
            agent.route(rows())
            until(lambda: agent.plan.digest == split.digest)
            whole = agent.route(rows(), spread)
            pieces = [agent.route(rows()[i : i + 300], spread[i : i + 300]) for i in range(0, 2_000, 300)]
        assert split.splits
        assert whole.tolist() == np.concatenate(pieces).tolist() == split.route(rows(), spread).tolist()

    def test_without_spread_hashes_a_split_key_is_spread_all_the_same(
        self, running: Running, service: ServiceInTest
    ) -> None:
        """By the rows' places: the same in any batches, within its planned shares."""
        split = make_planner("cg", N, alpha=4).plan(Histogram.from_hashes(np.full(1_000, 7, np.uint64)))
        service.publish("clicks", split)
        seen = []
        for pieces in (1, 7):
            with PlanAgent("clicks", running.target, workers=N, slot=FOREVER, name="ann") as agent:
                agent.route(np.zeros(0, np.uint64))
                until(lambda agent=agent: agent.plan.digest == split.digest)
                parts = np.array_split(np.full(4_000, 7, np.uint64), pieces)
                seen.append(np.concatenate([agent.route(part) for part in parts]))
        assert seen[0].tolist() == seen[1].tolist()
        assert np.bincount(seen[0], minlength=N).min() > 800

    def test_what_is_no_hash_is_refused(self) -> None:
        with PlanAgent("clicks", f"127.0.0.1:{free_port()}", workers=N) as agent:
            assert agent.route(rows().view(np.int64)).tolist() == agent.route(rows()).tolist()
            with pytest.raises(KeyTypeError):
                agent.route(np.array([0.5]))
        with pytest.raises(ClientClosedError, match="clicks"):
            agent.route(rows())


class TestSlots:
    def test_each_slot_tells_its_rows_and_asks_for_the_next_plan(self, running: Running, stream: ServiceInTest) -> None:
        """The batch after the one that was told; each once, and every row is told once."""
        with PlanAgent("clicks", running.target, workers=N, slot=SLOT, name="ann") as agent:
            agent.route(rows())
            until(lambda: agent.status.told)
            part, histogram = stream.reported["clicks"]
            assert (part.source, histogram.total, histogram.count(np.array([7], np.uint64))[0]) == (
                "ann",
                2_000,
                int((rows() == 7).sum()),
            )
            until(lambda: part.batch + 1 in asked(stream))
            until(lambda: len(asked(stream)) >= 4)
            status = agent.status
        assert asked(stream) == sorted(set(asked(stream)))
        assert (status.told, status.failed, status.error) == (1, 0, "")

    def test_a_newer_plan_takes_the_place_of_an_older_one_and_never_the_reverse(
        self, running: Running, stream: ServiceInTest
    ) -> None:
        numbers = iter([3, 9, 4, 4, 4, 4])

        def build(request: Any, context: grpc.ServicerContext) -> Any:
            plan = plan_of(next(numbers, 4))
            advice = pb.WayChoice(way="previous", runner_up="same", reason="cheapest so far")
            return pb.BuildPlanResponse(plan=plan_to_bytes(plan), digest=plan.digest, advice=advice)

        stream.does["BuildPlan"] = build
        with PlanAgent("clicks", running.target, workers=N, slot=SLOT) as agent:
            assert agent.status.advice is None
            agent.route(rows())
            until(lambda: len(asked(stream)) >= 4)
            until(lambda: agent.status.advice == WayChoice("previous", "same", "cheapest so far"))
            assert agent.plan.version == Version(1, 9)
            until(lambda: "older than" in agent.chosen.reason)
            assert agent.chosen.rung == "last"

    def test_a_plan_for_other_workers_is_not_used(self, running: Running, stream: ServiceInTest) -> None:
        stream.does["BuildPlan"] = lambda request, context: pb.BuildPlanResponse(plan=plan_to_bytes(plan_of(2, 8)))
        with PlanAgent("clicks", running.target, workers=N, slot=SLOT) as agent:
            agent.route(rows())
            until(lambda: asked(stream) and "8 partitions" in agent.status.reason)
            assert agent.route(rows()).max() < N

    def test_more_keys_than_a_histogram_names_are_told_by_host(self, running: Running, stream: ServiceInTest) -> None:
        """No row is lost, and the heavy key is still known."""
        with PlanAgent("clicks", running.target, workers=N, slot=SLOT) as agent:
            agent.route(rows(40_000))
            until(lambda: agent.status.told)
        _, histogram = stream.reported["clicks"]
        assert histogram.total == 40_000
        assert len(histogram.hashes) < 20_000
        assert histogram.count(np.array([7], np.uint64))[0] == int((rows(40_000) == 7).sum())


class TestWithoutAService:
    def test_the_last_plan_stays_in_force_and_nobody_waits(self, running: Running, stream: ServiceInTest) -> None:
        """It hangs, it fails: routing goes on. When it is back, so are newer plans."""
        stream.publish("clicks", plan_of(5))
        release = threading.Event()
        breaker = Breaker(1_000, 0.02, 0.02)
        with PlanAgent("clicks", running.target, workers=N, slot=SLOT, timeout=0.2, breaker=breaker) as agent:
            agent.route(rows())
            until(lambda: agent.status.version.number >= 1)
            stream.does["BuildPlan"] = lambda request, context: (release.wait(60), pb.BuildPlanResponse())[1]
            until(lambda: agent.status.failed)
            began, version = time.monotonic(), agent.status.version
            for _ in range(100):
                assert agent.route(rows()).tolist() == agent.plan.route(rows()).tolist()
            assert time.monotonic() - began < 100 * 0.2  # as long as it takes if each waits for a call to time out
            assert (agent.status.version, "DEADLINE_EXCEEDED" in agent.status.error) == (version, True)
            stream.does["BuildPlan"] = fails(grpc.StatusCode.INTERNAL)
            until(lambda: "INTERNAL" in agent.status.error)
            del stream.does["BuildPlan"]
            release.set()
            until(lambda: agent.status.version > version)
            until(lambda: agent.status.error == "")

    def test_rows_that_cannot_be_told_take_bounded_room(self) -> None:
        """They are counted as uncounted; the others are folded into one histogram."""
        with PlanAgent("clicks", f"127.0.0.1:{free_port()}", workers=N, slot=FOREVER) as agent:
            many = rows(1 << 18)
            for _ in range(6):
                agent.route(many)
            assert agent._waiting_rows <= 1 << 20
            assert agent.status.rows == 6 << 18
            assert agent.status.uncounted >= 1 << 18

    def test_it_ends_within_its_deadline(self, running: Running, stream: ServiceInTest) -> None:
        release = threading.Event()
        stream.does["BuildPlan"] = lambda request, context: (release.wait(60), pb.BuildPlanResponse())[1]
        agent = PlanAgent("clicks", running.target, workers=N, slot=SLOT, timeout=60.0)
        agent.route(rows())
        until(lambda: asked(stream))
        began = time.monotonic()
        agent.close(1.0)
        assert time.monotonic() - began < 30.0
        release.set()


class TestLife:
    def test_a_shared_client_stays_open(self, client: Client, stream: ServiceInTest) -> None:
        with PlanAgent("clicks", client, workers=N, slot=SLOT) as agent:
            agent.route(rows())
            until(lambda: agent.status.told)
        assert not client.closed

    @pytest.mark.parametrize(
        ("given", "named"),
        [
            ({"workers": 0}, "partitions"),
            ({"workers": 4, "slot": 0.0}, "slot"),
            ({"workers": 4, "grace": 1.0}, "grace"),
            ({"workers": 4, "name": "a b"}, "name"),
            ({"workers": 4, "timeout": -1}, "timeout"),
        ],
    )
    def test_what_makes_no_sense_is_refused_by_name(self, given: dict[str, Any], named: str) -> None:
        with pytest.raises(ConfigError, match=named):
            PlanAgent("clicks", **given)

    def test_a_forked_child_goes_on_under_its_own_name(self, running: Running, stream: ServiceInTest) -> None:
        """And so does a reporter, with nothing of what its parent had to say."""
        done = subprocess.run(
            [sys.executable, str(CHILDREN), "plans", running.target], capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stdout + done.stderr
        told = json.loads(done.stdout.splitlines()[-1])
        assert len({"parent", *(child["name"] for child in told["children"])}) == 3
        assert [child["inherited"] for child in told["children"]] == [0, 0]
        assert (told["failed"], told["sent"]) == (0, 1)
