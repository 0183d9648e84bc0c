"""One connection to Redis for all commands, each sent as it comes; answers come in the same order.

redis-py has a connection for each command that is under way, and three tasks and a dozen layers around it: 200 us of
the processor for one script, more than everything else that a report costs. Here a command is a write and a future. The
connection is still redis-py's, which handles TLS, users and Sentinels.

One timer checks the age of the oldest command. Where that has no answer in time the connection is closed, and all
commands on it fail; the next command makes another connection.
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

from unskew.service.concurrency import SingleFlight, detached_task, finish

__all__ = ["PipelinedConnection"]

_CHECKS = 8  # of the oldest command, within its timeout


class _Pipeline:
    """A connection, and the commands that wait for an answer on it, each since when."""

    def __init__(self, connection: Any, timeout: float) -> None:
        self._connection, self._timeout = connection, timeout
        self._waiting: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.reading = detached_task(self._read())

    async def send(self, words: tuple[Any, ...]) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        packed = self._connection.pack_command(*words)
        self._waiting.append((future, time.monotonic()))
        if self._timer is None:
            self._timer = loop.call_later(self._timeout / _CHECKS, self._check_oldest, loop)
        try:
            # Up to its first wait this is one step: no other command is written in between.
            await self._connection.send_packed_command(packed, check_health=False)
        except BaseException:
            self.reading.cancel()  # the command may have been written in part
            if future.done() and not future.cancelled():
                future.exception()
            raise
        return await future

    def _check_oldest(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._waiting:
            if time.monotonic() - self._waiting[0][1] > self._timeout:
                self._fail_all(TimeoutError("no answer in time"))
            else:
                self._timer = loop.call_later(self._timeout / _CHECKS, self._check_oldest, loop)

    async def _read(self) -> None:
        try:
            while True:
                try:
                    answer, error = await self._connection.read_response(), None
                except ResponseError as why:
                    answer, error = None, why
                future, _ = self._waiting.popleft()
                if future.done():
                    continue  # the caller has left
                if error is None:
                    future.set_result(answer)
                else:
                    future.set_exception(error)
        except (RedisError, OSError) as why:
            self._fail_all(why)
        finally:
            self._fail_all(ConnectionError("the connection was closed"))
            await self._connection.disconnect(nowait=True)

    def _fail_all(self, why: Exception) -> None:
        self.reading.cancel()
        while self._waiting:
            future, _ = self._waiting.popleft()
            if not future.done():
                future.set_exception(why)


class PipelinedConnection:
    """As much of redis-py's client as is used here. ``connection`` makes one, not connected, without a timeout."""

    def __init__(self, connection: Callable[[], Any], timeout: float) -> None:
        self._make, self._timeout = connection, timeout
        self._pipeline: _Pipeline | None = None
        self._connecting: SingleFlight[_Pipeline] = SingleFlight()

    async def execute_command(self, *words: Any) -> Any:
        pipeline = self._pipeline
        if pipeline is None or pipeline.reading.done():
            pipeline = await self._connecting.once("", lambda: detached_task(self._connect()))
        return await pipeline.send(words)

    async def _connect(self) -> _Pipeline:
        connection = self._make()
        try:
            await asyncio.wait_for(connection.connect(), self._timeout)
        except asyncio.TimeoutError:
            await connection.disconnect(nowait=True)
            raise TimeoutError("no connection in time") from None
        self._pipeline = _Pipeline(connection, self._timeout)
        return self._pipeline

    async def aclose(self) -> None:
        await self._connecting.close()
        if self._pipeline is not None:
            await finish(self._pipeline.reading)
