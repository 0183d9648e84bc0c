"""How many cells the map stage of a shuffle writes.

Few cells are cheap to write and coarse to share out. Spark has two ways to write a shuffle: up to 200 partitions each
has a file of its own, which costs the more the more there are; above it rows are sorted by their partition, which
costs more than some hundred files, but hardly more for 4,096 cells than for 256 (``docs/decisions/0035-in-flight.md``).

- Where only placing counts (a bare ``repartition``), some cells a partition.
- Where a task does work of its own for each row or group, cells are fine: a hot key shares its cell with so few other
  keys that it is all but alone there.
"""

from __future__ import annotations

__all__ = ["MOST_CELLS", "coarse_cells", "fine_cells"]

MOST_CELLS = 1 << 16  # Spark keeps a number of each cell for each map task
_COARSE, _FINE = 4, 32  # cells a partition
_LEAST_FINE = 1 << 11


def coarse_cells(partitions: int) -> int:
    """Cells for a shuffle whose rows are only placed.

    >>> coarse_cells(16), coarse_cells(2_048)
    (64, 8192)
    """
    return min(_COARSE * partitions, MOST_CELLS)


def fine_cells(partitions: int) -> int:
    """Cells for a shuffle whose tasks work on rows and groups.

    >>> fine_cells(16), fine_cells(200)
    (2048, 6400)
    """
    return min(max(_LEAST_FINE, _FINE * partitions), MOST_CELLS)
