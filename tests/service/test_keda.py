"""KEDA's external scaler: its protocol by its own names and numbers, in the order of its calls, over a real server."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.service.faces import FakeVerbs, Served, channel, digest_of, histogram, served
from tests.service.test_main import certificate
from unskew.core.stream_spec import BatchWork, Part, StreamSpec, Work
from unskew.service.api.calls import Calls
from unskew.service.api.verbs import ScaleAnswer
from unskew.service.auth.access import Access
from unskew.service.auth.credentials import ANYBODY
from unskew.service.errors import ConflictError, FieldError
from unskew.service.grpc import keda
from unskew.v1 import keda_pb2 as pb

SCALER = "externalscaler.ExternalScaler"
TRIGGER = {"scalerAddress": "unskew.data:8081", "stream": "clicks"}
SLOW = BatchWork(tuple(Work(at, 100, 10, 10, 2.0) for at in range(4)), 10.0, 9.9, 1.0, 8.9)
TEXT, NUMBER, FRACTION = FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_DOUBLE
MESSAGE, FLAG = FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_BOOL


def ref(**told: str) -> pb.ScaledObjectRef:
    return pb.ScaledObjectRef(name="clicks", namespace="jobs", scaler_metadata={**TRIGGER, **told})


class Operator:
    """KEDA's operator as far as it talks to a scaler: these paths, these messages, nothing in the call's metadata."""

    def __init__(self, opened: grpc.Channel) -> None:
        self._opened = opened

    def _call(self, name: str, request: Any, answer: Any) -> Any:
        send = self._opened.unary_unary(f"/{SCALER}/{name}", type(request).SerializeToString, answer.FromString)
        return send(request, timeout=60)

    def spec(self, about: pb.ScaledObjectRef) -> pb.MetricSpec:
        (found,) = self._call("GetMetricSpec", about, pb.GetMetricSpecResponse).metric_specs
        return found

    def active(self, about: pb.ScaledObjectRef) -> bool:
        return bool(self._call("IsActive", about, pb.IsActiveResponse).result)

    def value(self, about: pb.ScaledObjectRef, metric: str) -> float:
        asked = pb.GetMetricsRequest(scaled_object_ref=about, metric_name=metric)
        (found,) = self._call("GetMetrics", asked, pb.GetMetricsResponse).metric_values
        assert metric in ("", found.metric_name)  # one that was not named is the trigger's own
        assert found.metric_value == found.metric_value_float
        return float(found.metric_value_float)

    def stream(self, about: pb.ScaledObjectRef, name: str = "StreamIsActive") -> Any:
        opened = self._opened.unary_stream(
            f"/{SCALER}/{name}", pb.ScaledObjectRef.SerializeToString, pb.IsActiveResponse.FromString
        )
        return opened(about, timeout=60)


def refused(call: Any) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code().name, caught.value.details()


# -- the protocol -------------------------------------------------------------------------------------------


def test_fields_have_the_names_numbers_and_types_that_keda_gives_them() -> None:
    """As KEDA 2.21 has them: a field under another number would be lost without a word."""
    expected = {
        "ScaledObjectRef": {1: ("name", TEXT), 2: ("namespace", TEXT), 3: ("scalerMetadata", MESSAGE)},
        "IsActiveResponse": {1: ("result", FLAG)},
        "GetMetricSpecResponse": {1: ("metricSpecs", MESSAGE)},
        "MetricSpec": {1: ("metricName", TEXT), 2: ("targetSize", NUMBER), 3: ("targetSizeFloat", FRACTION)},
        "GetMetricsRequest": {1: ("scaledObjectRef", MESSAGE), 2: ("metricName", TEXT)},
        "GetMetricsResponse": {1: ("metricValues", MESSAGE)},
        "MetricValue": {1: ("metricName", TEXT), 2: ("metricValue", NUMBER), 3: ("metricValueFloat", FRACTION)},
    }
    pool = keda.descriptor_pool(pb.DESCRIPTOR)
    for name, fields in expected.items():
        found = pool.FindMessageTypeByName(f"externalscaler.{name}")
        assert {number: (f.name, f.type) for number, f in found.fields_by_number.items()} == fields
    service = pool.FindServiceByName(SCALER)
    methods = {m.name: (m.input_type.name, m.output_type.name, m.server_streaming) for m in service.methods}
    assert methods == {
        "IsActive": ("ScaledObjectRef", "IsActiveResponse", False),
        "StreamIsActive": ("ScaledObjectRef", "IsActiveResponse", True),
        "GetMetricSpec": ("ScaledObjectRef", "GetMetricSpecResponse", False),
        "GetMetrics": ("GetMetricsRequest", "GetMetricsResponse", False),
    }


def test_kedas_own_stubs_can_be_loaded_into_the_same_process() -> None:
    """Which registers its file and its names for the whole process, as generated stubs do; bytes go either way."""
    theirs = keda.descriptor_pool(pb.DESCRIPTOR).FindFileByName("externalscaler.proto").serialized_pb
    shared = descriptor_pool.Default()
    shared.AddSerializedFile(theirs)
    kind: Any = message_factory.GetMessageClass(shared.FindMessageTypeByName("externalscaler.ScaledObjectRef"))
    there = kind.FromString(ref(stage="map").SerializeToString())
    assert dict(there.scalerMetadata) == {**TRIGGER, "stage": "map"}
    assert pb.ScaledObjectRef.FromString(there.SerializeToString()) == ref(stage="map")


def test_kedas_calls_in_their_order_follow_the_advice() -> None:
    """The metric's specification first, then its value and activity at every poll: by then jobs have reported."""
    with served("engine") as service, channel(service) as opened:
        operator = Operator(opened)
        spec = operator.spec(ref(tasksPerReplica="2.5"))
        assert (spec.metric_name, spec.target_size, spec.target_size_float) == ("unskew-reduce-tasks", 3, 2.5)
        assert refused(lambda: operator.value(ref(), spec.metric_name))[0] == "NOT_FOUND"
        assert refused(lambda: operator.active(ref()))[0] == "NOT_FOUND"
        engine = service.running._grpc_handlers.calls.verbs
        service.run(engine.put_stream("clicks", StreamSpec(4)))
        assert operator.value(ref(), spec.metric_name) == 4  # nothing is advised yet: as many as there are
        code, said = refused(lambda: operator.value(ref(stage="map"), "unskew-map-tasks"))
        assert (code, "scalerMetadata.stage" in said) == ("FAILED_PRECONDITION", True)
        service.run(engine.report_histogram("clicks", Part("app", 0, part=0, parts=3), histogram()))
        for batch in range(5):
            service.run(engine.report_batch("clicks", Part("app", batch), SLOW))
        assert operator.value(ref(), spec.metric_name) == 5
        assert operator.value(ref(stage="map"), "unskew-map-tasks") == 3
        assert operator.active(ref())
        pushed = operator.stream(ref())
        assert next(pushed).result
        pushed.cancel()
        assert refused(lambda: list(operator.stream(ref(), "StreamMetricSpec")))[0] == "UNIMPLEMENTED"


