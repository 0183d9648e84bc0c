"""How a per-row loop is compiled: by numba where it is installed, else it runs as plain Python.

Both give the same bits (``tests/unit/test_kernels.py`` compares them). What that asks of the code in this package:
- a constant that meets a ``uint64`` is a ``uint64``: mixed with an int, numba and numpy would go to floats;
- products wrap around on purpose, so plain Python runs under ``np.errstate(over="ignore")`` (``routers/base.py``);
- nothing is divided by what may be 0, and randomness is a counter that is hashed, never a generator's state;
- state lives in arrays that the routers own and pass in.

numba keeps compiled code beside the source and checks the age of that one file only: after an edit of a function that
other files inline, run ``make clean-kernels``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

njit: Any
try:
    from numba import njit
except ImportError:
    njit = None

__all__ = ["COMPILED", "Int", "Numbers", "inner", "kernel"]

Int = Any  # an int in plain Python, an int64 where compiled
Numbers = Any  # int64 or float64, often an array with one a worker
Loop = TypeVar("Loop", bound=Callable[..., Any])

COMPILED = njit is not None


def kernel(loop: Loop) -> Loop:
    """Compile a loop and keep the machine code for the next process, where numba can write a cache.

    In a container with a read-only root it cannot, and raises as soon as a cache is asked for.
    """
    if njit is None:
        return loop
    try:
        compiled: Loop = njit(cache=True, nogil=True)(loop)
    except RuntimeError:
        compiled = njit(nogil=True)(loop)
    return compiled


def inner(loop: Loop) -> Loop:
    """Compile a small function into the loops that call it. It must not allocate.

    Reference counting is off, because it costs more than such a function does: a call counts every array that it is
    given, twice.
    """
    if njit is None:
        return loop
    compiled: Loop = njit(nogil=True, forceinline=True, _nrt=False)(loop)
    return compiled
