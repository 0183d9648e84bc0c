"""Where the state of a partition's keys is stored: blocks of keys by hash, and which blocks a batch reads.

A partition's state is a sorted row of blocks, some dozen keys each. A block covers the hashes from its first one up to
the next block's; the first block also covers all below it. A block is in some file and never changes there: a block
that a batch reads is written anew, into the batch's one new file, and the index of blocks says where each one is now.
So a batch reads and writes only the blocks of its keys, however much state there is.

The state of a key at a partition counts only while the plan places the key there. When a key moves, its new partition
reads it from the files of the old one, and drops what it may still have of the key from an earlier time. So the old
partition needs no message, and a key that comes back has the state with which it left, not an older one.

Files fill up with blocks that are no longer in use. ``to_empty`` chooses the files whose blocks are copied, unread,
into the new one: those that are almost all waste; and where there are many files, those with no more in use than is
written anyway, so that a block is copied once each time its file doubles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unskew.core.arrays.types import I64, U64, Mask
from unskew.core.histogram.histogram import host_of
from unskew.core.plan.plan import Plan

__all__ = [
    "BLOCK",
    "NEVER",
    "Blocks",
    "Spans",
    "StateFile",
    "StatePart",
    "arrivals",
    "cut",
    "expired",
    "holding",
    "in_use",
    "moved_away",
    "no_blocks",
    "overlapping",
    "runs",
    "to_empty",
]

Blocks = NDArray[np.void]

NEVER = 2**63 - 1
_LAST = np.uint64(2**64 - 1)
_WASTE = 8  # a file of which less than one part in so many is in use is emptied
_MANY = 24  # files: the index finds a block in any number of them, but every file that is read must be opened

# ``file`` is a number in the part's list of files, ``least`` the least expiry of a key in it.
BLOCK = np.dtype(
    [("first", "<u8"), ("file", "<i4"), ("offset", "<i8"), ("length", "<i4"), ("rows", "<i4"), ("least", "<i8")]
)


@dataclass(frozen=True)
class StateFile:
    """A file of blocks, its size, and how much of it is in use."""

    name: str
    size: int
    live: int


@dataclass(frozen=True)
class StatePart:
    """A partition's state. The index is the last ``index_bytes`` of the last file; ``least`` is the least expiry."""

    files: tuple[StateFile, ...] = ()
    index_bytes: int = 0
    index_digest: int = 0
    least: int = NEVER

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(file.name for file in self.files)

    def using(self, live: I64) -> StatePart:
        """The same with so many bytes in use in each file."""
        files = [replace(file, live=used) for file, used in zip(self.files, live.tolist(), strict=True)]
        return replace(self, files=tuple(files))


def no_blocks() -> Blocks:
    return np.zeros(0, BLOCK)


# -- which blocks -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Spans:
    """Ranges of key hashes, both ends included, ascending and without overlap."""

    first: U64
    last: U64

    @classmethod
    def of(cls, first: U64, last: U64) -> Spans:
        """Spans from ranges in any order; overlapping ones become one."""
        order = np.argsort(first, kind="stable")
        first, reach = first[order], np.maximum.accumulate(last[order])
        begins = np.ones(len(first), np.bool_)
        begins[1:] = first[1:] > reach[:-1]
        at = np.flatnonzero(begins)
        ends = np.append(at[1:], len(first)) - 1 if len(at) else at
        return cls(first[at], reach[ends])

    def meets(self, first: U64, last: U64) -> Mask:
        """Which of the ranges ``first`` to ``last`` share a hash with one of these."""
        if not len(self.first):
            return np.zeros(len(first), np.bool_)
        at = np.searchsorted(self.last, first)
        here = np.minimum(at, len(self.first) - 1)
        return (at < len(self.first)) & (self.first[here] <= last)


