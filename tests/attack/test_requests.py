"""Callers who do not send what they began: without a credential they get nothing, with one a bounded share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from tests.attack.attacks import (
    GET_PLAN,
    LARGE,
    LATEST,
    HeldBodies,
    held_messages,
    put_large_plan,
    request,
    slow_connections,
    still_open,
    unread_answers,
)
from tests.attack.lying import LYING
from tests.attack.measure import FEW, FULL, HISTOGRAMS, redis_of_600_mb, suffered
from tests.attack.victim import ATTACKER, STREAM, VICTIM, Victim, victim
from tests.planning import some_histogram
from unskew.client import Client
from unskew.core.stream_spec import Part
from unskew.v1 import partitioner_pb2 as pb
from unskew.v1.partitioner_pb2_grpc import PartitionerServiceStub
from unskew.wire import histograms

pytestmark = pytest.mark.xdist_group("attack")

MESSAGE = 16 << 20
MOST = 1536  # megabytes of a replica in any attack
LITTLE = 64  # megabytes more, of callers without a credential
HEALTH, KEDA = "/grpc.health.v1.Health/Check", "/externalscaler.ExternalScaler/IsActive"


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    flags = ("--body-timeout", "2", "--header-timeout", "1", "--max-http-connections", "50")
    with victim(tmp_path_factory.mktemp("attacked"), *flags) as found:
        yield found


@pytest.fixture(scope="module")
def large_plan(attacked: Victim) -> None:
    put_large_plan(attacked.grpc, ATTACKER)


@pytest.mark.parametrize("verb", ["GetPlan", "BuildPlan", "ReportHistogram", "WatchPlans"])
def test_without_a_credential_no_message_is_taken(attacked: Victim, verb: str) -> None:
    attacked.forget_peak()
    with held_messages(attacked.grpc, 20, MESSAGE, 1.0, path=GET_PLAN.replace("GetPlan", verb)) as attacker:
        assert attacker.open_streams() == []
        assert attacker.sent < 2 << 20
    assert attacked.peak < attacked.idle + LITTLE


@pytest.mark.parametrize("path", [HEALTH, KEDA])
def test_what_anybody_may_ask_is_waited_for_a_moment_only(attacked: Victim, path: str) -> None:
    """The message says who or what is asked for, so it is read; of a few at a time, and not for long."""
    with held_messages(attacked.grpc, 40, MESSAGE, 2.0, path=path) as attacker:
        assert attacker.open_streams() == []
    assert attacked.peak < attacked.idle + 16 * 16 + LITTLE


def test_with_a_credential_messages_have_a_share_and_an_end(attacked: Victim) -> None:
    """What does not fit is refused soon, what fits at the time limit; the memory is given back."""
    with held_messages(attacked.grpc, 40, MESSAGE, 1.5, ATTACKER) as attacker:
        assert len(attacker.open_streams()) <= 10
        attacker.push(3.0)
        assert attacker.open_streams() == []
    assert attacked.peak < attacked.idle + 500
    until_memory_is_back(attacked)


def test_bodies_over_http_have_the_same_share(attacked: Victim) -> None:
    attacked.forget_peak()
    held = HeldBodies()
    held.send(attacked.http, request(HISTOGRAMS, 64 << 20, ATTACKER), 6, 64 << 20, 2.0)
    assert held.sent < 200 << 20
    assert attacked.healthy()
    held.close()
    assert attacked.peak < attacked.idle + 300
    until_memory_is_back(attacked)


@pytest.mark.parametrize("verb", ["GetPlan", "WatchPlans"])
def test_answers_that_nobody_takes_have_a_share(attacked: Victim, large_plan: None, verb: str) -> None:
    """Each of nearly a megabyte: some are sent, some wait, the others are refused; all of it is given back."""
    attacked.forget_peak()
    with unread_answers(attacked.grpc, 300, 0.0, ATTACKER, GET_PLAN.replace("GetPlan", verb)) as (attacker,):
        end = time.monotonic() + 60
        while len(attacker.open_streams()) >= 150:
            assert time.monotonic() < end
            attacker.push(0.2)
        with Client(f"grpc://127.0.0.1:{attacked.grpc}", token=VICTIM, timeout=30) as client:
            assert client.get_plan(LARGE).plan is not None
    assert attacked.peak < attacked.idle + 600
    until_memory_is_back(attacked)


def test_answers_over_http_that_nobody_takes_are_cut(attacked: Victim, large_plan: None) -> None:
    """More of them on each connection than the system buffers."""
    before = attacked.descriptors
    with slow_connections(attacked.http, 10, 20 * (LATEST % ATTACKER.encode())):
        until(lambda: attacked.descriptors > before + 5)
        until(lambda: attacked.descriptors <= before + 2)
    assert attacked.healthy()


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not done():
        assert time.monotonic() < end
        time.sleep(0.1)


def until_memory_is_back(attacked: Victim) -> None:
    until(lambda: attacked.memory <= attacked.idle + LITTLE)


@pytest.mark.parametrize(
    "first",
    [b"", b"GET / HTTP/1.1\r\nx: ", request(HISTOGRAMS, 1 << 20, ATTACKER) + b"begun", request("/nowhere", 1 << 20)],
    ids=["nothing", "headers", "body", "body to nowhere"],
)
def test_slow_connections_make_room_and_are_ended(attacked: Victim, first: bytes) -> None:
    """More than there may be: the oldest are closed for those who send, the others when their time is over."""
    with slow_connections(attacked.http, 120, first) as opened:
        assert attacked.healthy()
        assert attacked.descriptors < 120
        end = time.monotonic() + 10
        while any(still_open(one) for one in opened):
            assert time.monotonic() < end
            time.sleep(0.1)


def test_a_second_message_is_not_read_and_no_message_is_refused(attacked: Victim) -> None:
    metadata = (("authorization", f"Bearer {VICTIM}"),)
    with grpc.insecure_channel(f"127.0.0.1:{attacked.grpc}") as channel:
        call = channel.stream_unary(GET_PLAN, lambda one: one, pb.GetPlanResponse.FromString)
        asked = pb.GetPlanRequest(stream=STREAM).SerializeToString()
        assert call(iter((asked, b"no message")), metadata=metadata).digest
        with pytest.raises(grpc.RpcError, match="has no message"):
            call(iter(()), metadata=metadata)
        with pytest.raises(grpc.RpcError, match="this verb takes 65,536"):
            call(iter((bytes(70_000),)), metadata=metadata)


def test_slow_and_large_but_honest_messages_are_served(attacked: Victim) -> None:
    """A chunk of the message after another, slower than a look but within the time."""
    metadata = (("authorization", f"Bearer {VICTIM}"),)

    def chunks() -> Iterator[pb.ReportHistogramRequest]:
        for chunk in histograms.chunks(some_histogram(keys=3000), STREAM, Part("app/query", 1), 1000):
            time.sleep(0.4)
            yield chunk

    with grpc.insecure_channel(f"127.0.0.1:{attacked.grpc}") as channel:
        assert PartitionerServiceStub(channel).ReportHistogram(chunks(), metadata=metadata).keys > 1000


def test_many_large_histograms_at_once_wait_for_room(attacked: Victim) -> None:
    """More than their share holds: each is taken when its turn comes."""
    histogram = some_histogram(rows=1_000_000, keys=100_000)
    failed: list[Exception] = []

    def report(part: int) -> None:
        try:
            with Client(f"grpc://127.0.0.1:{attacked.grpc}", token=VICTIM, timeout=30) as client:
                client.report_histogram(STREAM, Part("app/query", 2, 0, part, 30), histogram)
        except Exception as why:  # noqa: BLE001 - told below
            failed.append(why)

    threads = [threading.Thread(target=report, args=(part,)) for part in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []


@pytest.mark.long
@pytest.mark.parametrize("name", LYING)
def test_lies_in_their_full_dose(tmp_path: Path, name: str) -> None:
    with ExitStack() as stack:
        on, attack = LYING[name](tmp_path, stack, {})
        found = suffered(on, attack)
    assert found.peak < MOST, found
    assert found.healthy
    assert found.failed == 0
    assert found.log_lines < 10_000
    assert found.after_p99 < max(3 * found.before_p99, 0.2)


@pytest.mark.long
@pytest.mark.parametrize("name", FULL)
def test_in_its_full_dose(tmp_path: Path, name: str) -> None:
    """Memory below the mark; the others served all the while, and as before soon after."""
    kept = 0
    with ExitStack() as stack:
        flags = FEW if name.startswith("e") else ()
        if "Redis" in name:
            flags = ("--store", stack.enter_context(redis_of_600_mb(tmp_path)).url)
        elif name.startswith("f"):
            kept = 256  # the store is in the replica
        found = suffered(stack.enter_context(victim(tmp_path, *flags)), FULL[name])
    assert found.peak < MOST, found
    assert found.after < found.idle + 100 + kept
    assert found.healthy
    assert found.failed == 0
    assert found.log_lines < 1000
    assert found.after_p99 < max(3 * found.before_p99, 0.2)
