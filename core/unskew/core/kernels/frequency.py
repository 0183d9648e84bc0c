"""Loops of the routers that count keys by SpaceSaving: D-choices and W-choices; and what they share with DAGreedy.

The rules are those of ``kernels`` (same bits compiled and plain). Two structures, all arrays:
- ``Summary``: SpaceSaving (Metwally et al.) of a fixed number of slots. Slots stand in ascending order of count; those
  of one count are a group that knows its last place, so that one more is a swap with that place: O(1).
- the tree: a knock-out of the workers by load. A row plays only the matches that its worker had won: about two.

Keys are found by an open table of slot + 1, 0 where empty; a key that leaves closes its gap.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.core.kernels.base import SLIDE, advance, count, inner, kernel, mixed, scaled_down

__all__ = [
    "Summary",
    "best_of",
    "decide",
    "estimate",
    "fewest_choices",
    "note",
    "plant",
    "replay",
    "reseat",
    "route_frequent",
    "seat",
    "unseat",
]

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
Int = Any  # an int in plain Python, an int64 where compiled

ORDER, RANK, GROUP = 0, 1, 2  # Summary.ranked: which slot has this rank; this slot's rank and group
COUNT, LAST, SIZE = 0, 1, 2  # Summary.group; a free group's LAST names the next free one
SEEN, WINDOW, FREE = 0, 1, 2  # Summary.tally: rows, the window it began in, the first free group
D, DUE = 0, 1  # what ``plan`` holds: choices of a hot key, rows seen when they are worked out anew

HOT_SHARE = 5  # a key is hot from 1 / (5 n) of the rows on
_AGAIN = 100  # D is worked out anew every 100 n rows, sooner at the start
_GAMMA, _STEP = np.uint64(0x9E3779B97F4A7C15), np.uint64(6364136223846793005)  # Knuth's multiplier
_ONE, _S32 = np.uint64(1), np.uint64(32)


class Summary(NamedTuple):
    """SpaceSaving; ``routers.frequent.summary`` makes an empty one. Inner loops take its arrays one by one: numba
    counts references whenever a field is read."""

    known: U64
    ranked: I64
    group: I64
    table: I64
    tally: I64


@inner
def seat(key: np.uint64, known: U64, table: I64) -> Int:
    """Where a key is in the table, or where it would go."""
    mask = table.shape[0] - 1
    at = np.int64(mixed(key, _ONE) >> _S32) & mask
    while table[at] != 0 and known[table[at] - 1] != key:
        at = (at + 1) & mask
    return at


@inner
def unseat(gap: int, known: U64, table: I64) -> None:
    """Take a key out of the table; those behind it that may come nearer to their place do."""
    mask = table.shape[0] - 1
    at = (gap + 1) & mask
    while table[at] != 0:
        home = np.int64(mixed(known[table[at] - 1], _ONE) >> _S32) & mask
        if ((at - home) & mask) >= ((at - gap) & mask):
            table[gap] = table[at]
            gap = at
        at = (at + 1) & mask
    table[gap] = 0


@kernel
def reseat(known: U64, table: I64, wider: I64) -> None:
    """Fill a wider, empty table from another."""
    for at in range(table.shape[0]):
        if table[at] != 0:
            wider[seat(known[table[at] - 1], known, wider)] = table[at]


@inner
def lift(slot: Int, ranked: I64, group: I64, tally: I64) -> None:
    """One more for this slot: to the last place of its group, then into the next group or one of its own."""
    own = ranked[slot, GROUP]
    end, value = group[own, LAST], group[own, COUNT]
    rank, other = ranked[slot, RANK], ranked[end, ORDER]
    ranked[rank, ORDER], ranked[other, RANK] = other, rank
    ranked[end, ORDER], ranked[slot, RANK] = slot, end
    above = -1
    if end + 1 < ranked.shape[0]:
        above = ranked[ranked[end + 1, ORDER], GROUP]
        if group[above, COUNT] != value + 1:
            above = -1
    alone = group[own, SIZE] == 1
    if above < 0 and alone:
        group[own, COUNT] = value + 1
        return
    group[own, LAST] = end - 1
    group[own, SIZE] -= 1
    if above < 0:
        above = tally[FREE]
        tally[FREE] = group[above, LAST]
        group[above, COUNT], group[above, LAST], group[above, SIZE] = value + 1, end, 0
    elif alone:
        group[own, LAST] = tally[FREE]
        tally[FREE] = own
    group[above, SIZE] += 1
    ranked[slot, GROUP] = above


@inner
def note(key: np.uint64, known: U64, ranked: I64, group: I64, table: I64, tally: I64) -> Int:
    """One more row of this key; how many it has had at most. A new key takes over the slot of the rarest."""
    at = seat(key, known, table)
    slot = table[at] - 1
    if slot < 0:
        slot = ranked[0, ORDER]
        if group[ranked[slot, GROUP], COUNT] > 0:
            unseat(seat(known[slot], known, table), known, table)
            at = seat(key, known, table)
        known[slot] = key
        table[at] = slot + 1
    lift(slot, ranked, group, tally)
    tally[SEEN] += 1
    return group[ranked[slot, GROUP], COUNT]


@inner
def estimate(key: np.uint64, known: U64, ranked: I64, group: I64, table: I64) -> Int:
    """The rows that a summary gives this key, 0 if it does not know it."""
    slot = table[seat(key, known, table)] - 1
    return group[ranked[slot, GROUP], COUNT] if slot >= 0 else np.int64(0)


@inner
def winner(load: I64, one: int, other: int) -> Int:
    """The less loaded of two workers, the first on ties; -1 is nobody."""
    return one if other < 0 or load[one] <= load[other] else other


@kernel
def plant(load: I64, tree: I64) -> None:
    """Play all matches; ``tree[1]`` is the least loaded worker, the lowest on ties. Leaves are set once."""
    for at in range(tree.shape[0] // 2 - 1, 0, -1):
        tree[at] = winner(load, tree[2 * at], tree[2 * at + 1])


@inner
def replay(load: I64, tree: I64, worker: int) -> None:
    """This worker has a row more: play again the matches that it had won."""
    at = (tree.shape[0] // 2 + worker) >> 1
    while at > 0 and tree[at] == worker:
        tree[at] = winner(load, tree[2 * at], tree[2 * at + 1])
        at >>= 1


@inner
def power(base: float, exponent: int) -> float:
    """By squaring: the same bits everywhere, which a library's ``pow`` does not promise."""
    result = 1.0
    while exponent > 0:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


