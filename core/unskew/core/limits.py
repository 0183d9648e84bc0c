"""The size limits of a plan, and how many hosts its tail has: planners, plans and readers of plans use the same."""

from __future__ import annotations

__all__ = ["MAX_BYTES", "MAX_LISTED", "MAX_PARTITIONS", "MAX_SLOTS", "host_bits", "listed_budget", "slot_budget"]

MAX_PARTITIONS = 8192  # beyond it the tail alone would break the plan's bound of 1 MB
MAX_SLOTS = 65_536
MAX_BYTES = 1 << 20
_MIN_HOST_BITS = 12
MAX_LISTED = 16_384
_BYTES_PER_HOST = 2
_BYTES_PER_WHOLE = 24
_BYTES_PER_SLOT = 13
_BYTES_PER_LISTED = 48  # a listed key at its largest: hash, home, rows, reason, displacement and two slots


def host_bits(partitions: int) -> int:
    """log2 of H, the least power of two >= max(4096, 32 n)."""
    return max(_MIN_HOST_BITS, (32 * partitions - 1).bit_length())


def slot_budget(partitions: int, listed: int) -> int:
    """How many slots of split keys fit a plan that lists so many keys, within its bound of 1 MB."""
    rest = MAX_BYTES - (_BYTES_PER_HOST << host_bits(partitions)) - _BYTES_PER_WHOLE * listed
    return max(min(rest // _BYTES_PER_SLOT, MAX_SLOTS - listed), 0)


def listed_budget(partitions: int) -> int:
    """How many keys fit a plan for this many partitions, within its bound of 1 MB."""
    return min(MAX_LISTED, (MAX_BYTES - (_BYTES_PER_HOST << host_bits(partitions))) // _BYTES_PER_LISTED)
