"""Spark's Murmur3 (``hash()``) undone for one int: from a hash back to the int.

Every step of Murmur3 over one int is a bijection of 32 bits, so for a given seed exactly one int has a given hash. That
int is a placement salt: appended to the hashed columns, it makes Spark place the row in a chosen partition (DESIGN
section 7). The hash itself is Spark's to compute; ``tests/spark_hash.py`` has it for comparison.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["INVERSE_C1", "INVERSE_C2", "ROTATED", "invert_u32", "unmixed_u32"]

U32 = NDArray[np.uint32]


def _inverse(odd: int) -> np.uint32:
    """The factor that undoes a multiplication by ``odd`` modulo 2^32."""
    return np.uint32(pow(odd, -1, 1 << 32))


# The last steps of ``invert_u32``, for Spark SQL that does them once the seed is mixed in.
INVERSE_C1, INVERSE_C2, ROTATED = _inverse(0xCC9E2D51), _inverse(0x1B873593), 15

_INVERSE_FINAL_1, _INVERSE_FINAL_2 = _inverse(0x85EBCA6B), _inverse(0xC2B2AE35)
_INVERSE_FIVE, _ADDED = _inverse(5), np.uint32(0xE6546B64)
_INT_BYTES = np.array([4], np.uint32)  # an array: its sums wrap around without a warning


def _rotate_right(x: U32, by: int) -> U32:
    return (x >> np.uint32(by)) | (x << np.uint32(32 - by))


def invert_u32(target: U32, seed: U32) -> U32:
    """The int whose Spark hash under ``seed`` is ``target``: every step of Murmur3 undone, last first."""
    return _rotate_right((unmixed_u32(target) ^ seed) * INVERSE_C2, ROTATED) * INVERSE_C1


def unmixed_u32(target: U32) -> U32:
    """The steps that come before the seed does: the same for all rows with the same target."""
    h = target ^ (target >> np.uint32(16))
    h = h * _INVERSE_FINAL_2
    h = h ^ (h >> np.uint32(13)) ^ (h >> np.uint32(26))
    h = h * _INVERSE_FINAL_1
    h = h ^ (h >> np.uint32(16))
    h = h ^ _INT_BYTES
    return _rotate_right((h - _ADDED) * _INVERSE_FIVE, 13)
