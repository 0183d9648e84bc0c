"""The subscription to the news channels: it is made again whatever ends it, until it is closed. Why none comes is said
once in the log, and kept for readiness and metrics to tell."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence

from redis.asyncio import Redis
from redis.exceptions import TimeoutError  # noqa: A004  # Redis's own, no relation of the built-in one

from unskew.service.concurrency import detached_task, finish
from unskew.service.stores.redis.failures import FAILURES

__all__ = ["Connect", "Subscription"]

Connect = Callable[[], Awaitable[tuple[Redis, bool]]]

_SILENCE = 5.0  # seconds without a message after which the connection is checked
_PAUSES = (0.1, 2.0)  # seconds before subscribing again: at first, and at most
_log = logging.getLogger("unskew.service")


class Subscription:
    """Passes on what is published: (channel, message), and None after a time in which something may have been missed.
    ``connect`` returns a client, and whether it is for this subscription only and has to be closed with it.
    ``trouble`` says why nothing comes; it is empty where something would."""

    def __init__(
        self, channels: Sequence[str], take: Callable[[tuple[bytes, bytes] | None], None], connect: Connect
    ) -> None:
        self._channels, self._take, self._connect = tuple(channels), take, connect
        self.trouble = ""
        self._subscribed = False
        self._task = detached_task(self._run())

    async def close(self) -> None:
        await finish(self._task)

    async def _run(self) -> None:
        pause, longest = _PAUSES
        while True:
            try:
                await self._subscribe()
            except (*FAILURES, asyncio.TimeoutError) as why:
                self._ended(f"{type(why).__name__}: {why}")
            except Exception as why:  # noqa: BLE001 - a fault of ours must not end the news for good
                self._ended(f"an error of the service itself, {type(why).__name__}", exc_info=why)
            pause = _PAUSES[0] if self._subscribed else min(2.0 * pause, longest)
            self._subscribed = False
            await asyncio.sleep(pause * (0.5 + random.random()))

    def _ended(self, why: str, exc_info: Exception | None = None) -> None:
        if not self.trouble:
            _log.warning("no news from Redis, replicas look every few seconds: %s", why, exc_info=exc_info)
        self.trouble = why

    def _begun(self) -> None:
        self._subscribed = True
        if self.trouble:
            self.trouble = ""
            _log.info("news from Redis come again")
            self._take(None)

    async def _subscribe(self) -> None:
        client, own = await self._connect()
        try:
            async with client.pubsub() as pubsub:
                await pubsub.subscribe(*self._channels)
                pinged = False
                while True:
                    message = await pubsub.get_message(timeout=_SILENCE)
                    if message is None:
                        if pinged:
                            raise TimeoutError("the subscription is silent")
                        pinged = True
                        await pubsub.ping()
                        continue
                    pinged = False
                    self._begun()
                    if message["type"] == "message":
                        self._take((message["channel"], message["data"]))
        finally:
            if own:
                await client.aclose()
