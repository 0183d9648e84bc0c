"""How large a plan may be, and how many hosts its tail has: what planners, plans and their readers agree on."""

from __future__ import annotations

__all__ = ["MAX_BYTES", "MAX_PARTITIONS", "MAX_SLOTS", "host_bits"]

MAX_PARTITIONS = 8192  # beyond it the tail alone would break the plan's bound of 1 MB
MAX_SLOTS = 65_536
MAX_BYTES = 1 << 20
_MIN_HOST_BITS = 12


def host_bits(partitions: int) -> int:
    """log2 of H, the least power of two >= max(4096, 32 n)."""
    return max(_MIN_HOST_BITS, (32 * partitions - 1).bit_length())
