"""The gRPC face: what goes in and out, statuses with details, limits, watches, deadlines."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.service.faces import SERVICE, FakeVerbs, Served, channel, histogram, report, served
from unskew.core.histogram.histogram import Histogram, Tail
from unskew.core.stream_spec import Part, StreamSpec
from unskew.service.errors import ConflictError, LimitError, UnavailableError
from unskew.v1 import partitioner_pb2 as pb
from unskew.v1.partitioner_pb2_grpc import PartitionerServiceStub
from unskew.wire import histograms, plan_from_bytes, round_messages

STREAM = "clicks"


@pytest.fixture(scope="module")
def service() -> Iterator[Served]:
    with served(FakeVerbs(), max_watchers=3) as running:
        yield running


@pytest.fixture
def verbs(service: Served) -> FakeVerbs:
    """The verbs, with one stream and nothing asked yet."""
    verbs: FakeVerbs = service.verbs
    verbs.__dict__.update(FakeVerbs(streams={STREAM: StreamSpec(4)}).__dict__)
    return verbs


@pytest.fixture
def stub(service: Served, verbs: FakeVerbs) -> Iterator[PartitionerServiceStub]:
    with channel(service) as opened:
        yield service.stub(opened)


def refused(call: object) -> tuple[str, dict[str, str], str]:
    """The status of a call that must fail: its name, the fields to blame, the reason in the details."""
    with pytest.raises(grpc.RpcError) as caught:
        call()  # type: ignore[operator]
    why = caught.value
    status = status_pb2.Status.FromString(dict(why.trailing_metadata())["grpc-status-details-bin"])
    assert (status.code, status.message) == (why.code().value[0], why.details())
    bad, info = error_details_pb2.BadRequest(), error_details_pb2.ErrorInfo()
    for detail in status.details:
        detail.Unpack(bad)
        detail.Unpack(info)
    return why.code().name, {one.field: one.description for one in bad.field_violations}, info.reason


def test_a_stream_lives_from_put_to_delete(stub: PartitionerServiceStub, verbs: FakeVerbs) -> None:
    """Created once, changed after, listed in pages, gone when deleted."""
    spec = pb.StreamSpec(partitions=8, policy="kip", parameters={"slack": 0.25}, key_types=["string"])
    first = stub.PutStream(pb.PutStreamRequest(stream="a/b", spec=spec))
    assert (first.created, first.stream.spec.partitions, first.stream.spec.policy) == (True, 8, "kip")
    assert not stub.PutStream(pb.PutStreamRequest(stream="a/b", spec=spec)).created
    page = stub.ListStreams(pb.ListStreamsRequest(limit=1))
    assert ([one.name for one in page.streams], page.next) == (["a/b"], "a/b")
    page = stub.ListStreams(pb.ListStreamsRequest(limit=5, after=page.next))
    assert ([one.name for one in page.streams], page.next) == ([STREAM], "")
    found = stub.GetStream(pb.GetStreamRequest(stream="a/b")).stream
    assert (found.created.ToSeconds(), found.epoch, found.agents, found.HasField("version")) == (
        1_500_000_000,
        3,
        2,
        False,
    )
    stub.DeleteStream(pb.DeleteStreamRequest(stream="a/b"))
    assert list(verbs.streams) == [STREAM]


def test_a_histogram_in_chunks_becomes_a_plan_and_comes_back_by_version(
    stub: PartitionerServiceStub, verbs: FakeVerbs
) -> None:
    """What was sent is what the verbs get, to the bit; the plan's bytes are a plan's."""
    part = Part("job/query", 7, 1, 0, 2)
    sent = histogram(150_000)
    sent = Histogram(sent.hashes, sent.counts, Tail(np.array([3, 4]), np.array([1, 2])))
    answer = stub.ReportHistogram(histograms.chunks(sent, STREAM, part))
    assert (answer.rows, answer.keys, answer.repeated_report) == (sent.total, 150_000, False)
    assert verbs.histograms == {(STREAM, part): sent}
    assert stub.ReportHistogram(histograms.chunks(sent, STREAM, part)).repeated_report
    built = stub.BuildPlan(pb.BuildPlanRequest(stream=STREAM, batch=7, fresh=True))
    plan = plan_from_bytes(built.plan)
    assert (built.outcome, built.digest) == (pb.PLAN_OUTCOME_NEW, plan.digest)
    version = {"incarnation": plan.version.incarnation, "number": plan.version.number}
    found = stub.GetPlan(pb.GetPlanRequest(stream=STREAM, version=version))
    assert (found.plan, found.digest, found.not_modified) == (built.plan, plan.digest, False)
    known = stub.GetPlan(pb.GetPlanRequest(stream=STREAM, if_none_match=plan.digest))
    assert (known.plan, known.not_modified) == (b"", True)
    verbs.stale = True
    assert stub.GetPlan(pb.GetPlanRequest(stream=STREAM)).stale


def test_a_plan_from_a_histogram_in_the_request(stub: PartitionerServiceStub) -> None:
    """Nothing need be reported before."""
    message = histograms.histogram_to_message(histogram())
    built = stub.BuildPlan(pb.BuildPlanRequest(stream=STREAM, histogram=message))
    assert built.outcome == pb.PLAN_OUTCOME_NEW
    where = stub.Explain(pb.ExplainRequest(stream=STREAM, hash=int(histogram().top(1)[0][0])))
    assert where.hot
    assert where.version.number == plan_from_bytes(built.plan).version.number
    assert sum(one.share for one in where.fragments) == pytest.approx(1.0)


def test_a_round_goes_through_to_the_bit(stub: PartitionerServiceStub, verbs: FakeVerbs) -> None:
    """The report that the engine gets is the agent's; the answer that the agent gets is the engine's."""
    sent = report(workers=9)
    answer = stub.Sync(pb.SyncRequest(stream=STREAM, report=round_messages.report_to_message(sent))).answer
    (got,) = verbs.reports
    assert (got.name, got.table, got.frequent, got.loads.tolist()) == (
        sent.name,
        sent.table,
        sent.frequent,
        sent.loads.tolist(),
    )
    back = round_messages.answer_from_message(answer)
    assert (back.incarnation, back.answer.epoch, back.merged, back.age) == (1, 7, True, 0.5)
    assert back.answer.table == sent.table
    again = pb.SyncRequest(stream=STREAM, report=round_messages.report_to_message(sent), incarnation=1, epoch=7)
    assert not stub.Sync(again).HasField("answer")


def test_a_wait_ends_before_the_callers_deadline(stub: PartitionerServiceStub) -> None:
    """ "Not yet" is an answer, a deadline that passed is an error."""
    message = pb.SyncRequest(stream=STREAM, report=round_messages.report_to_message(report()), wait_seconds=60)
    assert not stub.Sync(message, timeout=0.5).HasField("answer")


def test_a_batch_is_reported_and_parallelism_advised(stub: PartitionerServiceStub, verbs: FakeVerbs) -> None:
    """Part and work arrive as they were sent."""
    work = [pb.PartitionWork(partition=3, rows=10, seconds=1.5, queue=2, capacity=4.0)]
    part = pb.Part(source="q", batch=5, run=2, part=1, parts=4)
    stub.ReportBatch(pb.ReportBatchRequest(stream=STREAM, part=part, partitions=work, interval_seconds=3))
    ((_, got, batch),) = verbs.batches
    assert got == Part("q", 5, 2, 1, 4)
    assert (batch.work[0].partition, batch.work[0].capacity, batch.interval) == (3, 4.0, 3.0)
    advice = stub.GetScale(pb.GetScaleRequest(stream=STREAM))
    assert (advice.map_tasks, advice.reduce_tasks, advice.action, advice.zone) == (4, 8, pb.SCALE_ACTION_OUT, 3)


def test_a_wrong_field_is_named_and_nothing_is_changed(stub: PartitionerServiceStub, verbs: FakeVerbs) -> None:
    """INVALID_ARGUMENT with a BadRequest that has the field's path."""
    part = pb.Part(source="q", batch=1, part=4, parts=2)
    cases = {
        "stream": lambda: stub.GetStream(pb.GetStreamRequest(stream="no spaces")),
        "spec.policy": lambda: stub.PutStream(
            pb.PutStreamRequest(stream="x", spec=pb.StreamSpec(partitions=4, policy="magic"))
        ),
        "limit": lambda: stub.ListStreams(pb.ListStreamsRequest(limit=1001)),
        "part.part": lambda: stub.ReportBatch(pb.ReportBatchRequest(stream=STREAM, part=part)),
        "counts": lambda: stub.ReportHistogram(
            iter([pb.ReportHistogramRequest(stream=STREAM, part=pb.Part(source="q", parts=1), hashes=bytes(8))])
        ),
        "report.agent": lambda: stub.Sync(pb.SyncRequest(stream=STREAM)),
        "wait_seconds": lambda: stub.Sync(
            pb.SyncRequest(stream=STREAM, report=round_messages.report_to_message(report()), wait_seconds=float("nan"))
        ),
    }
    for name, call in cases.items():
        code, fields, reason = refused(call)
        assert (code, reason, list(fields)) == ("INVALID_ARGUMENT", "INVALID_ARGUMENT", [name])
    assert verbs.asked == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConflictError("another number of partitions"), "FAILED_PRECONDITION"),
        (LimitError("too many"), "RESOURCE_EXHAUSTED"),
        (UnavailableError("the store is away"), "UNAVAILABLE"),
        (TimeoutError(), "DEADLINE_EXCEEDED"),
    ],
)
def test_each_error_has_its_status(stub: PartitionerServiceStub, verbs: FakeVerbs, error: Exception, code: str) -> None:
    """The standard codes, with the reason in an ErrorInfo."""
    verbs.trouble = error
    assert refused(lambda: stub.GetPlan(pb.GetPlanRequest(stream=STREAM)))[::2] == (code, code)


