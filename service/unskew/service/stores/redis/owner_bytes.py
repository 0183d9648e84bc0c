"""How many bytes of reports and plans each owner keeps: a hash for each owner beside the streams, with their sum.

Bytes are charged before they are written, and corrected by what the script that wrote them says. What a replica that
died, or the release before this one, has left wrong is put right where the owner seems to have no room: then the
streams are asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

from unskew.service.lru_cache import LruCache
from unskew.service.stores.redis.redis_client import RedisClient
from unskew.service.stores.redis.replies import pairs
from unskew.service.stores.redis.scripts import SCRIPTS

__all__ = ["OwnerBytes"]

_AT_ONCE = 50
_RECOUNT = 10.0  # seconds between two counts of one owner, and after the last charge of a stream
_OWNERS = 10_000


class OwnerBytes:
    """``used``: the bytes of a stream, and its owner."""

    def __init__(
        self, client: RedisClient, prefix: str, ttl: float, used: Callable[[str], Awaitable[tuple[int, str]]]
    ) -> None:
        self._client, self._prefix, self._ttl, self._used = client, prefix, int(1000 * ttl), used
        self._counted: LruCache[str, float] = LruCache(_OWNERS)

    async def charge(self, owner: str, stream: str, size: int, most: int) -> int | None:
        """Charge so many bytes; None where that is done, else how many the owner has: they were not charged."""
        taken, total = await self._charge(owner, stream, size, most)
        if not taken and await self._recounted(owner):
            taken, total = await self._charge(owner, stream, size, most)
        return None if taken else int(total)

    async def correct(self, owner: str, stream: str, more: int) -> None:
        if more:
            await self._charge(owner, stream, more, "")

    async def forget(self, owner: str, stream: str) -> None:
        """The stream is gone."""
        charged = await self._client.command("HGET", self._key(owner), stream)
        await self.correct(owner, stream, -int(charged or 0))

    async def _charge(self, owner: str, stream: str, size: int, most: int | str, *quiet: float) -> Any:
        args = stream, size, most, self._ttl, *quiet
        return await self._client.run(SCRIPTS["charge"], (self._key(owner),), args)

    async def _recounted(self, owner: str) -> bool:
        """Ask each of the owner's streams what it has, and believe those that were not charged lately. Not again within
        some seconds: an owner that has no room would have every replica count all the time."""
        if monotonic() - self._counted.get(owner, -_RECOUNT) < _RECOUNT:
            return False
        self._counted.put(owner, monotonic())
        charged = pairs(await self._client.run(SCRIPTS["charges"], (self._key(owner),), ()))
        streams = [(name.decode(), int(size)) for name, size in charged if name and not name.startswith(b" ")]
        for at in range(0, len(streams), _AT_ONCE):
            page = streams[at : at + _AT_ONCE]
            for (name, size), (used, of) in zip(
                page, await asyncio.gather(*(self._used(name) for name, _ in page)), strict=True
            ):
                await self._charge(owner, name, (used if of == owner else 0) - size, "", _RECOUNT)
        return True

    def _key(self, owner: str) -> str:
        return f"{self._prefix}:used:{owner}"
