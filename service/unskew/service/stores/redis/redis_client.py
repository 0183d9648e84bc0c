"""Sends commands to Redis: one client for each kind of address, bounded waits, few repeats, and a breaker.

Whatever keeps an answer away becomes ``UnavailableError``. All that is sent may be sent again, so a failed attempt is
repeated while the deadline allows. Nothing has to be restarted when Redis comes back: connections are made when they
are needed, the Sentinels are asked for the master each time, a cluster's slots are read again when a node moved them.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Protocol, cast

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import (
    ConnectionError,  # noqa: A004  # Redis's own, no relation of the built-in one
    NoPermissionError,
    NoScriptError,
)

from unskew.core.breaker import Breaker
from unskew.core.errors import ConfigError
from unskew.service.concurrency import SingleFlight
from unskew.service.errors import UnavailableError
from unskew.service.stores.address import Address
from unskew.service.stores.redis.failures import (
    FAILURES,
    damaged,
    is_answer,
    is_damage,
    is_transient,
    refuses_writes,
    unavailable,
)
from unskew.service.stores.redis.pipelined_connection import PipelinedConnection
from unskew.service.stores.redis.scripts import Script

__all__ = ["Patience", "RedisClient"]

_LARGE = 1 << 20


@dataclass(frozen=True)
class Patience:
    """Seconds for one attempt and for an operation with its repeats; well below what callers wait. A caller that gives
    up after ``sign`` counts as a sign that Redis does not answer; one that gives up earlier does not."""

    timeout: float = 0.5
    deadline: float = 1.5
    sign: float = 0.1
    repeats: int = 2
    pause: float = 0.05
    connections: int = 64

    def __post_init__(self) -> None:
        if not 0.0 < self.timeout <= self.deadline <= 60.0:
            raise ConfigError("timeout", (self.timeout, self.deadline), "0 < timeout <= deadline <= 60 seconds")
        if self.connections < 1:
            raise ConfigError("connections", self.connections, "a whole number, at least 1")


class _Client(Protocol):
    """What is used of redis-py, alike for one server and a cluster."""

    async def execute_command(self, *args: Any, **options: Any) -> Any: ...

    async def aclose(self) -> None: ...


class RedisClient:
    def __init__(self, address: Address, patience: Patience) -> None:
        self._address, self._patience = address, patience
        self._health = _Health(patience.sign)
        self._room = asyncio.Semaphore(patience.connections)
        self._rng = random.Random()
        self._sentinel: _Sentinels | None = None
        self._library: Redis | None = None  # for the subscription; None: a cluster, where each makes its own
        self._for_large: Redis | None = None  # so that small commands do not wait until a large one is sent
        self._client = self._connect()

    def run(self, script: Script, keys: tuple[str, ...], args: tuple[Any, ...]) -> Awaitable[Any]:
        return self._answer(("EVALSHA", script.sha, len(keys), *keys, *args), script)

    def command(self, *words: Any) -> Awaitable[Any]:
        return self._answer(words)

    async def permitted(self, *words: Any) -> Any:
        """The answer, or None where our user may not ask that. One attempt, which says nothing of Redis's health."""
        try:
            return await asyncio.wait_for(self._send(words), self._patience.timeout)
        except NoPermissionError:
            return None
        except (*FAILURES, asyncio.TimeoutError) as why:
            raise unavailable(why) from why

    async def close(self) -> None:
        for client in (self._client, self._library, self._for_large, self._sentinel):
            if client is not None:
                with contextlib.suppress(*FAILURES):
                    await client.aclose()

    # -- one request

    async def _answer(self, words: tuple[Any, ...], script: Script | None = None) -> Any:
        """The first attempt is made here where it bounds its own time: a task to watch it would cost as much."""
        with _Request(self._health) as request:
            if self._library is None:
                return await asyncio.wait_for(self._attempts(words, script), self._patience.deadline)
            try:
                return await self._send(words, script)
            except FAILURES as error:
                left = request.began + self._patience.deadline - time.monotonic()
                if left <= 0 or not is_transient(error):
                    raise
            return await asyncio.wait_for(self._attempts(words, script), left)

    async def _attempts(self, words: tuple[Any, ...], script: Script | None) -> Any:
        async with self._room:
            pause = self._patience.pause
            for _ in range(self._patience.repeats):
                try:
                    return await self._send(words, script)
                except FAILURES as error:
                    if not is_transient(error):
                        raise
                await asyncio.sleep(pause * (0.5 + self._rng.random()))
                pause *= 2.0
            return await self._send(words, script)

    async def _send(self, words: tuple[Any, ...], script: Script | None = None) -> Any:
        client = self._client
        if self._for_large is not None and sum(len(word) for word in words if type(word) is bytes) >= _LARGE:
            client = self._for_large
        try:
            return await client.execute_command(*words)
        except (AttributeError, TypeError) as why:
            # What redis-py up to 8.1 raises where a connection is closed while it is written to (its issue 4287).
            raise ConnectionError("the connection was closed meanwhile") from why
        except NoScriptError:
            if script is None:
                raise
        return await self._send(("EVAL", script.text, *words[2:]))

    # -- clients

    def _connect(self) -> _Client:
        address, options = self._address, self._options()
        if address.kind == "cluster":
            nodes = [ClusterNode(host, port) for host, port in address.hosts]
            most = self._patience.connections + 4  # those that are being closed
            return cast(_Client, _Cluster(startup_nodes=nodes, max_connections=most, **options))
        self._library = self._single({**options, "db": address.db})
        large = {"socket_timeout": self._patience.deadline, "max_connections": self._patience.connections}
        self._for_large = self._single({**options, "db": address.db, **large})
        untimed = self._single({**options, "db": address.db, "socket_timeout": None})  # PipelinedConnection times all
        return PipelinedConnection(untimed.connection_pool.make_connection, self._patience.timeout)

    def _single(self, options: dict[str, Any]) -> Redis:
        """A client of the one server, or of the master that the Sentinels name."""
        address = self._address
        if address.kind == "sentinel":
            if self._sentinel is None:
                self._sentinel = _Sentinels(address.hosts, self._sentinel_options())
            return cast(Redis, self._sentinel.master_for(address.service, **options))
        (host, port), *others = address.hosts
        if others:
            raise ConfigError("store", address.hosts, "one host; for more use redis+sentinel:// or redis+cluster://")
        return Redis(host=host, port=port, **options)

    async def subscriber(self) -> tuple[Redis, bool]:
        """A client to subscribe with, and whether it is for that only: any node of a cluster gets all news."""
        if self._library is not None:
            return self._library, False
        cluster = cast(RedisCluster, self._client)
        await cluster.initialize()
        node = self._rng.choice(cluster.get_nodes())
        return Redis(host=node.host, port=int(node.port), **self._options()), True

    def _options(self) -> dict[str, Any]:
        tls = self._address.tls
        options: dict[str, Any] = {
            "username": self._address.username,
            "password": self._address.password,
            "socket_timeout": self._patience.timeout,
            "socket_connect_timeout": self._patience.timeout,
            "socket_keepalive": True,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
        }
        if tls is not None:
            files = {"ssl_ca_certs": tls.ca, "ssl_certfile": tls.cert, "ssl_keyfile": tls.key}
            options |= {"ssl": True, "ssl_check_hostname": tls.check_host, **files}
        return options

    def _sentinel_options(self) -> dict[str, Any]:
        given = self._address.options
        return self._options() | {
            "username": given.get("sentinel_username"),
            "password": given.get("sentinel_password"),
            # Two of three may be gone: asking them must leave time to ask the third.
            "socket_timeout": self._patience.timeout / 2,
            "socket_connect_timeout": self._patience.timeout / 2,
        }


