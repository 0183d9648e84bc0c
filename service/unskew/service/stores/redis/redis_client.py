"""The way to Redis: one client for each kind of address, bounded waits, few repeats, a breaker, and the subscription.

Every failure to get an answer becomes ``UnavailableError``. All that is sent may be sent again, so an attempt that was
lost is repeated while the deadline allows. Nothing has to be restarted when Redis comes back: connections are made when
they are needed, a Sentinel's master is asked for with each, a cluster's slots are read again when a node moved them.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterError,
    ConnectionError,  # noqa: A004  # Redis's own, no relation of the built-in one
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TimeoutError,  # noqa: A004  # the same
    TryAgainError,
)

from unskew.core.breaker import CLOSED, Breaker
from unskew.core.errors import ConfigError
from unskew.service.errors import UnavailableError
from unskew.service.stores.address import Address, RedisTls
from unskew.service.stores.redis.pipelined_connection import PipelinedConnection
from unskew.service.stores.redis.scripts import Script
from unskew.service.stores.redis.sentinels import Sentinels

__all__ = ["Patience", "RedisClient"]

_FAULTS = (RedisError, RedisClusterException, OSError)
_FOR_GOOD = (AuthenticationError, AuthorizationError, NoPermissionError, OutOfMemoryError)
_PASSING = (
    ConnectionError,
    TimeoutError,
    BusyLoadingError,
    ReadOnlyError,
    ClusterError,
    TryAgainError,
)
_PASSING_WORDS = ("MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "UNKILLABLE", "BUSY", "LOADING", "READONLY", "TRYAGAIN")
_QUIET = 5.0
_PAUSES = (0.1, 2.0)


@dataclass(frozen=True)
class Patience:
    """Seconds for one attempt and for an operation with its repeats; well under what callers wait. A caller that gives
    up after ``sign`` has seen a sign that Redis does not answer; before that it says nothing."""

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
        self._address = address
        self._patience = patience
        self._breaker = Breaker(cooldown=0.25, longest=2.0, probe_timeout=math.inf)
        self._sign = 0.0  # when a caller that gave up was last taken for one
        self._room = asyncio.Semaphore(patience.connections)
        self._rng = random.Random()
        self._sentinel: Sentinels | None = None
        self._library: Redis | None = None  # for the subscription; a cluster's is made for each
        self._client = self._connect()

    @property
    def broken(self) -> bool:
        """Whether operations fail at once, because Redis has not answered for a while."""
        return self._breaker.state(time.monotonic()) != CLOSED

    # -- clients

    def _options(self) -> dict[str, Any]:
        address = self._address
        return {
            "username": address.username,
            "password": address.password,
            "socket_timeout": self._patience.timeout,
            "socket_connect_timeout": self._patience.timeout,
            "socket_keepalive": True,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            **_tls_options(address.tls),
        }

    def _connect(self) -> _Client:
        address, options = self._address, self._options()
        if address.kind == "cluster":
            nodes = [ClusterNode(host, port) for host, port in address.hosts]
            most = self._patience.connections + 4  # those that are being given up
            cluster = RedisCluster(startup_nodes=nodes, max_connections=most, **options)
            return cast(_Client, cluster)
        self._library = self._one({**options, "db": address.db})
        patient = self._one({**options, "db": address.db, "socket_timeout": None})  # the lane has a time for all
        return PipelinedConnection(patient.connection_pool.make_connection, self._patience.timeout)

    def _one(self, options: dict[str, Any]) -> Redis:
        """A client of the one server that is asked, or of the master that the Sentinels name."""
        address = self._address
        if address.kind == "sentinel":
            if self._sentinel is None:
                self._sentinel = Sentinels(address.hosts, self._of_sentinels(self._options()))
            return cast(Redis, self._sentinel.master_for(address.service, **options))
        (host, port), *others = address.hosts
        if others:
            raise ConfigError("store", address.hosts, "one host; for more use redis+sentinel:// or redis+cluster://")
        return Redis(host=host, port=port, **options)

    def _of_sentinels(self, options: dict[str, Any]) -> dict[str, Any]:
        given = self._address.options
        own = {
            "username": given.get("sentinel_username"),
            "password": given.get("sentinel_password"),
            # Two of three may be gone: what is asked of them must leave time to ask the third.
            "socket_timeout": self._patience.timeout / 2,
            "socket_connect_timeout": self._patience.timeout / 2,
        }
        return options | own

    async def close(self) -> None:
        for one in (self._client, self._library, self._sentinel):
            if one is not None:
                with contextlib.suppress(*_FAULTS):
                    await one.aclose()

    # -- operations

    async def run(self, script: Script, keys: tuple[str, ...], args: tuple[Any, ...]) -> Any:
        """A script, by its hash where Redis has seen it."""

        async def ask() -> Any:
            try:
                return await self._said("EVALSHA", script.sha, len(keys), *keys, *args)
            except NoScriptError:
                return await self._said("EVAL", script.text, len(keys), *keys, *args)

        return await self._guarded(ask)

    async def command(self, *words: Any) -> Any:
        return await self._guarded(lambda: self._said(*words))

    async def _said(self, *words: Any) -> Any:
        try:
            return await self._client.execute_command(*words)
        except (AttributeError, TypeError) as why:
            # What redis-py up to 8.1 raises where a connection is closed while it is written to (its issue 4287).
            raise ConnectionError("the connection was closed meanwhile") from why

    async def _guarded(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        began = time.monotonic()
        ticket = self._breaker.enter(began)
        if ticket is None:
            raise UnavailableError("store: Redis has not answered for a while; try again in some seconds")
        try:
            value = await self._first(ask)
        except (*_FAULTS, asyncio.TimeoutError) as error:
            if _is_answer(error):
                self._breaker.success(ticket)
                raise
            self._breaker.failure(time.monotonic(), ticket)
            raise _unavailable(error) from error
        except BaseException:
            self._gave_up(ticket, began)
            raise
        self._breaker.success(ticket)
        return value

    def _gave_up(self, ticket: int, began: float) -> None:
        """The caller is gone. Those that wait for less than we do must not keep a Redis that hangs from being known as
        such; but many at once are one sign: it may have been we who were held up."""
        now = time.monotonic()
        if now - max(began, self._sign) < self._patience.sign:
            self._breaker.abandoned(ticket)
        else:
            self._sign = now
            self._breaker.failure(now, ticket)

    async def _first(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """The first attempt as it is where it bounds its own time: a task to watch over it would cost as much."""
        if self._library is None:
            return await asyncio.wait_for(self._attempts(ask), self._patience.deadline)
        began = time.monotonic()
        try:
            return await ask()
        except _FAULTS as error:
            if not _passes(error):
                raise
            left = began + self._patience.deadline - time.monotonic()
            if left <= 0:
                raise
        return await asyncio.wait_for(self._attempts(ask), left)

    async def _attempts(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        async with self._room:
            pause = self._patience.pause
            for _ in range(self._patience.repeats):
                try:
                    return await ask()
                except _FAULTS as error:
                    if not _passes(error):
                        raise
                await asyncio.sleep(pause * (0.5 + self._rng.random()))
                pause *= 2.0
            return await ask()

    # -- news

    async def listen(self, channel: str, take: Callable[[bytes], None]) -> None:
        """Give on what is published, until cancelled. What is published while there is no connection is lost."""
        least, most = _PAUSES
        pause = least
        while True:
            heard = asyncio.Event()
            try:
                await self._subscription(channel, take, heard)
            except (*_FAULTS, asyncio.TimeoutError):
                pause = least if heard.is_set() else min(2.0 * pause, most)
            await asyncio.sleep(pause * (0.5 + self._rng.random()))

    async def _subscription(self, channel: str, take: Callable[[bytes], None], heard: asyncio.Event) -> None:
        client, own = await self._listener()
        try:
            async with client.pubsub() as pubsub:
                await pubsub.subscribe(channel)
                asked = False
                while True:
                    message = await pubsub.get_message(timeout=_QUIET)
                    if message is None:
                        if asked:
                            raise TimeoutError("the subscription is silent")
                        asked = True
                        await pubsub.ping()
                        continue
                    asked = False
                    heard.set()
                    if message["type"] == "message":
                        take(message["data"])
        finally:
            if own:
                await client.aclose()

    async def _listener(self) -> tuple[Redis, bool]:
        """A client to subscribe with, and whether it is for that only: any node of a cluster hears all."""
        if self._library is not None:
            return self._library, False
        cluster = cast(RedisCluster, self._client)
        await cluster.initialize()
        node = self._rng.choice(cluster.get_nodes())
        return Redis(host=node.host, port=int(node.port), **self._options()), True


def _tls_options(tls: RedisTls | None) -> dict[str, Any]:
    if tls is None:
        return {}
    return {
        "ssl": True,
        "ssl_ca_certs": tls.ca,
        "ssl_certfile": tls.cert,
        "ssl_keyfile": tls.key,
        "ssl_check_hostname": tls.check_host,
    }


def _passes(error: Exception) -> bool:
    """Whether the same request may well get an answer in a moment."""
    if isinstance(error, _FOR_GOOD):
        return False
    return isinstance(error, _PASSING) or (isinstance(error, ResponseError) and _says(error, _PASSING_WORDS))


def _is_answer(error: Exception) -> bool:
    """Redis understood and refused: that is a fault of ours, not of the way to it."""
    known = isinstance(error, _FOR_GOOD) or _passes(error) or _says(error, ("OOM", "MISCONF"))
    return isinstance(error, ResponseError) and not known


def _says(error: Exception, words: tuple[str, ...]) -> bool:
    return any(word in str(error) for word in words)


def _unavailable(error: Exception) -> UnavailableError:
    """What to look at; never what was sent."""
    kind = type(error).__name__
    if isinstance(error, (AuthenticationError, AuthorizationError, NoPermissionError)):
        return UnavailableError(
            f"store: Redis refuses our user or a command of its ({kind}); check the store's URL and ACL"
        )
    if isinstance(error, OutOfMemoryError) or _says(error, ("OOM",)):
        return UnavailableError("store: Redis is full (maxmemory); give it more, or delete streams")
    return UnavailableError(f"store: no answer from Redis in time ({kind}); the request may be sent again")
