"""The loops of consistent hashing over a circle of points: plain, and with bounded loads."""

from __future__ import annotations

import numpy as np

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.kernels.base import inner, kernel
from unskew.core.kernels.window import ROWS, SLIDE, advance, capacity, count

__all__ = ["clockwise", "route_bounded_ring", "route_ring"]


@inner
def clockwise(position: np.uint64, cells: I64, shift: np.uint64, points: U64) -> int:
    """The first point of the circle at or after a position: look up its cell, then walk."""
    at = cells[np.int64(position >> shift)]
    while at < points.shape[0] and points[at] < position:
        at += 1
    return at if at < points.shape[0] else 0


@kernel
def route_ring(keys: U64, out: I32, cells: I64, shift: np.uint64, points: U64, owner: I32) -> None:
    """Consistent hashing: the owner of the first point clockwise."""
    for i in range(keys.shape[0]):
        out[i] = owner[clockwise(keys[i], cells, shift, points)]


@kernel
def route_bounded_ring(
    keys: U64,
    slides: I64,
    out: I32,
    cells: I64,
    shift: np.uint64,
    points: U64,
    owner: I32,
    over: float,
    clock: I64,
    ring: I64,
    load: I64,
) -> None:
    """Consistent hashing with bounded loads: clockwise until an owner has room under (1 + epsilon) of the mean."""
    for i in range(keys.shape[0]):
        if slides[i] != clock[SLIDE]:
            advance(clock, ring, load, slides[i])
        room = capacity(clock[ROWS], load.shape[0], over)
        at = clockwise(keys[i], cells, shift, points)
        while load[owner[at]] >= room:
            at = at + 1 if at + 1 < points.shape[0] else 0
        out[i] = owner[at]
        count(clock, ring, load, owner[at])
