"""The circle of consistent hashing: where each worker's points lie, and a table of cells to find the next one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.mixing import mix
from unskew.core.arrays.types import I32, I64, U64
from unskew.core.parameters import check_range
from unskew.core.routers.base import RouterSettings

__all__ = ["Circle"]


@dataclass(frozen=True, eq=False)
class Circle:
    """Points in ascending order and their owners. Cell c begins at ``c << shift``; ``cells[c]`` is the first point
    that does not lie before it, so that a look-up walks over a point or two."""

    points: U64
    owner: I32
    cells: I64
    shift: np.uint64

    @classmethod
    def of(cls, settings: RouterSettings, copies: int) -> Circle:
        check_range("copies", copies, 1, 1000, "1 to 1000 points a worker")
        owner = np.repeat(np.arange(settings.workers, dtype=np.int32), copies)
        points = mix(np.arange(len(owner), dtype=np.uint64), int(settings.salt(0)))
        order = np.argsort(points, kind="stable")
        points, owner = points[order], owner[order]
        bits = max(len(points).bit_length(), 1)
        shift = np.uint64(64 - bits)
        begins = np.arange(1 << bits, dtype=np.uint64) << shift
        return cls(points, owner, np.searchsorted(points, begins).astype(np.int64), shift)
