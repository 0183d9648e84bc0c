"""Traces by OpenTelemetry. They are on where the environment names a collector (``OTEL_EXPORTER_OTLP_ENDPOINT``, or
``OTEL_TRACES_EXPORTER=otlp`` for one on this machine); otherwise they are off, and the SDK is not imported.

There is one span for each call over gRPC or REST, named by its verb, under the caller's span (W3C ``traceparent``). Its
attributes (stream, plan version, round) are set by ``spans.note`` and by the engine's events. Store operations are its
children. A round belongs to no call: it is a trace of its own.

Everything else is the SDK's, configured by the environment as its documentation says: sampler, headers, resource,
batches. The provider is the service's and not the process's: an embedding process keeps its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unskew.core.errors import ConfigError
from unskew.core.version import __version__
from unskew.service.events.events import Event, PlanBuilt, PlanServed, RoundMerged, StoreCalled
from unskew.service.events.spans import Value, note, within

__all__ = ["Telemetry", "check_telemetry", "open_telemetry"]

_ON = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_TRACES_EXPORTER")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SERVICE = "/unskew.v1.PartitionerService/"
_FLUSH = 3.0  # seconds to send the last spans
_FAILED = {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}


def _enabled_by(environment: Mapping[str, str]) -> str:
    """The variable that turns traces on; empty where none does."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get(_ON[2]) == "none":
        return ""
    return next((name for name in _ON if environment.get(name)), "")


def check_telemetry(environment: Mapping[str, str]) -> bool:
    """Whether traces are on; a ``ConfigError`` where they cannot be sent as configured."""
    name = _enabled_by(environment)
    if not name:
        return False
    exporter = environment.get(_ON[2], "otlp")
    if exporter != "otlp":
        raise ConfigError(_ON[2], exporter, "otlp or none")
    protocol = next((environment[one] for one in _PROTOCOLS if environment.get(one)), "http/protobuf")
    if protocol != "http/protobuf":
        raise ConfigError(_PROTOCOLS[1], protocol, "http/protobuf: the collector's port 4318")
    try:
        import opentelemetry.exporter.otlp.proto.http.trace_exporter
        import opentelemetry.sdk.trace.export  # noqa: F401 - whether it is installed
    except ModuleNotFoundError as missing:
        allowed = f"it with {missing.name} installed: pip install 'unskew[telemetry]'; or unset it"
        raise ConfigError(name, environment[name], allowed) from None
    return True


def open_telemetry(environment: Mapping[str, str]) -> Telemetry | None:
    return Telemetry(environment) if check_telemetry(environment) else None


class _Span:
    """``spans.Span`` over a span of OpenTelemetry."""

    def __init__(self, span: Any) -> None:
        self._span = span

    def note(self, name: str, value: Value) -> None:
        if self._span.is_recording():
            self._span.set_attribute(f"unskew.{name}", value)

    def called(self, verb: str, route: str) -> None:
        if self._span.is_recording():
            self._span.update_name(verb)
            self._span.set_attribute("http.route", route)

    def ids(self) -> tuple[str, str] | None:
        if not self._span.is_recording():
            return None
        context = self._span.get_span_context()
        return f"{context.trace_id:032x}", f"{context.span_id:016x}"