@kernel
def enough(head: I64, hot: int, seen: int, choices: int, workers: int, over: float) -> int:
    """Whether every prefix of the hot keys keeps its workers within epsilon of the mean (see ``routers/dchoices``)."""
    rows = np.float64(seen)
    all_hot = 0.0
    for at in range(hot):
        all_hot += np.float64(head[at]) / rows
    prefix, untouched = 0.0, 1.0
    for at in range(hot - 1, -1, -1):
        prefix += np.float64(head[at]) / rows
        untouched *= 1.0 - np.float64(choices) / np.float64(workers)
        part = 1.0 - untouched
        expected = prefix + power(part, choices) * (all_hot - prefix) + part * part * (1.0 - all_hot)
        if expected > part * (1.0 + np.float64(workers) * over):
            return 0
    return 1


@kernel
def fewest_choices(head: I64, hot: int, seen: int, workers: int, over: float) -> Int:
    """The least d that is enough for ``head[:hot]`` (rows of the hot keys, ascending) of ``seen`` rows; n always is."""
    for choices in range(2, workers):
        if enough(head, hot, seen, choices, workers, over):
            return choices
    return workers


@kernel
def gather(one: Summary, other: Summary, again: int, share: int, head: I64, hot: int) -> Int:
    """Append the hot keys of ``one`` to ``head``. A hot key has half of its rows in one of the two summaries at least:
    from the top down to there; with ``again`` without those that the other one has found that way."""
    seen = one.tally[SEEN] + other.tally[SEEN]
    for rank in range(one.ranked.shape[0] - 1, -1, -1):
        slot = one.ranked[rank, ORDER]
        rows = one.group[one.ranked[slot, GROUP], COUNT]
        if rows == 0 or 2 * rows * share < seen:
            break
        more = estimate(one.known[slot], other.known, other.ranked, other.group, other.table)
        if again and 2 * more * share >= seen:
            continue
        if (rows + more) * share >= seen:
            head[hot] = rows + more
            hot += 1
    return hot