def test_a_stream_that_nobody_reports_to_is_idle_after_a_while() -> None:
    """And not before: also of a stream that is new nobody can say that it is idle."""
    now = [1000.0]
    scaler = keda.Scaler(Calls(FakeVerbs(), Access()), clock=lambda: now[0])
    advice = ScaleAnswer(4, 8, "hold", 0, "", since=1000.0)
    told: list[bool] = []

    async def each() -> AsyncIterator[ScaleAnswer]:
        for seconds, since in ((0.0, 1000.0), (599.0, 1000.0), (2.0, 1000.0), (5.0, 1000.0), (1.0, 1607.0)):
            now[0] += seconds
            yield replace(advice, since=since)

    async def main() -> None:
        async for answer in scaler._changes(keda.trigger_of(ref()), each()):
            told.append(answer.result)
        short = keda.trigger_of(ref(idleSeconds="0.5"))
        assert not scaler._active(short, advice)

    asyncio.run(main())
    assert told == [True, False, True]


# -- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "field"),
    [
        ({"stream": ""}, "scalerMetadata.stream"),
        ({"stream": "a b"}, "stream"),
        ({"stage": "shuffle"}, "scalerMetadata.stage"),
        ({"tasksPerReplica": "0"}, "scalerMetadata.tasksPerReplica"),
        ({"tasksPerReplica": "0.0004"}, "scalerMetadata.tasksPerReplica"),
        ({"tasksPerReplica": "nan"}, "scalerMetadata.tasksPerReplica"),
        ({"tasksPerReplica": "four"}, "scalerMetadata.tasksPerReplica"),
        ({"tasksPerReplica": "1e300"}, "scalerMetadata.tasksPerReplica"),
        ({"idleSeconds": "-1"}, "scalerMetadata.idleSeconds"),
        ({"idleSeconds": "inf"}, "scalerMetadata.idleSeconds"),
    ],
)
def test_a_trigger_that_is_wrong_is_told_by_its_key(fake: Served, told: dict[str, str], field: str) -> None:
    """The same for each of KEDA's calls: whoever reads the events of a ScaledObject sees what to change."""
    with channel(fake) as opened:
        operator = Operator(opened)
        about = ref(**told)
        for call in (
            lambda: operator.spec(about),
            lambda: operator.active(about),
            lambda: operator.value(about, "unskew-reduce-tasks"),
            lambda: list(operator.stream(about)),
        ):
            code, said = refused(call)
            assert (code, said.partition(":")[0]) == ("INVALID_ARGUMENT", field)


