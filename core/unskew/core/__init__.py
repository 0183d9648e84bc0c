"""Pure decisions: numpy in, numpy out. No I/O, no clock, no threads, no ambient randomness.

>>> from unskew.core import Histogram, hash_keys, make_planner
>>> hashes = hash_keys(["a", "b", "a", "c", "a"])
>>> plan = make_planner("kip", partitions=4).plan(Histogram.from_hashes(hashes))
>>> plan.route(hashes).shape
(5,)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from unskew.core.version import __version__

if TYPE_CHECKING:
    from unskew.core import quality
    from unskew.core.histogram.histogram import Histogram
    from unskew.core.keys.hashing import hash_keys
    from unskew.core.plan.plan import Plan
    from unskew.core.planners import make_planner
    from unskew.core.routers import make_router

__all__ = ["Histogram", "Plan", "__version__", "hash_keys", "make_planner", "make_router", "quality"]

# Each is loaded when it is first named: a task that routes by a plan needs no planners, no Arrow (which hashing keys
# does) and no numba (which the routers' kernels load where it is installed).
_HOMES = {
    "Histogram": "histogram.histogram",
    "Plan": "plan.plan",
    "hash_keys": "keys.hashing",
    "make_planner": "planners",
    "make_router": "routers",
}


def __getattr__(name: str) -> object:
    if name == "quality":
        return import_module("unskew.core.quality")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
