"""The HTTP server: uvicorn, with bounds on connections and on the time that a request takes to come.

uvicorn itself bounds the silence between two requests only. Here a connection has ``header_timeout`` for the headers of
a request, the first one too, ``body_timeout`` for its body, and as long for its caller to take a large answer. Where
there are too many connections, the one that has waited longest for a whole request is closed for the new one: so
whoever sends at once is served in a flood of others that do not. Where there are many, an address gets only so many
new ones a second. Answers that nobody takes are bounded, too.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from unskew.core.fairness.token_bucket import TokenBuckets
from unskew.service.api.admission import network_of
from unskew.service.api.budget import ByteBudget
from unskew.service.app.settings import Settings
from unskew.service.app.tls import Tls
from unskew.service.concurrency import monotonic

__all__ = ["HttpServer", "ListeningSocket", "http_server"]

_BACKLOG = 2048  # connections that the system keeps until they are accepted
_ACCEPTED_AT_ONCE = 16  # by asyncio, which also tries as often where there is no descriptor left, and logs each
_REFUSED_AT_ONCE = 64
_NEW, _NEW_BURST = 200.0, 1.0  # connections a second of an address where there are many, and seconds' worth at once
_HEADERS = 1 << 14
_LARGE_ANSWER = 1 << 16  # bytes that are not taken yet
_TICKS = 10  # of uvicorn, ten a second


@dataclass(eq=False)
class Connections:
    """The bounds of a port, the connections on which no whole request is under way, and those whose large answers are
    not taken yet, the oldest first."""

    most: int
    within: dict[str, float]
    rejected: Callable[[str], None]
    answers: ByteBudget
    new: TokenBuckets = field(default_factory=lambda: TokenBuckets(_NEW, _NEW_BURST))
    waiting: dict[HttpProtocol, None] = field(default_factory=dict)
    unread: dict[HttpProtocol, int] = field(default_factory=dict)

    def admits(self, host: str) -> bool:
        """Whether to take a new connection from this address. Where there are many already, some of each a second."""
        return len(self.waiting) <= self.most // 2 or not self.new.take(network_of(host), monotonic())

    def keep_unread(self, connection: HttpProtocol, size: int) -> None:
        """This connection's answer has so many bytes that its caller has not taken yet. Where those of all are too
        much, whoever has been at it longest loses its connection."""
        self.unread[connection] = size
        self.answers.peak = max(self.answers.peak, sum(self.unread.values()))  # so that the memory is given back
        while sum(self.unread.values()) > self.answers.most // 2 and len(self.unread) > 1:
            self.rejected("slow answer")
            next(iter(self.unread)).cut()


class ListeningSocket(socket.socket):
    """Closes at once the connections that its ``limits`` do not admit, but for those that have sent a whole request's
    headers: that costs a tenth of what taking and cutting them does. Between so many of them all else has its turn."""

    limits: Connections | None = None

    def accept(self) -> tuple[socket.socket, Any]:
        for _ in range(_REFUSED_AT_ONCE):
            one, address = super().accept()
            if self.limits is None or self.limits.admits(address[0]) or _has_headers(one):
                return one, address
            self.limits.rejected("connections")
            one.close()
        raise BlockingIOError  # asyncio comes again for the others


def _has_headers(one: socket.socket) -> bool:
    with contextlib.suppress(OSError):
        return b"\r\n\r\n" in one.recv(_HEADERS, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    return False


class HttpProtocol(H11Protocol):
    """A connection of HTTP/1.1. Each request has the names in the client's certificate (``state["sans"]``)."""

    def __init__(self, limits: Connections, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._limits = limits
        self._phase: tuple[str, object] = "", None
        self._since = monotonic()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        shown = transport.get_extra_info("peercert") or {}
        names = tuple(value for _, value in shown.get("subjectAltName", ()))
        self.app_state = {**self.app_state, "sans": names}
        waiting = self._limits.waiting
        waiting[self] = None
        if len(self.connections) > self._limits.most:
            self._limits.rejected("connections")
            next(iter(waiting)).cut()

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.waiting.pop(self, None)
        self._limits.unread.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state in (h11.DONE, h11.MUST_CLOSE):
            self._limits.waiting.pop(self, None)

    def on_response_complete(self) -> None:
        self._limits.waiting.pop(self, None)
        self._limits.waiting[self] = None
        if (size := self.transport.get_write_buffer_size()) > _LARGE_ANSWER:
            self._limits.keep_unread(self, size)
        super().on_response_complete()

    def cut(self) -> None:
        self._limits.waiting.pop(self, None)
        self._limits.unread.pop(self, None)
        self.connections.discard(self)
        self.transport.abort()

    def end_if_late(self, now: float) -> None:
        """Once a second. What is waited for is a part of one request: with the next one the time begins anew."""
        their, name = self.conn.their_state, ""
        if self in self._limits.unread:
            size = self.transport.get_write_buffer_size()
            if size:
                name = "answer"
                self._limits.unread[self] = size
            else:
                del self._limits.unread[self]
        elif their is h11.SEND_BODY:
            name = "body"
        elif their is h11.IDLE and (self.cycle is None or self.conn.trailing_data[0]):
            name = "headers"
        if (name, self.cycle) != self._phase:
            self._phase, self._since = (name, self.cycle), now
        elif name and now - self._since >= self._limits.within[name]:
            self._limits.rejected(f"slow {name}")
            self.cut()


class HttpServer(uvicorn.Server):
    """uvicorn without its own signal handlers: ``app.main`` decides when to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for bound in sockets or ():
            if hasattr(socket, "TCP_DEFER_ACCEPT"):  # a connection is taken when it has sent something, or in a second
                bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
            bound.listen(_BACKLOG)

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS == 0:
            now = monotonic()
            for connection in list(self.server_state.connections):
                connection.end_if_late(now)  # type: ignore[union-attr]  # all are ours
        return await super().on_tick(counter)


def http_server(
    settings: Settings,
    app: ASGIApp,
    tls: Tls | None,
    bound: ListeningSocket,
    most: int,
    answers: ByteBudget,
    rejected: Callable[[str], None],
) -> HttpServer:
    """A server of this application on this socket, with at most so many connections; half of what ``answers`` allows is
    for those that nobody takes."""
    within = {"headers": settings.header_timeout, "body": settings.body_timeout, "answer": settings.body_timeout}
    limits = Connections(most, within, rejected, answers)
    bound.limits = limits
    config = uvicorn.Config(
        app,
        http=partial(HttpProtocol, limits),  # type: ignore[arg-type]  # uvicorn calls it
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_ACCEPTED_AT_ONCE,
        timeout_keep_alive=int(settings.http_idle),
        timeout_graceful_shutdown=max(1, int(settings.drain)),
    )
    config.load()
    config.ssl = tls.context if tls else None
    return HttpServer(config)