def test_another_metric_and_bytes_that_are_no_trigger_are_refused(fake: Served) -> None:
    with channel(fake) as opened:
        code, said = refused(lambda: Operator(opened).value(ref(), "queue-length"))
        assert (code, "unskew-reduce-tasks" in said) == ("INVALID_ARGUMENT", True)
        send = opened.unary_unary(f"/{SCALER}/IsActive")
        assert refused(lambda: send(b"\xff\xff", timeout=60))[0] == "INVALID_ARGUMENT"
        assert refused(lambda: send(ref(note="x" * 70_000).SerializeToString(), timeout=60))[0] == "RESOURCE_EXHAUSTED"


def test_map_tasks_that_nobody_has_counted_are_no_metric() -> None:
    """An error, on which Kubernetes leaves the replicas as they are; a 0 would take them away."""
    with pytest.raises(ConflictError, match=r"scalerMetadata\.stage"):
        keda.trigger_of(ref(stage="map")).tasks(ScaleAnswer(0, 8, "hold", 0, ""))
    with pytest.raises(FieldError):
        keda.trigger_of(ref(stage="both"))


KEYS = st.sampled_from(["stream", "stage", "tasksPerReplica", "idleSeconds", "tokenFromEnv"]) | st.text(max_size=9)
VALUES = st.sampled_from(["", "clicks", "map", "0", "-0.0", "1e-300", "1_0", "٣", "0x10", "infinity"]) | st.text(
    max_size=9
)


@given(told=st.dictionaries(KEYS, VALUES, max_size=6), metric=st.text(max_size=30))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_trigger_says_is_answered_or_refused_for_a_reason(
    fake: Served, told: dict[str, str], metric: str
) -> None:
    """Never by an error of the service itself, nor by a number that Kubernetes could not use."""
    with channel(fake) as opened:
        operator = Operator(opened)
        about = pb.ScaledObjectRef(scaler_metadata=told)
        try:
            assert 0.001 <= operator.spec(about).target_size_float <= 1e9
            operator.active(about)
            assert operator.value(about, "unskew-map-tasks" if told.get("stage") == "map" else metric) >= 1
        except grpc.RpcError as why:
            assert why.code().name in {"INVALID_ARGUMENT", "NOT_FOUND"}, why.details()  # noqa: PT017 - either is right


# -- who may ------------------------------------------------------------------------------------------------

TOKENS = f"{digest_of('eye')} eye reader clicks\n{digest_of('job')} job admin visits\n"


def test_a_token_comes_in_the_trigger_or_in_the_call() -> None:
    """KEDA puts it into the trigger from a secret; the same rule as for any other caller then holds."""
    with served(FakeVerbs(streams={"clicks": StreamSpec(4)}), tokens=TOKENS) as service, channel(service) as opened:
        operator = Operator(opened)
        assert not operator.active(ref(tokenFromEnv="eye"))  # of these verbs nobody ever reported
        assert operator.value(ref(tokenFromEnv="eye"), "unskew-reduce-tasks") == 8
        assert operator.spec(ref(tokenFromEnv="eye")).target_size == 1
        assert not next(operator.stream(ref(tokenFromEnv="eye"))).result
        send = opened.unary_unary(f"/{SCALER}/IsActive", pb.ScaledObjectRef.SerializeToString)
        send(ref(), metadata=[("authorization", "Bearer eye")], timeout=60)
        for about, code in (
            (ref(), "UNAUTHENTICATED"),
            (ref(tokenFromEnv="nobody"), "UNAUTHENTICATED"),
            (ref(token="eye"), "UNAUTHENTICATED"),
            (ref(tokenFromEnv="job"), "PERMISSION_DENIED"),
        ):
            for call in (
                lambda about=about: operator.active(about),
                lambda about=about: operator.spec(about),
                lambda about=about: operator.value(about, "unskew-reduce-tasks"),
                lambda about=about: list(operator.stream(about)),
            ):
                assert refused(call)[0] == code
        assert service.verbs.asked[-1] == ("get_scale", "clicks")
        assert not service.verbs.streams.keys() - {"clicks"}


@pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with the openssl command")
def test_a_certificate_is_as_good_as_a_token(tmp_path: Path) -> None:
    """KEDA's tlsClientCert, tlsClientKey and caCert: a name in it has the role; without one there is no connection."""
    certificate(tmp_path, "server", "DNS:localhost,IP:127.0.0.1")
    certificate(tmp_path, "keda", "DNS:keda-operator.keda.svc")
    certificate(tmp_path, "other", "DNS:other.keda.svc")
    files = {"tls_cert": "server.pem", "tls_key": "server.key", "tls_client_ca": "ca.pem"}
    given = {name: str(tmp_path / file) for name, file in files.items()}
    read = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    tokens = "san=keda-operator.keda.svc keda reader clicks\n"
    with served(FakeVerbs(streams={"clicks": StreamSpec(4)}), tokens=tokens, **given) as service:
        for name, code in (("keda", ""), ("other", "UNAUTHENTICATED"), ("", "UNAVAILABLE")):
            pair = (read[f"{name}.key"], read[f"{name}.pem"]) if name else (None, None)
            with grpc.secure_channel(service.target, grpc.ssl_channel_credentials(read["ca.pem"], *pair)) as opened:
                operator = Operator(opened)
                if code:
                    assert refused(lambda operator=operator: operator.spec(ref()))[0] == code
                else:
                    assert operator.value(ref(), operator.spec(ref()).metric_name) == 8


# -- told, watched, ended -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fake() -> Iterator[Served]:
    with served(FakeVerbs(streams={"clicks": StreamSpec(4)})) as service:
        yield service


def test_health_and_reflection_name_the_scaler(fake: Served) -> None:
    """By KEDA's names: a tool that asks for `externalscaler.ExternalScaler` learns its methods."""
    with channel(fake) as opened:
        health = health_pb2_grpc.HealthStub(opened).Check(health_pb2.HealthCheckRequest(service=SCALER), timeout=60)
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        asked = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=SCALER),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol="unskew.v1.PartitionerService"),
        ]
        told, scaler, ours = reflection_pb2_grpc.ServerReflectionStub(opened).ServerReflectionInfo(
            iter(asked), timeout=60
        )
        assert SCALER in {one.name for one in told.list_services_response.service}
        assert any(b"StreamIsActive" in file for file in scaler.file_descriptor_response.file_descriptor_proto)
        assert any(b"WatchPlans" in file for file in ours.file_descriptor_response.file_descriptor_proto)


def test_a_drain_ends_the_push_well_and_the_next_replica_takes_it_up() -> None:
    """With OK, on which KEDA asks again after two seconds; the new one tells the state anew."""
    verbs = FakeVerbs(streams={"clicks": StreamSpec(4)})
    with served(verbs) as service, channel(service) as opened:
        pushed = Operator(opened).stream(ref())
        first = next(pushed).result
        port = service.running.grpc_port
        ends: list[bool] = []
        reader = threading.Thread(target=lambda: ends.extend(one.result for one in pushed))
        reader.start()
        service.run(service.running.close())
        reader.join(60)
        assert (not reader.is_alive(), ends, pushed.code()) == (True, [], grpc.StatusCode.OK)
    with served(verbs, grpc_port=port) as again, channel(again) as opened:
        assert next(Operator(opened).stream(ref())).result == first


def test_where_no_credentials_are_configured_a_token_in_a_trigger_does_no_harm() -> None:
    """On loopback: as with a header that is sent all the same."""
    assert Access().identify(keda.bearer(ref(tokenFromEnv="whatever"))) is ANYBODY
    assert keda.bearer(ref()) is None
    assert keda.bearer(pb.GetMetricsRequest(scaled_object_ref=ref(tokenFromEnv="s"))) == "Bearer s"
