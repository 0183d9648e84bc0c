"""The micro-batch accumulator: exact counts per key, ready in descending order at the cut-off.

Prompt, section 4.1, Algorithm 1. Keys and their counts live in a hash table; either a count tree is
refreshed a bounded number of times a key while rows arrive (``order="tree"``), or the counts are sorted once
at the end (``order="sort"``, the default: it was the cheaper of the two, see
``benchmarks/prompt_machines.py``). It does not decide when to cut off (``early_release``) nor where keys go
(the planner).

Deviations from the listing:

- A batch of rows shares one ``now``, so steps are reached with ``>=``, where the listing has ``==`` for one
  tuple.
- A new key enters the tree with its whole count in the batch that brought it, not with 1.
- Lines 11 and 17 spend the budget but nothing checks it; here a key without budget is not refreshed, as the
  text says.
- The listing never sets ``LastUpdateTime``; here an insertion and every refresh set it.
- ``f.step`` is never below 1.
- A tree node is a count with its keys, not a key: a batch's refreshes are filed together, and what a key left
  behind at its old count is skipped by the traversal.
- Tuples are not chained: rows never enter the core, only their key hashes do.
- HTable: after a few neighbouring cells each further probe is a fresh hash of the key. Cells tried in one fixed
  order can be crowded by chosen keys, and key hashes are chosen by whoever writes the keys.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from unskew.core.arrays.mixing import mix
from unskew.core.errors import ConfigError

__all__ = ["Accumulator", "MicroBatch"]

Order = Literal["sort", "tree"]
U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]

T = TypeVar("T", bound=np.generic)

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST_BITS = 10
_NEAR = 8
_SALT = 3


@dataclass(frozen=True)
class MicroBatch:
    """One interval's keys: exact counts, in descending order (``tree``: nearly), and what the order cost."""

    hashes: U64
    counts: I64
    refreshes: I64
    """Tree refreshes of each key, aligned with ``hashes``; all zero without a tree."""
    by_frequency: int
    by_time: int
    start: float
    released: float

    @property
    def rows(self) -> int:
        """N_C: all rows of the interval."""
        return int(self.counts.sum())

    @property
    def keys(self) -> int:
        """|K|: distinct keys of the interval."""
        return int(self.hashes.size)


