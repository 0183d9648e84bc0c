"""What fuzzing found (``tests/fuzz``), each in its plainest form: it was wrong once, and is to stay right."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import socket
import time
from collections.abc import Iterator

import grpc
import httpx
import numpy as np
import pytest
from google.rpc import error_details_pb2, status_pb2

from tests.servers import wait_for
from tests.service.engines import engines, run
from tests.service.faces import Served, channel, report, served, web
from unskew.core.errors import ConfigError, KeyTypeError
from unskew.core.keys.types import parse
from unskew.core.quality.cost_fit import fit_cost
from unskew.core.rounds.round_log import RoundView
from unskew.core.stream_spec import BatchWork, StreamSpec, Work
from unskew.service.api.problems import Fault
from unskew.service.engine.batches import feedback_of
from unskew.service.engine.scaling_advice import scale_of, timed_of
from unskew.service.stores.memory import MemoryStore
from unskew.service.stores.part_bytes import whole
from unskew.service.stores.records import PartKey, StoredPart
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire import round_messages
from unskew.wire.streams import spec_from_message, work_to_bytes

pytestmark = pytest.mark.xdist_group("fuzz-regressions")


@pytest.fixture(scope="module")
def service() -> Iterator[Served]:
    with served("engine") as running:
        yield running


@pytest.fixture
def stub(service: Served) -> Iterator[pb.PutStreamRequest]:
    with channel(service) as open_channel:
        yield service.stub(open_channel)


@pytest.fixture
def rest(service: Served) -> Iterator[httpx.Client]:
    with web(service) as client:
        yield client


def refusal(error: pytest.ExceptionInfo[grpc.RpcError]) -> tuple[grpc.StatusCode, list[str]]:
    """The status, and the fields that its details blame."""
    trailers = dict(error.value.trailing_metadata())
    status, bad = status_pb2.Status.FromString(trailers["grpc-status-details-bin"]), error_details_pb2.BadRequest()
    for detail in status.details:
        detail.Unpack(bad)
    return error.value.code(), [violation.field for violation in bad.field_violations]


def put(stub, stream: str, **spec: object) -> None:
    stub.PutStream(pb.PutStreamRequest(stream=stream, spec=pb.StreamSpec(**{"partitions": 4, **spec})))


# -- what an error may be -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["y" * 20_000, "鍵" * 5000, "\x01" * 5000], ids=["long", "wide", "control"])
def test_a_very_long_name_is_refused_as_such_and_not_as_too_much_metadata(stub, name: str) -> None:
    """The name was repeated whole in the status and its details: more than gRPC lets through, so that the caller saw
    RESOURCE_EXHAUSTED and tried again."""
    with pytest.raises(grpc.RpcError) as error:
        stub.GetStream(pb.GetStreamRequest(stream=name), timeout=60)
    assert refusal(error) == (grpc.StatusCode.INVALID_ARGUMENT, ["stream"])


def test_the_text_of_a_fault_fits_the_trailers_of_a_call_whoever_made_it() -> None:
    """Percent-encoded once and in base 64 twice, it has to stay below 8 kB."""
    fault = Fault("INVALID_ARGUMENT", "鍵" * 9000, (("stream", "鍵" * 9000),))
    assert len(fault.message.encode()) <= 1200
    assert len(fault.trailers()[0][1]) * 4 // 3 + 3 * len(fault.message.encode()) < 8000


def test_an_error_of_core_shows_a_long_value_short() -> None:
    assert len(str(ConfigError("stream", "x" * 10_000, "a name"))) < 300


def test_a_parameter_that_the_default_policy_does_not_have_is_blamed_by_its_field() -> None:
    """The policy was left out, and the field was named after it: ``spec.auto parameter``."""
    spec = pb.StreamSpec(partitions=4)
    spec.parameters.update({"slack": 0.1})
    with pytest.raises(Exception, match=r"^spec\.parameters: 'slack' is not allowed"):
        spec_from_message(spec)


def test_another_number_of_parts_is_blamed_by_its_field(stub) -> None:
    put(stub, "parts")
    part = pb.Part(source="app", batch=1, part=0, parts=2)
    stub.ReportBatch(pb.ReportBatchRequest(stream="parts", part=part))
    with pytest.raises(grpc.RpcError) as error:
        stub.ReportBatch(pb.ReportBatchRequest(stream="parts", part=pb.Part(source="app", batch=1, parts=3)))
    assert refusal(error) == (grpc.StatusCode.FAILED_PRECONDITION, ["part.parts"])


def test_counts_of_a_report_that_are_too_large_together_are_blamed_by_their_field(stub) -> None:
    put(stub, "counts", partitions=3)
    message = round_messages.report_to_message(report())
    message.loads = np.full(3, 2**41, "<u8").tobytes()
    with pytest.raises(grpc.RpcError) as error:
        stub.Sync(pb.SyncRequest(stream="counts", report=message))
    assert refusal(error) == (grpc.StatusCode.INVALID_ARGUMENT, ["report.loads"])


# -- what is taken must not do harm later ---------------------------------------------------------------------


def test_an_interval_that_no_clock_reaches_is_refused_and_spoils_no_list(stub) -> None:
    """The stream was stored first and its rules refused after: it could not be read, and no list that it was in."""
    with pytest.raises(grpc.RpcError) as error:
        put(stub, "ages", dsync_max_seconds=1.7e308)
    assert refusal(error) == (grpc.StatusCode.INVALID_ARGUMENT, ["spec.dsync_max_seconds"])
    assert "ages" not in [one.name for one in stub.ListStreams(pb.ListStreamsRequest()).streams]
    with pytest.raises(ConfigError, match="dsync_max"):
        StreamSpec(4, dsync_max=1e300)


def _stored(*batches: BatchWork) -> list[StoredPart]:
    parts = len(batches)
    return [
        StoredPart(PartKey("work", "app", 1, 0, at, parts), work_to_bytes(batch)) for at, batch in enumerate(batches)
    ]


@pytest.mark.parametrize(
    "work",
    [
        Work(0, rows=10, keys=1, queue=2**60, capacity=5e-324),
        Work(0, rows=10, keys=1, seconds=1.7e308),
        Work(0, rows=10, keys=1, seconds=5e-324),
    ],
)
@pytest.mark.parametrize("interval", [0.0, 1e-300, 1.0, 1.7e308])
def test_work_at_the_ends_of_a_double_can_be_planned_from(stub, work: Work, interval: float) -> None:
    """It was taken, and then each plan was refused because of a utilisation that is infinite, or no number."""
    other = Work(1, rows=5, keys=1, seconds=1.0)
    feedback = feedback_of([whole(_stored(BatchWork((work, other), interval), BatchWork((work, other), interval)))], 4)
    (times,) = feedback.times
    assert times.rows.tolist() == ([20, 10] if work.seconds else [10])
    assert math.isfinite(float((times.seconds**2).sum()))
    assert math.isfinite(fit_cost([times] * 8).unit)


def test_parts_that_are_more_together_than_a_batch_can_be_teach_nothing() -> None:
    """Each was right by itself; their sum did not fit 64 bits, and each plan failed from then on."""
    many = BatchWork((Work(0, rows=2**62), Work(1, rows=2**62 - 1)))
    found = feedback_of([whole(_stored(many, many))], 4)
    assert (found.times, found.busy, found.idle) == ((), (), ())


def test_histograms_that_are_more_together_than_one_can_be_are_refused_with_what_to_do(stub) -> None:
    """INVALID_ARGUMENT said that the request was wrong, and named no field."""
    put(stub, "rows")
    one = {"hashes": np.array([5], "<u8").tobytes(), "counts": np.array([2**62], "<u8").tobytes()}
    for part in range(3):
        stub.ReportHistogram(
            iter([pb.ReportHistogramRequest(stream="rows", part=pb.Part(source="app", part=part, parts=3), **one)])
        )
    with pytest.raises(grpc.RpcError, match="higher run") as error:
        stub.BuildPlan(pb.BuildPlanRequest(stream="rows", batch=0, fresh=True))
    assert refusal(error) == (grpc.StatusCode.FAILED_PRECONDITION, ["batch"])


@pytest.mark.parametrize(("partitions", "map_tasks"), [(2000, 10), (8192, 1), (4, 5000), (4, 1_000_000)])
def test_a_stream_with_many_tasks_gets_advice(partitions: int, map_tasks: int) -> None:
    """Beyond 1,024 of either it was told that ``p`` or ``r`` is not allowed, for good."""
    slow = BatchWork((Work(partitions - 1, rows=5),), 1.0, 0.5, 0.2, 0.3)
    found = scale_of([timed_of(_stored(slow))], partitions, map_tasks)
    assert found.zone == 1
    assert found.reduce_tasks <= partitions
    assert scale_of([], partitions, map_tasks).action == "hold"


# -- nothing stays behind -------------------------------------------------------------------------------------


def test_watches_of_streams_that_are_not_there_leave_no_series(service: Served, stub) -> None:
    """Each name that anybody watched had a series of its own from then on, and pushed a real one out at last."""
    for number in range(5):
        with pytest.raises(grpc.RpcError) as error:
            list(stub.WatchPlans(pb.WatchPlansRequest(stream=f"nobody-{number}"), timeout=60))
        assert error.value.code() is grpc.StatusCode.NOT_FOUND
    assert "nobody-" not in httpx.get(service.metrics, trust_env=False, timeout=60).text


def test_a_stream_that_is_deleted_under_its_watchers_leaves_no_series(service: Served, stub) -> None:
    """The first of them to leave told how many there still were, after the stream's series had gone."""
    put(stub, "watched")
    watches = [stub.WatchPlans(pb.WatchPlansRequest(stream="watched"), timeout=60) for _ in range(3)]
    page = 'unskew_watchers{stream="watched"} 3.0'
    wait_for("watchers", lambda: page in httpx.get(service.metrics, trust_env=False, timeout=60).text)
    stub.DeleteStream(pb.DeleteStreamRequest(stream="watched"))
    for watch in watches:
        with pytest.raises(grpc.RpcError):
            list(watch)
    assert "watched" not in httpx.get(service.metrics, trust_env=False, timeout=60).text