class _Cluster(RedisCluster):
    """Reads which node has which slots once at a time, and to the end. redis-py closes all connections where whoever
    reads that is cancelled: all other commands under way would end with "Connection closed by server", each would have
    it read anew, and none would get through while that takes longer than its deadline."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._reading: SingleFlight[RedisCluster] = SingleFlight()

    async def initialize(self, *args: Any, **named: Any) -> RedisCluster:
        return await self._reading.once("", partial(super().initialize, *args, **named))


class _Sentinels(Sentinel):
    """Asks them for the master once at a time: redis-py reorders its list of Sentinels while it asks. Of two calls at
    once one may overwrite the other's order: one of three is then never asked again, and its connection stays open."""

    def __init__(self, hosts: Sequence[tuple[str, int]], options: dict[str, Any]) -> None:
        super().__init__(list(hosts), sentinel_kwargs=options)  # type: ignore[no-untyped-call]  # so in redis-py
        self._asking: SingleFlight[tuple[str, int]] = SingleFlight()

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        return await self._asking.once(service_name, partial(super().discover_master, service_name))

    async def aclose(self) -> None:
        await self._asking.close()
        await super().aclose()


class _Health:
    """The breaker of all requests, and when a caller that gave up last counted as a sign of trouble."""

    def __init__(self, sign: float) -> None:
        self.breaker = Breaker(cooldown=0.25, longest=2.0, probe_timeout=math.inf)
        self.sign, self._last_sign = sign, 0.0

    def gave_up(self, ticket: int, began: float) -> None:
        """A caller left before there was an answer. Callers that wait for less than the deadline must not hide that
        Redis hangs; but many that leave at once are one sign: it may have been this process that was slow."""
        now = time.monotonic()
        if now - max(began, self._last_sign) < self.sign:
            self.breaker.abandoned(ticket)
        else:
            self._last_sign = now
            self.breaker.failure(now, ticket)


class _Request:
    """Around a request: refuses it while the breaker is open, tells the breaker how it ended, and turns errors of
    redis-py into ``UnavailableError``."""

    def __init__(self, health: _Health) -> None:
        self._health = health

    def __enter__(self) -> _Request:
        self.began = time.monotonic()
        ticket = self._health.breaker.enter(self.began)
        if ticket is None:
            raise UnavailableError("store: Redis has not answered for a while; try again in some seconds")
        self._ticket = ticket
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> None:
        breaker = self._health.breaker
        if error is not None and refuses_writes(error):
            breaker.success(self._ticket)
            raise unavailable(cast(Exception, error)) from error
        if error is not None and is_damage(error):
            breaker.success(self._ticket)
            raise damaged(error) from error
        if isinstance(error, (*FAILURES, asyncio.TimeoutError)) and not is_answer(error):
            breaker.failure(time.monotonic(), self._ticket)
            raise unavailable(error) from error
        if error is None or isinstance(error, FAILURES):
            breaker.success(self._ticket)
        else:
            self._health.gave_up(self._ticket, self.began)
