"""A second hash of key hashes, and the seed of the first one.

In a module without Arrow, because code that only routes by existing hashes (a plan's look-up, a router) needs none.
"""

from __future__ import annotations

import numpy as np

from unskew.core.arrays.types import U64

__all__ = ["SEED", "mix"]

SEED = 42


def mix(hashes: U64, salt: int) -> U64:
    """A second, independent hash of key hashes (the splitmix64 finaliser, salted).

    The plan's tail reads the top bits of the key hash, so all keys of one partition share them; a sketch or a
    further hash choice must not read those bits again.
    """
    z = hashes + np.uint64((salt * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
