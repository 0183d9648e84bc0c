"""Asks the Sentinels for the master once at a time: redis-py reorders its list of them while it asks, so that of two
calls at once one may overwrite the order of the other. One of three Sentinels is then never asked again, and its
connection stays open. Here all calls that come meanwhile get the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from redis.asyncio.sentinel import Sentinel

from unskew.service.concurrency import SingleFlight

__all__ = ["Sentinels"]

_Address = tuple[str, int]


class Sentinels(Sentinel):
    def __init__(self, hosts: Sequence[_Address], options: dict[str, Any]) -> None:
        super().__init__(list(hosts), sentinel_kwargs=options)  # type: ignore[no-untyped-call]  # so in redis-py
        self._asking: SingleFlight[_Address] = SingleFlight()

    async def discover_master(self, service_name: str) -> _Address:
        return await self._asking.once(service_name, partial(super().discover_master, service_name))

    async def aclose(self) -> None:
        await self._asking.close()
        await super().aclose()