def holding(blocks: Blocks, hashes: U64) -> Mask:
    """The blocks that hold these keys, or would."""
    mask = np.zeros(len(blocks), np.bool_)
    if len(blocks) and len(hashes):
        mask[np.maximum(np.searchsorted(blocks["first"], hashes, "right") - 1, 0)] = True
    return mask


def overlapping(blocks: Blocks, spans: Spans) -> Mask:
    """The blocks that cover hashes of these ranges."""
    return spans.meets(*_ranges(blocks))


def expired(blocks: Blocks, clock: int) -> Mask:
    """The blocks with a key that expires at ``clock`` or before."""
    due: Mask = blocks["least"] <= clock
    return due


def moved_away(blocks: Blocks, plan: Plan, partition: int) -> Mask:
    """The blocks that can hold no key that the plan places at ``partition``."""
    first, last = _ranges(blocks)
    here = np.append(0, np.cumsum(plan.tail == partition))
    hosts = here[host_of(last, plan.tail_bits) + 1] - here[host_of(first, plan.tail_bits)]
    hot = plan.hot.hashes[plan.hot.home == partition]
    listed = np.searchsorted(hot, last, "right") - np.searchsorted(hot, first)
    gone: Mask = (hosts == 0) & (listed == 0)
    return gone


def _ranges(blocks: Blocks) -> tuple[U64, U64]:
    """The first and the last hash that each covers."""
    first = blocks["first"].astype(np.uint64)
    first[:1] = 0
    last = np.append(first[1:] - np.uint64(1), np.full(min(len(first), 1), _LAST))
    return first, last


def runs(mask: Mask) -> list[tuple[int, int]]:
    """The runs of chosen blocks, as (first, one past the last)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


# -- what moves -------------------------------------------------------------------------------------------------


def arrivals(placed: Plan, plan: Plan, partition: int) -> dict[int, Spans]:
    """The hash ranges that move to ``partition`` when ``plan`` replaces ``placed``, by their old partition.

    A range may contain listed keys, which were elsewhere: the reader checks rows one by one.
    """
    bits = max(placed.tail_bits, plan.tail_bits)
    before, after = placed.tail_at(bits), plan.tail_at(bits)
    hosts = np.flatnonzero((after == partition) & (before != partition))
    first = hosts.astype(np.uint64) << np.uint64(64 - bits)
    last = first + np.uint64(2 ** (64 - bits) - 1)
    listed = np.union1d(placed.hot.hashes, plan.hot.hashes)
    was, now = placed.place(listed), plan.place(listed)
    come = (now == partition) & (was != partition)
    keys, old_of_key, old_of_host = listed[come], was[come], before[hosts]
    spans = {}
    for old in np.union1d(old_of_host, old_of_key).tolist():
        host, key = old_of_host == old, keys[old_of_key == old]
        spans[int(old)] = Spans.of(np.concatenate([first[host], key]), np.concatenate([last[host], key]))
    return spans


# -- what is written --------------------------------------------------------------------------------------------


def cut(hashes: U64, size: int) -> list[int]:
    """Where to cut keys, ascending by hash, into even blocks of about ``size``: keys of one hash stay together."""
    count = len(hashes)
    if not count:
        return []
    parts = max(round(count / size), 1)
    starts = np.searchsorted(hashes, hashes[np.arange(parts) * count // parts])
    cuts: list[int] = np.unique(starts).tolist()
    return cuts


def in_use(blocks: Blocks, files: int) -> I64:
    """Bytes of each file that blocks lie in."""
    return np.bincount(blocks["file"], weights=blocks["length"], minlength=files).astype(np.int64)


def to_empty(live: I64, size: I64, written: int) -> Mask:
    """The files to empty into the new one, of which ``written`` bytes are written in any case."""
    mask: Mask = live * _WASTE <= size
    written += int(live[mask].sum())
    for at in np.argsort(live, kind="stable").tolist():
        if len(live) - mask.sum() >= _MANY and not mask[at] and live[at] <= written:
            mask[at] = True
            written += int(live[at])
    return mask
