"""Reporters with a credential that lie: each lie is one error and changes nothing, or has a bound, and neither the
rounds and plans of others nor those of the same stream go wrong by it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import grpc
import numpy as np
import pytest

from tests.attack.conftest import Pair
from tests.attack.lies import LIES, WORKERS, sync_of
from tests.attack.victim import ATTACKER, VICTIM
from tests.doses import some_of
from tests.planning import some_histogram
from unskew.core.stream_spec import UNKNOWN_PARTS
from unskew.v1 import partitioner_pb2 as pb
from unskew.v1.partitioner_pb2_grpc import PartitionerServiceStub

pytestmark = pytest.mark.xdist_group("attack")

STREAM, OTHERS = "lied-to", "lied-to-not"
_numbers = count(1)


@pytest.fixture(scope="module")
def stub(pair: Pair) -> Iterator[PartitionerServiceStub]:
    with grpc.insecure_channel(f"127.0.0.1:{pair.warm.grpc}") as channel:
        stub = PartitionerServiceStub(channel)
        for stream in (STREAM, OTHERS):
            spec = pb.StreamSpec(partitions=WORKERS, dsync_seconds=1.0, dsync_min_seconds=1.0, dsync_max_seconds=1.0)
            called(stub, "PutStream", pb.PutStreamRequest(stream=stream, spec=spec))
        yield stub


def called(stub: PartitionerServiceStub, verb: str, request: object, token: str = VICTIM) -> object:
    return getattr(stub, verb)(request, metadata=(("authorization", f"Bearer {token}"),), timeout=60)


def merged(stub: PartitionerServiceStub, stream: str, agent: str, session: int = 1) -> pb.SyncAnswer:
    """An honest agent's report, sent until its round is merged: the answer."""
    request = sync_of(stream, agent, next(_numbers), session, wait=30.0)
    answer = called(stub, "Sync", request).answer  # type: ignore[attr-defined]
    assert answer.merged
    return answer


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_one_error_that_names_the_field(stub: PartitionerServiceStub, pair: Pair, name: str) -> None:
    verb, request = LIES[name](STREAM, next(_numbers))
    with pytest.raises(grpc.RpcError) as caught:
        called(stub, verb, request, ATTACKER)
    code, told = caught.value.code().name, caught.value.details()
    assert code in ("INVALID_ARGUMENT", "FAILED_PRECONDITION"), (code, told)
    assert ": " in told
    assert len(told) < 1200
    pair.clean()


def test_after_all_lies_rounds_and_plans_are_as_if_there_had_been_none(
    stub: PartitionerServiceStub, pair: Pair
) -> None:
    for stream in (STREAM, OTHERS):
        answer = merged(stub, stream, "honest")
        values = np.frombuffer(answer.table.values)
        assert np.all(np.isfinite(values))
        assert answer.dsync_seconds == 1.0
    with pair.client(pair.warm) as client:
        plans = [client.build_plan(stream, histogram=some_histogram(1000, 50)).plan for stream in (STREAM, OTHERS)]
    assert plans[0].digest == plans[1].digest


@pytest.mark.parametrize(("session", "seq"), some_of([(2**64 - 1, 1), (1, 2**64 - 1), (2**63, 2**63)], (2**64 - 1, 1)))
def test_who_takes_anothers_name_from_the_future_holds_up_that_name_only(
    stub: PartitionerServiceStub, session: int, seq: int
) -> None:
    """The honest agent of that name is told the newest round, as one whose report is older, and goes on by that; all
    others are merged. Names belong to a stream: whoever may report to it is trusted with them."""
    stream = f"taken-{session}-{seq}"
    spec = pb.StreamSpec(partitions=WORKERS, dsync_seconds=1.0, dsync_min_seconds=1.0, dsync_max_seconds=1.0)
    called(stub, "PutStream", pb.PutStreamRequest(stream=stream, spec=spec))
    called(stub, "Sync", sync_of(stream, "one", seq, session), ATTACKER)
    first = merged(stub, stream, "another")
    older = called(stub, "Sync", sync_of(stream, "one", 1, wait=1.0)).answer  # type: ignore[attr-defined]
    assert (older.epoch, older.merged) == (first.epoch, session == 1 and seq == 1)
    assert merged(stub, stream, "another").epoch > first.epoch
    assert merged(stub, OTHERS, "honest").merged


def test_a_million_parts_are_waited_for_by_nobody(stub: PartitionerServiceStub, pair: Pair) -> None:
    """The number is allowed, as that of a task that does not know it."""
    with pair.client(pair.warm) as client:
        client.put_stream("parts", partitions=WORKERS)
        part = pb.Part(source="liar", batch=1, parts=UNKNOWN_PARTS, part=UNKNOWN_PARTS - 1)
        called(stub, "ReportBatch", pb.ReportBatchRequest(stream="parts", part=part), ATTACKER)
        plan = client.build_plan("parts", histogram=some_histogram(1000, 50)).plan
        assert plan.partitions == WORKERS
        assert client.build_plan("parts", 2).outcome
    pair.clean()
