"""The composition root: settings in, a running service out. Everything is made and tied together here, on one loop.

On SIGTERM: not ready any more; for ``drain_delay`` go on as before, while load balancers take note; then take no new
connection, end waits and watches well, let calls in flight finish within ``drain``, and leave with 0.
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
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import grpc
import uvicorn
from starlette.types import ASGIApp

from unskew.core.errors import ConfigError
from unskew.service.api.calls import Calls
from unskew.service.api.verbs import Verbs
from unskew.service.app.kernels import seed, shipped
from unskew.service.app.logs import EventLog, configure
from unskew.service.app.metrics_app import metrics_app
from unskew.service.app.settings import Settings, parse
from unskew.service.app.telemetry import Telemetry, check_telemetry, open_telemetry
from unskew.service.app.tls import HttpProtocol, Tls
from unskew.service.auth.access import Access
from unskew.service.events.events import Observer, together
from unskew.service.events.metrics import Metrics
from unskew.service.grpc.server import GrpcServer, options
from unskew.service.rest.app import RestApp
from unskew.service.stores.address import read_address

__all__ = ["Running", "build", "check", "main", "serve"]

_log = logging.getLogger("unskew.service")
_TURN = 0.0005
"""Seconds that a thread of numbers may go on while the loop waits. The loop lets go at each call to the system, five or
more for one request, and each time waits so long to go on: with Python's own 0.005 a health check took 30 ms more."""
_YOUNG = 20_000  # objects that a collection is worth: every call makes some that are gone with it
_SETTLE = 1.0  # seconds from the last handler's end on that gRPC is given to send what it said
_LOOK = 2.0  # seconds between two looks at the store and at the certificates


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: one place decides when to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(eq=False)
class Running:
    """The service while it runs: its ports, and how to end it."""

    host: str
    http_port: int
    grpc_port: int
    metrics_port: int
    settings: Settings
    tls: Tls | None
    _grpc_face: GrpcServer
    _rest: RestApp
    _grpc_server: Any
    _web: list[tuple[_Server, asyncio.Task[None]]]
    _tasks: list[asyncio.Task[None]]
    _owned: list[Callable[[], Awaitable[None]]]
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
        await self._grpc_face.lame()
        _log.info("draining", extra={"delay": self.settings.drain_delay, "within": self.settings.drain})
        await asyncio.sleep(self.settings.drain_delay)
        self._grpc_face.drain()
        for server, _ in self._web:
            server.should_exit = True
        # Waits that the faces end now are answered by the engine, which closes after them.
        await asyncio.gather(self._stop_grpc(), *(task for _, task in self._web))
        await _ended(self._tasks)
        for close in reversed(self._owned):
            await close()
        _log.info("stopped", extra={"seconds": round(monotonic() - started, 3)})

    async def _stop_grpc(self) -> None:
        """Let the calls finish, within ``drain``; end what is left once none has been in a handler for ``_SETTLE``.

        gRPC waits for more than our handlers: for streams of the health service, which have no end, and, in 5 of 108
        drains under load, for a call that it knows of and that no handler ever saw (why is not known). Its caller would
        wait for the whole of ``drain``, mostly longer than its deadline. Ended now, it is repeated elsewhere.
        """
        stopping = asyncio.ensure_future(self._grpc_server.stop(self.settings.drain))
        busy = monotonic()
        while not stopping.done():
            await asyncio.wait((stopping,), timeout=_SETTLE / 10)
            if self._grpc_face.busy:
                busy = monotonic()
            elif not stopping.done() and monotonic() - busy >= _SETTLE:
                _log.info("calls that no handler has are ended")
                await self._grpc_server.stop(None)
        await stopping


def check(settings: Settings) -> None:
    """Whether everything that the settings name can be read; or a ``ConfigError``. Nothing is opened or connected."""
    read_address(settings.store)
    check_telemetry(os.environ)
    _access(settings)
    if settings.tls_cert:
        Tls(settings)


def _access(settings: Settings, rejected: Callable[[str], None] = lambda _reason: None) -> Access:
    tokens, certificates = settings.tokens.get_secret_value(), bool(settings.tls_client_ca)
    return Access(settings.tokens_file, tokens, certificates=certificates, rejected=rejected)


