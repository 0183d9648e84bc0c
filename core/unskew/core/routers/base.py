"""What every router has in common: its settings, its window, the loads in it, and its promises.

A router decides tuple by tuple and has state. The state changes only in ``route`` and depends on the tuples alone,
never on how they were cut into batches: two routers with the same seed and stream give the same answers. An algorithm
is a class with one method, ``step``; ``Router`` checks the input and numbers the slides. This module decides nothing
about which worker a tuple goes to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.core.arrays.types import F64, I32, I64, U64
from unskew.core.errors import ConfigError, HistogramError
from unskew.core.limits import MAX_PARTITIONS
from unskew.core.parameters import check_range

__all__ = ["Loads", "Router", "RouterAlgorithm", "RouterSettings", "check_choices", "common", "longer_log"]


_MOST_SLIDES = 100_000


@dataclass(frozen=True)
class RouterSettings:
    """The settings that every router takes. Without a window, loads count from the beginning of the stream."""

    workers: int
    seed: int
    window: float | None
    slide: float | None

    @property
    def slides(self) -> int:
        """Slides in the window, the one in use included; a window that is no multiple of the slide is rounded up."""
        if self.window is None or self.slide is None:
            return 1
        return int(np.ceil(self.window / self.slide))

    def salt(self, number: int) -> np.uint64:
        """An independent salt for the ``number``-th hash of this router."""
        return np.uint64((self.seed * 1_000_003 + number * 0x1_0000_0001) & 0xFFFFFFFFFFFFFFFF)


def common(workers: int, seed: int, window: float | None, slide: float | None) -> RouterSettings:
    """Checked settings, or a ``ConfigError`` that names the bad one."""
    for name, value in (("workers", workers), ("seed", seed)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise ConfigError(name, value, "a whole number")
    check_range("workers", workers, 1, MAX_PARTITIONS)
    if window is None and slide is not None:
        raise ConfigError("slide", slide, "a slide only together with a window")
    if window is not None:
        _positive("window", window)
        slide = window if slide is None else slide
        _positive("slide", slide)
        if slide > window:
            raise ConfigError("slide", slide, f"at most the window, {window!r}")
        if window / slide > _MOST_SLIDES:
            raise ConfigError("slide", slide, f"at most {_MOST_SLIDES} slides in a window")
    return RouterSettings(int(workers), int(seed), window, slide)


def _positive(name: str, value: object) -> None:
    fine = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not fine or not 0 < value < float("inf"):  # type: ignore[operator]  # a number, as just checked
        raise ConfigError(name, value, "a number of tuples, or of seconds where tuples have times, above 0")


def check_choices(choices: int) -> None:
    """Refuse a number of choices outside 1 to 64."""
    check_range("choices", choices, 1, 64, "1 to 64 workers a key")


@dataclass(frozen=True, eq=False)
class Loads:
    """Rows per worker in the window: the arrays of ``kernels.window``."""

    clock: I64
    ring: I64
    load: I64

    @classmethod
    def of(cls, settings: RouterSettings) -> Loads:
        n = settings.workers
        return cls(np.zeros(3, np.int64), np.zeros((settings.slides, n), np.int64), np.zeros(n, np.int64))


def longer_log(log: NDArray[Any], tail: int, head: int) -> NDArray[Any]:
    """The log with twice the room, which is a power of two; a record is at its number modulo the room."""
    records, longer = np.arange(tail, head), np.zeros((2 * len(log), *log.shape[1:]), log.dtype)
    longer[records & (len(longer) - 1)] = log[records & (len(log) - 1)]
    return longer


class RouterAlgorithm(Protocol):
    """The algorithm of one file of this package."""

    @property
    def common(self) -> RouterSettings: ...

    def step(self, keys: U64, slides: I64, out: I32) -> None:
        """Route these tuples, whose slide numbers never fall, into ``out``."""


@dataclass(eq=False)
class Router:
    """A routing policy with its state, as ``make_router`` returns it. Not thread-safe: one for each partitioner."""

    name: str
    algorithm: RouterAlgorithm
    _rows: int = field(default=0, init=False)
    _last: float = field(default=-np.inf, init=False)
    _timed: bool | None = field(default=None, init=False)

    @property
    def workers(self) -> int:
        return self.algorithm.common.workers

    def route(self, hashes: ArrayLike, times: ArrayLike | None = None) -> I32:
        """Choose the worker of each tuple, and count it.

        Parameters
        ----------
        hashes
            uint64 key hashes, as ``hash_keys`` returns them, in the order of the stream.
        times
            The time of each tuple in seconds, never falling. With times, window and slide are in seconds, without them
            in tuples; a stream has times in all calls or in none.

        Returns
        -------
        NDArray[np.int32]
            A worker for each tuple, 0 to n - 1.

        Raises
        ------
        HistogramError
            If the hashes are not uint64.
        ConfigError
            If times are missing, fall, or are not finite.

        Examples
        --------
        >>> import numpy as np
        >>> from unskew.core import make_router
        >>> make_router("shuffle", workers=2, seed=0).route(np.array([7, 7, 7], np.uint64)).tolist()
        [0, 1, 0]
        """
        keys = np.ascontiguousarray(hashes)
        if keys.dtype != np.uint64:
            raise HistogramError(f"hashes of type {keys.dtype}: give uint64 key hashes, as hash_keys returns them")
        slides = self._slides(len(keys), times)
        out = np.empty(len(keys), np.int32)
        with np.errstate(over="ignore"):
            self.algorithm.step(keys, slides, out)
        return out

    @property
    def tuples(self) -> int:
        """How many tuples have been counted; of timed tuples none are."""
        return self._rows

    def _slides(self, rows: int, times: ArrayLike | None) -> I64:
        if rows and self._timed is None:
            self._timed = times is not None
        if rows and self._timed != (times is not None):
            raise ConfigError("times", "given" if times is not None else "missing", "the same for the whole stream")
        slide = self.algorithm.common.slide
        if times is None and slide is not None and float(slide).is_integer():
            return self._counted(rows, int(slide))
        number = self._numbers(rows, times)
        if slide is None:
            return np.zeros(rows, np.int64)
        return np.floor_divide(number, slide).astype(np.int64)

    def _counted(self, rows: int, slide: int) -> I64:
        """Slide numbers counted in tuples: each repeated for its tuples, which saves a division a row."""
        first, self._rows = self._rows, self._rows + rows
        number = np.arange(first // slide, -(-self._rows // slide))
        ends = np.minimum((number + 1) * slide, self._rows)
        return np.repeat(number, np.diff(ends, prepend=first))

    def _numbers(self, rows: int, times: ArrayLike | None) -> F64 | I64:
        if times is None:
            self._rows += rows
            return np.arange(self._rows - rows, self._rows)
        when = np.asarray(times, np.float64)
        if when.shape != (rows,) or not np.isfinite(when).all():
            raise ConfigError("times", f"shape {when.shape}", f"one finite number of seconds for each of {rows} tuples")
        if rows and (when[0] < self._last or (np.diff(when) < 0).any()):
            raise ConfigError("times", "falling", "times that never fall: sort late tuples in or route them as new")
        if rows:
            self._last = float(when[-1])
        return when
