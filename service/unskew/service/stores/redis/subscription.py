"""The subscription to the news channel: it is made again whenever it ends, until the listener is cancelled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from redis.asyncio import Redis
from redis.exceptions import TimeoutError  # noqa: A004  # Redis's own, no relation of the built-in one

from unskew.service.stores.redis.failures import FAILURES

__all__ = ["listen"]

_SILENCE = 5.0  # seconds without a message after which the connection is checked
_PAUSES = (0.1, 2.0)  # seconds before subscribing again: at first, and at most


async def listen(
    channel: str, take: Callable[[bytes], None], connect: Callable[[], Awaitable[tuple[Redis, bool]]]
) -> None:
    """Pass on what is published, until cancelled. What is published while there is no connection is lost. ``connect``
    returns a client, and whether it is for this subscription only and has to be closed with it."""
    shortest, longest = _PAUSES
    pause = shortest
    while True:
        received = asyncio.Event()
        try:
            await _subscribe(channel, take, connect, received)
        except (*FAILURES, asyncio.TimeoutError):
            pause = shortest if received.is_set() else min(2.0 * pause, longest)
        await asyncio.sleep(pause * (0.5 + random.random()))


async def _subscribe(
    channel: str,
    take: Callable[[bytes], None],
    connect: Callable[[], Awaitable[tuple[Redis, bool]]],
    received: asyncio.Event,
) -> None:
    client, own = await connect()
    try:
        async with client.pubsub() as pubsub:
            await pubsub.subscribe(channel)
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
                received.set()
                if message["type"] == "message":
                    take(message["data"])
    finally:
        if own:
            await client.aclose()
