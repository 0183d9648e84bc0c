"""What must be atomic and survive a replica: streams, reports, plans, rounds, history. Begin with ``ports``.

``memory`` and ``redis`` implement the ports, ``metered`` and ``recovering`` wrap either of them, ``records`` has the
values. One URL says which store is used (``address``). A new operation is a line in ``ports``, and a method in
``memory`` and ``redis.store`` (with a script in ``redis.scripts``).
"""

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


def open_store(url: str = "memory", *, clock: Callable[[], float] = time.time, limits: Limits | None = None) -> Store:
    """The store of this URL (``stores.address``); nothing is connected yet. ``clock``: for memory; Redis has its own.

    >>> type(open_store("memory://")).__name__
    'MemoryStore'
    """
    address = read_address(url)
    if address.kind == "memory":
        return MemoryStore(clock, limits)
    from unskew.service.stores.redis.redis_client import Patience
    from unskew.service.stores.redis.store import RedisStore

    options, default = address.options, Patience()
    timeout = _number(options, "timeout", default.timeout)
    patience = Patience(
        timeout=timeout,
        deadline=_number(options, "deadline", max(default.deadline, timeout)),
        connections=int(_number(options, "connections", default.connections)),
    )
    return RedisStore(
        address,
        prefix=options.get("prefix", "unskew"),
        ttl=_number(options, "ttl", 30 * _DAYS),
        limits=limits,
        patience=patience,
    )


def _number(options: Mapping[str, str], name: str, default: float) -> float:
    try:
        return float(options.get(name, default))
    except ValueError:
        raise ConfigError(name, options[name], "a number") from None