def test_a_watcher_that_leaves_as_its_watch_fails_leaves_no_error_in_the_log(service: Served, caplog) -> None:
    """Of every tenth or so the failure was never looked at, and asyncio said so in the log."""
    with caplog.at_level(logging.ERROR), channel(service) as open_channel:
        stub = service.stub(open_channel)
        for number in range(300):
            watch = stub.WatchPlans(pb.WatchPlansRequest(stream=f"no-{number}"), timeout=60)
            if number % 3:
                watch.initial_metadata()
            watch.cancel()
        service.run(_collected())
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


async def _collected() -> None:
    await asyncio.sleep(0.2)
    gc.collect()


def test_a_caller_that_leaves_in_the_middle_of_its_body_is_no_error_of_the_service(service: Served, caplog) -> None:
    """It was logged with a number and a traceback, and counted as a 500."""
    head = "POST /v1/streams/any/plans HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    line = f"{head}content-length: 99\r\n\r\n{{"
    with caplog.at_level(logging.ERROR):
        with socket.create_connection(("127.0.0.1", service.running.http_port)) as caller:
            caller.sendall(line.encode())
        wait_for("the end of the call", lambda: 'code="499"' in _calls(service, "BuildPlan"))
    assert not [record for record in caplog.records if record.name == "unskew.service"]


def _calls(service: Served, verb: str) -> str:
    lines = httpx.get(service.metrics, trust_env=False, timeout=60).text.splitlines()
    return "\n".join(line for line in lines if "unskew_rpc_seconds_count" in line and verb in line)


# -- REST -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["1" + "0" * 400, "9007199254740993", "-9007199254740993"])
def test_a_parameter_beyond_what_is_exact_is_refused(rest: httpx.Client, number: str) -> None:
    """One with 400 digits was a 500; one of 2^53 + 1 became another number."""
    body = f'{{"partitions": 2, "policy": "kip", "parameters": {{"factor": {number}}}}}'
    answer = rest.put("/v1/streams/exact", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "spec.parameters.factor"


@pytest.mark.parametrize("digits", [10, 5000])
def test_a_decimal_of_thousands_of_digits_is_refused(rest: httpx.Client, digits: int) -> None:
    """Beyond 4,300 digits Python itself refuses to read the number, which was a 500."""
    kind = f"decimal({'9' * digits},1)"
    answer = rest.post("/v1/streams/any/explain", json={"key": ["1"], "types": [kind]})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "types"
    with pytest.raises(KeyTypeError):
        parse(kind)


def test_the_document_says_where_protobuf_is_answered(rest: httpx.Client) -> None:
    """Every JSON answer can be had as its message, but what only the page reads; the document knew of plans only."""
    document = rest.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for code in {"200", "201"} & operation["responses"].keys():
                kinds = operation["responses"][code]["content"].keys()
                more = set() if path.endswith("/overview") else {"application/x-protobuf"}
                assert kinds == {"application/json"} | more, f"{method} {path} {code}"
    listed = rest.get("/v1/streams", headers={"accept": "application/x-protobuf"})
    pb.ListStreamsResponse.FromString(listed.content)


# -- many at once ---------------------------------------------------------------------------------------------


def test_a_stream_that_goes_while_the_list_is_made_does_not_spoil_the_list() -> None:
    """The whole list was NOT_FOUND. A short page would be the last one, so the stream is still in it."""

    class Going(MemoryStore):
        async def round(self, stream: str) -> RoundView:
            await self.delete_stream("b")
            return await super().round(stream)

    async def main() -> None:
        async with engines(Going(time.time)) as [engine]:
            for name in "abc":
                await engine._streams.put(name, StreamSpec(4, dsync=5.0))
            found = await engine.list_streams("", 10)
            assert [(one.name, one.version, one.epoch) for one in found] == [(name, None, 0) for name in "abc"]
            assert [one.name for one in await engine.list_streams("", 10)] == ["a", "c"]

    run(main())
