"""Traces and logs: what a call was about, under the caller's trace, at a collector that really receives; and why each
plan and skip came about, in the log."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.cli.command import environment, in_process, is_one_line
from tests.service.engines import engines, run, skewed
from tests.service.faces import histogram, report
from tests.service.processes import Process, logged, process
from unskew.core.plan.plan import PlanInfo, Version
from unskew.core.stream_spec import Part, StreamSpec
from unskew.service.app.logs import EventLog, _Json
from unskew.service.app.telemetry import check_telemetry
from unskew.service.events.events import PlanBuilt, RoundMerged, ScaleAdvised, Skipped
from unskew.v1 import partitioner_pb2 as pb
from unskew.v1.partitioner_pb2_grpc import PartitionerServiceStub
from unskew.wire import histograms, plan_from_bytes, round_messages

# -- a collector ----------------------------------------------------------------------------------------------


@dataclass
class Collector:
    """What came to it, by the name of the span."""

    url: str
    spans: list[dict[str, Any]] = field(default_factory=list)
    services: set[str] = field(default_factory=set)

    def take(self, data: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
            self.services.add(_plain(resource.resource.attributes)["service.name"])
            for scope in resource.scope_spans:
                for span in scope.spans:
                    about = {"name": span.name, "trace": span.trace_id.hex(), "id": span.span_id.hex()}
                    above = {"parent": span.parent_span_id.hex(), "status": span.status.code}
                    self.spans.append({**about, **above, **_plain(span.attributes)})

    def of(self, trace: str) -> list[dict[str, Any]]:
        return [span for span in self.spans if span["trace"] == trace]


def _plain(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@contextmanager
def collector() -> Iterator[Collector]:
    """A receiver of OTLP over HTTP on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            found.take(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# -- traces ---------------------------------------------------------------------------------------------------


def trace(number: int) -> str:
    return f"{number:032x}"


def parent(number: int) -> tuple[str, str]:
    """A caller's span, as W3C says it."""
    return "traceparent", f"00-{trace(number)}-00000000000000aa-01"


def called(service: Process) -> str:
    """One call of each kind on both faces, each in a trace of its own; the version of the plan."""
    with grpc.insecure_channel(f"127.0.0.1:{service.grpc}") as channel:
        stub = PartitionerServiceStub(channel)
        spec = pb.StreamSpec(partitions=3, policy="balanced", dsync_seconds=1.0)
        stub.PutStream(pb.PutStreamRequest(stream="clicks", spec=spec), metadata=[parent(1)])
        stub.ReportHistogram(histograms.chunks(histogram(), "clicks", Part("q", 1)), metadata=[parent(2)])
        built = stub.BuildPlan(pb.BuildPlanRequest(stream="clicks", batch=2), metadata=[parent(3)])
        first = round_messages.report_to_message(report(3))
        stub.Sync(pb.SyncRequest(stream="clicks", report=first, wait_seconds=10), metadata=[parent(4)])
        watch = stub.WatchPlans(pb.WatchPlansRequest(stream="clicks"), metadata=[parent(5)])
        next(watch)
        watch.cancel()
        with pytest.raises(grpc.RpcError, match="NOT_FOUND"):
            stub.GetPlan(pb.GetPlanRequest(stream="nowhere"), metadata=[parent(6)])
    httpx.get(service.url("/v1/streams/clicks/plans/latest"), headers=dict([parent(7)]), trust_env=False, timeout=60)
    httpx.get(service.url("/v1/streams/nowhere"), headers=dict([parent(8)]), trust_env=False, timeout=60)
    httpx.get(service.url("/readyz"), headers=dict([parent(9)]), trust_env=False, timeout=60)
    return str(plan_from_bytes(built.plan).version)


def test_calls_are_spans_of_the_callers_trace_and_say_what_they_were_about(tmp_path: Path) -> None:
    """Over gRPC and REST: the verb, its stream, plan version and round, how it ended, what the store took; a round is a
    trace of its own. The log has the trace's id where a call wrote it."""
    with collector() as found:
        about = {"OTEL_EXPORTER_OTLP_ENDPOINT": found.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        with process(tmp_path, **about) as service:
            version = called(service)
            service.run.terminate()
            assert service.run.wait(60) == 0
    assert found.services == {"unskew"}
    verbs = ["PutStream", "ReportHistogram", "BuildPlan", "Sync", "WatchPlans", "GetPlan", "GetPlan", "GetStream"]
    calls = {}
    for number, verb in enumerate(verbs, 1):
        (calls[number],) = (span for span in found.of(trace(number)) if span["parent"] == "00000000000000aa")
        assert (calls[number]["name"], calls[number]["unskew.stream"]) == (
            verb, "nowhere" if number in (6, 8) else "clicks",
        )  # fmt: skip
        assert calls[number]["status"] == 0  # a caller's mistake is no error of the service
    assert [calls[number]["unskew.version"] for number in (3, 7)] == [version, version]
    assert calls[3]["unskew.outcome"] == "new"
    assert calls[4]["unskew.round"] == 1
    assert [calls[number]["rpc.grpc.status_code"] for number in (1, 5, 6)] == [0, 1, 5]
    assert [calls[number]["http.response.status_code"] for number in (7, 8)] == [200, 404]
    assert calls[7]["http.route"] == "/v1/streams/{stream}/plans/latest"
    assert found.of(trace(9)) == []
    store = [span for span in found.of(trace(3)) if span["name"] == "store put_plan"]
    assert [span["parent"] for span in store] == [calls[3]["id"]]
    (merged,) = (span for span in found.spans if span["name"] == "round")
    assert (merged["unskew.stream"], merged["unskew.round"], merged["parent"]) == ("clicks", 1, "")
    lines = logged(tmp_path)
    (audited,) = (line for line in lines if line["logger"] == "unskew.audit")
    assert (audited["trace_id"], audited["span_id"]) == (trace(1), calls[1]["id"])
    (planned,) = (line for line in lines if str(line["message"]).startswith("plan new: "))
    assert (planned["stream"], planned["version"], planned["trace_id"]) == ("clicks", version, trace(3))
    (round_,) = (line for line in lines if str(line["message"]).startswith("round merged"))
    assert (round_["stream"], round_["round"], "trace_id" in round_) == ("clicks", 1, False)


def test_a_collector_that_is_away_neither_stops_nor_keeps_the_service(tmp_path: Path) -> None:
    """Calls are answered, and SIGTERM ends it in time."""
    with process(tmp_path, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="http://127.0.0.1:9/v1/traces") as service:
        assert (
            httpx.put(service.url("/v1/streams/x"), json={"partitions": 2}, trust_env=False, timeout=60).status_code
            == 201
        )
        service.run.terminate()
        started = time.monotonic()
        assert service.run.wait(60) == 0
        assert time.monotonic() - started < 40


@pytest.mark.parametrize(
    ("given", "on"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True),
    ],
)
def test_traces_are_on_where_the_environment_says_where_they_go(given: dict[str, str], on: bool) -> None:
    """A name alone, as some clusters set it everywhere, is no wish."""
    assert check_telemetry(given) == on


@pytest.mark.parametrize("command", [["config", "check"], ["serve"]])
@pytest.mark.parametrize(
    ("name", "value", "missing", "told"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318", True, "unskew[telemetry]"),
        ("OTEL_TRACES_EXPORTER", "zipkin", False, "otlp or none"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", False, "http/protobuf"),
    ],
)
def test_traces_that_cannot_be_had_are_one_clear_error_at_the_start(
    command: list[str], name: str, value: str, missing: bool, told: str,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Before any port is open; not a service without the traces that were asked for."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setenv(name, value)
    if missing:
        for module in [module for module in sys.modules if module.startswith("opentelemetry.exporter")]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setitem(sys.modules, "opentelemetry.exporter", None)
    done = in_process(capsys, *command)
    assert (done.code, is_one_line(done.err)) == (2, True)
    assert told in done.err
    assert name in done.err


def test_without_the_wish_nothing_of_it_is_loaded() -> None:
    """It costs memory and time at the start."""
    program = (
        "import sys, asyncio\n"
        "from unskew.service.app.main import build\n"
        "from unskew.service.app.settings import Settings\n"
        "async def main():\n"
        "    await (await build(Settings(http_port=0, grpc_port=0, metrics_port=0))).close()\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))])\n"
    )
    env = {name: value for name, value in environment().items() if not name.startswith("OTEL_")}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=240)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


# -- the log --------------------------------------------------------------------------------------------------


def documents(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [json.loads(_Json().format(record)) for record in caplog.records if record.name == "unskew.engine"]


def test_every_plan_and_skip_says_why_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """By stream and version or round; what is asked for again is told at the level debug."""

    async def main() -> None:
        async with engines(observer=EventLog()) as (engine,):
            await engine.put_stream("s", StreamSpec(4, "balanced", dsync=1.0))
            await engine.build_plan("s", 1)
            await engine.report_histogram("s", Part("app", 1), skewed())
            built = [await engine.build_plan("s", 2) for _ in range(2)]
            assert [one.outcome for one in built] == ["new", "repeated"]

    with caplog.at_level(logging.INFO, "unskew.engine"):
        run(main())
    first, second = documents(caplog)
    assert first["message"].startswith("plan nothing reported: plain hashing: no histogram of")
    assert second["message"].startswith("plan new: ")
    assert second["message"].endswith("from batch 1")
    assert (second["stream"], second["batch"], second["policy"]) == ("s", 2, "balanced")
    assert second["version"].endswith(".2")


def test_the_same_reason_is_told_once_in_half_a_minute_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    """A store that is away for an hour is no million lines."""
    now = 0.0
    log = EventLog(lambda: now)
    with caplog.at_level(logging.INFO, "unskew.engine"):
        for _ in range(5):
            log(Skipped("s", "plan", "the store is away", round=7))
        log(Skipped("other", "plan", "the store is away"))
        now = 31.0
        log(Skipped("s", "plan", "the store is away"))
        for _ in range(2):
            log(ScaleAdvised("s", 4, 8, "out", 3, "too slow"))
    found = documents(caplog)
    assert [(one["message"], one["stream"], one.get("suppressed")) for one in found] == [
        ("plan skipped: the store is away", "s", None),
        ("plan skipped: the store is away", "other", None),
        ("plan skipped: the store is away", "s", 4),
        ("scale out: too slow", "s", None),
    ]
    assert found[0]["round"] == 7


def test_rounds_are_told_with_their_number_and_trouble_as_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    log = EventLog()
    info = PlanInfo(version=Version(1, 2))
    with caplog.at_level(logging.DEBUG, "unskew.engine"):
        log(RoundMerged("s", 7, 3, "deadline", 1.5, 20.0))
        log(Skipped("s", "round", "UnavailableError: away", round=8))
        log(PlanBuilt("s", "kip", "repeated", "made before", 0.1, "d", 2, 0, 0, info))
    told = [(one["message"], one["level"], one.get("round")) for one in documents(caplog)]
    assert told == [
        ("round merged: deadline", "info", 7),
        ("round skipped: UnavailableError: away", "warning", 8),
        ("plan repeated: made before", "debug", None),
    ]
