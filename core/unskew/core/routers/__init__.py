"""One router a file; ``make_router`` finds them by name. Importing this compiles nothing but loads numba, if there."""

from unskew.core.routers.base import Router
from unskew.core.routers.registry import ROUTERS, make_router

__all__ = ["ROUTERS", "Router", "make_router"]
