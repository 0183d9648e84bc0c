"""The loop of D-choices and W-choices: hot keys get d choices, or all workers; the rest two.

``space_saving`` counts the keys, ``tournament`` knows the least loaded worker; here is how many choices a hot key
needs. The rules for writing a loop are those of ``base``.
"""

from __future__ import annotations

import numpy as np

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.kernels.base import Int, inner, kernel
from unskew.core.kernels.choices import mixed, scaled_down
from unskew.core.kernels.space_saving import COUNT, GROUP, ORDER, TOTAL, WINDOW, Summary, count_key, estimate
from unskew.core.kernels.tournament import build_tree, update_tree
from unskew.core.kernels.window import SLIDE, advance, count

__all__ = ["DUE", "fewest_choices", "least_loaded_choice", "route_frequent", "update_choices"]


CHOICES, DUE = (0, 1)  # ``hot_choices``: choices of a hot key; the number of rows that updates them next

HOT_SHARE = 5  # a key is hot from 1 / (5 n) of the rows on
_AGAIN = 100  # choices are worked out anew every 100 n rows, sooner at the start
_GAMMA, _STEP = np.uint64(0x9E3779B97F4A7C15), np.uint64(6364136223846793005)  # Knuth's multiplier
_ONE = np.uint64(1)


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
def choices_suffice(hot_rows: I64, hot: int, total: int, choices: int, workers: int, over: float) -> int:
    """Whether every prefix of the hot keys keeps its workers within epsilon of the mean (see ``routers.frequent``)."""
    rows = np.float64(total)
    all_hot = 0.0
    for at in range(hot):
        all_hot += np.float64(hot_rows[at]) / rows
    prefix, untouched = 0.0, 1.0
    for at in range(hot - 1, -1, -1):
        prefix += np.float64(hot_rows[at]) / rows
        untouched *= 1.0 - np.float64(choices) / np.float64(workers)
        part = 1.0 - untouched
        expected = prefix + power(part, choices) * (all_hot - prefix) + part * part * (1.0 - all_hot)
        if expected > part * (1.0 + np.float64(workers) * over):
            return 0
    return 1


@kernel
def fewest_choices(hot_rows: I64, hot: int, total: int, workers: int, over: float) -> Int:
    """The least d that suffices for ``hot_rows[:hot]`` (rows of the hot keys, ascending) of ``total`` rows; n does."""
    for choices in range(2, workers):
        if choices_suffice(hot_rows, hot, total, choices, workers, over):
            return choices
    return workers


@kernel
def append_hot(summary: Summary, second: Summary, skip_listed: int, share: int, hot_rows: I64, hot: int) -> Int:
    """Append the rows of ``summary``'s hot keys to ``hot_rows``, and return how many hot keys there are now.

    A hot key has at least half of its rows in one of the two summaries, so ranks below that need no look. With
    ``skip_listed``, keys that the same walk over ``second`` lists are left out.
    """
    total = summary.tally[TOTAL] + second.tally[TOTAL]
    for rank in range(summary.ranked.shape[0] - 1, -1, -1):
        slot = summary.ranked[rank, ORDER]
        rows = summary.group[summary.ranked[slot, GROUP], COUNT]
        if rows == 0 or 2 * rows * share < total:
            break
        more = estimate(summary.slot_keys[slot], second.slot_keys, second.ranked, second.group, second.table)
        if skip_listed and 2 * more * share >= total:
            continue
        if (rows + more) * share >= total:
            hot_rows[hot] = rows + more
            hot += 1
    return hot


@kernel
def update_choices(now: Summary, before: Summary, hot_rows: I64, hot_choices: I64, workers: int, over: float) -> None:
    """Work out how many choices a hot key has now, and when to do so again."""
    share = HOT_SHARE * workers
    hot = append_hot(before, now, 1, share, hot_rows, append_hot(now, before, 0, share, hot_rows, 0))
    hot_rows[:hot].sort()
    hot_choices[CHOICES] = fewest_choices(hot_rows, hot, now.tally[TOTAL] + before.tally[TOTAL], workers, over)
    hot_choices[DUE] = now.tally[TOTAL] + min(max(now.tally[TOTAL], workers), _AGAIN * workers)


@inner
def least_loaded_choice(key: np.uint64, choices: Int, salt: np.uint64, order: I64, drawn: I64, load: I64) -> Int:
    """The least loaded of a key's d different workers, ties to the first.

    The d choices are the first places of a shuffle that the key seeds, so fewer choices are a subset of more. The
    shuffle is undone at the end: ``order`` is 0 .. n - 1 before and after.
    """
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
    ring: I64,
    load: I64,
    tree: I64,
    now: Summary,
    before: Summary,
    hot_rows: I64,
    hot_choices: I64,
) -> Int:
    """D- and W-choices from tuple ``start`` on: two choices for most keys, ``hot_choices[CHOICES]`` for hot ones.

    Returns the tuple at which ``now`` becomes ``before``, or the number of tuples. A summary is used for a window of
    ``span`` slides and for at least as many rows as it has slots: in fewer, making a new one would not pay.
    """
    workers, few = load.shape[0], np.int64(2)
    slot_keys, ranked, group, table, tally = now
    past_keys, past_ranked, past_group, past_table, past = before
    for i in range(start, keys.shape[0]):
        if slides[i] != clock[SLIDE]:
            advance(clock, ring, load, slides[i])
            build_tree(load, tree)
            if slides[i] // span != tally[WINDOW] and tally[TOTAL] >= slot_keys.shape[0]:
                return i
        rows = count_key(keys[i], slot_keys, ranked, group, table, tally)
        if past[TOTAL] > 0:
            rows += estimate(keys[i], past_keys, past_ranked, past_group, past_table)
        if tally[TOTAL] >= hot_choices[DUE]:
            update_choices(now, before, hot_rows, hot_choices, workers, over)
        choices = hot_choices[CHOICES] if rows * HOT_SHARE * workers >= tally[TOTAL] + past[TOTAL] else few
        best = tree[1] if choices >= workers else least_loaded_choice(keys[i], choices, salt, order, drawn, load)
        out[i] = best
        count(clock, ring, load, best)
        update_tree(load, tree, best)
    return keys.shape[0]
