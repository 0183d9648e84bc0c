"""The composition root: settings in, a running service out. Everything is created and connected here, on one loop.

On SIGTERM the service is not ready any more. For ``drain_delay`` it goes on as before, until load balancers have
noticed; then it accepts no connection, ends waits and watches with OK, lets calls in flight finish within ``drain``,
and exits with 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import grpc

from unskew.core.errors import ConfigError
from unskew.service.api.admission import Admission
from unskew.service.api.budget import ByteBudget
from unskew.service.api.calls import Calls
from unskew.service.api.verbs import Verbs
from unskew.service.app.http_server import HttpServer, ListeningSocket, http_server
from unskew.service.app.kernels import seed, shipped
from unskew.service.app.logs import EventLog, configure, tell_left_out
from unskew.service.app.metrics_app import metrics_app
from unskew.service.app.resources import METRICS_CONNECTIONS, few_arenas, fitted, give_back
from unskew.service.app.settings import Settings, parse
from unskew.service.app.telemetry import Telemetry, check_telemetry, open_telemetry
from unskew.service.app.tls import Tls
from unskew.service.auth.access import Access
from unskew.service.concurrency import finish
from unskew.service.errors import WritesRefusedError
from unskew.service.events.events import Observer, together
from unskew.service.events.metrics import Metrics
from unskew.service.grpc.connections import GrpcConnections
from unskew.service.grpc.reads import Reads
from unskew.service.grpc.server import GrpcServer, options
from unskew.service.rest.app import RestApp
from unskew.service.rest.cross_site import CrossSiteRules
from unskew.service.stores.address import read_address
from unskew.service.stores.limits import Limits
from unskew.service.stores.records import NewsState

if TYPE_CHECKING:
    from unskew.service.engine.engine import Engine

__all__ = ["Running", "build", "check", "main", "serve"]

_log = logging.getLogger("unskew.service")
_SWITCH_INTERVAL = 0.0005
"""Seconds that a computing thread keeps the interpreter while the loop waits for it. The loop releases it at each
system call, five or more for one request: with Python's own 0.005 a health check took 30 ms more."""
_GC_THRESHOLD = 20_000  # new objects before a collection: most live no longer than their call
_SETTLE = 1.0  # seconds after the last handler ended for gRPC to send its answer
_CHECK_INTERVAL = 2.0  # seconds between two checks of the store and the certificates
_ANSWERS_WAITING = 50  # large ones, which are in memory while they wait
_BURST = 8 << 20  # bytes in flight after which memory is given back