class Accumulator:
    """Prompt's Algorithm 1 (section 4.1), vectorised over batches of key hashes.

    >>> import numpy as np
    >>> accumulator = Accumulator()
    >>> accumulator.open(start=0.0, end=1.0)
    >>> accumulator.add(np.array([7, 9, 7], dtype=np.uint64), now=0.5)
    >>> batch = accumulator.release(now=0.95)
    >>> batch.hashes.tolist(), batch.counts.tolist()
    ([7, 9], [2, 1])

    With ``order="sort"`` the result depends on the rows alone: equal counts are ordered by hash, so neither
    the order of arrival nor the size of the batches shows. With ``order="tree"`` the counts are as exact,
    and the order is as good as the refreshes allowed. ``expected_rows`` and ``expected_keys`` stand for
    N_Est and K_Avg until the first interval is over; from then on the means of the last ``memory`` intervals
    do.
    """

    def __init__(
        self,
        *,
        budget: int = 8,
        order: Order = "sort",
        expected_rows: int = 1_000_000,
        expected_keys: int = 100_000,
        memory: int = 5,
    ) -> None:
        if order not in get_args(Order):
            raise ConfigError("order", order, get_args(Order))
        self._budget = _whole("budget", budget, 1, 10_000)
        self._order: Order = order
        self._history: deque[tuple[int, int]] = deque(maxlen=_whole("memory", memory, 1, 1_000))
        self._expected = (
            _whole("expected_rows", expected_rows, 1, 2**62),
            _whole("expected_keys", expected_keys, 1, 2**62),
        )
        self._keys: _KeyTable | None = None
        self._tree: _CountTree | None = None
        self._start = self._end = self._now = 0.0
        self._rows = 0

    def open(self, start: float, end: float) -> None:
        """Line 1: begin the interval that will be released at ``end``, with empty tables."""
        if self._keys is not None:
            raise ConfigError("open", start, "release() first: an interval is open")
        if not float("-inf") < start < end < float("inf"):
            raise ConfigError("end", end, f"a finite time after start = {start}")
        self._start, self._end, self._now, self._rows = start, end, start, 0
        self._keys = _KeyTable()
        self._tree = self._new_tree() if self._order == "tree" else None

    def add(self, hashes: U64, now: float) -> None:
        """Lines 2-32 for a batch of rows, given as key hashes, that arrived at ``now``."""
        if hashes.ndim != 1 or hashes.dtype != np.uint64:
            raise ConfigError("hashes", f"{hashes.dtype}[{hashes.ndim}-d]", "a 1-d array of uint64")
        table = self._tick(now)
        if not hashes.size:
            return
        self._rows += hashes.size
        keys, counts = _distinct(hashes)
        size_before = table.size
        slots = table.slots(keys)
        table.count[slots] += counts
        if self._tree is not None:
            fresh = slots >= size_before
            self._tree.insert(slots[fresh], table.count, now, self._end)
            self._tree.refresh(slots[~fresh], table.count, now, self._end, self._rows)

    def release(self, now: float) -> MicroBatch:
        """End the interval: its keys in (quasi-)descending order of count. The tables are cleared."""
        table, tree = self._tick(now), self._tree
        hashes, counts = table.key[: table.size], table.count[: table.size]
        if tree is None:
            order, spent = _descending(hashes, counts), np.zeros(table.size, dtype=np.int64)
            by_frequency = by_time = 0
        else:
            order = tree.walk()
            spent = self._budget - tree.budget_left[order]
            by_frequency, by_time = tree.by_frequency, tree.by_time
        self._history.append((self._rows, table.size))
        self._keys = self._tree = None
        return MicroBatch(hashes[order], counts[order], spent, by_frequency, by_time, start=self._start, released=now)

    def _tick(self, now: float) -> _KeyTable:
        if self._keys is None:
            raise ConfigError("now", now, "open() first: no interval is open")
        if not self._now <= now < float("inf"):
            raise ConfigError("now", now, f"a finite time not before {self._now}")
        self._now = now
        return self._keys

    def _new_tree(self) -> _CountTree:
        rows, keys = self._expected
        if self._history:
            rows = max(1, sum(n for n, _ in self._history) // len(self._history))
            keys = max(1, sum(k for _, k in self._history) // len(self._history))
        return _CountTree(self._budget, expected_rows=rows, expected_keys=keys)


class _KeyTable:
    """HTable: distinct hash -> slot, open addressing, whole arrays at a time."""

    def __init__(self) -> None:
        self.size = 0
        self.key: U64 = np.zeros(1 << (_FIRST_BITS - 1), dtype=np.uint64)
        self.count: I64 = np.zeros(self.key.size, dtype=np.int64)
        self._bits = _FIRST_BITS
        self._cells: I64 = np.full(1 << _FIRST_BITS, -1, dtype=np.int64)

    def slots(self, keys: U64) -> I64:
        """The slot of each of these distinct keys; unknown keys get the next slots, in the order given."""
        self._reserve(self.size + keys.size)
        slots, at = self._find(keys)
        new = np.flatnonzero(slots < 0)
        fresh = np.arange(self.size, self.size + new.size)
        slots[new], self.key[fresh] = fresh, keys[new]
        self._place(fresh[self._claim(fresh, at[new])])
        self.size += new.size
        return slots

    def _find(self, keys: U64) -> tuple[I64, I64]:
        """The slot of each key, -1 where it is unknown, and the cell where the search ended: its own or a free one."""
        at, slots = self._home(keys), np.full(keys.size, -1, dtype=np.int64)
        todo, sought, probe = np.arange(keys.size), keys, 0
        while todo.size:
            cell = self._cells[at[todo]]
            occupied = cell >= 0
            match = occupied & (self.key[cell] == sought)
            slots[todo[match]] = cell[match]
            todo, probe = todo[occupied & ~match], probe + 1
            sought = keys[todo]
            at[todo] = self._next(sought, at[todo], probe)
        return slots, at

    def _home(self, keys: U64) -> I64:
        return ((keys * _GOLDEN) >> np.uint64(64 - self._bits)).astype(np.int64)

    def _next(self, keys: U64, at: I64, probe: int) -> I64:
        """Where keys look at this probe: in the next cell a few times, then wherever a new hash says.

        ``mix`` adds its salt to the key. With salts 1, 2, 3 keys that lie one such step apart would look at each
        other's cells all along; with powers a set of keys must grow by a factor for every probe that it prolongs.
        """
        if probe < _NEAR:
            return (at + 1) & (self._cells.size - 1)
        return (mix(keys, _SALT**probe) >> np.uint64(64 - self._bits)).astype(np.int64)

    def _claim(self, slots: I64, at: I64) -> Mask:
        """Put slots into those of these cells that are free; True where the cell is another's."""
        free = self._cells[at] < 0
        self._cells[at[free]] = slots[free]
        lost: Mask = self._cells[at] != slots
        return lost

    def _place(self, slots: I64) -> None:
        """Put keys that no cell holds into their first free cells."""
        at, probe = self._home(self.key[slots]), 0
        while slots.size:
            lost = self._claim(slots, at)
            slots, probe = slots[lost], probe + 1
            at = self._next(self.key[slots], at[lost], probe)

    def _reserve(self, size: int) -> None:
        """Keep at least half the cells free, so that probes stay short."""
        if 2 * size <= self._cells.size:
            return
        self._bits = (2 * size - 1).bit_length()
        self._cells = np.full(1 << self._bits, -1, dtype=np.int64)
        self.key, self.count = (_grown(self.key, 1 << (self._bits - 1)), _grown(self.count, 1 << (self._bits - 1)))
        self._place(np.arange(self.size))


class _CountTree:
    """CountTree: count -> keys in ascending order of count, refreshed at most ``budget`` times a key."""

    def __init__(self, budget: int, *, expected_rows: int, expected_keys: int) -> None:
        self.by_frequency = self.by_time = 0
        self._budget, self._expected_rows = budget, expected_rows
        self._first_step = max(1.0, expected_rows / (expected_keys * budget))
        self._levels: list[int] = []
        self._nodes: dict[int, list[I64]] = {}
        self.budget_left: I64 = np.zeros(0, dtype=np.int64)
        self._filed: I64 = self.budget_left  # Freq_Updated
        self._since: F64 = np.zeros(0)  # LastUpdateTime
        self._f_step: F64 = self._since
        self._t_step: F64 = self._since

    def insert(self, slots: I64, count: I64, now: float, end: float) -> None:
        """Lines 27-30: new keys, which take the next slots."""
        if not slots.size:
            return
        if self.budget_left.size < count.size:
            self.budget_left, self._filed = _grown(self.budget_left, count.size), _grown(self._filed, count.size)
            self._since = _grown(self._since, count.size)
            self._f_step, self._t_step = _grown(self._f_step, count.size), _grown(self._t_step, count.size)
        self.budget_left[slots] = self._budget
        self._since[slots] = now
        self._f_step[slots] = self._first_step
        self._t_step[slots] = max(0.0, end - now) / self._budget
        self._file(slots, count[slots])

    def refresh(self, slots: I64, count: I64, now: float, end: float, rows: int) -> None:
        """Lines 7-23: file those of these known keys anew that reached a step and have budget."""
        slots = slots[self.budget_left[slots] > 0]
        gained = count[slots] - self._filed[slots]
        by_frequency = gained >= self._f_step[slots]
        by_time = ~by_frequency & (now - self._since[slots] >= self._t_step[slots])
        due, f, t = slots[by_frequency | by_time], slots[by_frequency], slots[by_time]
        self.budget_left[due] -= 1
        self._since[due] = now
        self._f_step[f] = np.maximum(1.0, self._expected_rows / self._budget * count[f] / rows)
        self._t_step[t] = max(0.0, end - now) / np.maximum(1, self.budget_left[t])
        self._file(due, count[due])
        self.by_frequency += f.size
        self.by_time += t.size

    def walk(self) -> I64:
        """In-order traversal, from the highest count down: every key once, where it was last filed."""
        chunks = [(level, chunk) for level in reversed(self._levels) for chunk in self._nodes[level]]
        if not chunks:
            return np.zeros(0, dtype=np.int64)
        slots = np.concatenate([chunk for _, chunk in chunks])
        sizes = np.array([chunk.size for _, chunk in chunks])
        levels = np.repeat(np.array([level for level, _ in chunks], dtype=np.int64), sizes)
        current: I64 = slots[self._filed[slots] == levels]
        return current

    def _file(self, slots: I64, counts: I64) -> None:
        self._filed[slots] = counts
        order = np.argsort(counts, kind="stable")
        slots, counts = slots[order], counts[order]
        starts = _run_starts(counts)
        ends = starts + np.diff(starts, append=slots.size)
        for level, start, end in zip(counts[starts].tolist(), starts.tolist(), ends.tolist(), strict=True):
            node = self._nodes.get(level)
            if node is None:
                node = self._nodes[level] = []
                insort(self._levels, level)
            node.append(slots[start:end])


def _run_starts(ordered: NDArray[np.generic]) -> I64:
    """Where each run of equal values begins."""
    if not ordered.size:
        return np.zeros(0, dtype=np.int64)
    return np.concatenate(([0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1)).astype(np.int64)


def _distinct(hashes: U64) -> tuple[U64, I64]:
    ordered = np.sort(hashes)
    starts = _run_starts(ordered)
    return ordered[starts], np.diff(starts, append=hashes.size)


def _descending(hashes: U64, counts: I64) -> I64:
    """Order by count, highest first, then by hash.

    Count and the hash's leading bits are packed into one word, because one sort of words is several times
    cheaper than a sort by two columns; should two words be equal, the two columns decide after all.
    """
    if not counts.size:
        return np.zeros(0, dtype=np.int64)
    highest = int(counts.max())
    bits = highest.bit_length()
    word = (highest - counts).astype(np.uint64) << np.uint64(64 - bits)
    word |= hashes >> np.uint64(bits)
    order = np.argsort(word)
    ordered = word[order]
    if np.any(ordered[1:] == ordered[:-1]):
        return np.lexsort((hashes, -counts)).astype(np.int64)
    return order.astype(np.int64)


def _grown(values: NDArray[T], size: int) -> NDArray[T]:
    larger = np.zeros(size, dtype=values.dtype)
    larger[: values.size] = values
    return larger


def _whole(name: str, value: int, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(name, value, f"a whole number from {low} to {high}")
    return value
