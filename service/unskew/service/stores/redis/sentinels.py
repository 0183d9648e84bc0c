"""Sentinels, asked one at a time: redis-py turns its list of them round while it asks for the master, so that of two
askers at once one may overwrite what the other has moved. One of three is then asked no more, for ever, and its
connection is left open. Here whoever asks meanwhile is given the same answer.
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
        """For one service, as a link has one."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask(service_name))
            self._asking.add_done_callback(_looked_at)
        return await asyncio.shield(self._asking)

    async def _ask(self, service_name: str) -> _Address:
        return cast(_Address, await super().discover_master(service_name))

    async def aclose(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait((self._asking,))
        await super().aclose()


def _looked_at(task: asyncio.Task[_Address]) -> None:
    """Also where everybody who asked has gone."""
    if not task.cancelled():
        task.exception()