@kernel
def decide(now: Summary, before: Summary, head: I64, plan: I64, workers: int, over: float) -> None:
    """Work out D for the hot keys of the moment, and when to do so again."""
    share = HOT_SHARE * workers
    hot = gather(before, now, 1, share, head, gather(now, before, 0, share, head, 0))
    head[:hot].sort()
    plan[D] = fewest_choices(head, hot, now.tally[SEEN] + before.tally[SEEN], workers, over)
    plan[DUE] = now.tally[SEEN] + min(max(now.tally[SEEN], workers), _AGAIN * workers)


@inner
def best_of(key: np.uint64, choices: Int, salt: np.uint64, order: I64, drawn: I64, load: I64) -> Int:
    """The least loaded of a key's d different workers, ties to the first: the first d places of a shuffle that the key
    seeds, so that fewer choices are some of more. ``order`` is 0 .. n - 1 before and after."""
    state = mixed(key, salt)
    stride = (state * _GAMMA) | _ONE
    best = -1
    for j in range(choices):
        at = j + scaled_down(state, load.shape[0] - j)
        worker = order[at]
        order[at] = order[j]
        drawn[j] = at
        if best < 0 or load[worker] < load[best]:
            best = worker
        state = state * _STEP + stride
    for j in range(choices):
        order[j] = j
        order[drawn[j]] = drawn[j]
    return best


@kernel
def route_frequent(
    keys: U64,
    slides: I64,
    out: I32,
    start: int,
    span: int,
    over: float,
    salt: np.uint64,
    order: I64,
    drawn: I64,
    clock: I64,
    ring: NDArray[np.int64],
    load: I64,
    tree: I64,
    now: Summary,
    before: Summary,
    head: I64,
    plan: I64,
) -> Int:
    """D- and W-choices from tuple ``start`` on: two choices for most keys, ``plan[D]`` for hot ones, all if that is n.

    Returns the tuple at which ``now`` becomes ``before``, or the number of tuples: a generation lasts a window of
    ``span`` slides, and as many rows as it has slots, so that starting anew is paid for.
    """
    workers, few = load.shape[0], np.int64(2)
    known, ranked, group, table, tally = now
    past_known, past_ranked, past_group, past_table, past = before
    for i in range(start, keys.shape[0]):
        if slides[i] != clock[SLIDE]:
            advance(clock, ring, load, slides[i])
            plant(load, tree)
            if slides[i] // span != tally[WINDOW] and tally[SEEN] >= known.shape[0]:
                return i
        rows = note(keys[i], known, ranked, group, table, tally)
        if past[SEEN] > 0:
            rows += estimate(keys[i], past_known, past_ranked, past_group, past_table)
        if tally[SEEN] >= plan[DUE]:
            decide(now, before, head, plan, workers, over)
        choices = plan[D] if rows * HOT_SHARE * workers >= tally[SEEN] + past[SEEN] else few
        best = tree[1] if choices >= workers else best_of(keys[i], choices, salt, order, drawn, load)
        out[i] = best
        count(clock, ring, load, best)
        replay(load, tree, best)
    return keys.shape[0]
