"""How the rows of one split key are shared among partitions: equal slots, each with at most one cut.

A row's slot is the top bits of its spread hash, and in a slot the rows below the cut go to one partition, the
rest to another (Walker's alias method). ``2**b`` slots with ``b = ceil(log2 fragments)`` express any shares to
2^-63, where equal uncut slots would need 65,536 of them to be a thousand rows out on a key of 10^8
(docs/decisions/0004). The cut is compared with ``spread >>> 1``, so that Spark's signed bigint compares the same.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["UNITS_BITS", "KeySlots", "slots_for", "units_of"]

UNITS_BITS = 63
_ALL = 1 << UNITS_BITS


@dataclass(frozen=True)
class KeySlots:
    """``2**bits`` slots: rows with ``spread >> 1 < cut`` go to ``first``, the others to ``second``."""

    bits: int
    first: tuple[int, ...]
    second: tuple[int, ...]
    cut: tuple[int, ...]


def slots_for(partitions: list[int], rows: list[int]) -> KeySlots:
    """Slots that give each of these distinct partitions its share of the key's rows."""
    units = _units(rows)
    bits = max(len(partitions) - 1, 0).bit_length()
    width = _ALL >> bits
    first, second, cut = [0] * (1 << bits), [0] * (1 << bits), [0] * (1 << bits)
    small = [(p, u) for p, u in zip(partitions, units, strict=True) if u < width]
    large = [(p, u) for p, u in zip(partitions, units, strict=True) if u >= width]
    for slot in range(1 << bits):
        start = slot * width
        if small:
            below, part = small.pop()
        else:
            below, part = large[-1][0], 0
        first[slot], cut[slot] = below, start + part
        second[slot] = large[-1][0] if part < width and large else below
        if part < width:
            _draw(small, large, width - part, width)
    return KeySlots(bits, tuple(first), tuple(second), tuple(cut))


def _units(rows: list[int]) -> list[int]:
    """Shares of 2^63 that add up exactly; never zero for a fragment that has rows."""
    whole, running, before, out = sum(rows), 0, 0, []
    for count in rows:
        running += count
        upto = _ALL * running // whole
        out.append(upto - before)
        before = upto
    return out


def _draw(small: list[tuple[int, int]], large: list[tuple[int, int]], amount: int, width: int) -> None:
    """Take ``amount`` units from the last large partition; it becomes small when less than a slot is left."""
    if not large:
        return
    partition, units = large.pop()
    rest = units - amount
    if rest >= width:
        large.append((partition, rest))
    elif rest > 0:
        small.append((partition, rest))


def units_of(bits: int, first: list[int], second: list[int], cut: list[int]) -> dict[int, int]:
    """What share of 2^63 each partition has in these slots, by ascending partition."""
    width = _ALL >> bits
    shares: dict[int, int] = {}
    for slot, (below, above, at) in enumerate(zip(first, second, cut, strict=True)):
        part = at - slot * width
        shares[below] = shares.get(below, 0) + part
        shares[above] = shares.get(above, 0) + width - part
    return {partition: units for partition, units in sorted(shares.items()) if units}
