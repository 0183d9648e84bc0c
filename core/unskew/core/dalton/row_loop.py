"""The compiled loop of Dalton's router (Algorithm 1) and the Q-table that it learns.

A row for each hot key, found by an open table: the value of each worker for it, the last slide in which each got a
tuple of it (section 3.3: fragmentation in the sliding window), and which worker is the best. A tuple of a cold key
costs one count and one look at the table; one of a hot key O(1), and O(n) where the best worker stops being it.

Fragments leave with their slide: a log of (fragment, slide) is read from its tail as slides close, and a fragment that
has had tuples since is in it again further on. A row that is no longer hot loses its values at once, and stays only
while it has fragments in the window, because fragmentation and key-forwarding (4.2) count those.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.core.arrays.types import F64, I32, I64, U64
from unskew.core.dalton.frequency_store import (
    DISTINCT,
    INTERVAL,
    MAP,
    MODE,
    RECORDS,
    SPAN,
    Frequencies,
    close_interval,
    count_tuple,
    frequency,
)
from unskew.core.dalton.qtable import UNTRIED
from unskew.core.dalton.settings import UpdateRule
from unskew.core.kernels.base import Int, inner, kernel
from unskew.core.kernels.choices import mixed, scaled_down
from unskew.core.kernels.key_table import cell_of, remove
from unskew.core.kernels.window import PLACE, ROWS, SLIDE, advance, count

__all__ = [
    "DaltonRows",
    "add_row",
    "drop_worst",
    "end_interval",
    "route_learned",
    "row_of",
    "turn_cold",
    "worker_limit",
]

Float = Any

# DaltonRows.entry: workers with a fragment, the interval up to which the key is hot, its frequency in the interval
# before, the best worker, tuples left of the quantum and their worker, workers with a value, the hash worker (of a free
# row: the next free row).
HELD, UNTIL, WEIGHT, BEST, LEFT, CHOICE, TRIED, HOME = 0, 1, 2, 3, 4, 5, 6, 7
# DaltonRows.books: first free row, rows in use, ends of the log, random numbers drawn, the adaptive cap, other agents'
# tuples, tuples in this slide, and how many tuples of other agents come with one of this one.
FREE, USED, HEAD, TAIL, DRAWN, CAP, OTHERS, INSLIDE, ECHO = 0, 1, 2, 3, 4, 5, 6, 7, 8
DECAY, GAIN, FRESH = 0, 1, 2  # DaltonRows.pending
NEVER = np.int64(-(2**63))

_FIRST_RECORDS = 32  # in the first interval L is the running total once it is over 32 n (FIDELITY)
_CROWDED = 0.7  # split_cap "adaptive": the cap doubles when this share of the hot keys is at it
_ONE, _S11 = np.uint64(1), np.uint64(11)
STEP, GROWTH = np.uint64(6364136223846793005), np.uint64(0x9E3779B97F4A7C15)  # Knuth's multiplier; odd


class DaltonRows(NamedTuple):
    """The Q-table and its fragments; ``routers.learner`` makes and grows it.

    ``used`` is the last slide with a tuple of the key on the worker; ``away`` marks fragments of other agents;
    ``loads`` are other agents' tuples per worker; ``bound`` is the best value of all workers but the best one.
    ``pending`` are the rewards since the last SYNC, as one affine map a cell (Eq. 5 composed), and what they make of an
    untried cell. Without a window there is no log: fragments never leave.
    """

    row_keys: U64
    values: F64
    used: I64
    away: NDArray[np.uint8]
    entry: I64
    bound: F64
    pending: F64
    table: I64
    log: I64
    loads: I64
    books: I64


@kernel
def update_best(row: Int, values: F64, entry: I64, bound: F64) -> None:
    """Search a row for its best worker (ties to the hash worker, then the lowest) and the best value of the others."""
    best = entry[row, HOME]
    most, second = values[row, best], -np.inf
    for worker in range(values.shape[1]):
        value = values[row, worker]
        if value > most:
            second, most, best = most, value, worker
        elif worker != best and value > second:
            second = value
    entry[row, BEST] = best
    bound[row] = second


@inner
def set_value(row: Int, worker: Int, value: Float, values: F64, entry: I64, bound: F64) -> None:
    """Set a value; search the row only if its best worker may have changed."""
    best = entry[row, BEST]
    values[row, worker] = value
    if worker == best:
        if value <= bound[row]:
            update_best(row, values, entry, bound)
    elif value > values[row, best]:
        entry[row, BEST] = worker
        bound[row] = values[row, best]
    elif value == values[row, best]:
        update_best(row, values, entry, bound)
    else:
        bound[row] = max(bound[row], value)


@inner
def reset_values(row: Int, values: F64, entry: I64, bound: F64, pending: F64) -> None:
    """Mark all workers untried, which makes the hash worker the best."""
    for worker in range(values.shape[1]):
        values[row, worker] = UNTRIED
    for worker in range(pending.shape[2]):
        pending[DECAY, row, worker] = 1.0
        pending[GAIN, row, worker] = 0.0
        pending[FRESH, row, worker] = UNTRIED
    entry[row, BEST], entry[row, CHOICE], entry[row, LEFT] = entry[row, HOME], entry[row, HOME], 0
    entry[row, TRIED] = 0
    bound[row] = UNTRIED


@inner
def mark_used(
    row: Int, worker: Int, slide: Int, used: I64, away: NDArray[np.uint8], entry: I64, log: I64, books: I64
) -> None:
    """Record that the worker gets a tuple of the row's key in this slide."""
    if used[row, worker] == slide:
        return
    if used[row, worker] == NEVER and not away[row, worker]:
        entry[row, HELD] += 1
    used[row, worker] = slide
    if log.shape[0] > 0:
        at = books[HEAD] & (log.shape[0] - 1)
        log[at, 0], log[at, 1] = row * used.shape[1] + worker, slide
        books[HEAD] += 1


