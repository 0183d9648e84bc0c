"""Pure decisions: numpy in, numpy out. No I/O, no clock, no threads, no ambient randomness.

>>> from unskew.core import Histogram, hash_keys, make_planner
>>> hashes = hash_keys(["a", "b", "a", "c", "a"])
>>> plan = make_planner("kip", partitions=4).plan(Histogram.from_hashes(hashes))
>>> plan.route(hashes).shape
(5,)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unskew.core import quality
from unskew.core.hashing import hash_keys
from unskew.core.histogram import Histogram
from unskew.core.plan import Plan
from unskew.core.planners import make_planner
from unskew.core.version import __version__

if TYPE_CHECKING:
    from unskew.core.routers import make_router

__all__ = ["Histogram", "Plan", "__version__", "hash_keys", "make_planner", "make_router", "quality"]


def __getattr__(name: str) -> object:
    """``make_router`` on first use: the routers' kernels load numba where it is installed, and planning needs none."""
    if name == "make_router":
        from unskew.core.routers import make_router

        return make_router
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
