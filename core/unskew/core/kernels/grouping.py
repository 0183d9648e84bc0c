"""The loop of Consistent Grouping: PoRC over thousands of virtual workers.

Two things differ from ``load_aware.route_random_choices``, and neither changes a choice:
- the window is a log of its rows, oldest first, with a count per slide: a table of slides by virtual workers would be
  far larger than the window;
- a memo stores how far the search for a key has got. While the capacity stands and no slide expires (an *era*),
  virtual workers only fill, so one that had no room for a key has none for its next row either. The search for a heavy
  key walks along its salted hashes once an era instead of once a row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.kernels.base import Int, inner, kernel
from unskew.core.kernels.choices import mixed, scaled_down
from unskew.core.kernels.window import PLACE, ROWS, SLIDE, capacity

__all__ = ["MEMO", "GroupingRows", "Memo", "route_virtual"]


MEMO = 1024  # keys whose search is stored, a power of two; the search for others only costs more

HEAD, TAIL, ERA, ROOM = 0, 1, 2, 3  # what ``books`` holds: the ends of the log, the era and its capacity
TRIES, WORKER, IN_ERA = 0, 1, 2  # how far a search has got, and in which era

_GAMMA, _ONE = np.uint64(0x9E3779B97F4A7C15), np.uint64(1)


class GroupingRows(NamedTuple):
    """Rows per virtual worker in the window, as ``window`` has them, but with a log. Without a window it is empty."""

    clock: I64
    spans: I64
    log: I32
    load: I64
    books: I64


class Memo(NamedTuple):
    """By the low bits of a key's hash: the key, the hash that its search has reached, and its progress."""

    key: U64
    hashed: U64
    progress: I64


@inner
def expire(slide: Int, clock: I64, spans: I64, log: I32, load: I64, books: I64) -> None:
    """Open this slide: subtract the rows of slides that leave the window, and begin a new era."""
    mask = log.shape[0] - 1
    for _ in range(min(slide - clock[SLIDE], spans.shape[0])):
        place = clock[PLACE] + 1 if clock[PLACE] + 1 < spans.shape[0] else 0
        for at in range(books[TAIL], books[TAIL] + spans[place]):
            load[log[at & mask]] -= 1
        books[TAIL] += spans[place]
        clock[ROWS] -= spans[place]
        spans[place] = 0
        clock[PLACE] = place
    clock[SLIDE] = slide
    books[ERA] += 1


@kernel
def route_virtual(
    keys: U64,
    slides: I64,
    out: I32,
    start: int,
    seed: np.uint64,
    over: float,
    windowed: int,
    ahead: int,
    rows: GroupingRows,
    memo: Memo,
) -> Int:
    """PoRC from tuple ``start`` on, as if there were ``ahead`` rows more; returns the tuple at which the log must grow,
    or the number of tuples."""
    clock, spans, log, load, books = rows.clock, rows.spans, rows.log, rows.load, rows.books
    memo_keys, memo_hashes, progress = memo.key, memo.hashed, memo.progress
    workers, mask, slots = load.shape[0], log.shape[0] - 1, np.uint64(memo_keys.shape[0] - 1)
    for i in range(start, keys.shape[0]):
        if slides[i] != clock[SLIDE]:
            expire(slides[i], clock, spans, log, load, books)
        if windowed and books[HEAD] - books[TAIL] == log.shape[0]:
            return i
        room = capacity(clock[ROWS] + ahead, workers, over)
        if room != books[ROOM]:
            books[ROOM] = room
            books[ERA] += 1
        hashed = mixed(keys[i], seed)
        stride = (hashed * _GAMMA) | _ONE
        slot = np.int64(hashed & slots)
        worker, tries = scaled_down(hashed, workers), 0
        if memo_keys[slot] == keys[i] and progress[slot, IN_ERA] == books[ERA]:
            hashed, worker, tries = memo_hashes[slot], progress[slot, WORKER], progress[slot, TRIES]
        if load[worker] >= room:
            while load[worker] >= room:
                tries += 1
                if tries < 8 * workers:
                    hashed += stride
                    worker = scaled_down(hashed, workers)
                else:
                    worker = worker + 1 if worker + 1 < workers else 0
            memo_keys[slot], memo_hashes[slot] = keys[i], hashed
            progress[slot, TRIES], progress[slot, WORKER], progress[slot, IN_ERA] = tries, worker, books[ERA]
        out[i] = worker
        load[worker] += 1
        clock[ROWS] += 1
        if windowed:
            log[books[HEAD] & mask] = worker
            books[HEAD] += 1
            spans[clock[PLACE]] += 1
    return keys.shape[0]