def test_an_error_of_our_own_tells_the_caller_a_number_only(
    stub: PartitionerServiceStub, verbs: FakeVerbs, caplog: pytest.LogCaptureFixture
) -> None:
    """INTERNAL without a trace; the log has the trace under the same number."""
    verbs.trouble = RuntimeError("secret path")
    with pytest.raises(grpc.RpcError) as caught:
        stub.GetStream(pb.GetStreamRequest(stream=STREAM))
    said = str(caught.value.details())
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in said
    (line,) = [record for record in caplog.records if record.exc_info]
    assert line.getMessage().rpartition(" ")[2] in said


METHODS = [method.name for method in pb.DESCRIPTOR.services_by_name["PartitionerService"].methods]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(METHODS), st.binary(max_size=60))
def test_no_bytes_bring_it_down(service: Served, verbs: FakeVerbs, method: str, data: bytes) -> None:
    """Any bytes on any method: an answer or a status of the caller's own, never INTERNAL or UNKNOWN."""
    with channel(service) as opened:
        call = opened.stream_stream(f"/{SERVICE}/{method}")(iter([data]), timeout=60)
        code = "OK"
        try:
            next(call, None)
        except grpc.RpcError as why:
            code = why.code().name
        call.cancel()
    assert code in ("OK", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED")


def test_too_many_keys_are_refused_while_they_come() -> None:
    """The limit on listed keys holds over all chunks together."""
    with (
        served(FakeVerbs(streams={STREAM: StreamSpec(4)}), max_histogram_keys=100) as running,
        channel(running) as opened,
    ):
        stub = running.stub(opened)
        chunks = histograms.chunks(histogram(150), STREAM, Part("q", 1), keys=60)
        code, fields, _ = refused(lambda: stub.ReportHistogram(chunks))
        assert (code, list(fields)) == ("RESOURCE_EXHAUSTED", ["hashes"])
        message = histograms.histogram_to_message(histogram(150))
        assert refused(lambda: stub.BuildPlan(pb.BuildPlanRequest(stream=STREAM, histogram=message)))[0] == code
        assert running.verbs.histograms == {}


def test_a_message_beyond_the_limit_is_refused() -> None:
    """By the library, before it is in memory as a whole."""
    with (
        served(FakeVerbs(streams={STREAM: StreamSpec(4)}), max_message_bytes=1 << 16) as running,
        channel(running) as opened,
    ):
        chunk = pb.ReportHistogramRequest(stream=STREAM, hashes=bytes(1 << 17))
        with pytest.raises(grpc.RpcError) as caught:
            running.stub(opened).ReportHistogram(iter([chunk]))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_watches_are_counted_and_freed(service: Served, stub: PartitionerServiceStub, verbs: FakeVerbs) -> None:
    """The fourth of three is told to try elsewhere; one that ends makes room, and nothing of it stays."""
    service.run(verbs.build_plan(STREAM, histogram=histogram()))
    request = pb.WatchPlansRequest(stream=STREAM)
    watches = [stub.WatchPlans(request) for _ in range(3)]
    digests = {next(watch).digest for watch in watches}
    assert digests == {plan_from_bytes(verbs.plans[STREAM]).digest}
    assert refused(lambda: next(stub.WatchPlans(request)))[0] == "RESOURCE_EXHAUSTED"
    for watch in watches:
        watch.cancel()
    until(lambda: verbs.watching == 0)
    with_room = stub.WatchPlans(request)
    assert next(with_room).plan == verbs.plans[STREAM]
    with_room.cancel()


def test_an_old_watch_ends_well() -> None:
    """With OK, so that its caller begins anew, perhaps with another replica."""
    verbs = FakeVerbs(streams={STREAM: StreamSpec(4)})
    with served(verbs, max_watch=0.2) as running, channel(running) as opened:
        running.run(verbs.build_plan(STREAM, histogram=histogram()))
        watch = running.stub(opened).WatchPlans(pb.WatchPlansRequest(stream=STREAM))
        assert len(list(watch)) == 1
        assert watch.code() is grpc.StatusCode.OK
        until(lambda: verbs.watching == 0)


def test_draining_ends_watches_and_waits_well_and_says_so_in_health() -> None:
    """No call fails: watches end with OK, a wait is answered with "not yet"."""
    verbs = FakeVerbs(streams={STREAM: StreamSpec(4)})
    with served(verbs) as running, channel(running) as opened, ThreadPoolExecutor(3) as pool:
        stub = running.stub(opened)
        running.run(verbs.build_plan(STREAM, histogram=histogram()))
        health = health_pb2_grpc.HealthStub(opened).Watch(health_pb2.HealthCheckRequest(service=SERVICE))
        assert next(health).status == health_pb2.HealthCheckResponse.SERVING
        watch = pool.submit(lambda: list(stub.WatchPlans(pb.WatchPlansRequest(stream=STREAM))))
        message = pb.SyncRequest(stream=STREAM, report=round_messages.report_to_message(report()), wait_seconds=60)
        verbs.waiting.wait(60)
        verbs.waiting.clear()
        wait = pool.submit(stub.Sync, message)
        assert verbs.waiting.wait(60)
        closing = threading.Thread(target=lambda: running.run(running.running.close()))
        closing.start()
        assert next(health).status == health_pb2.HealthCheckResponse.NOT_SERVING
        health.cancel()
        assert len(watch.result(60)) == 1
        # asked again with no wait, so that what the engine has by now is not lost
        assert wait.result(60).answer.epoch == 7
        closing.join()


def until(true: object, seconds: float = 60.0) -> None:
    """Poll for something that another thread brings about."""
    pause = threading.Event()
    for _ in range(int(seconds / 0.01)):
        if true():  # type: ignore[operator]
            return
        pause.wait(0.01)
    raise AssertionError("it did not come about")
