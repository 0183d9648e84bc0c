"""Asks the Sentinels for the master once at a time: redis-py reorders its list of them while it asks, so that of two
calls at once one may overwrite the order of the other. One of three Sentinels is then never asked again, and its
connection stays open. Here all calls that come meanwhile get the same answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from redis.asyncio.sentinel import Sentinel

__all__ = ["Sentinels"]

_Address = tuple[str, int]


class Sentinels(Sentinel):
    def __init__(self, hosts: Sequence[_Address], options: dict[str, Any]) -> None:
        super().__init__(list(hosts), sentinel_kwargs=options)  # type: ignore[no-untyped-call]  # so in redis-py
        self._asking: asyncio.Task[_Address] | None = None

    async def discover_master(self, service_name: str) -> _Address:
        """Of the one service that a client has."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask(service_name))
            self._asking.add_done_callback(_retrieve)
        return await asyncio.shield(self._asking)

    async def _ask(self, service_name: str) -> _Address:
        return cast(_Address, await super().discover_master(service_name))

    async def aclose(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait((self._asking,))
        await super().aclose()


def _retrieve(task: asyncio.Task[_Address]) -> None:
    """Mark the exception as retrieved, in case that every caller has left."""
    if not task.cancelled():
        task.exception()