async def build(settings: Settings, verbs: Verbs | None = None, telemetry: Telemetry | None = None) -> Running:
    """The service, listening. ``verbs`` instead of an engine over the store of the settings: for tests. ``telemetry``
    is closed with it."""
    metrics, owned = Metrics(), contextlib.AsyncExitStack()
    async with owned:
        tls = Tls(settings) if settings.tls_cert else None
        access = _access(settings, metrics.rejected)
        closing: list[Callable[[], Awaitable[None]]] = []
        ping: Callable[[], Awaitable[None]] = _nothing
        observers: list[Observer] = [metrics, EventLog()]
        if telemetry is not None:
            observers.append(telemetry)
            owned.push_async_callback(telemetry.close)
            closing.append(telemetry.close)
        if verbs is None:
            verbs, ping = await _engine(settings, together(*observers), owned, closing)
        parts = _ServiceParts(verbs, access, metrics, _Ready(ping), tls, telemetry)
        running = await _listening(settings, parts, owned, closing)
        owned.pop_all()
    return running


@dataclass(frozen=True)
class _ServiceParts:
    verbs: Verbs
    access: Access
    metrics: Metrics
    ready: _Ready
    tls: Tls | None
    telemetry: Telemetry | None


async def _engine(
    settings: Settings,
    observer: Observer,
    owned: contextlib.AsyncExitStack,
    closing: list[Callable[[], Awaitable[None]]],
) -> tuple[Verbs, Callable[[], Awaitable[None]]]:
    from unskew.service.engine.engine import Engine
    from unskew.service.stores import open_store

    store = open_store(settings.store)
    engine = Engine(store, observer=observer)
    for close in (store.close, engine.close):
        owned.push_async_callback(close)
        closing.append(close)
    await engine.start()
    return engine, engine.ping


async def _listening(
    settings: Settings,
    parts: _ServiceParts,
    owned: contextlib.AsyncExitStack,
    closing: list[Callable[[], Awaitable[None]]],
) -> Running:
    calls = Calls(parts.verbs, parts.access, settings.max_streams, settings.max_histogram_keys)
    rest = RestApp(
        calls,
        parts.access,
        parts.ready.trouble,
        parts.metrics.call,
        settings.max_body_bytes,
        settings.max_json_bytes,
    )
    grpc_face = GrpcServer(calls, parts.access, parts.metrics.call, settings.max_watchers, settings.max_watch)
    sockets = [_bound(settings, name) for name in ("http_port", "metrics_port")]
    for one in sockets:
        owned.callback(one.close)
    grpc_server, grpc_port = await _grpc(settings, grpc_face, parts)
    owned.push_async_callback(grpc_server.stop, 0)
    web_app = rest.app if parts.telemetry is None else parts.telemetry.http(rest.app)
    apps = (web_app, metrics_app(parts.metrics, parts.access))
    web = [_web(settings, app, one, parts.tls) for app, one in zip(apps, sockets, strict=True)]
    while not all(server.started for server, _ in web):
        for _, task in web:
            if task.done():
                task.result()
        await asyncio.sleep(0.005)
    await _told_ready(parts, grpc_face)
    look = asyncio.ensure_future(_looking(parts, grpc_face))
    http_port, metrics_port = (one.getsockname()[1] for one in sockets)
    return Running(
        settings.host,
        http_port,
        grpc_port,
        metrics_port,
        settings,
        parts.tls,
        grpc_face,
        rest,
        grpc_server,
        web,
        [look],
        closing,
    )


# -- ports ----------------------------------------------------------------------------------------------------


def _bound(settings: Settings, name: str) -> socket.socket:
    port = getattr(settings, name)
    host = settings.host.strip("[]")
    found: socket.socket | None = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)  # without the protocol asyncio sets no TCP_NODELAY: 40 ms a call
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except OSError as why:
        if found is not None:
            found.close()
        raise _no_port(settings, name, why.strerror or str(why)) from None
    return found


def _no_port(settings: Settings, name: str, why: str) -> ConfigError:
    flag = f"--{name.replace('_', '-')}"
    return ConfigError(flag, f"{settings.host}:{getattr(settings, name)}", f"a free port, or 0 for any ({why})")


