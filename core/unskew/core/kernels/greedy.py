"""DAGreedy's loop and its ledger, exactly the keys of a window and who holds them; by the rules of ``kernels``.

Each key has the list of workers that hold it and how many of its rows they have; a log of what each slide added takes
them out again: O(1) a row on average. A hot row costs as many steps as its key has holders, not as there are workers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.core.kernels.base import PLACE, ROWS, SLIDE, advance, count, inner, kernel
from unskew.core.kernels.frequency import plant, replay, seat, unseat

__all__ = ["HEAD", "TAIL", "Ledger", "route_greedy"]

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
Int = Any  # an int in plain Python, an int64 where compiled

TOTAL, FIRST = 0, 1  # Ledger.entry: rows of the key, its first pair + 1
WORKER, HELD, NEXT, OWNER, NOTED = 0, 1, 2, 3, 4  # Ledger.pair: NOTED is its latest record in the log
FREE_KEY, KEYS, FREE_PAIR, PAIRS, TAIL, HEAD, BEGAN = 0, 1, 2, 3, 4, 5, 6  # Ledger.books


class Ledger(NamedTuple):
    """Exact rows per key and worker; ``routers.dagreedy`` makes it and lets it grow. No log without a window."""

    known: U64
    entry: I64
    pair: I64
    table: I64
    log: I64
    ends: I64
    books: I64


@inner
def strike(at: Int, rows: Int, known: U64, entry: I64, pair: I64, table: I64, books: I64) -> None:
    """Take rows from a pair; without any it leaves its key, and a key without any leaves the table."""
    slot = pair[at, OWNER]
    pair[at, HELD] -= rows
    entry[slot, TOTAL] -= rows
    if pair[at, HELD] > 0:
        return
    if entry[slot, FIRST] == at + 1:
        entry[slot, FIRST] = pair[at, NEXT]
    else:
        earlier = entry[slot, FIRST] - 1
        while pair[earlier, NEXT] != at + 1:
            earlier = pair[earlier, NEXT] - 1
        pair[earlier, NEXT] = pair[at, NEXT]
    pair[at, NEXT] = books[FREE_PAIR]
    books[FREE_PAIR] = at + 1
    if entry[slot, TOTAL] == 0:
        unseat(seat(known[slot], known, table), known, table)
        entry[slot, FIRST] = books[FREE_KEY]
        books[FREE_KEY] = slot + 1


@kernel
def forget(ledger: Ledger, clock: I64, slide: Int) -> None:
    """Undo the slides that fall out when this one opens, as ``advance`` does for loads: call it before."""
    known, entry, pair, table, log, ends, books = ledger
    place, mask = clock[PLACE], log.shape[0] - 1
    ends[place] = books[HEAD]
    for _ in range(min(slide - clock[SLIDE], ends.shape[0])):
        place = place + 1 if place + 1 < ends.shape[0] else 0
        while books[TAIL] < ends[place]:
            record = books[TAIL] & mask
            strike(log[record, 0], log[record, 1], known, entry, pair, table, books)
            books[TAIL] += 1
        ends[place] = books[HEAD]
    books[BEGAN] = books[HEAD]


@inner
def entered(key: np.uint64, known: U64, entry: I64, table: I64, books: I64) -> Int:
    """The slot of this key, a new one if need be."""
    at = seat(key, known, table)
    slot = table[at] - 1
    if slot >= 0:
        return slot
    slot = books[FREE_KEY] - 1
    if slot >= 0:
        books[FREE_KEY] = entry[slot, FIRST]
    else:
        slot = books[KEYS]
        books[KEYS] += 1
    known[slot] = key
    table[at] = slot + 1
    entry[slot, TOTAL], entry[slot, FIRST] = 0, 0
    return slot


@inner
def paired(slot: Int, worker: Int, entry: I64, pair: I64, books: I64) -> Int:
    """The pair of this key and worker, a new one if need be."""
    at = entry[slot, FIRST] - 1
    while at >= 0:
        if pair[at, WORKER] == worker:
            return at
        at = pair[at, NEXT] - 1
    at = books[FREE_PAIR] - 1
    if at >= 0:
        books[FREE_PAIR] = pair[at, NEXT]
    else:
        at = books[PAIRS]
        books[PAIRS] += 1
    pair[at, WORKER], pair[at, HELD], pair[at, OWNER], pair[at, NOTED] = worker, 0, slot, -1
    pair[at, NEXT] = entry[slot, FIRST]
    entry[slot, FIRST] = at + 1
    return at


@inner
def jot(at: Int, pair: I64, log: I64, books: I64) -> None:
    """One more row of this pair in the slide in use."""
    mask = log.shape[0] - 1
    if pair[at, NOTED] >= books[BEGAN]:
        log[pair[at, NOTED] & mask, 1] += 1
        return
    record = books[HEAD] & mask
    log[record, 0], log[record, 1] = at, 1
    pair[at, NOTED] = books[HEAD]
    books[HEAD] += 1


@inner
def greediest(first: Int, rows: Int, pair: I64, load: I64, tree: I64) -> Int:
    """argmax of 0.5 [holds] - 0.5 (L_w - mean) / mean, the lowest on ties; times 2 rows, so in whole numbers. Of those
    that do not hold the key only the least loaded can win."""
    best = tree[1]
    most = -load.shape[0] * load[best]
    at = first - 1
    while at >= 0:
        worker = pair[at, WORKER]
        score = rows - load.shape[0] * load[worker]
        if score > most or (score == most and worker < best):
            best, most = worker, score
        at = pair[at, NEXT] - 1
    return best


@inner
def full(room: int, log: int, books: I64) -> Int:
    """Whether one more row could want for room."""
    return (
        (books[FREE_KEY] == 0 and books[KEYS] == room)
        or (books[FREE_PAIR] == 0 and books[PAIRS] == room)
        or (log > 0 and books[HEAD] - books[TAIL] == log)
    )


@kernel
def route_greedy(
    keys: U64,
    homes: I32,
    slides: I64,
    out: I32,
    start: int,
    share: int,
    clock: I64,
    ring: NDArray[np.int64],
    load: I64,
    tree: I64,
    ledger: Ledger,
) -> Int:
    """DAGreedy from tuple ``start`` on: keys over 1 / (share n) of the window's rows, the one in hand included, go to
    the greediest worker, the rest home. Returns the tuple at which the ledger must grow, or the number of tuples."""
    workers = load.shape[0]
    known, entry, pair, table, log, _, books = ledger
    for i in range(start, keys.shape[0]):
        if slides[i] != clock[SLIDE]:
            forget(ledger, clock, slides[i])
            advance(clock, ring, load, slides[i])
            plant(load, tree)
        if full(known.shape[0], log.shape[0], books):
            return i
        slot: Int = entered(keys[i], known, entry, table, books)
        worker: Int = np.int64(homes[i])
        if (entry[slot, TOTAL] + 1) * share * workers > clock[ROWS] + 1:
            worker = greediest(entry[slot, FIRST], clock[ROWS], pair, load, tree)
        out[i] = worker
        at = paired(slot, worker, entry, pair, books)
        pair[at, HELD] += 1
        entry[slot, TOTAL] += 1
        if log.shape[0] > 0:
            jot(at, pair, log, books)
        count(clock, ring, load, worker)
        replay(load, tree, worker)
    return keys.shape[0]
