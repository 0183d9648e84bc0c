"""KEDA's external scaler (docs/keda.md): one metric a trigger, the number of tasks that is advised.

A trigger names a stream and a stage, and says how many tasks a replica runs; Kubernetes then starts ceil(tasks / that
many) replicas. It is active while batches are reported, and also where that is unknown, because KEDA removes the last
replica of an inactive one. KEDA sends no metadata with its calls, so a token may also be in the trigger, put there by
KEDA from a secret; a client certificate works as well.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from unskew.service.api.calls import Calls
from unskew.service.api.verbs import ScaleAnswer
from unskew.service.auth.credentials import Identity
from unskew.service.errors import ConflictError, FieldError
from unskew.v1 import keda_pb2 as pb

__all__ = ["SERVICE", "Scaler", "bearer", "descriptor_pool", "trigger_of"]

SERVICE = "externalscaler.ExternalScaler"
_STAGES = ("reduce", "map")
_IDLE = 600.0
_LEAST, _MOST = 0.001, 1e9  # KEDA counts in thousandths: it takes less for 0
_METHODS: Mapping[str, tuple[Any, Any]] = {
    "IsActive": (pb.ScaledObjectRef, pb.IsActiveResponse),
    "StreamIsActive": (pb.ScaledObjectRef, pb.IsActiveResponse),
    "GetMetricSpec": (pb.ScaledObjectRef, pb.GetMetricSpecResponse),
    "GetMetrics": (pb.GetMetricsRequest, pb.GetMetricsResponse),
}


@dataclass(frozen=True)
class Trigger:
    """The metadata of a ScaledObject's trigger, as far as it is for this scaler."""

    stream: str
    stage: str = "reduce"
    tasks_per_replica: float = 1.0
    idle: float = _IDLE

    @property
    def metric(self) -> str:
        """Without the stream, whose name may have characters that a metric's may not. KEDA numbers the triggers."""
        return f"unskew-{self.stage}-tasks"

    def tasks(self, scale: ScaleAnswer) -> int:
        tasks = scale.map_tasks if self.stage == "map" else scale.reduce_tasks
        if not tasks:
            raise ConflictError(
                f"{_field('stage')}: how many map tasks {self.stream!r} has is not known yet; they are counted by the "
                "histograms that its job reports",
                field=_field("stage"),
            )
        return tasks


def trigger_of(ref: pb.ScaledObjectRef) -> Trigger:
    """Other metadata is KEDA's own and is ignored."""
    metadata = ref.scaler_metadata
    stream, stage = metadata.get("stream", ""), metadata.get("stage", "reduce")
    if not stream:
        raise FieldError(_field("stream"), stream, "the name of a stream")
    if stage not in _STAGES:
        raise FieldError(_field("stage"), stage, " or ".join(_STAGES))
    return Trigger(stream, stage, _number(metadata, "tasksPerReplica", 1.0), _number(metadata, "idleSeconds", _IDLE))


def _number(metadata: Mapping[str, str], key: str, default: float) -> float:
    text = metadata.get(key, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = math.nan
    if not _LEAST <= value <= _MOST:
        raise FieldError(_field(key), text, f"{_LEAST:g} to {_MOST:.0f}, or leave it out for {default:g}")
    return value


def _field(key: str) -> str:
    return f"scalerMetadata.{key}"


def bearer(request: pb.ScaledObjectRef | pb.GetMetricsRequest) -> str | None:
    """The ``Authorization`` header that the request stands for, if it has a token."""
    ref = request.scaled_object_ref if isinstance(request, pb.GetMetricsRequest) else request
    token = ref.scaler_metadata.get("tokenFromEnv", "")
    return f"Bearer {token}" if token else None


@dataclass(frozen=True)
class Scaler:
    """KEDA's four calls. ``clock``: seconds since 1970."""

    calls: Calls
    clock: Callable[[], float] = time.time

    async def metric_spec(self, request: pb.ScaledObjectRef, who: Identity) -> pb.GetMetricSpecResponse:
        """By the trigger alone: the stream may be put later."""
        trigger = trigger_of(request)
        self.calls.may_scale(trigger.stream, who)
        size = trigger.tasks_per_replica
        spec = pb.MetricSpec(metric_name=trigger.metric, target_size=math.ceil(size), target_size_float=size)
        return pb.GetMetricSpecResponse(metric_specs=[spec])

    async def is_active(self, request: pb.ScaledObjectRef, who: Identity) -> pb.IsActiveResponse:
        trigger = trigger_of(request)
        return pb.IsActiveResponse(result=self._active(trigger, await self.calls.scale(trigger.stream, who)))

    async def metrics(self, request: pb.GetMetricsRequest, who: Identity) -> pb.GetMetricsResponse:
        trigger = trigger_of(request.scaled_object_ref)
        if request.metric_name not in ("", trigger.metric):
            raise FieldError("metricName", request.metric_name, f"{trigger.metric}, as GetMetricSpec says")
        tasks = trigger.tasks(await self.calls.scale(trigger.stream, who))
        value = pb.MetricValue(metric_name=trigger.metric, metric_value=tasks, metric_value_float=tasks)
        return pb.GetMetricsResponse(metric_values=[value])

    def watch(self, request: pb.ScaledObjectRef, who: Identity) -> AsyncIterator[pb.IsActiveResponse]:
        trigger = trigger_of(request)
        return self._changes(trigger, self.calls.watch_scale(trigger.stream, who))

    async def _changes(self, trigger: Trigger, advice: Any) -> AsyncIterator[pb.IsActiveResponse]:
        """Whether it is active now, and each time that this changes."""
        last: bool | None = None
        async with aclosing(advice):
            async for scale in advice:
                active = self._active(trigger, scale)
                if active is not last:
                    last = active
                    yield pb.IsActiveResponse(result=active)

    def _active(self, trigger: Trigger, scale: ScaleAnswer) -> bool:
        return self.clock() - scale.since <= trigger.idle


def descriptor_pool(*files: FileDescriptor) -> DescriptorPool:
    """These files and their imports, and the scaler under KEDA's own names, which the default pool does not have."""
    pool = DescriptorPool()
    done: set[str] = set()

    def add(file: FileDescriptor) -> None:
        if file.name not in done:
            done.add(file.name)
            for other in file.dependencies:
                add(other)
            pool.AddSerializedFile(file.serialized_pb)

    for file in files:
        add(file)
    pool.AddSerializedFile(_keda_descriptor().SerializeToString())
    return pool


def _keda_descriptor() -> FileDescriptorProto:
    package, service = SERVICE.split(".")
    file = FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(file)
    file.name, file.package = "externalscaler.proto", package
    for message in file.message_type:
        ours = pb.DESCRIPTOR.message_types_by_name[message.name].fields_by_name
        for field in message.field:
            field.name = ours[field.name].camelcase_name
            if field.type_name:
                field.type_name = field.type_name.replace(f".{pb.DESCRIPTOR.package}.", f".{package}.")
    added = file.service.add(name=service)
    for name, (takes, gives) in _METHODS.items():
        added.method.add(
            name=name,
            input_type=f".{package}.{takes.DESCRIPTOR.name}",
            output_type=f".{package}.{gives.DESCRIPTOR.name}",
            server_streaming=name.startswith("Stream"),
        )
    return file
