"""How many cells the map stage of a shuffle writes.

Few cells are cheap to write and coarse to share out. Spark has two ways to write a shuffle: up to 200 partitions each
has a file of its own, which costs the more the more there are; above it rows are sorted by their partition, which
costs more than some hundred files, but hardly more for 4,096 cells than for 256 (``docs/decisions/0035-in-flight.md``).

- Where only placing counts (a bare ``repartition``), some cells a partition.
- Where a task does work of its own for each row or group, cells are fine: a hot key shares its cell with so few other
  keys that it is all but alone there.
- Where cells are a function of the rows' content (a micro-batch, which must be placed the same when it runs again),
  they are hosts of keys in pieces. A range of light hosts ends at a host, so sixteen hosts a partition make ranges even
  within a few percent. A host whose key has a share f is cut in f n tasks of some pieces each, so there are as many
  pieces as partitions, up to a bound. A batch of few rows has no more cells than rows: its tasks are as even as chance
  lets them be, and each map task writes an offset for each cell.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MOST_CELLS", "ContentLayout", "coarse_cells", "content_cells", "fine_cells"]

MOST_CELLS = 1 << 16  # Spark keeps a number of each cell for each map task
_COARSE, _FINE = 4, 32  # cells a partition
_LEAST_FINE = 1 << 11
_HOSTS, _LEAST_HOSTS = 16, 4  # a partition; the fewest, where pieces need the room
_LEAST_PIECES, _MOST_PIECES = 8, 64


@dataclass(frozen=True)
class ContentLayout:
    """Cells by the rows' content: so many ``hosts`` of keys, each in so many ``pieces`` by what tells the rows of a key
    apart. Powers of two, as the top bits of a hash say which."""

    hosts: int
    pieces: int = 1

    @property
    def cells(self) -> int:
        """All of them; those of one host are neighbours."""
        return self.hosts * self.pieces


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


def content_cells(partitions: int, rows: int = 0, *, cut: bool) -> ContentLayout:
    """Cells for a batch of about ``rows`` rows (0: unknown), whose keys may be ``cut`` or stay whole.

    >>> content_cells(16, cut=True), content_cells(64, 1_000_000, cut=True)
    (ContentLayout(hosts=256, pieces=16), ContentLayout(hosts=1024, pieces=64))
    >>> content_cells(64, 10_000, cut=True), content_cells(16, cut=False)
    (ContentLayout(hosts=256, pieces=64), ContentLayout(hosts=2048, pieces=1))
    """
    most = min(MOST_CELLS, _power(rows)) if rows else MOST_CELLS
    if not cut:
        return ContentLayout(max(min(_power(fine_cells(partitions)), most), min(_power(partitions), MOST_CELLS)))
    hosts = min(_power(_HOSTS * partitions), MOST_CELLS // _LEAST_PIECES)
    pieces = min(max(_power(partitions), _LEAST_PIECES), _MOST_PIECES)
    while hosts * pieces > most and (hosts > _LEAST_HOSTS * partitions or pieces > _LEAST_PIECES):
        if hosts > _LEAST_HOSTS * partitions:
            hosts //= 2
        else:
            pieces //= 2
    return ContentLayout(hosts, pieces)


def _power(number: int) -> int:
    """The least power of two that is not below it."""
    return 1 << max(number - 1, 0).bit_length()
