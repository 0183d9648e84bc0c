"""What the laws of a store are tried on: where stores of one state come from, and how that state is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from unskew.service.stores import open_store
from unskew.service.stores.limits import Limits
from unskew.service.stores.ports import Store

__all__ = ["LIMITS", "Backend", "MemoryBackend", "UrlBackend"]

LIMITS = Limits(plans=5, batches=5)


class Backend(Protocol):
    def open(self, limits: Limits = LIMITS) -> Store:
        """A store as a replica has it: of the same state as the others."""
        ...

    def wipe(self) -> None:
        """Lose everything; stores that are open stay so."""
        ...

    async def close(self) -> None: ...


class MemoryBackend:
    """One process, so one store for all replicas; its loss is that of the process, so the stores of before are gone."""

    def __init__(self) -> None:
        self._store: Store | None = None

    def open(self, limits: Limits = LIMITS) -> Store:
        self._store = self._store or open_store("memory://", clock=time.time, limits=limits)
        return self._store

    def wipe(self) -> None:
        self._store = None

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()


class UrlBackend:
    def __init__(self, url: str, flush: Callable[[], object]) -> None:
        self.url = url
        self._flush = flush
        self._stores: list[Store] = []

    def open(self, limits: Limits = LIMITS) -> Store:
        # Two busy cores: what is tried here is not how fast Redis answers.
        self._stores.append(open_store(f"{self.url}?timeout=5&deadline=10", limits=limits))
        return self._stores[-1]

    def wipe(self) -> None:
        self._flush()

    async def close(self) -> None:
        for store in self._stores:
            await store.close()
