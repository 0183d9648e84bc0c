"""Three replicas are replaced one after the other under a client that knows all three: no call fails."""

from __future__ import annotations

import contextlib
import signal
import time
from collections import Counter
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.compat.previous import unpacked
from tests.servers import free_ports
from tests.service.rolling import Load, Replica, of_release, rolled


def check(load: Load) -> None:
    assert not load.failed, load.failed[:5]
    assert min(load.calls[name] for name in ("GetPlan", "Sync", "BuildPlan", "answers")) > 5
    for mine in load.seen:  # none twice
        assert max(Counter(mine).values()) == 1


def test_no_call_fails_while_three_replicas_are_replaced(tmp_path: Path) -> None:
    """Reads, rounds, builds and watches go on all the while, spread over the replicas; watches come back by themselves
    and get no plan twice."""
    check(rolled(tmp_path, [Replica.replace], 2, ("grpc.lb_policy_name", "round_robin")))


def test_a_drain_does_not_wait_for_calls_that_no_handler_of_ours_has(tmp_path: Path) -> None:
    """A watch of the health service has no end, and held the drain up for all of its time."""
    one = Replica(free_ports(1)[0], tmp_path, ("--drain", "60"))
    try:
        one.start()
        one.up()
        with grpc.insecure_channel(f"127.0.0.1:{one.port}") as channel:
            states = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            assert next(states).status == health_pb2.HealthCheckResponse.SERVING
            began = time.monotonic()
            assert one.run is not None
            one.run.send_signal(signal.SIGTERM)
            assert one.run.wait(90) == 0, one.log
            assert time.monotonic() - began < 40
            with contextlib.suppress(grpc.RpcError):
                assert [state.status for state in states] == [health_pb2.HealthCheckResponse.NOT_SERVING]
    finally:
        one.kill()


@pytest.mark.long
@pytest.mark.parametrize("policy", ["round_robin", "pick_first"])
def test_no_call_fails_in_several_rolling_restarts(tmp_path: Path, policy: str) -> None:
    """More callers, each replica replaced three times; also where all calls go to the first replica that answers."""
    check(rolled(tmp_path, [Replica.replace] * 3, 8, ("grpc.lb_policy_name", policy)))


@pytest.mark.long
@pytest.mark.xdist_group("compat")
def test_no_call_fails_while_the_release_before_is_replaced_and_comes_back(tmp_path: Path) -> None:
    """An upgrade and its undoing under load, replicas of two releases on one store meanwhile."""
    old = unpacked(tmp_path / "before").path
    steps = [of_release(""), of_release(old)]
    check(rolled(tmp_path, steps, 4, ("grpc.lb_policy_name", "round_robin"), first=old))
