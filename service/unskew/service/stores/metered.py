"""Times every operation of a store, at one call point: an operation that is added to a port is metered as it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from time import perf_counter
from typing import Any, NamedTuple, cast

from unskew.service.stores.ports import Store
from unskew.service.stores.records import News, NewsState

__all__ = ["StoreCalled", "metered"]


class StoreCalled(NamedTuple):
    """One operation. ``error``: the class of what it raised; ``quota``: which bound refused it. A tuple, because each
    call makes one."""

    op: str
    seconds: float
    error: str | None = None
    quota: str = ""


def metered(store: Store, observe: Callable[[StoreCalled], None]) -> Store:
    """The same store. ``observe`` is called after each operation, also after one that failed or was cancelled."""
    return cast(Store, _MeteredStore(store, observe))


class _MeteredStore:
    def __init__(self, store: Store, observe: Callable[[StoreCalled], None]) -> None:
        self._store, self._observe = store, observe

    async def close(self) -> None:
        await self._store.close()

    def news(self) -> AsyncIterator[News]:
        return self._store.news()

    def news_state(self) -> NewsState:
        return self._store.news_state()

    def used_bytes(self) -> tuple[int, int]:
        return self._store.used_bytes()

    def __getattr__(self, op: str) -> Callable[..., Any]:
        """Called for the first use of each operation only."""
        getattr(self._store, op)  # an AttributeError where there is none
        store, observe = self._store, self._observe

        async def timed(*args: Any, **named: Any) -> Any:
            started, error, quota = perf_counter(), None, ""
            try:
                return await getattr(store, op)(*args, **named)
            except BaseException as why:
                error, quota = type(why).__name__, getattr(why, "quota", "")
                raise
            finally:
                observe(StoreCalled(op, perf_counter() - started, error, quota))

        setattr(self, op, timed)
        return timed