@inner
def free_row(row: Int, row_keys: U64, used: I64, away: NDArray[np.uint8], entry: I64, table: I64, books: I64) -> None:
    """Return a row to the free ones."""
    key: Any = row_keys[row]
    remove(cell_of(key, row_keys, table), row_keys, table)
    for worker in range(used.shape[1]):
        used[row, worker] = NEVER
        away[row, worker] = 0
    entry[row, HELD], entry[row, UNTIL], entry[row, WEIGHT] = 0, NEVER, 0
    entry[row, HOME] = books[FREE]
    books[FREE] = row + 1


@inner
def only_at_home(row: Int, used: I64, away: NDArray[np.uint8], entry: I64) -> Int:
    """Whether the key has no fragment but that on its hash worker."""
    home = entry[row, HOME]
    at_home = used[row, home] != NEVER or away[row, home] != 0
    return entry[row, HELD] == 0 or (entry[row, HELD] == 1 and at_home)


@kernel
def add_row(key: np.uint64, home: int, rows: DaltonRows) -> Int:
    """Add an untried row for a key that has none; -1 if there is no room."""
    row_keys, values, _, _, entry, bound, pending, table, _, _, books = rows
    row = books[FREE] - 1
    if row >= 0:
        books[FREE] = entry[row, HOME]
    elif books[USED] < row_keys.shape[0]:
        row = books[USED]
        books[USED] += 1
    else:
        return -1
    row_keys[row] = key
    table[cell_of(key, row_keys, table)] = row + 1
    entry[row, HELD], entry[row, UNTIL], entry[row, WEIGHT], entry[row, HOME] = 0, NEVER, 0, home
    reset_values(row, values, entry, bound, pending)
    return row


@kernel
def row_of(key: np.uint64, rows: DaltonRows) -> Int:
    """The row of this key, -1 if it has none."""
    return rows.table[cell_of(key, rows.row_keys, rows.table)] - 1


@kernel
def turn_cold(row: int, rows: DaltonRows) -> None:
    """End a key's time as hot: its values go; the row stays while it has fragments away from the hash worker.

    Without a window fragments never leave, so the row goes at once: else no row would be left for a new hot key.
    """
    row_keys, values, used, away, entry, bound, pending, table, log, _, books = rows
    entry[row, UNTIL], entry[row, WEIGHT] = NEVER, 0
    reset_values(row, values, entry, bound, pending)
    if log.shape[0] == 0 or only_at_home(row, used, away, entry):
        free_row(row, row_keys, used, away, entry, table, books)


