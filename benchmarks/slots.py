"""How exactly a split key's shares can be encoded: equal slots without cuts, beside slots with one cut each.

For one key over n even partitions, the rows by which the worst partition misses its share and the table entries it
takes; equal slots get all 65,536 that a plan may hold.

Run: ``python benchmarks/slots.py``
"""

from __future__ import annotations

from unskew.core.arrays.apportion import apportion
from unskew.core.plan.slots import UNITS_BITS, slots_for, units_of

BUDGET = 65_536


def uncut(rows: int, n: int) -> float:
    """The worst miss with every slot on one partition."""
    slots = apportion(BUDGET, [1] * n)
    return max(abs(rows * have / BUDGET - rows / n) for have in slots)


def with_cuts(rows: int, n: int) -> tuple[float, int]:
    made = slots_for(list(range(n)), apportion(rows, [1] * n))
    units = units_of(made.bits, list(made.first), list(made.second), list(made.cut))
    return max(abs(rows * part / (1 << UNITS_BITS) - rows / n) for part in units.values()), len(made.first)


def main() -> None:
    print(f"one key over n partitions: rows that the worst one misses its share by ({BUDGET:,} uncut slots)")
    for rows in (10**6, 10**8, 10**10):
        for n in (3, 64, 1000, 4096):
            cut, entries = with_cuts(rows, n)
            print(
                f"  {rows:>14,} rows, n = {n:>4}: uncut {uncut(rows, n):>12,.1f}   cut {cut:4.1f} in {entries:>4} slots"
            )


if __name__ == "__main__":
    main()
