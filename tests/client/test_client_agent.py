"""The agent and its thread against a service that is slow, gone, late, wiped, wrong; and over forks."""

from __future__ import annotations

import json
import logging
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
from unskew.client import Agent, Breaker, Client, ClientClosedError
from unskew.core.errors import ConfigError, KeyTypeError
from unskew.core.rounds.agent import Agent as Machine
from unskew.core.rounds.agent import AgentSettings, Routed, Tuples
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire import report_from_message

N = 4
QUICK = 0.05  # DSYNC of these tests, in seconds
FOREVER = 3600.0
CHILDREN = Path(__file__).with_name("forking.py")


def rows(count: int = 2_000, seed: int = 1) -> NDArray[np.uint64]:
    """A fifth of one key, the rest of many."""
    rng = np.random.default_rng(seed)
    rare = rng.integers(1, 2**63, count, dtype=np.uint64)
    return np.where(rng.random(count) < 0.2, np.uint64(7), rare)


def reports(service: ServiceInTest) -> list[Any]:
    return [report_from_message(request.report) for verb, request, _ in list(service.seen) if verb == "Sync"]


class TestWithAService:
    def test_it_routes_reports_and_adopts_answers(self, running: Running, service: ServiceInTest) -> None:
        """Round after round, by itself; each report once, seq by seq."""
        with Agent("clicks", running.target, workers=N, dsync=QUICK, name="ann") as agent:
            until(lambda: agent.route(rows()).shape == (2_000,) and agent.status.version >= (1, 3))
            status = agent.status
        assert (status.name, status.failed, status.error, status.breaker) == ("ann", 0, "", "closed")
        sent = reports(service)
        assert [report.seq for report in sent] == list(range(1, len(sent) + 1))
        assert {report.session for report in sent} == {status.session}
        assert sum(report.records for report in sent) <= agent.status.tuples

    def test_it_routes_as_the_bare_machine_does(self) -> None:
        """Between two rounds the driver changes nothing: same tuples, same workers."""
        with Agent("clicks", f"127.0.0.1:{free_port()}", workers=N, dsync=FOREVER, name="ann") as agent:
            settings = agent._settings
            mine = [agent.route(rows(seed=seed)).tolist() for seed in range(3)]
        machine = Machine(AgentSettings(name="ann", workers=N, dsync=FOREVER, number=settings.number))
        bare = []
        for seed in range(3):
            (routed,) = machine.handle(Tuples(rows(seed=seed)), 0.0)
            assert isinstance(routed, Routed)
            bare.append(routed.workers.tolist())
        assert mine == bare

    def test_signed_hashes_are_the_same_keys_and_anything_else_is_refused(self) -> None:
        """As Spark has them; a float would be another key."""
        target = f"127.0.0.1:{free_port()}"
        with Agent("a", target, workers=N, name="x") as one, Agent("a", target, workers=N, name="x") as two:
            assert one.route(rows().view(np.int64)).tolist() == two.route(rows()).tolist()
            assert one.route(np.zeros(0, np.uint64)).tolist() == []
            with pytest.raises(KeyTypeError):
                one.route(np.array([0.5]))
            one.close(0.0)
            two.close(0.0)

    def test_nothing_is_routed_and_a_report_is_due_all_the_same(self, running: Running, service: ServiceInTest) -> None:
        """The thread looks at the clock, so that a round need not wait for a quiet agent."""
        with Agent("clicks", running.target, workers=N, dsync=QUICK) as agent:
            agent.route(rows())
            until(lambda: agent.status.version >= (1, 3))

    def test_an_agent_may_share_a_client(self, client: Client, service: ServiceInTest) -> None:
        """And does not close it."""
        with Agent("clicks", client, workers=N, dsync=QUICK) as agent:
            agent.route(rows())
            until(lambda: agent.status.answered)
        assert not client.closed

    def test_many_threads_route_with_one_agent(self, running: Running) -> None:
        """Every row is routed and counted once, while answers come in."""
        with Agent("clicks", running.target, workers=N, dsync=QUICK) as agent:
            counts: list[int] = []

            def work(seed: int) -> None:
                for _ in range(20):
                    counts.append(len(agent.route(rows(500, seed))))

            threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert sum(counts) == agent.status.tuples == 8 * 20 * 500
            assert int(agent._machine.learner.loads.load.sum()) == 8 * 20 * 500