@kernel
def expire_fragments(rows: DaltonRows, before: int) -> None:
    """Drop the fragments whose last tuple is of a slide up to ``before``, and their values.

    A reward older than the window was earned under other loads.
    """
    row_keys, values, used, away, entry, bound, _, table, log, _, books = rows
    workers, mask = used.shape[1], log.shape[0] - 1
    while books[TAIL] < books[HEAD] and log[books[TAIL] & mask, 1] <= before:
        row, worker = divmod(log[books[TAIL] & mask, 0], workers)
        if used[row, worker] == log[books[TAIL] & mask, 1]:
            used[row, worker] = NEVER
            if not away[row, worker]:
                entry[row, HELD] -= 1
                if values[row, worker] != UNTRIED:
                    entry[row, TRIED] -= 1
                    set_value(row, worker, UNTRIED, values, entry, bound)
            if entry[row, UNTIL] == NEVER and only_at_home(row, used, away, entry):
                free_row(row, row_keys, used, away, entry, table, books)
        books[TAIL] += 1


@inner
def worker_limit(row: Int, often: Int, total: Int, rule: UpdateRule, entry: I64, books: I64, workers: int) -> Int:
    """How many workers a key may be on: the cap, or ``share`` times the workers that its share of the load needs."""
    if rule.cap != 0:
        return books[CAP]
    weight = np.float64(max(often, entry[row, WEIGHT]) * workers)
    return 1 + np.int64(np.ceil(rule.share * weight / np.float64(max(total, 1))))


@kernel
def drop_worst(row: int, most: int, rows: DaltonRows) -> None:
    """Forget a key's worst workers while it has tried more than it may be on; their fragments run out."""
    _, values, _, _, entry, bound, _, _, _, _, _ = rows
    while entry[row, TRIED] > most:
        worst = -1
        for worker in range(values.shape[1]):
            value = values[row, worker]
            if value != UNTRIED and (worst < 0 or value <= values[row, worst]):
                worst = worker
        values[row, worst] = UNTRIED
        entry[row, TRIED] -= 1
    update_best(row, values, entry, bound)


@kernel
def end_interval(rows: DaltonRows, now: Frequencies, rule: UpdateRule) -> None:
    """End the interval (STATS_WIN): rows that were hot neither in it nor in the one before leave the Q-table.

    The others store the frequency of their key; for an agent of several, the answer of a round brings it.
    """
    entry, books = rows.entry, rows.books
    hot, crowded = 0, 0
    for row in range(books[USED]):
        if entry[row, UNTIL] == NEVER:
            continue
        if entry[row, UNTIL] <= now.tally[INTERVAL]:
            turn_cold(row, rows)
            continue
        if rows.pending.shape[2] == 0:
            entry[row, WEIGHT] = frequency(rows.row_keys[row], now.table, now.cells, now.tally)
            most = worker_limit(row, 0, now.tally[RECORDS], rule, entry, books, rows.values.shape[1])
            if entry[row, TRIED] > most:
                drop_worst(row, most, rows)
        hot += 1
        crowded += 1 if entry[row, HELD] >= books[CAP] else 0
    if rule.adaptive and hot > 0 and crowded >= _CROWDED * hot:
        books[CAP] = min(2 * books[CAP], rows.values.shape[1])
    close_interval(now.bits, now.tally)


@inner
def unevenness(load: Float, mean: Float) -> Float:
    """Dalton, Eq. 3: how far a load is over (under) the mean, from -1 to 1."""
    return (load - mean) / max(load, mean)


@inner
def least_loaded_sample(
    seed: np.uint64, look: int, over: Float, now: Float, load: I64, others: I64, inslide: I64
) -> Int:
    """The least loaded of ``look`` random workers, by load in the window (``over``) and in the slide (``now``)."""
    state = mixed(seed, _ONE)
    best, least = -1, 0.0
    for _ in range(look):
        state = state * STEP + GROWTH
        worker = scaled_down(state, load.shape[0])
        score = over * np.float64(load[worker] + others[worker]) + now * np.float64(inslide[worker])
        if best < 0 or score < least:
            best, least = worker, score
    return best


@inner
def updated_value(row: Int, worker: Int, reward: Float, rule: UpdateRule, values: F64, pending: F64) -> Float:
    """Dalton, Eq. 5: the value after this reward. One agent of several also adds it to ``pending``."""
    old = values[row, worker]
    value = reward if rule.replace and old == UNTRIED else old + rule.step * (reward - old)
    if pending.shape[2] > 0:
        fresh = pending[FRESH, row, worker]
        first = rule.replace and fresh == UNTRIED
        pending[FRESH, row, worker] = reward if first else fresh + rule.step * (reward - fresh)
        pending[GAIN, row, worker] += rule.step * (reward - pending[GAIN, row, worker])
        pending[DECAY, row, worker] *= 1.0 - rule.step
    return value