@dataclass(eq=False)
class Running:
    """The service while it runs: its ports, and how to end it."""

    host: str
    http_port: int
    grpc_port: int
    metrics_port: int
    settings: Settings
    tls: Tls | None
    _grpc_handlers: GrpcServer
    _rest: RestApp
    _grpc_server: Any
    _web: list[tuple[HttpServer, asyncio.Task[None]]]
    _checking: asyncio.Task[None]
    _owned: contextlib.AsyncExitStack
    _closing: asyncio.Task[None] | None = field(default=None)

    @property
    def ports(self) -> dict[str, int]:
        return {"http": self.http_port, "grpc": self.grpc_port, "metrics": self.metrics_port}

    async def close(self) -> None:
        """Drain, then end. May be called more than once."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        started = monotonic()
        self._rest.draining = True
        await self._grpc_handlers.lame()
        _log.info("draining", extra={"delay": self.settings.drain_delay, "within": self.settings.drain})
        await asyncio.sleep(self.settings.drain_delay)
        self._grpc_handlers.drain()
        for server, _ in self._web:
            server.should_exit = True
        # The engine answers the waits that end now, so it closes after them.
        await asyncio.gather(self._stop_grpc(), *(task for _, task in self._web))
        await finish(self._checking)
        await self._owned.aclose()
        _log.info("stopped", extra={"seconds": round(monotonic() - started, 3)})

    async def _stop_grpc(self) -> None:
        """Let the calls finish, within ``drain``; end what is left once no handler has run for ``_SETTLE``.

        gRPC waits for more than the handlers: for streams of the health service, which have no end, and, in 5 of 108
        drains under load, for a call that never reached a handler (the cause is unknown). Its caller would wait for the
        whole of ``drain``, mostly longer than its deadline. Ended now, the call is repeated elsewhere.
        """
        stopping = asyncio.ensure_future(self._grpc_server.stop(self.settings.drain))
        busy = monotonic()
        while not stopping.done():
            await asyncio.wait((stopping,), timeout=_SETTLE / 10)
            if self._grpc_handlers.busy:
                busy = monotonic()
            elif not stopping.done() and monotonic() - busy >= _SETTLE:
                _log.info("calls that no handler has are ended")
                await self._grpc_server.stop(None)
        await stopping


def check(settings: Settings) -> None:
    """Raises a ``ConfigError`` where a file or address of the settings cannot be read. Nothing is connected."""
    read_address(settings.store)
    check_telemetry(os.environ)
    _access(settings)
    if settings.tls_cert:
        Tls(settings)


def _access(settings: Settings, rejected: Callable[[str], None] = lambda _reason: None) -> Access:
    tokens, certificates = settings.tokens.get_secret_value(), bool(settings.tls_client_ca)
    return Access(settings.tokens_file, tokens, certificates=certificates, rejected=rejected)


async def build(settings: Settings, verbs: Verbs | None = None, telemetry: Telemetry | None = None) -> Running:
    """The service, listening; ``telemetry`` is closed with it. ``verbs``: in place of an engine, for tests."""
    metrics, owned = Metrics(), contextlib.AsyncExitStack()
    async with owned:
        tls = Tls(settings) if settings.tls_cert else None
        access = _access(settings, metrics.rejected)
        ping: Callable[[], Awaitable[None]] = _nothing
        observers: list[Observer] = [metrics, EventLog()]
        if telemetry is not None:
            observers.append(telemetry)
            owned.push_async_callback(telemetry.close)
        news: Callable[[], NewsState] = NewsState
        burst: Callable[[], bool] = bool
        if verbs is None:
            engine = await _engine(settings, access, together(*observers), owned)
            verbs, ping, news, burst = engine, engine.ping, engine.news_state, engine.forget_burst
            metrics.store_bytes(engine.store_bytes)
        budget = ByteBudget(settings.max_bytes_in_flight, settings.max_identity_bytes_in_flight)
        answers = ByteBudget(settings.max_bytes_in_flight, most_waiting=_ANSWERS_WAITING)
        # Where nobody needs a credential all are one identity: a limit of it would let one keep out all others.
        admission = Admission(0.0 if access.open else settings.max_calls_per_second, metrics.shed)
        parts = _ServiceParts(
            verbs, access, metrics, budget, answers, admission, _Ready(ping, news), burst, tls, telemetry
        )
        return await _listening(settings, parts, owned)


@dataclass(frozen=True)
class _ServiceParts:
    verbs: Verbs
    access: Access
    metrics: Metrics
    budget: ByteBudget
    answers: ByteBudget
    admission: Admission
    ready: _Ready
    burst: Callable[[], bool]
    tls: Tls | None
    telemetry: Telemetry | None


async def _engine(settings: Settings, access: Access, observer: Observer, owned: contextlib.AsyncExitStack) -> Engine:
    from unskew.service.engine.base import Tuning
    from unskew.service.engine.engine import Engine
    from unskew.service.stores import open_store

    store = open_store(settings.store, limits=_limits(settings, access))
    owned.push_async_callback(store.close)
    engine = Engine(store, observer=observer, tuning=Tuning(plan_bytes=settings.max_plan_bytes))
    owned.push_async_callback(engine.close)
    await engine.start()
    return engine


def _limits(settings: Settings, access: Access) -> Limits:
    """What the store keeps at most."""
    return Limits(
        plans=settings.max_plans,
        stream_bytes=settings.max_stream_bytes,
        owner_bytes=settings.max_identity_bytes,
        store_bytes=settings.max_store_bytes,
        parts=settings.max_parts,
        sources=settings.max_sources,
        agents=settings.max_agents,
        own_owner_bytes=access.bytes_of,
    )


async def _listening(settings: Settings, parts: _ServiceParts, owned: contextlib.AsyncExitStack) -> Running:
    """Takes over what is ``owned``, once all ports are open."""
    calls = Calls(parts.verbs, parts.access, settings.max_streams, settings.max_histogram_keys)
    sizes = settings.max_body_bytes, settings.max_json_bytes
    cross_site = CrossSiteRules(settings.known_hosts) if parts.access.open else None
    ready, door = parts.ready, (cross_site, parts.metrics.rejected)
    faces = parts.budget, ready.degraded, parts.metrics.call
    rest = RestApp(calls, parts.access, ready.trouble, *faces, *sizes, *door, admission=parts.admission)
    reads = Reads(parts.budget, settings.max_message_bytes, settings.body_timeout)
    limits = settings.max_watchers, settings.max_watch, parts.admission
    connections = _connections(settings, parts)
    grpc_handlers = GrpcServer(calls, parts.access, reads, parts.answers, parts.metrics.call, *limits, connections)
    sockets = [_bound_socket(settings, name) for name in ("http_port", "metrics_port")]
    for bound in sockets:
        owned.callback(bound.close)
    grpc_server, grpc_port = await _grpc(settings, grpc_handlers, parts)
    owned.push_async_callback(grpc_server.stop, 0)
    if connections is not None:
        owned.push_async_callback(finish, asyncio.ensure_future(connections.watch(grpc_port)))
    web_app = rest.app if parts.telemetry is None else parts.telemetry.http(rest.app)
    metrics_web = metrics_app(parts.metrics, parts.access, cross_site)
    apps = (web_app, settings.max_http_connections), (metrics_web, METRICS_CONNECTIONS)
    web = []
    for (app, most), bound in zip(apps, sockets, strict=True):
        server = http_server(settings, app, parts.tls, bound, most, parts.answers, parts.metrics.rejected)
        web.append((server, asyncio.ensure_future(server.serve([bound]))))
    while not all(server.started for server, _ in web):
        for _, task in web:
            if task.done():
                task.result()
        await asyncio.sleep(0.005)
    await _set_health(parts, grpc_handlers)
    checking = asyncio.ensure_future(_keep_checking(parts, grpc_handlers))
    http_port, metrics_port = (bound.getsockname()[1] for bound in sockets)
    return Running(
        settings.host,
        http_port,
        grpc_port,
        metrics_port,
        settings,
        parts.tls,
        grpc_handlers,
        rest,
        grpc_server,
        web,
        checking,
        owned.pop_all(),
    )


def _connections(settings: Settings, parts: _ServiceParts) -> GrpcConnections | None:
    if parts.access.open:
        return None
    return GrpcConnections(settings.max_grpc_connections, partial(parts.metrics.rejected, "connections"))


# -- ports ----------------------------------------------------------------------------------------------------


def _bound_socket(settings: Settings, name: str) -> ListeningSocket:
    port = getattr(settings, name)
    host = settings.host.strip("[]")
    bound: ListeningSocket | None = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = ListeningSocket(
            family, kind, protocol
        )  # without the protocol asyncio sets no TCP_NODELAY: 40 ms a call
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as why:
        if bound is not None:
            bound.close()
        raise _no_port(settings, name, why.strerror or str(why)) from None
    return bound


def _no_port(settings: Settings, name: str, why: str) -> ConfigError:
    flag = f"--{name.replace('_', '-')}"
    return ConfigError(flag, f"{settings.host}:{getattr(settings, name)}", f"a free port, or 0 for any ({why})")


async def _grpc(settings: Settings, handlers: GrpcServer, parts: _ServiceParts) -> tuple[Any, int]:
    tls = parts.tls
    if settings.grpc_port:
        _bound_socket(settings, "grpc_port").close()  # gRPC itself reports a taken port by lines of its own
    interceptors = [] if parts.telemetry is None else [parts.telemetry.interceptor()]
    server = grpc.aio.server(
        interceptors=interceptors, options=options(settings), maximum_concurrent_rpcs=settings.max_calls
    )
    handlers.add_to(server)
    host = f"[{settings.host}]" if ":" in settings.host.strip("[]") and "[" not in settings.host else settings.host
    address = f"{host}:{settings.grpc_port}"
    try:
        port = server.add_secure_port(address, tls.grpc_credentials()) if tls else server.add_insecure_port(address)
    except RuntimeError as why:
        raise _no_port(settings, "grpc_port", str(why).partition(";")[0]) from None
    await server.start()
    return server, port


# -- health -----------------------------------------------------------------------------------------


async def _nothing() -> None:
    """The ping of a store that always answers."""


class _Ready:
    """Whether the store answers and takes writes; checked at most once a second, however many probes there are."""

    def __init__(
        self, ping: Callable[[], Awaitable[None]], news: Callable[[], NewsState] = NewsState, within: float = 1.0
    ) -> None:
        self._ping, self.news, self._within = ping, news, within
        self._trouble, self._until = "", 0.0
        self.writes_refused = False
        self._lock = asyncio.Lock()

    async def trouble(self) -> str:
        """What is wrong; empty where nothing is."""
        async with self._lock:
            if monotonic() >= self._until:
                try:
                    await asyncio.wait_for(self._ping(), self._within)
                    self._trouble, self.writes_refused = "", False
                except WritesRefusedError as why:
                    self._trouble, self.writes_refused = f"the store refuses writes: {why.message}", True
                except Exception as why:  # noqa: BLE001 - whatever it is, the store does not answer
                    self._trouble = f"the store does not answer: {str(why) or type(why).__name__}"
                    self.writes_refused = False
                self._until = monotonic() + 1.0
            return self._trouble

    def degraded(self) -> str:
        """What a replica lacks that does its work all the same; empty where that is nothing."""
        why = self.news().trouble
        return why and f"no news of the store come, changes of other replicas are seen seconds late: {why}"


async def _set_health(parts: _ServiceParts, handlers: GrpcServer) -> str:
    """What is wrong with the store; it is set as health and metric, too."""
    trouble = await parts.ready.trouble()
    refused = parts.ready.writes_refused
    parts.metrics.store_up(up=refused or not trouble, refused=refused)
    parts.metrics.news(parts.ready.news())
    await handlers.ready(store=not trouble)
    return trouble


async def _keep_checking(parts: _ServiceParts, handlers: GrpcServer) -> None:
    last = ""
    while True:
        await asyncio.sleep(_CHECK_INTERVAL)
        trouble = await _set_health(parts, handlers)
        if trouble != last:
            _log.warning("%s", trouble or "the store answers again, and takes writes")
            last = trouble
        if parts.tls is not None:
            parts.tls.refresh()
        tell_left_out()
        if parts.burst() | (parts.budget.forget_peak() + parts.answers.forget_peak() >= _BURST):
            await asyncio.to_thread(give_back)


# -- the process ----------------------------------------------------------------------------------------------


async def serve(settings: Settings, announce: Callable[[Running], None] = lambda _running: None) -> None:
    """Serve until SIGTERM or SIGINT; a second one ends it at once."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    running = await build(settings, telemetry=open_telemetry(os.environ))
    gc.freeze()  # what is loaded now stays: full collections skip it
    gc.set_threshold(_GC_THRESHOLD, *gc.get_threshold()[1:])
    sys.setswitchinterval(_SWITCH_INTERVAL)
    _announce(running)
    announce(running)
    try:
        await stop.wait()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, os._exit, 128 + name)
    finally:
        await running.close()


def _announce(running: Running) -> None:
    ports = {"host": running.host, **running.ports, "pid": os.getpid()}
    if not running.settings.guarded:
        _log.warning("no credentials are configured: anybody who reaches %s may do everything", running.host)
    _log.info("serving", extra=ports)
    if running.settings.ports_file:
        path = Path(running.settings.ports_file)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(ports) + "\n", "utf-8")
        temporary.replace(path)


def main(
    arguments: Sequence[str], program: str = "unskew serve", announce: Callable[[Running], None] | None = None
) -> None:
    """Serve as the flags and the environment say."""
    settings = parse(arguments, program)
    check(settings)
    configure(settings.log_level, settings.log_format)
    few_arenas()
    seed(os.environ, shipped())
    asyncio.run(serve(fitted(settings), announce or (lambda _running: None)))