async def _grpc(settings: Settings, face: GrpcServer, parts: _ServiceParts) -> tuple[Any, int]:
    tls = parts.tls
    if settings.grpc_port:
        _bound(settings, "grpc_port").close()  # gRPC itself tells a taken port in lines of its own
    interceptors = [] if parts.telemetry is None else [parts.telemetry.interceptor()]
    server = grpc.aio.server(interceptors=interceptors, options=options(settings))
    face.add_to(server)
    host = f"[{settings.host}]" if ":" in settings.host.strip("[]") and "[" not in settings.host else settings.host
    address = f"{host}:{settings.grpc_port}"
    try:
        port = server.add_secure_port(address, tls.grpc_credentials()) if tls else server.add_insecure_port(address)
    except RuntimeError as why:
        raise _no_port(settings, "grpc_port", str(why).partition(";")[0]) from None
    await server.start()
    return server, port


def _web(settings: Settings, app: ASGIApp, on: socket.socket, tls: Tls | None) -> tuple[_Server, asyncio.Task[None]]:
    config = uvicorn.Config(
        app,
        http=HttpProtocol if tls else "auto",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(settings.http_idle),
        timeout_graceful_shutdown=max(1, int(settings.drain)),
    )
    config.load()
    config.ssl = tls.context if tls else None
    server = _Server(config)
    return server, asyncio.ensure_future(server.serve([on]))


# -- looking after it -----------------------------------------------------------------------------------------


async def _nothing() -> None:
    """A store that is always there."""


class _Ready:
    """Whether the store can be asked; asked at most once a second, however many probes there are."""

    def __init__(self, ping: Callable[[], Awaitable[None]], within: float = 1.0) -> None:
        self._ping, self._within = ping, within
        self._trouble, self._until = "", 0.0
        self._lock = asyncio.Lock()

    async def trouble(self) -> str:
        """What is wrong; empty if nothing is."""
        async with self._lock:
            if monotonic() >= self._until:
                try:
                    await asyncio.wait_for(self._ping(), self._within)
                    self._trouble = ""
                except Exception as why:  # noqa: BLE001 - whatever it is, the store does not answer
                    self._trouble = f"the store does not answer: {str(why) or type(why).__name__}"
                self._until = monotonic() + 1.0
            return self._trouble


async def _told_ready(parts: _ServiceParts, face: GrpcServer) -> str:
    """What is wrong with the store, told to whoever probes."""
    trouble = await parts.ready.trouble()
    parts.metrics.store_up(up=not trouble)
    await face.ready(store=not trouble)
    return trouble


async def _looking(parts: _ServiceParts, face: GrpcServer) -> None:
    told = ""
    while True:
        await asyncio.sleep(_LOOK)
        trouble = await _told_ready(parts, face)
        if trouble != told:
            _log.warning("%s", trouble or "the store answers again")
            told = trouble
        if parts.tls is not None:
            parts.tls.refresh()


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# -- the process ----------------------------------------------------------------------------------------------


async def serve(settings: Settings, announce: Callable[[Running], None] = lambda _running: None) -> None:
    """Serve until SIGTERM or SIGINT; a second one ends it at once."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    running = await build(settings, telemetry=open_telemetry(os.environ))
    gc.freeze()  # what is loaded now stays: full collections need not look at it
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])
    sys.setswitchinterval(_TURN)
    _announce(running)
    announce(running)
    try:
        await stop.wait()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, os._exit, 128 + name)
    finally:
        await running.close()


def _announce(running: Running) -> None:
    told = {"host": running.host, **running.ports, "pid": os.getpid()}
    if not running.settings.guarded:
        _log.warning("no credentials are configured: anybody who reaches %s may do everything", running.host)
    _log.info("serving", extra=told)
    if running.settings.ports_file:
        path = Path(running.settings.ports_file)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        beside.write_text(json.dumps(told) + "\n", "utf-8")
        beside.replace(path)


def main(
    arguments: Sequence[str], program: str = "unskew serve", announce: Callable[[Running], None] | None = None
) -> None:
    """Serve as the flags and the environment say."""
    settings = parse(arguments, program)
    check(settings)
    configure(settings.log_level, settings.log_format)
    seed(os.environ, shipped())
    asyncio.run(serve(settings, announce or (lambda _running: None)))
