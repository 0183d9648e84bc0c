"""The rows of one task's partition by an online router: one that decides row by row, with the loads that it has made.

A task that runs again may be given its rows in another order, and a router's answers depend on the order. So rows come
to it in the order of a hash of their key and their spread hash, which is as good as chance and the same in every run.
Rows that have both in common are one to the router, as nothing tells which of them came first.
"""

from __future__ import annotations

import numpy as np

from unskew.core.arrays.mixing import mix
from unskew.core.arrays.types import I32, U64
from unskew.core.errors import ConfigError

__all__ = ["check_router", "route_rows"]

_ELSEWHERE = {"dalton": "learn=True", "cg": "a stream of policy cg, whose workers report"}


def check_router(name: str) -> None:
    """Refuse what is no router, and those that need more than a partition's rows."""
    from unskew.core.routers.registry import ROUTERS  # here: who goes by a plan loads no router

    if name not in ROUTERS or name in _ELSEWHERE:
        instead = f"; instead of {name}: {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
        allowed = ", ".join(other for other in ROUTERS if other not in _ELSEWHERE)
        raise ConfigError("router", name, f"one of {allowed}{instead}")


def route_rows(name: str, partitions: int, seed: int, keys: U64, spread: U64 | None) -> I32:
    """The partition of each row, for rows in any order. Without spread hashes a key's rows are one.

    >>> keys = np.arange(1_000, dtype=np.uint64) % 10
    >>> rows = route_rows("wchoices", 4, 7, keys, np.arange(1_000, dtype=np.uint64))
    >>> np.bincount(rows).tolist()
    [250, 250, 250, 250]
    """
    from unskew.core.routers.registry import make_router

    units = mix(keys, 3) if spread is None else mix(keys ^ mix(spread, 2), 3)
    order = np.lexsort((keys, units))
    ordered = keys[order]
    first = np.ones(len(keys), np.bool_)
    first[1:] = (np.diff(units[order]) != 0) | (np.diff(ordered) != 0)
    starts = np.flatnonzero(first)
    routed = make_router(name, partitions, seed).route(ordered[starts])
    out = np.empty(len(keys), np.int32)
    out[order] = np.repeat(routed, np.diff(starts, append=len(keys)))
    return out
