"""How many cells the map stage of a shuffle writes.

Few cells are cheap to write and coarse to share out. Spark has two ways to write a shuffle: up to 200 partitions each
has a file of its own, which costs the more the more there are; above it rows are sorted by their partition, which
costs more than some hundred files, but hardly more for 4,096 cells than for 256 (``docs/decisions/0035-in-flight.md``).

- Where only placing counts (a bare ``repartition``), some cells a partition.
- Where a task does work of its own for each row or group, cells are fine: a hot key shares its cell with so few other
  keys that it is all but alone there.
- Where cells are a function of the rows' content (a micro-batch, which must be placed the same when it runs again),
  they are hosts of keys in pieces. A range ends between two hosts, so eight of them a partition make ranges even within
  a few percent; or within a heavy host, whose key with a share f has f n partitions: four pieces a partition leave a
  key of 40 % even within 5 %. In batches rows are few for each cell, and then cells do cost: some 8 us for each that a
  map task has rows of (300,000 rows in 4 map tasks: 0.35 s for 4,096 cells, 0.85 s for 16,384, 2.1 s for 65,536). So
  above 16 partitions there are fewer of both a partition, and in a batch of few rows no more cells than rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from unskew.core.histogram.sampling import sample_for

__all__ = ["MOST_CELLS", "ContentLayout", "coarse_cells", "content_cells", "enough_sampled", "fine_cells"]

MOST_CELLS = 1 << 16  # Spark keeps a number of each cell for each map task
_COARSE, _COARSE_CUT, _FINE = 4, 2, 32  # cells a partition
_LEAST_FINE = 1 << 11
_SAMPLED, _LEAST_SAMPLED = 1 << 11, 1 << 14  # rows a partition, and at least
_HOSTS, _PIECES = 8, 4  # a partition
_FEWEST, _LEAST_PIECES, _MOST_PIECES = 32, 8, 256  # pieces where there is room, where there is not, and at most
_ROOM = (
    (8.0, 2.0),
    (4.0, 0.25),
    (2.0, 0.0),
    (1.0, 0.0),
)  # hosts and pieces a partition that are kept at least, the better first
_LEAST_ROOM, _ROOM_EACH, _MOST_ROOM = 1 << 14, 1 << 8, 1 << 15  # cells: for any batch, for each partition, at most


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


def coarse_cells(partitions: int, *, cut: bool) -> int:
    """Cells for a shuffle whose rows are only placed. Where a heavy cell can be ``cut`` fewer will do.

    >>> coarse_cells(16, cut=False), coarse_cells(16, cut=True), coarse_cells(2_048, cut=False)
    (64, 32, 8192)
    """
    return min((_COARSE_CUT if cut else _COARSE) * partitions, MOST_CELLS)


def fine_cells(partitions: int) -> int:
    """Cells for a shuffle whose tasks work on rows and groups.

    >>> fine_cells(16), fine_cells(200)
    (2048, 6400)
    """
    return min(max(_LEAST_FINE, _FINE * partitions), MOST_CELLS)


def enough_sampled(partitions: int) -> int:
    """Rows to sample so that tasks are even within a few percent: fewer than where a plan is to be made of them, which
    has to know how many values tell the rows of a key apart.

    >>> enough_sampled(16), enough_sampled(200)
    (32768, 100000)
    """
    return min(max(_SAMPLED * partitions, _LEAST_SAMPLED), sample_for(partitions))


def content_cells(partitions: int, rows: int = 0, *, cut: bool) -> ContentLayout:
    """Cells for a batch of about ``rows`` rows (0: unknown), whose keys may be ``cut`` or stay whole.

    >>> content_cells(16, cut=True), content_cells(64, 1_000_000, cut=True)
    (ContentLayout(hosts=128, pieces=64), ContentLayout(hosts=256, pieces=64))
    >>> content_cells(16, 1_000, cut=True), content_cells(16, cut=False)
    (ContentLayout(hosts=64, pieces=16), ContentLayout(hosts=2048, pieces=1))
    """
    most = min(max(_LEAST_ROOM, _ROOM_EACH * _power(partitions)), _MOST_ROOM)
    most = min(most, _power(rows)) if rows else most
    if not cut:
        return ContentLayout(max(min(_power(fine_cells(partitions)), most), min(_power(partitions), MOST_CELLS)))
    hosts, pieces = _power(_HOSTS * partitions), min(max(_power(_PIECES * partitions), _FEWEST), _MOST_PIECES)
    for least_hosts, least_pieces in _ROOM:
        while hosts * pieces > most and hosts // 2 >= least_hosts * partitions:
            hosts //= 2
        while hosts * pieces > most and pieces // 2 >= max(least_pieces * partitions, _LEAST_PIECES):
            pieces //= 2
    return ContentLayout(hosts, pieces)


def _power(number: int) -> int:
    """The least power of two that is not below it."""
    return 1 << max(number - 1, 0).bit_length()
