"""Routers choose a worker row by row, by the loads that they have caused so far: PKG, PoRC, CG, Holistic, Dalton ...

One router a file; ``make_router`` makes one by name. Begin with ``base``, which states what all of them promise.
Nothing is compiled by importing this, but numba is loaded where it is installed.
"""

from unskew.core.routers.base import Router
from unskew.core.routers.registry import ROUTERS, make_router

__all__ = ["ROUTERS", "Router", "make_router"]
