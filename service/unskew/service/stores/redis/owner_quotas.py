"""How many streams each owner has: a sorted set for each owner beside the streams, each name by when it was claimed.

A name is claimed before its stream is created and released after it is gone. So the set may name too many for a while,
and whoever finds it full checks what is still there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from unskew.service.stores.limits import too_many
from unskew.service.stores.records import StreamRecord
from unskew.service.stores.redis.redis_client import RedisClient
from unskew.service.stores.redis.replies import micros, pairs
from unskew.service.stores.redis.scripts import SCRIPTS

__all__ = ["OwnerQuotas"]

_CHECKED, _AT_ONCE = 1000, 50  # streams of an owner that are checked where it seems to have too many
_CLAIM_SECONDS = 60.0  # that a claim stands before its stream is there


class OwnerQuotas:
    def __init__(
        self, client: RedisClient, prefix: str, stream: Callable[[str], Awaitable[StreamRecord | None]]
    ) -> None:
        self._client, self._prefix, self._stream = client, prefix, stream

    async def claim(self, owner: str, name: str, most: int | None) -> bool:
        """Count the stream to its owner, if it is a new one or the owner's; whether it was not counted before."""
        record = await self._stream(name)
        if record is not None:
            if record.owner != owner:
                return False
            most = None
        outcome = await self._claim(owner, name, most)
        if outcome == b"full" and await self._release_absent(owner):
            outcome = await self._claim(owner, name, most)
        if outcome == b"full":
            raise too_many(owner, most or 0)
        return outcome == b"new"

    async def release(self, owner: str, name: str, age: int = 0, claimed: int | None = None) -> bool:
        """Whether the name was taken off the set. ``claimed``: only if it was not claimed again since; ``age``:
        microseconds, only if its claim is as old."""
        args = name, "" if claimed is None else claimed, age
        return bool(await self._client.run(SCRIPTS["release"], (self._key(owner),), args))

    async def _claim(self, owner: str, name: str, most: int | None) -> bytes:
        outcome: bytes = await self._client.run(
            SCRIPTS["claim"], (self._key(owner),), (name, "" if most is None else most)
        )
        return outcome

    async def _release_absent(self, owner: str) -> bool:
        """Whether some that are counted are gone: expired, or left behind by a create or delete that was cut short."""
        claims = pairs(await self._client.command("ZRANGE", self._key(owner), 0, _CHECKED - 1, "WITHSCORES"))
        released = False
        for at in range(0, len(claims), _AT_ONCE):
            page = [(name.decode(), int(score)) for name, score in claims[at : at + _AT_ONCE]]
            records = await asyncio.gather(*(self._stream(name) for name, _ in page))
            for (name, score), record in zip(page, records, strict=True):
                if record is None or record.owner != owner:
                    released = await self.release(owner, name, micros(_CLAIM_SECONDS), score) or released
                else:  # others are checked first the next time
                    await self._claim(owner, name, None)
        return released

    def _key(self, owner: str) -> str:
        return f"{self._prefix}:owned:{owner}"