class TestWithoutOne:
    def test_a_service_that_holds_the_call_holds_nobody_up(self, running: Running, service: ServiceInTest) -> None:
        """All of this is routed while one call hangs; the report that waits stays one, and is not lost."""
        release = threading.Event()

        def held(request: Any, context: grpc.ServicerContext) -> Any:
            release.wait(60)
            return service.do_Sync(request, context)

        service.does["Sync"] = held
        with Agent("clicks", running.target, workers=N, dsync=QUICK, timeout=60.0) as agent:
            until(lambda: agent.route(rows()).size and service.calls["Sync"])
            for seed in range(50):
                agent.route(rows(seed=seed))
            assert not release.is_set()
            assert agent.status.version == (0, 0)
            assert agent.status.awaiting
            release.set()
            until(lambda: agent.status.version >= (1, 1))
            assert reports(service)[0].records > 0

    def test_a_service_that_is_gone_holds_nobody_up(self, caplog: pytest.LogCaptureFixture) -> None:
        """It learns on by itself, keeps one report, says once what is wrong, and asks ever less often."""
        caplog.set_level(logging.WARNING, "unskew.client")
        with Agent(
            "clicks", f"127.0.0.1:{free_port()}", workers=N, dsync=QUICK, timeout=0.2, breaker=Breaker(failures=2)
        ) as agent:
            until(lambda: agent.route(rows()).size and agent.status.breaker == "open")
            for seed in range(20):
                agent.route(rows(seed=seed))
            status = agent.status
            assert status.failed >= 2
            assert "'clicks'" in status.error
            assert agent.waiting is not None
            assert agent._sender._outbox.first() is agent.waiting
        assert len([record for record in caplog.records if "did not get through" in record.message]) == 1

    def test_a_service_that_comes_back_is_found(self, running: Running, service: ServiceInTest) -> None:
        """Without anybody's doing, and the report that waited is the one that is merged."""
        with Agent(
            "clicks",
            running.target,
            workers=N,
            dsync=QUICK,
            timeout=0.3,
            breaker=Breaker(failures=2, cooldown=0.05, longest=0.2),
        ) as agent:
            until(lambda: agent.route(rows()).size and agent.status.version >= (1, 1))
            running.stop()
            until(lambda: agent.route(rows()).size and agent.status.failed >= 2)
            running.start()
            before = agent.status.version
            until(lambda: agent.route(rows()).size and agent.status.version > before)
            until(lambda: agent.status.error == "")

    def test_not_yet_is_no_failure_and_not_a_busy_loop(self, running: Running, service: ServiceInTest) -> None:
        """The same report is shown again until its round has closed, a few times a DSYNC."""
        service.does["Sync"] = lambda request, context: pb.SyncResponse()
        with Agent("clicks", running.target, workers=N, dsync=0.4) as agent:
            began = time.monotonic()
            until(lambda: agent.route(rows()).size and service.calls["Sync"] >= 4)
            assert time.monotonic() - began > 0.4 + 2 * 0.1
            del service.does["Sync"]
            until(lambda: agent.status.version >= (1, 1))
            assert agent.status.failed == 0
        names = [report.name for report in reports(service)]
        assert len(set(names[:4])) == 1

    def test_a_wiped_service_is_adopted(self, running: Running, service: ServiceInTest) -> None:
        """A new incarnation begins with round 1 again, and is newer all the same; an old answer is not."""
        with Agent("clicks", running.target, workers=N, dsync=QUICK) as agent:
            until(lambda: agent.route(rows()).size and agent.status.version >= (1, 3))
            service.incarnation, service.epoch = 2, 0
            until(lambda: agent.route(rows()).size and agent.status.version >= (2, 1))
            service.incarnation, service.epoch = 1, 90
            asked = service.calls["Sync"]
            until(lambda: agent.route(rows()).size and service.calls["Sync"] >= asked + 3)
            assert agent.status.version[0] == 2

    @pytest.mark.parametrize(
        "verb",
        [
            fails(grpc.StatusCode.FAILED_PRECONDITION, "workers: 4, but stream 'clicks' has 16"),
            fails(grpc.StatusCode.PERMISSION_DENIED, "no"),
            fails(grpc.StatusCode.NOT_FOUND, "no such stream"),
            lambda request, context: pb.SyncResponse(answer=pb.SyncAnswer(epoch=1, dsync_seconds=-1.0)),
            lambda request, context: pb.SyncResponse(
                answer=pb.SyncAnswer(epoch=1, dsync_seconds=1.0, table=pb.QTable(workers=3), loads=bytes(24))
            ),
        ],
        ids=["refused", "denied", "no stream", "nonsense", "other workers"],
    )
    def test_whatever_is_answered_routing_goes_on(self, running: Running, service: ServiceInTest, verb: Any) -> None:
        """The reason is in the status; the agent is as it was."""
        service.does["Sync"] = verb
        with Agent("clicks", running.target, workers=N, dsync=QUICK) as agent:
            until(lambda: agent.route(rows()).size and agent.status.failed >= 2)
            assert agent.status.error
            assert agent.status.version == (0, 0)
            assert set(agent.route(rows()).tolist()) <= set(range(N))


