"""A TCP proxy that makes a network's faults on demand: between agents and a replica, or a replica and its store.

The mode holds for the connections that are open and for new ones, until the next mode is set:

- ``Delay``: every byte arrives so much later, in order;
- ``Reset``: connections end with RST, and so does every new one;
- ``HalfOpen``: connections stay open and bytes vanish, so neither side learns of it. A connection that lost bytes
  stays deaf when the network is well again: its stream has a hole;
- ``Truncate``: so many more bytes each way, then the connection is closed, mostly inside a message.

``hold_after`` stops all traffic right behind a request that is looked for: what was asked is done and nobody hears of
it, which is the moment to kill the asker in.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

__all__ = ["NORMAL", "Delay", "FaultProxy", "HalfOpen", "Mode", "Normal", "ProxyLoop", "Reset", "Truncate"]

T = TypeVar("T")
_CHUNK = 1 << 16
_QUEUED = 256  # chunks under way in one direction before the sender is held back
_SOON = 10.0


@dataclass(frozen=True)
class Normal:
    """Bytes pass as they come."""


@dataclass(frozen=True)
class Delay:
    seconds: float


@dataclass(frozen=True)
class Reset:
    """RST, now and for whoever comes."""


@dataclass(frozen=True)
class HalfOpen:
    """Open, and nothing arrives."""


@dataclass(frozen=True)
class Truncate:
    after: int


Mode = Normal | Delay | Reset | HalfOpen | Truncate
NORMAL = Normal()


@dataclass(eq=False)
class _Pair:
    """One connection: the writers to both ends, and what became of it."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    deaf: bool = False
    left: dict[asyncio.StreamWriter, int] = field(default_factory=dict)

    def cut(self, *, reset: bool) -> None:
        for writer in (self.client, self.server):
            _end(writer, reset=reset)


class FaultProxy:
    """One listening port in front of one target. To be used on its loop; ``ProxyLoop`` wraps it for other threads."""

    def __init__(self, host: str, port: int) -> None:
        self.target = host, port
        self.port = 0
        self.hurt = 0  # connections reset or cut, chunks delayed or swallowed: whether a fault hit anything
        self._mode: Mode = NORMAL
        self._pairs: set[_Pair] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._open = asyncio.Event()
        self._open.set()
        self._marker, self._found = b"", threading.Event()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for pair in list(self._pairs):
            pair.cut(reset=True)
        await self._server.wait_closed()

    @property
    def connections(self) -> int:
        return len(self._pairs)

    def set(self, mode: Mode) -> None:
        self._mode = mode
        for pair in list(self._pairs):
            pair.left = {}
            if isinstance(mode, Reset):
                self.hurt += 1
                pair.cut(reset=True)

    def hold_after(self, marker: bytes) -> threading.Event:
        """After the next request with this in it nothing passes until ``release``; the event says that it came."""
        self._marker, self._found = marker, threading.Event()
        return self._found

    def release(self) -> None:
        self._marker = b""
        self._open.set()

    # -- connections

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except asyncio.CancelledError:  # ``stop``
            _end(writer, reset=True)
        finally:
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if isinstance(self._mode, Reset):
            self.hurt += 1
            _end(writer, reset=True)
            return
        try:
            back, forth = await asyncio.open_connection(*self.target)
        except OSError:  # nobody there: the same to the client
            _end(writer, reset=True)
            return
        pair = _Pair(writer, forth)
        self._pairs.add(pair)
        try:
            await asyncio.gather(
                self._carry(pair, reader, forth, upstream=True), self._carry(pair, back, writer, upstream=False)
            )
        finally:
            self._pairs.discard(pair)
            pair.cut(reset=False)

    async def _carry(
        self, pair: _Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, upstream: bool
    ) -> None:
        """One direction: read and date, then deliver when it is time."""
        line: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_QUEUED)
        deliver = asyncio.ensure_future(self._deliver(pair, line, writer, upstream=upstream))
        try:
            while True:
                try:
                    chunk = await reader.read(_CHUNK)
                except OSError:
                    chunk = b""
                if isinstance(self._mode, HalfOpen):
                    pair.deaf = True
                if pair.deaf and chunk:
                    self.hurt += 1
                    continue
                wait = self._mode.seconds if isinstance(self._mode, Delay) else 0.0
                self.hurt += wait > 0
                await line.put((asyncio.get_running_loop().time() + wait, chunk))
                if not chunk:
                    break
            await deliver
        finally:
            deliver.cancel()
            pair.cut(reset=False)

    async def _deliver(
        self, pair: _Pair, line: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter, *, upstream: bool
    ) -> None:
        tail, loop = b"", asyncio.get_running_loop()
        while True:
            due, chunk = await line.get()
            if (early := due - loop.time()) > 0:
                await asyncio.sleep(early)
            await self._open.wait()
            if not chunk or writer.is_closing():
                return
            part = self._allowed(pair, writer, chunk)
            with contextlib.suppress(OSError):
                writer.write(part)
                await writer.drain()
            if len(part) < len(chunk):
                self.hurt += 1
                pair.cut(reset=False)
                return
            if upstream:
                tail = self._look(tail + chunk)

    def _allowed(self, pair: _Pair, writer: asyncio.StreamWriter, chunk: bytes) -> bytes:
        if not isinstance(self._mode, Truncate):
            return chunk
        left = pair.left.setdefault(writer, self._mode.after)
        pair.left[writer] = max(left - len(chunk), 0)
        return chunk[:left]

    def _look(self, seen: bytes) -> bytes:
        """Hold, if this was what is looked for; the end of it, for a marker may come in two pieces."""
        if self._marker and self._marker in seen:
            self._marker = b""
            self._open.clear()
            self._found.set()
        return seen[-64:]


def _end(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    """Close; with RST where that is asked for, and without waiting for anybody."""
    found = writer.get_extra_info("socket")
    if reset:
        if found is not None and found.fileno() >= 0:
            with contextlib.suppress(OSError):
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    elif not writer.is_closing():
        writer.close()


class ProxyLoop:
    """A thread with a loop for proxies, so that a test may block."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxies", daemon=True)
        self._thread.start()
        self._proxies: list[FaultProxy] = []

    def proxy(self, port: int) -> FaultProxy:
        """A new one in front of this port of this machine, listening on a port of its own."""

        async def made() -> FaultProxy:
            proxy = FaultProxy("127.0.0.1", port)
            await proxy.start()
            return proxy

        self._proxies.append(self.run(made()))
        return self._proxies[-1]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_SOON)

    def call(self, act: Callable[[], T]) -> T:
        """Done on the loop, where proxies live."""
        done: Future[T] = Future()

        def here() -> None:
            try:
                done.set_result(act())
            except BaseException as why:  # noqa: BLE001 - handed to whoever asked
                done.set_exception(why)

        self._loop.call_soon_threadsafe(here)
        return done.result(_SOON)

    def set(self, mode: Mode, *proxies: FaultProxy) -> None:
        def each() -> None:
            for proxy in proxies:
                proxy.set(mode)

        self.call(each)

    @contextlib.contextmanager
    def fault(self, mode: Mode, *proxies: FaultProxy) -> Iterator[None]:
        """The mode, and back to normal."""
        self.set(mode, *proxies)
        try:
            yield
        finally:
            self.set(NORMAL, *proxies)

    def close(self) -> None:
        for proxy in self._proxies:
            self.run(proxy.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_SOON)
        self._loop.close()