class Telemetry:
    """A provider and its exporter; an observer; wrappers for gRPC and HTTP."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        from opentelemetry import context, trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        about = {"service.version": __version__}
        named = environment.get("OTEL_SERVICE_NAME") or "service.name=" in environment.get(
            "OTEL_RESOURCE_ATTRIBUTES", ""
        )
        if not named:
            about["service.name"] = "unskew"
        self._provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("unskew.service", __version__)
        self._trace, self._nowhere = trace, context.Context
        self._propagator = TraceContextTextMapPropagator()

    async def close(self) -> None:
        """Send the last spans, for ``_FLUSH`` at most: a collector that is away must not keep the process."""
        thread = threading.Thread(target=self._provider.shutdown, daemon=True, name="unskew-traces")
        thread.start()
        await asyncio.to_thread(thread.join, _FLUSH)

    # -- calls ------------------------------------------------------------------------------------------------

    @contextmanager
    def _call(self, name: str, carrier: Mapping[str, str], about: Mapping[str, Value]) -> Iterator[Any]:
        above = self._propagator.extract(carrier, self._nowhere())
        kind = self._trace.SpanKind.SERVER
        with (
            self._tracer.start_as_current_span(
                name, above, kind, dict(about), record_exception=False, set_status_on_exception=False
            ) as span,
            within(_Span(span)),
        ):
            yield span

    def _ended(self, span: Any, name: str, value: Value, *, failed: bool) -> None:
        span.set_attribute(name, value)
        if failed:
            span.set_status(self._trace.StatusCode.ERROR)

    def interceptor(self) -> grpc.aio.ServerInterceptor:
        return _Interceptor(self)

    async def grpc_call(self, verb: str, call: Callable[[], Awaitable[Any]], context: Any) -> Any:
        about: dict[str, Value] = {"rpc.system": "grpc", "rpc.service": _SERVICE.strip("/"), "rpc.method": verb}
        code = grpc.StatusCode.OK
        with self._call(verb, _carrier(context.invocation_metadata() or ()), about) as span:
            try:
                return await call()
            except asyncio.CancelledError:
                code = grpc.StatusCode.CANCELLED
                raise
            except BaseException:
                code = _code(context)
                raise
            finally:
                self._ended(span, "rpc.grpc.status_code", code.value[0], failed=code.name in _FAILED)

    def http(self, app: ASGIApp) -> ASGIApp:
        """The same for the routes under ``/v1``."""

        async def traced(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
                await app(scope, receive, send)
                return
            status = 499

            async def noting_status(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            carrier = _carrier(scope["headers"])
            about: dict[str, Value] = {"http.request.method": scope["method"], "url.path": scope["path"]}
            with self._call(f"HTTP {scope['method']}", carrier, about) as span:
                try:
                    await app(scope, receive, noting_status)
                finally:
                    self._ended(span, "http.response.status_code", status, failed=status >= 500)

        return traced

    # -- events of the engine ---------------------------------------------------------------------------------

    def __call__(self, event: Event, /) -> None:
        if isinstance(event, StoreCalled):
            self._store_called(event)
        elif isinstance(event, PlanBuilt):
            note("version", str(event.info.version))
            note("outcome", event.outcome)
            note("reason", event.reason[:500])
        elif isinstance(event, PlanServed):
            if event.version is not None:
                note("version", str(event.version))
            note("stale", event.stale)
        elif isinstance(event, RoundMerged):
            self._round_merged(event)

    def _store_called(self, event: StoreCalled) -> None:
        if not self._trace.get_current_span().is_recording():
            return  # of no call: the service itself reads the store
        span = self._tracer.start_span(f"store {event.op}", start_time=_ago(event.seconds))
        if event.error is not None:
            span.set_status(self._trace.StatusCode.ERROR, event.error)
        span.end()

    def _round_merged(self, event: RoundMerged) -> None:
        about: dict[str, Value] = {
            "unskew.stream": event.stream,
            "unskew.round": event.epoch,
            "unskew.reports": event.reports,
            "unskew.outcome": event.outcome,
        }
        self._tracer.start_span("round", self._nowhere(), attributes=about, start_time=_ago(event.seconds)).end()


def _ago(seconds: float) -> int:
    return time.time_ns() - int(seconds * 1e9)


def _carrier(pairs: Any) -> dict[str, str]:
    """The headers that name the caller's trace."""
    headers = {}
    for name, value in pairs:
        text = name.decode("latin-1") if isinstance(name, bytes) else name
        if text in ("traceparent", "tracestate"):
            headers[text] = value.decode("latin-1") if isinstance(value, bytes) else value
    return headers


def _code(context: Any) -> grpc.StatusCode:
    """The status that the call was aborted with."""
    code = context.code()
    if isinstance(code, grpc.StatusCode):
        return code
    return next((one for one in grpc.StatusCode if one.value[0] == code), grpc.StatusCode.UNKNOWN)


class _Interceptor(grpc.aio.ServerInterceptor):
    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = await continuation(details)
        if handler is None or not details.method.startswith(_SERVICE):
            return handler
        verb, telemetry = details.method.removeprefix(_SERVICE), self._telemetry

        def traced(inner: Any) -> Any:
            async def call(request: Any, context: Any) -> Any:
                return await telemetry.grpc_call(verb, lambda: inner(request, context), context)

            return call

        if handler.stream_unary:  # all calls take streams (grpc.reads)
            return grpc.stream_unary_rpc_method_handler(traced(handler.stream_unary))
        return grpc.stream_stream_rpc_method_handler(traced(handler.stream_stream))