class TestClosing:
    def test_what_was_learned_since_the_last_report_is_sent(self, running: Running, service: ServiceInTest) -> None:
        """Also where DSYNC is an hour away."""
        agent = Agent("clicks", running.target, workers=N, dsync=FOREVER)
        agent.route(rows())
        assert agent.close(60.0) is True
        assert [report.records for report in reports(service)] == [2_000]
        assert agent.close() is True
        with pytest.raises(ClientClosedError, match="closed"):
            agent.route(rows())

    def test_a_report_that_waits_and_what_came_after_it_are_both_sent(
        self, running: Running, service: ServiceInTest
    ) -> None:
        """The long wait for the round is given up for it."""
        first = threading.Event()

        def held(request: Any, context: grpc.ServicerContext) -> Any:
            if not first.is_set():
                first.set()
                while context.is_active():
                    time.sleep(0.005)
            return service.do_Sync(request, context)

        service.does["Sync"] = held
        agent = Agent("clicks", running.target, workers=N, dsync=0.1, timeout=60.0)
        until(lambda: agent.route(rows()).size and first.is_set())
        agent.route(rows())
        tuples = agent.status.tuples
        assert agent.close(30.0) is True
        taken = {report.seq: report.records for report in reports(service)}
        assert sum(taken.values()) == tuples

    @pytest.mark.parametrize("how", ["hangs", "gone"])
    def test_it_ends_within_its_deadline(self, running: Running, service: ServiceInTest, how: str) -> None:
        """With a service that hangs, or none: what was not taken is dropped, and said to be."""
        release = threading.Event()
        service.does["Sync"] = lambda request, context: (release.wait(60), pb.SyncResponse())[1]
        target = running.target if how == "hangs" else f"127.0.0.1:{free_port()}"
        agent = Agent("clicks", target, workers=N, dsync=QUICK, timeout=60.0)
        until(lambda: agent.route(rows()).size and agent.status.sent)
        began = time.monotonic()
        assert agent.close(0.3) is False
        assert time.monotonic() - began < 30.0
        assert agent._sender.background.join(20.0)
        release.set()

    def test_an_agent_that_never_routed_has_nothing_to_end(self) -> None:
        """No thread was begun, and nothing is sent."""
        agent = Agent("clicks", f"127.0.0.1:{free_port()}", workers=N)
        assert not agent._sender.background.started
        assert agent.close(0.0) is True


class TestSettings:
    @pytest.mark.parametrize(
        ("given", "named"),
        [
            ({"workers": 0}, "workers"),
            ({"workers": 4, "dsync": 0.0}, "dsync"),
            ({"workers": 4, "name": "a b"}, "name"),
            ({"workers": 4, "timeout": -1}, "timeout"),
            ({"workers": 4, "parameters": {"gama": 1}}, "gama"),
            ({"workers": 4, "token": "x", "service": "elsewhere:1"}, "target"),
        ],
    )
    def test_what_makes_no_sense_is_refused_by_name(self, given: dict[str, Any], named: str) -> None:
        with pytest.raises(ConfigError, match=named):
            Agent("clicks", **given)

    def test_names_and_sessions_are_unique(self) -> None:
        """Two agents of one process too; a later life of a name has a greater session."""
        one, two = (Agent("clicks", workers=N) for _ in range(2))
        assert one.status.name != two.status.name
        assert one.status.session < two.status.session
        one.close()
        two.close()


def in_children(running: Running, what: str) -> Any:
    """What ``forking.py`` prints, in a process of its own: this one has too many threads to fork."""
    done = subprocess.run(
        [sys.executable, str(CHILDREN), what, running.target], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


class TestForks:
    def test_a_child_is_an_agent_of_its_own(self, running: Running, service: ServiceInTest) -> None:
        """Own name, own session, no tuple of the parent's; both go on, and the child may end in any way."""
        told = in_children(running, "agent")
        names = [told["parent"]["name"], *(child["name"] for child in told["children"])]
        assert len(set(names)) == len(names) == 5
        assert all(child["tuples"] == 1_000 for child in told["children"])
        assert all(child["answered"] for child in told["children"])
        assert told["parent"]["failed"] == 0
        assert told["after"] > told["before"]
        assert {report.agent for report in reports(service)} == set(names)

    def test_a_child_of_a_busy_process_calls_by_itself(self, running: Running, service: ServiceInTest) -> None:
        """Other threads of the parent are in the middle of calls, of routing, of a watch, when it forks."""
        service.publish("clicks", plan_of(1))
        told = in_children(running, "busy")
        assert told == {"children": ["ok"] * 6, "parent": "ok"}

    def test_multiprocessing_may_fork_a_process_with_a_client(self, running: Running, service: ServiceInTest) -> None:
        """A pool of forked workers, each with the client that it inherits."""
        service.publish("clicks", plan_of(1))
        assert in_children(running, "pool") == {"versions": [1] * 8}
