"""Pure decisions: numpy in, numpy out. No I/O, no clock, no threads, no ambient randomness.

What is decided where, from the bottom up:

- ``arrays``: helpers; ``keys``: which columns can be keys, and their hashes, which equal Spark's;
- ``sketches``, ``histogram``: how many rows each key has, estimated or counted;
- ``plan``: the table that says where each key goes, and how a row is routed by it, rows of split keys included;
- ``quality``: how even a routing is, and what it costs; ``planners``: plans from histograms, one algorithm a file;
- ``routers`` (loops in ``kernels``): workers chosen row by row; ``grouping``: signals of busy workers;
- ``dalton``: what one learner knows; ``rounds``: how several agree: when a round is sealed, what a late report does;
- ``in_flight``: **which task reads which rows** of a shuffle that is already written;
- ``freshness``: **which plan the next micro-batch gets**, by its own counts or by those before it;
- ``scaling``: **how many partitions the next batches get**;
- ``fairness``: who is served next, and who has to wait, where many share one service;
- ``diagnosis``: which stages of a past job waited for their longest task, and why;
- ``operators``: what joins, groups, keyed state and ``sk.advise`` need decided.

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
