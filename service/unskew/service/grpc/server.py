"""The gRPC handlers: bytes in, ``api.calls``, bytes out; with statuses, health, reflection, drain and KEDA's scaler.

All calls take streams here, those with one message too (``reads`` says why): so a caller without a credential is
refused before its bytes are read. Messages are parsed here and not by the library: bytes that are no message are
INVALID_ARGUMENT, not INTERNAL. A watch ends with OK when it is old or the service drains; its caller then starts a new
one, perhaps with another replica.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from unskew.service.api.admission import Admission
from unskew.service.api.budget import ByteBudget, Reservation
from unskew.service.api.calls import Calls, check_size, synced_in_bytes
from unskew.service.api.verbs import BuiltPlan
from unskew.service.app.settings import Settings
from unskew.service.auth.access import Access
from unskew.service.auth.credentials import Identity
from unskew.service.grpc import codec, keda
from unskew.service.grpc.connections import GrpcConnections
from unskew.service.grpc.health import Health
from unskew.service.grpc.reads import SMALL, STREAM_WINDOW, EndedError, Reads
from unskew.service.grpc.watchers import Watchers
from unskew.service.places import Places
from unskew.v1 import keda_pb2
from unskew.v1 import partitioner_pb2 as pb

__all__ = ["SERVICE", "GrpcServer", "options"]

SERVICE = "unskew.v1.PartitionerService"
M = TypeVar("M", bound=Message)
T = TypeVar("T")
_PUSHES = 4  # that begin in one turn of the loop
Opened = Callable[[codec.Request], Awaitable[tuple[Any, ...]]]  # what a call takes: a message, its sender, ...


def options(settings: Settings) -> list[tuple[str, int]]:
    """Channel arguments of the server. gRPC itself spreads connection ages by 10 %."""
    arguments = {
        "grpc.so_reuseport": 0,  # a port that is taken is an error, not half of the calls
        "grpc.max_receive_message_length": settings.max_message_bytes,
        "grpc.max_send_message_length": -1,
        # Without the probe windows do not grow: of a call that nobody reads yet no more than this is taken in. A
        # message that is read still comes at full speed, because then its whole length is allowed at once.
        "grpc.http2.bdp_probe": 0,
        "grpc.http2.lookahead_bytes": STREAM_WINDOW,
        "grpc.http2.max_frame_size": 1 << 20,  # as large as with the probe: in frames of 16 kB a table costs 5 % more
        "grpc.max_allowed_incoming_connections": settings.max_grpc_connections,
        "grpc.max_connection_idle_ms": _ms(settings.grpc_idle),
        "grpc.server_handshake_timeout_ms": _ms(settings.header_timeout),
        "grpc.max_concurrent_streams": settings.max_streams_per_connection,
        "grpc.server.max_pending_requests": settings.max_pending_requests,
        "grpc.server.max_pending_requests_hard_limit": 2 * settings.max_pending_requests,
        "grpc.keepalive_time_ms": _ms(settings.keepalive),
        "grpc.keepalive_timeout_ms": _ms(settings.keepalive_timeout),
        # A minute by default, whatever the line above says.
        "grpc.http2.ping_timeout_ms": _ms(settings.keepalive_timeout),
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.min_ping_interval_without_data_ms": _ms(settings.min_ping_interval),
        "grpc.http2.min_recv_ping_interval_without_data_ms": _ms(settings.min_ping_interval),
    }
    if settings.max_connection_age:
        arguments["grpc.max_connection_age_ms"] = _ms(settings.max_connection_age)
        # Watches end by themselves within this time; no other call takes as long.
        arguments["grpc.max_connection_age_grace_ms"] = _ms(1.2 * settings.max_watch + 60.0)
    return list(arguments.items())


def _ms(seconds: float) -> int:
    return min(int(seconds * 1000), 2**31 - 1)


@dataclass(eq=False)
class GrpcServer:
    """``add_to`` registers the handlers. ``ready`` and ``lame`` set the health, ``drain`` ends waits and watches."""

    calls: Calls
    access: Access
    reads: Reads
    answers: ByteBudget
    observe: codec.Observe = lambda _method, _code, _seconds: None
    max_watchers: int = 10_000
    max_watch: float = 600.0
    admission: Admission = field(default_factory=lambda: Admission(0.0))
    connections: GrpcConnections | None = None  # not where nobody needs a credential

    def __post_init__(self) -> None:
        self._health = Health(self.reads)
        self._watching: set[asyncio.Future[Any]] = set()
        self._under_way: set[codec.TimedCall] = set()
        self._watchers = Watchers(self.max_watchers, fair=not self.access.open)
        self._pushes = Places(_PUSHES, 0.0, most=2 * self.max_watchers + 2)  # so that all of one identity may wait
        self._draining = False

    def add_to(self, server: Any) -> None:
        calls, large = self.calls, self.reads.largest
        handlers = {
            "PutStream": self._unary("PutStream", pb.PutStreamRequest, calls.put_stream, large),
            "GetStream": self._unary("GetStream", pb.GetStreamRequest, calls.get_stream),
            "ListStreams": self._unary("ListStreams", pb.ListStreamsRequest, calls.list_streams),
            "DeleteStream": self._unary("DeleteStream", pb.DeleteStreamRequest, calls.delete_stream),
            "BuildPlan": self._unary("BuildPlan", pb.BuildPlanRequest, calls.build_plan, large, encode=_built_in_bytes),
            "GetPlan": self._unary("GetPlan", pb.GetPlanRequest, calls.get_plan),
            "Sync": self._unary("Sync", pb.SyncRequest, calls.sync, large, self._opened_sync, synced_in_bytes),
            "ReportBatch": self._unary("ReportBatch", pb.ReportBatchRequest, calls.report_batch, large),
            "GetScale": self._unary("GetScale", pb.GetScaleRequest, calls.get_scale),
            "Explain": self._unary("Explain", pb.ExplainRequest, calls.explain),
            "ReportHistogram": self._unary(
                "ReportHistogram", pb.ReportHistogramRequest, calls.report_histogram, large, self._opened_chunks
            ),
            "WatchPlans": self._pushed("WatchPlans", pb.WatchPlansRequest, calls.watch_plans),
        }
        names = (SERVICE, keda.SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        files = (pb.DESCRIPTOR, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)
        described = codec.Reflection(names, keda.descriptor_pool(*files), self.access, self.reads)
        for service, methods in {
            SERVICE: handlers,
            keda.SERVICE: self._for_keda(),
            health.SERVICE_NAME: self._health.handlers(),
            reflection.SERVICE_NAME: described.handlers(),
        }.items():
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))

    def _for_keda(self) -> dict[str, Any]:
        scaler, opened = keda.Scaler(self.calls), self._opened_for_keda
        ref, get = keda_pb2.ScaledObjectRef, keda_pb2.GetMetricsRequest
        return {
            "IsActive": self._unary("KedaIsActive", ref, scaler.is_active, opened=opened),
            "GetMetricSpec": self._unary("KedaGetMetricSpec", ref, scaler.metric_spec, opened=opened),
            "GetMetrics": self._unary("KedaGetMetrics", get, scaler.metrics, opened=opened),
            "StreamIsActive": self._pushed("KedaStreamIsActive", ref, scaler.watch, opened),
        }

    async def ready(self, *, store: bool) -> None:
        """Without the store the services by their names are NOT_SERVING; the process, by the empty name, is SERVING."""
        state = health_pb2.HealthCheckResponse
        for name in (SERVICE, keda.SERVICE):
            await self._health.set(name, state.SERVING if store else state.NOT_SERVING)

    async def lame(self) -> None:
        """NOT_SERVING from now on; calls are still taken."""
        await self._health.enter_graceful_shutdown()

    @property
    def busy(self) -> bool:
        """Whether a call of the service is in its handler."""
        return bool(self._under_way)

    def drain(self) -> None:
        """End all waits and watches with OK."""
        self._draining = True
        self.calls.verbs.drain()
        for step in self._watching:
            step.cancel()

    # -- one message in, one out ------------------------------------------------------------------------------

    def _unary(
        self,
        verb: str,
        kind: type[M],
        call: Callable[..., Awaitable[T]],
        most: int = SMALL,
        opened: Opened | None = None,
        encode: Callable[[T], bytes] | None = None,
    ) -> Any:
        """A call whose message has at most so many bytes."""
        opened, encode = opened or self._opened, encode or _serialized

        async def handler(_messages: Any, context: codec.Context) -> bytes:
            with codec.TimedCall(self.observe, verb, self._under_way) as timed:
                request = codec.Request(kind, context, most)
                try:
                    answer = encode(await call(*await opened(request)))
                    if len(answer) > SMALL:
                        await self._hold(request, answer)
                    return answer
                except EndedError as why:
                    timed.failed(why)
                    raise why.ended from None
                except Exception as why:  # noqa: BLE001 - every error becomes a status
                    fault = timed.failed(why)
                    await self.admission.before_refusal(why, request.who.name, partial(codec.address, context))
                finally:
                    request.end()
                await codec.abort(context, fault)
            raise AssertionError("abort raises")

        return grpc.stream_unary_rpc_method_handler(handler)

    def _reservation(self, request: codec.Request) -> Reservation:
        """Who asks, before anything is read of what they send."""
        request.who = codec.identity(self.access, request.context)
        self._known(request)
        most = request.who.allowance.max_identity_bytes_in_flight
        request.reservation = Reservation(self.reads.budget, request.who.name, most)
        return request.reservation

    async def _opened(self, request: codec.Request) -> tuple[Any, Identity]:
        reservation = self._reservation(request)
        data = await self.reads.message(request.context, reservation, request.most)
        check_size(request.who, len(data))
        return codec.parsed(request.kind, data), request.who

    async def _opened_for_keda(self, request: codec.Request) -> tuple[Any, Identity]:
        """The token may be in the message, which is then read and parsed first, and must be small."""
        context = request.context
        if self.access.open or codec.authorization(context) or codec.sans(context):
            return await self._opened(request)
        message = codec.parsed(request.kind, await self.reads.message_of_unknown(context))
        request.who = self.access.identify(keda.bearer(message))
        self._known(request)
        return message, request.who

    def _known(self, request: codec.Request) -> None:
        """Its sender is known: so is the connection; the call is let in or refused."""
        if self.connections is not None:
            self.connections.called(request.context.peer(), request.who.name)
        self.admission.admit(request.who)

    async def _opened_sync(self, request: codec.Request) -> tuple[Any, Identity, float | None]:
        return *await self._opened(request), request.context.time_remaining()

    async def _opened_chunks(self, request: codec.Request) -> tuple[AsyncIterator[Any], Identity]:
        reservation = self._reservation(request)
        chunks = self.reads.chunks(request.context, reservation)
        return _parsed_chunks(request.kind, chunks, request.who), request.who

    async def _hold(self, request: codec.Request, answer: bytes) -> None:
        """Count a large answer until its caller has taken it; gRPC has a copy of it until then."""
        if request.answer is None:
            request.answer = Reservation(self.answers, request.who.name)
            request.context.add_done_callback(request.sent)
        await request.answer.wait(2 * len(answer), self.reads.within)

    # -- watches ----------------------------------------------------------------------------------------------

    def _pushed(
        self,
        verb: str,
        kind: type[M],
        watch: Callable[[M, Identity], AsyncIterator[Message]],
        opened: Opened | None = None,
    ) -> Any:
        opened = opened or self._opened

        async def handler(_messages: Any, context: codec.Context) -> None:
            with codec.TimedCall(self.observe, verb, self._under_way) as timed:
                request = codec.Request(kind, context, SMALL)
                try:
                    arguments = await opened(request)
                    with self._watchers.one_more(request.who.name, request.who.allowance.max_watchers):
                        async with contextlib.aclosing(self._until_old(watch(*arguments))) as messages:
                            async for message in messages:
                                await self._push(request, message.SerializeToString())
                    return
                except EndedError as why:
                    timed.failed(why)
                    raise why.ended from None
                except Exception as why:  # noqa: BLE001 - every error becomes a status
                    fault = timed.failed(why)
                    await self.admission.before_refusal(why, request.who.name, partial(codec.address, context))
                finally:
                    request.end()
                await codec.abort(context, fault)

        return grpc.stream_stream_rpc_method_handler(handler)

    async def _push(self, request: codec.Request, answer: bytes) -> None:
        """Not all at once, and in turns by identity: another call has its turn between them."""
        turn = await self._pushes.take(len(answer))
        asyncio.get_running_loop().call_soon(self._pushes.give_back, turn)
        try:
            if len(answer) > SMALL:
                await self._hold(request, answer)
            await request.context.write(answer)
        finally:
            request.sent()

    async def _until_old(self, watch: AsyncIterator[M]) -> AsyncGenerator[M, None]:
        """Each message, until the watch is old or the service drains."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.max_watch * random.uniform(0.9, 1.1)
        try:
            while not self._draining:
                step = asyncio.ensure_future(_next(watch))
                self._watching.add(step)
                try:
                    await asyncio.wait((step,), timeout=max(0.0, end - loop.time()))
                finally:
                    self._watching.discard(step)
                    await _stopped(step)
                if step.cancelled() or (message := step.result()) is None:
                    return
                yield message
        finally:
            if (close := getattr(watch, "aclose", None)) is not None:
                await close()


def _serialized(answer: Any) -> bytes:
    data: bytes = answer.SerializeToString()
    return data


def _built_in_bytes(built: tuple[pb.BuildPlanResponse, BuiltPlan]) -> bytes:
    return built[0].SerializeToString()


async def _next(watch: AsyncIterator[M]) -> M | None:
    return await anext(watch, None)


async def _stopped(step: asyncio.Future[Any]) -> None:
    if not step.done():
        step.cancel()
        await asyncio.wait((step,))
    if not step.cancelled():
        step.exception()  # marked as retrieved, in case that the caller has left


async def _parsed_chunks(kind: type[M], chunks: AsyncIterator[bytes], who: Identity) -> AsyncIterator[M]:
    async for chunk in chunks:
        check_size(who, len(chunk))
        yield codec.parsed(kind, chunk)
