"""Loads of the workers in a sliding window, kept row by row (Dalton, section 3.3).

A window is a ring of slides: ``ring[j, w]`` counts the rows of slide j on worker w, ``load[w]`` is the sum over the
ring, and ``clock`` holds the place of the slide in use, its number, and the rows in the window. A row costs O(1); a
slide costs its workers once, when it is evicted.
"""

from __future__ import annotations

import numpy as np

from unskew.core.arrays.types import I64
from unskew.core.kernels.base import Int, inner, kernel

__all__ = ["PLACE", "ROWS", "SLIDE", "advance", "capacity", "count"]


PLACE, SLIDE, ROWS = 0, 1, 2  # what ``clock`` holds


@kernel
def advance(clock: I64, ring: I64, load: I64, slide: int) -> None:
    """Open this slide: those that fall out of the window are subtracted and their place is used again."""
    steps = min(slide - clock[SLIDE], ring.shape[0])
    for _ in range(steps):
        place = clock[PLACE] + 1
        if place == ring.shape[0]:
            place = 0
        for worker in range(load.shape[0]):
            load[worker] -= ring[place, worker]
            clock[ROWS] -= ring[place, worker]
            ring[place, worker] = 0
        clock[PLACE] = place
    clock[SLIDE] = slide


@inner
def count(clock: I64, ring: I64, load: I64, worker: int) -> None:
    """One more row for this worker in the slide in use."""
    ring[clock[PLACE], worker] += 1
    load[worker] += 1
    clock[ROWS] += 1


@inner
def capacity(rows: int, workers: int, over: float) -> Int:
    """ceil((1 + epsilon) x mean load), the row in hand included."""
    return np.int64(np.ceil((1.0 + over) * np.float64(rows + 1) / np.float64(workers)))
