"""The verbs over gRPC: bytes in, ``Calls``, bytes out; statuses with details, health, reflection, drain.

Messages are parsed here and not by the library: so a caller without a credential is turned away before its bytes are
looked at, and bytes that are no message are INVALID_ARGUMENT, not INTERNAL. A watch ends well, with OK, when it is old
or the service drains; its caller begins it anew, perhaps with another replica.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from unskew.service.access import Access, Identity
from unskew.service.calls import Calls, check_size, synced_in_bytes
from unskew.service.errors import LimitError
from unskew.service.problems import BodyError, Fault
from unskew.service.settings import Settings
from unskew.v1 import partitioner_pb2 as pb

__all__ = ["SERVICE", "GrpcFace", "options"]

SERVICE = "unskew.v1.PartitionerService"
Observe = Callable[[str, str, float], None]
M = TypeVar("M", bound=Message)
Context = Any  # grpc.aio.ServicerContext, generic in the stubs and not in the library


def options(settings: Settings) -> list[tuple[str, int]]:
    """Channel arguments of the server. gRPC itself spreads connection ages by 10 %."""
    found = {
        "grpc.so_reuseport": 0,  # a port that is taken is an error, not half of the calls
        "grpc.max_receive_message_length": settings.max_message_bytes,
        "grpc.max_send_message_length": -1,
        "grpc.max_concurrent_streams": settings.max_streams_per_connection,
        "grpc.server.max_pending_requests": settings.max_pending_requests,
        "grpc.server.max_pending_requests_hard_limit": 2 * settings.max_pending_requests,
        "grpc.keepalive_time_ms": _ms(settings.keepalive),
        "grpc.keepalive_timeout_ms": _ms(settings.keepalive_timeout),
        "grpc.http2.ping_timeout_ms": _ms(settings.keepalive_timeout),  # a minute by default, whatever that says
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.min_ping_interval_without_data_ms": _ms(settings.min_ping_interval),
        "grpc.http2.min_recv_ping_interval_without_data_ms": _ms(settings.min_ping_interval),
    }
    if settings.max_connection_age:
        found["grpc.max_connection_age_ms"] = _ms(settings.max_connection_age)
        # Watches end by themselves within this; nothing that is right takes longer.
        found["grpc.max_connection_age_grace_ms"] = _ms(1.2 * settings.max_watch + 60.0)
    return list(found.items())


def _ms(seconds: float) -> int:
    return min(int(seconds * 1000), 2**31 - 1)


@dataclass(eq=False)
class GrpcFace:
    """The service's handlers. ``add_to`` a server; ``ready`` and ``drain`` tell the health service and the waiting."""

    calls: Calls
    access: Access
    observe: Observe = lambda _method, _code, _seconds: None
    max_watchers: int = 10_000
    max_watch: float = 600.0

    def __post_init__(self) -> None:
        self._health = health.aio.HealthServicer()
        self._watching: set[asyncio.Future[Any]] = set()
        self._under_way: set[_Timed] = set()
        self._watchers = 0
        self._draining = False

    def add_to(self, server: Any) -> None:
        calls = self.calls
        handlers = {
            "PutStream": self._unary("PutStream", pb.PutStreamRequest, calls.put_stream),
            "GetStream": self._unary("GetStream", pb.GetStreamRequest, calls.get_stream),
            "ListStreams": self._unary("ListStreams", pb.ListStreamsRequest, calls.list_streams),
            "DeleteStream": self._unary("DeleteStream", pb.DeleteStreamRequest, calls.delete_stream),
            "BuildPlan": self._unary("BuildPlan", pb.BuildPlanRequest, self._build_plan),
            "GetPlan": self._unary("GetPlan", pb.GetPlanRequest, calls.get_plan),
            "Sync": self._waiting("Sync", pb.SyncRequest, self._sync),
            "ReportBatch": self._unary("ReportBatch", pb.ReportBatchRequest, calls.report_batch),
            "GetScale": self._unary("GetScale", pb.GetScaleRequest, calls.get_scale),
            "Explain": self._unary("Explain", pb.ExplainRequest, calls.explain),
            "ReportHistogram": grpc.stream_unary_rpc_method_handler(self._report_histogram),
            "WatchPlans": grpc.unary_stream_rpc_method_handler(self._watch_plans),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(_Reflection(names, self.access), server)

    async def ready(self, *, store: bool) -> None:
        """Tell whether the store can be asked: the service by its name is NOT_SERVING without it; the process, by the
        empty name, serves."""
        state = health_pb2.HealthCheckResponse
        await self._health.set(SERVICE, state.SERVING if store else state.NOT_SERVING)

    async def lame(self) -> None:
        """NOT_SERVING from now on; calls are still taken."""
        await self._health.enter_graceful_shutdown()

    @property
    def busy(self) -> bool:
        """Whether a call of the service is in its handler."""
        return bool(self._under_way)

    def drain(self) -> None:
        """End all waits and watches well."""
        self._draining = True
        self.calls.verbs.drain()
        for step in self._watching:
            step.cancel()

    # -- one message in, one out ------------------------------------------------------------------------------

    def _unary(self, verb: str, kind: type[M], call: Callable[[M, Identity], Awaitable[Message]]) -> Any:
        async def handler(request: M, who: Identity, _context: Context) -> Message:
            return await call(request, who)

        return self._waiting(verb, kind, handler)

    def _waiting(
        self, verb: str, kind: type[M], call: Callable[[M, Identity, Context], Awaitable[Message | bytes]]
    ) -> Any:
        async def handler(data: bytes, context: Context) -> bytes:
            with _Timed(self.observe, verb, self._under_way) as timed:
                try:
                    who = _identity(self.access, context)
                    check_size(who, len(data))
                    answer = await call(_parsed(kind, data), who, context)
                    return answer if isinstance(answer, bytes) else answer.SerializeToString()
                except Exception as why:  # noqa: BLE001 - the border: every error becomes a status
                    fault = timed.failed(why)
                await _abort(context, fault)
            raise AssertionError("abort raises")

        return grpc.unary_unary_rpc_method_handler(handler)

    async def _build_plan(self, request: pb.BuildPlanRequest, who: Identity) -> pb.BuildPlanResponse:
        answer, _ = await self.calls.build_plan(request, who)
        return answer

    async def _sync(self, request: pb.SyncRequest, who: Identity, context: Context) -> bytes:
        return synced_in_bytes(await self.calls.sync(request, who, context.time_remaining()))

    # -- streams ----------------------------------------------------------------------------------------------

    async def _report_histogram(self, chunks: AsyncIterator[bytes], context: Context) -> bytes:
        with _Timed(self.observe, "ReportHistogram", self._under_way) as timed:
            try:
                who = _identity(self.access, context)
                answer = await self.calls.report_histogram(_each(pb.ReportHistogramRequest, chunks, who), who)
                return answer.SerializeToString()
            except Exception as why:  # noqa: BLE001 - the border: every error becomes a status
                fault = timed.failed(why)
            await _abort(context, fault)
        raise AssertionError("abort raises")

    async def _watch_plans(self, data: bytes, context: Context) -> None:
        with _Timed(self.observe, "WatchPlans", self._under_way) as timed:
            self._watchers += 1
            try:
                who = _identity(self.access, context)
                if self._watchers > self.max_watchers:
                    raise LimitError(f"{self.max_watchers} watches are open here; try again, perhaps elsewhere")
                found = self.calls.watch_plans(_parsed(pb.WatchPlansRequest, data), who)
                async with contextlib.aclosing(self._while_young(found)) as young:
                    async for message in young:
                        await context.write(message.SerializeToString())
                return
            except Exception as why:  # noqa: BLE001 - the border: every error becomes a status
                fault = timed.failed(why)
            finally:
                self._watchers -= 1
            await _abort(context, fault)

    async def _while_young(self, found: AsyncIterator[M]) -> AsyncGenerator[M, None]:
        """Each message, until the watch is old or the service drains."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.max_watch * random.uniform(0.9, 1.1)
        try:
            while not self._draining:
                step = asyncio.ensure_future(_next(found))
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
            if (close := getattr(found, "aclose", None)) is not None:
                await close()


async def _next(found: AsyncIterator[M]) -> M | None:
    return await anext(found, None)


async def _stopped(step: asyncio.Future[Any]) -> None:
    if not step.done():
        step.cancel()
        await asyncio.wait((step,))
    if not step.cancelled():
        step.exception()  # looked at, also where the caller has gone


async def _each(kind: type[M], chunks: AsyncIterator[bytes], who: Identity) -> AsyncIterator[M]:
    async for chunk in chunks:
        check_size(who, len(chunk))
        yield _parsed(kind, chunk)


def _parsed(kind: type[M], data: bytes) -> M:
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise BodyError(f"these bytes are no {kind.DESCRIPTOR.full_name}") from None
    return message


# -- who asks -------------------------------------------------------------------------------------------------


def _identity(access: Access, context: Context) -> Identity:
    if access.open:
        return access.identify(None)
    shown = None
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            shown = value if isinstance(value, str) else value.decode("utf-8", "replace")
    return access.identify(shown, _sans(context))


def _sans(context: Context) -> tuple[str, ...]:
    names = context.auth_context().get("x509_subject_alternative_name", ())
    return tuple(name.decode("utf-8", "replace") for name in names)


async def _abort(context: Context, fault: Fault) -> None:
    await context.abort(fault.grpc_code, fault.message, fault.trailers())


class _Timed:
    """Tells how long a call took, and how it ended. A caller that went away is CANCELLED."""

    def __init__(self, observe: Observe, verb: str, under_way: set[_Timed]) -> None:
        self._observe, self._verb, self._under_way = observe, verb, under_way
        self._code, self._started = "OK", perf_counter()

    def __enter__(self) -> _Timed:
        self._under_way.add(self)
        return self

    def failed(self, why: Exception) -> Fault:
        fault = Fault.of(why)
        self._code = fault.code
        return fault

    def __exit__(self, kind: type[BaseException] | None, _why: object, _trace: object) -> None:
        if kind is not None and self._code == "OK":
            self._code = "CANCELLED"
        self._under_way.discard(self)
        self._observe(self._verb, self._code, perf_counter() - self._started)


class _Reflection(reflection.aio.ReflectionServicer):  # type: ignore[misc]  # the library has no types
    """What can be called here, told to whoever has any credential."""

    def __init__(self, names: tuple[str, ...], access: Access) -> None:
        super().__init__(names)
        self._access = access

    async def ServerReflectionInfo(self, requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:  # noqa: N802 - its name
        try:
            self._access.require(_identity(self._access, context), "Describe")
        except Exception as why:  # noqa: BLE001 - the border: every error becomes a status
            await _abort(context, Fault.of(why))
        async for answer in super().ServerReflectionInfo(requests, context):
            yield answer