@kernel
def route_learned(
    keys: U64,
    homes: I32,
    slides: I64,
    out: I32,
    start: int,
    rule: UpdateRule,
    clock: I64,
    ring: I64,
    load: I64,
    now: Frequencies,
    rows: DaltonRows,
) -> Int:
    """Dalton from tuple ``start`` on. Returns the tuple before which an array must grow, or the number of tuples.

    A decision is for a quantum: the chosen worker gets so many tuples of the key, and its value moves once, by the
    closed form of as many equal rewards.
    """
    row_keys, values, used, away, entry, bound, pending, places, log, others, books = rows
    table, cells, bits, tally = now
    workers, span, windowed = load.shape[0], ring.shape[0], log.shape[0] > 0
    n = np.float64(workers)
    for i in range(start, keys.shape[0]):
        slide = slides[i]
        if slide != clock[SLIDE]:
            if tally[RECORDS] >= rule.records:
                end_interval(rows, now, rule)
            if windowed:
                expire_fragments(rows, slide - span)
            advance(clock, ring, load, slide)
            books[INSLIDE] = 0
        elif tally[RECORDS] >= rule.records and not windowed:
            end_interval(rows, now, rule)
        if (
            (tally[MODE] == MAP and 2 * tally[DISTINCT] >= table.shape[0])
            or (windowed and books[HEAD] - books[TAIL] + 2 > log.shape[0])
            or (books[FREE] == 0 and books[USED] == row_keys.shape[0] and row_keys.shape[0] < rule.room)
        ):
            return i
        key = keys[i]
        worker: Int = np.int64(homes[i])
        often = count_tuple(key, table, cells, bits, tally)
        row: Int = places[cell_of(key, row_keys, places)] - 1
        total = max(tally[SPAN], tally[RECORDS])
        if often * workers >= total and (tally[SPAN] > 0 or total > _FIRST_RECORDS * workers):
            if row < 0:
                row = add_row(key, worker, rows)
                if row >= 0 and often > 1:
                    mark_used(row, worker, slide, used, away, entry, log, books)
            if row >= 0:
                entry[row, UNTIL] = tally[INTERVAL] + 1
        elif row >= 0 and entry[row, UNTIL] != NEVER and often * workers >= rule.renew * total:
            entry[row, UNTIL] = tally[INTERVAL] + 1
        inslide = ring[clock[PLACE]]
        books[INSLIDE] += 1
        if row < 0:
            pass
        elif entry[row, UNTIL] == NEVER:  # no longer hot: goes where its hash says
            mark_used(row, worker, slide, used, away, entry, log, books)
        elif entry[row, LEFT] > 0:  # the quantum of the last decision is not used up
            worker = entry[row, CHOICE]
            entry[row, LEFT] -= 1
            mark_used(row, worker, slide, used, away, entry, log, books)
        else:
            mean = np.float64(clock[ROWS] + books[OTHERS] + 1) / n
            slide_mean = np.float64(books[INSLIDE]) / n
            worker = entry[row, BEST]
            random = mixed(np.uint64(books[DRAWN]), rule.salt)
            books[DRAWN] += 1
            if (random >> _S11) < rule.explore:
                other = least_loaded_sample(
                    random, rule.look, rule.imbalance / mean, rule.slide / slide_mean, load, others, inslide
                )
                most = worker_limit(row, often, total, rule, entry, books, workers)
                holds = used[row, other] != NEVER or away[row, other] != 0
                allowed = entry[row, TRIED] < most and (holds or entry[row, HELD] < most)
                if allowed or values[row, other] != UNTRIED:
                    worker = other
            mark_used(row, worker, slide, used, away, entry, log, books)
            reward = -(
                rule.imbalance * unevenness(np.float64(load[worker] + others[worker] + 1), mean)
                + rule.fragments * np.float64(entry[row, HELD]) / n
                + rule.slide * unevenness(np.float64(inslide[worker] + 1), slide_mean)
            )
            entry[row, TRIED] += 1 if values[row, worker] == UNTRIED else 0
            value = updated_value(row, worker, reward, rule, values, pending)
            set_value(row, worker, value, values, entry, bound)
            entry[row, CHOICE], entry[row, LEFT] = worker, rule.quantum - 1
        out[i] = worker
        count(clock, ring, load, worker)
        others[worker] += books[ECHO]
        books[OTHERS] += books[ECHO]
    return keys.shape[0]
