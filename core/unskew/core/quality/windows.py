"""How even a routing was from window to window: imbalance and replication over a sliding window (Dalton, section 5).

``partitions`` is what a router or a plan returned, one partition a row in the order of the stream. A window is what the
routers use (``routers/base.py``): as many slides as cover ``window``, rounded up. It is measured at the end of every
slide, from the first whole window on. Both lengths are in rows, or in seconds with ``times`` (one a row, never
falling); then slides without rows are skipped, and so is the last one, which may not be complete.

Everything is counted for all windows at once: a row enters with the first window that ends after it and leaves with
the first that begins after it, so the work grows with the rows and not with rows times slides in a window.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.core.arrays.types import F64, I64, U64
from unskew.core.errors import ConfigError
from unskew.core.quality.measures import load_imbalance, loads

__all__ = ["window_imbalance", "window_replication"]

Partitions = NDArray[np.integer]

_CELLS = 1 << 20  # of the windows whose loads are held at one time
_ROWS = 1 << 18  # sorted at one time, unless four windows have more


def window_imbalance(
    partitions: Partitions,
    n: int,
    window: float,
    slide: float,
    relative: ArrayLike | None = None,
    times: ArrayLike | None = None,
) -> F64:
    """Largest load over mean load in the window, at the end of every slide; loads by ``relative`` capacity if given.

    >>> import numpy as np
    >>> window_imbalance(np.array([0, 0, 1, 1, 1, 1]), n=2, window=4, slide=2)
    array([1., 2.])
    """
    loads(partitions, n)  # for its checks, and those of the next line
    load_imbalance(np.zeros(n), relative)
    share = np.ones(n) if relative is None else np.asarray(relative, np.float64)
    share = share / share.mean()
    spans = _spans(len(partitions), window, slide, times)
    out = np.ones(len(spans.end))
    for first, load in _window_loads(partitions, n, spans):
        mean, most = load.mean(axis=1), (load / share).max(axis=1)
        np.divide(most, mean, out=out[first : first + len(load)], where=mean > 0)
    return out


def window_replication(
    hashes: U64, partitions: Partitions, window: float, every: float | None = None, times: ArrayLike | None = None
) -> F64:
    """(key, partition) pairs over distinct keys in the window, at the end of ``every`` so many rows or seconds; of
    each whole window when left out.

    >>> import numpy as np
    >>> window_replication(np.array([7, 7, 7, 8], np.uint64), np.array([0, 1, 1, 1]), window=2)
    array([2., 1.])
    """
    n = int(partitions.max(initial=0)) + 1
    loads(partitions, n)
    if partitions.shape != hashes.shape:
        raise ConfigError("partitions", f"shape {partitions.shape}", f"one for each of the {hashes.size} key hashes")
    spans = _spans(len(hashes), window, window if every is None else every, times)
    out = np.ones(len(spans.end))
    for some, rows in spans.pieces():
        _, key = np.unique(hashes[rows], return_inverse=True)
        part = _Spans(spans.begin[some] - rows.start, spans.end[some] - rows.start)
        pairs = _distinct(key * n + partitions[rows], part)
        out[some] = pairs / np.maximum(_distinct(key, part), 1)
    return out


@dataclass(frozen=True, eq=False)
class _Spans:
    """The windows, in order: the rows from ``begin`` up to ``end`` of each. Neither ever falls."""

    begin: I64
    end: I64

    def pieces(self) -> Iterator[tuple[slice, slice]]:
        """Some windows at a time, and the rows that they cover: few rows sort faster, and what they share is little."""
        most, first = max(_ROWS, 4 * int((self.end - self.begin).max(initial=0))), 0
        while first < len(self.end):
            begin = int(self.begin[first])
            last = int(np.searchsorted(self.end, begin + most, "right"))
            yield slice(first, last), slice(begin, int(self.end[last - 1]))
            first = last


def _spans(rows: int, window: float, slide: float, times: ArrayLike | None) -> _Spans:
    """Every whole window at the end of every slide."""
    _check_lengths(window, slide, timed=times is not None)
    reach = int(np.ceil(window / slide))
    if times is None:
        end = int(slide) * np.arange(reach, rows // int(slide) + 1)
        return _Spans(end - reach * int(slide), end)
    when = np.asarray(times, np.float64)
    if when.shape != (rows,) or not np.isfinite(when).all() or (np.diff(when) < 0).any():
        raise ConfigError("times", f"shape {when.shape}", f"one finite number for each of {rows} rows, never falling")
    numbers, first = np.unique(np.floor_divide(when, slide), return_index=True)
    ended = numbers[:-1]  # the last one may not be complete
    ended = ended[ended - numbers[:1] >= reach - 1]
    starts = np.append(first, rows)
    begin = starts[np.searchsorted(numbers, ended - (reach - 1))]
    return _Spans(begin, starts[np.searchsorted(numbers, ended) + 1])


def _check_lengths(window: float, slide: float, *, timed: bool) -> None:
    for name, value in (("window", window), ("slide", slide)):
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        number = whole or (timed and isinstance(value, (float, np.floating)))
        if not number or not 0 < value < float("inf"):
            raise ConfigError(name, value, "a number of seconds above 0" if timed else "a whole number of rows above 0")
    if slide > window:
        raise ConfigError("slide", slide, f"at most the window, {window!r}")


def _window_loads(partitions: Partitions, n: int, spans: _Spans) -> Iterator[tuple[int, I64]]:
    """Rows per window and partition, some windows at a time, with the number of the first."""
    windows = len(spans.end)
    if windows == 0:
        return
    each = max(n, len(partitions) // windows)
    block, load = max(1, _CELLS // each), np.zeros(n, np.int64)
    for first in range(0, windows, block):
        entered = _change(partitions, n, spans.end, first, block)
        out = load + np.cumsum(entered - _change(partitions, n, spans.begin, first, block), axis=0)
        load = out[-1]
        yield first, out


def _change(partitions: Partitions, n: int, bound: I64, first: int, block: int) -> I64:
    """Rows per window and partition between this bound of the window before and that of the window."""
    ends = bound[first : first + block]
    before = int(bound[first - 1]) if first else 0
    number = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=before))
    cells = number * n + partitions[before : int(ends[-1])]
    return np.bincount(cells, minlength=len(ends) * n).reshape(len(ends), n)


def _distinct(values: I64, spans: _Spans) -> I64:
    """Distinct values in each window.

    A value is counted at its last row in the window: from the window that the row enters with to the one that it
    leaves with or that the value's next row enters with, whichever is first.
    """
    row, ordered = _by_value(values)
    enter, leave = np.searchsorted(spans.end, row, "right"), np.searchsorted(spans.begin, row, "right")
    again = ordered[1:] == ordered[:-1]
    leave[:-1][again] = np.minimum(leave[:-1], enter[1:])[again]
    windows = len(spans.end)
    change = np.bincount(enter, minlength=windows + 1) - np.bincount(leave, minlength=windows + 1)
    return np.cumsum(change)[:windows]


def _by_value(values: I64) -> tuple[I64, I64]:
    """Rows ordered by their value, equal ones by row; and the values so. In one word where both fit: sorts faster."""
    bits = len(values).bit_length()
    if int(values.max(initial=0)).bit_length() + bits > 63:
        order = np.argsort(values, kind="stable")
        return order, values[order]
    both = np.sort(values << bits | np.arange(len(values)))
    return both & ((1 << bits) - 1), both >> bits
