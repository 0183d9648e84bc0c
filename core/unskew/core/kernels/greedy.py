"""The loop of DAGreedy, and its exact counts of which worker holds how many rows of which key in the window.

Each key has a list of the workers that hold it, with their rows of it; a log of what each slide added takes them out
again: O(1) a row on average. A row of a hot key costs as many steps as its key has holders, not as there are workers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.kernels.base import Int, inner, kernel
from unskew.core.kernels.key_table import cell_of, remove
from unskew.core.kernels.tournament import build_tree, update_tree
from unskew.core.kernels.window import PLACE, ROWS, SLIDE, advance, count

__all__ = ["HEAD", "TAIL", "Ledger", "route_greedy"]


TOTAL, FIRST = 0, 1  # Ledger.entry: rows of the key, its first pair + 1
WORKER, HELD, NEXT, OWNER, RECORD = 0, 1, 2, 3, 4  # Ledger.pair: NOTED is its latest record in the log
FREE_KEY, KEYS, FREE_PAIR, PAIRS, TAIL, HEAD, SLIDE_BEGINS = 0, 1, 2, 3, 4, 5, 6  # Ledger.books


class Ledger(NamedTuple):
    """Exact rows per key and worker; ``routers.dagreedy`` makes and grows it. Without a window there is no log."""

    slot_keys: U64
    entry: I64
    pair: I64
    table: I64
    log: I64
    ends: I64
    books: I64


@inner
def subtract_rows(at: Int, rows: Int, slot_keys: U64, entry: I64, pair: I64, table: I64, books: I64) -> None:
    """Take rows from a pair; an empty pair leaves its key, and a key without pairs leaves the table."""
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
        remove(cell_of(slot_keys[slot], slot_keys, table), slot_keys, table)
        entry[slot, FIRST] = books[FREE_KEY]
        books[FREE_KEY] = slot + 1


@kernel
def expire(ledger: Ledger, clock: I64, slide: Int) -> None:
    """Subtract the slides that leave the window when this one opens; call it before ``advance``."""
    slot_keys, entry, pair, table, log, ends, books = ledger
    place, mask = clock[PLACE], log.shape[0] - 1
    ends[place] = books[HEAD]
    for _ in range(min(slide - clock[SLIDE], ends.shape[0])):
        place = place + 1 if place + 1 < ends.shape[0] else 0
        while books[TAIL] < ends[place]:
            record = books[TAIL] & mask
            subtract_rows(log[record, 0], log[record, 1], slot_keys, entry, pair, table, books)
            books[TAIL] += 1
        ends[place] = books[HEAD]
    books[SLIDE_BEGINS] = books[HEAD]


@inner
def slot_of(key: np.uint64, slot_keys: U64, entry: I64, table: I64, books: I64) -> Int:
    """The slot of this key, new where it has none."""
    at = cell_of(key, slot_keys, table)
    slot = table[at] - 1
    if slot >= 0:
        return slot
    slot = books[FREE_KEY] - 1
    if slot >= 0:
        books[FREE_KEY] = entry[slot, FIRST]
    else:
        slot = books[KEYS]
        books[KEYS] += 1
    slot_keys[slot] = key
    table[at] = slot + 1
    entry[slot, TOTAL], entry[slot, FIRST] = 0, 0
    return slot


@inner
def pair_of(slot: Int, worker: Int, entry: I64, pair: I64, books: I64) -> Int:
    """The pair of this key and worker, new where there is none."""
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
    pair[at, WORKER], pair[at, HELD], pair[at, OWNER], pair[at, RECORD] = worker, 0, slot, -1
    pair[at, NEXT] = entry[slot, FIRST]
    entry[slot, FIRST] = at + 1
    return at


@inner
def log_row(at: Int, pair: I64, log: I64, books: I64) -> None:
    """Log one more row of this pair in the slide in use."""
    mask = log.shape[0] - 1
    if pair[at, RECORD] >= books[SLIDE_BEGINS]:
        log[pair[at, RECORD] & mask, 1] += 1
        return
    record = books[HEAD] & mask
    log[record, 0], log[record, 1] = at, 1
    pair[at, RECORD] = books[HEAD]
    books[HEAD] += 1


@inner
def best_worker(first: Int, rows: Int, pair: I64, load: I64, tree: I64) -> Int:
    """argmax of 0.5 [holds] - 0.5 (L_w - mean) / mean, the lowest worker on ties; times 2 rows, so in whole numbers.

    Of the workers that do not hold the key only the least loaded can win, so the holders and that one are compared.
    """
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
def is_full(room: int, log: int, books: I64) -> Int:
    """Whether one more row may need more room than there is."""
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
    ring: I64,
    load: I64,
    tree: I64,
    ledger: Ledger,
) -> Int:
    """DAGreedy from tuple ``start`` on: keys over 1 / (share n) of the window's rows, this row included, go to the best
    worker, the rest to their hash worker. Returns the tuple at which the ledger must grow, or the number of tuples."""
    workers = load.shape[0]
    slot_keys, entry, pair, table, log, _, books = ledger
    for i in range(start, keys.shape[0]):
        if slides[i] != clock[SLIDE]:
            expire(ledger, clock, slides[i])
            advance(clock, ring, load, slides[i])
            build_tree(load, tree)
        if is_full(slot_keys.shape[0], log.shape[0], books):
            return i
        slot: Int = slot_of(keys[i], slot_keys, entry, table, books)
        worker: Int = np.int64(homes[i])
        if (entry[slot, TOTAL] + 1) * share * workers > clock[ROWS] + 1:
            worker = best_worker(entry[slot, FIRST], clock[ROWS], pair, load, tree)
        out[i] = worker
        at = pair_of(slot, worker, entry, pair, books)
        pair[at, HELD] += 1
        entry[slot, TOTAL] += 1
        if log.shape[0] > 0:
            log_row(at, pair, log, books)
        count(clock, ring, load, worker)
        update_tree(load, tree, worker)
    return keys.shape[0]
