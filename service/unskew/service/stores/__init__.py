"""The stores behind ``unskew.service.stores.ports``: one URL says which, and how."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from unskew.core.errors import ConfigError
from unskew.service.stores.address import read_address
from unskew.service.stores.limits import Limits
from unskew.service.stores.memory import MemoryStore
from unskew.service.stores.ports import Store

__all__ = ["open_store"]

_DAYS = 86_400.0


def open_store(
    url: str = "memory",
    *,
    clock: Callable[[], float] = time.time,
    limits: Limits | None = None,
) -> Store:
    """The store of this URL (``stores.address``); nothing is connected yet.

    ``clock`` is the memory store's: Redis has its own.

    >>> type(open_store("memory://")).__name__
    'MemoryStore'
    """
    address = read_address(url)
    if address.kind == "memory":
        return MemoryStore(clock, limits)
    from unskew.service.stores.redis.redis_client import Patience
    from unskew.service.stores.redis.store import RedisStore

    given, usual = address.options, Patience()
    timeout = _number(given, "timeout", usual.timeout)
    patience = Patience(
        timeout=timeout,
        deadline=_number(given, "deadline", max(usual.deadline, timeout)),
        connections=int(_number(given, "connections", usual.connections)),
    )
    return RedisStore(
        address,
        prefix=given.get("prefix", "unskew"),
        ttl=_number(given, "ttl", 30 * _DAYS),
        limits=limits,
        patience=patience,
    )


def _number(options: Mapping[str, str], name: str, usual: float) -> float:
    try:
        return float(options.get(name, usual))
    except ValueError:
        raise ConfigError(name, options[name], "a number") from None
