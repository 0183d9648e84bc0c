"""One connection to Redis for all commands, each sent as it comes; answers come in the same order.

redis-py has a connection for each command that is under way, and three tasks and a dozen layers around it: 200 us of
the processor for one script, more than everything else that a report costs. Here a command is a write and a future. The
connection is still redis-py's, which knows of TLS, users and Sentinels.

One timer looks after the oldest command under way. Where that has no answer in time the connection is given up, with
all that was sent on it; the next command makes another.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from redis.exceptions import (
    ConnectionError,  # noqa: A004  # Redis's own, no relation of the built-in one
    RedisError,
    ResponseError,
    TimeoutError,  # noqa: A004  # the same
)

from unskew.service.concurrency import detached_task, finish

__all__ = ["PipelinedConnection"]

_LOOKS = 8  # at the oldest command, in the time that it has


class _Line:
    """A connection, and who waits for an answer on it since when."""

    def __init__(self, connection: Any, timeout: float) -> None:
        self._connection, self._timeout = connection, timeout
        self._waiting: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._looking: asyncio.TimerHandle | None = None
        self.reading = detached_task(self._read())

    async def ask(self, words: tuple[Any, ...]) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        packed = self._connection.pack_command(*words)
        self._waiting.append((future, time.monotonic()))
        if self._looking is None:
            self._looking = loop.call_later(self._timeout / _LOOKS, self._look, loop)
        try:
            # Up to its first wait this is one step: no other command is written in between.
            await self._connection.send_packed_command(packed, check_health=False)
        except BaseException:
            self.reading.cancel()  # who knows how much of it was written
            if future.done() and not future.cancelled():
                future.exception()
            raise
        return await future

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looking = None
        if self._waiting:
            if time.monotonic() - self._waiting[0][1] > self._timeout:
                self._give_up(TimeoutError("no answer in time"))
            else:
                self._looking = loop.call_later(self._timeout / _LOOKS, self._look, loop)

    async def _read(self) -> None:
        try:
            while True:
                try:
                    answer, error = await self._connection.read_response(), None
                except ResponseError as why:
                    answer, error = None, why
                future, _ = self._waiting.popleft()
                if future.done():
                    continue  # whoever asked has gone
                if error is None:
                    future.set_result(answer)
                else:
                    future.set_exception(error)
        except (RedisError, OSError) as why:
            self._give_up(why)
        finally:
            self._give_up(ConnectionError("the connection was closed"))
            await self._connection.disconnect(nowait=True)

    def _give_up(self, why: Exception) -> None:
        self.reading.cancel()
        while self._waiting:
            future, _ = self._waiting.popleft()
            if not future.done():
                future.set_exception(why)


class PipelinedConnection:
    """What is used of redis-py's client, over one connection. ``connection`` makes one that is not connected and knows
    no timeout of its own."""

    def __init__(self, connection: Callable[[], Any], timeout: float) -> None:
        self._make, self._timeout = connection, timeout
        self._line: _Line | None = None
        self._connecting: asyncio.Task[_Line] | None = None

    async def execute_command(self, *words: Any) -> Any:
        line = self._line
        if line is None or line.reading.done():
            line = await self._connected()
        return await line.ask(words)

    async def _connected(self) -> _Line:
        """Whoever asks meanwhile waits for the same."""
        if self._connecting is None:
            self._connecting = detached_task(self._connect())
            self._connecting.add_done_callback(self._ended)
        return await asyncio.shield(self._connecting)

    async def _connect(self) -> _Line:
        connection = self._make()
        try:
            await asyncio.wait_for(connection.connect(), self._timeout)
        except asyncio.TimeoutError:
            await connection.disconnect(nowait=True)
            raise TimeoutError("no connection in time") from None
        self._line = _Line(connection, self._timeout)
        return self._line

    def _ended(self, task: asyncio.Task[_Line]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # looked at, also where everybody who asked has gone

    async def aclose(self) -> None:
        if self._connecting is not None:
            await finish(self._connecting)
        if self._line is not None:
            await finish(self._line.reading)
