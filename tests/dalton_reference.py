"""Dalton's Algorithm 1 in plain Python, slow and without cleverness: what the kernels are compared with.

Loads and fragments are counted anew from a list of the window's tuples whenever they are asked for, the Q-table is a
dictionary of dictionaries, and frequencies are a ``Counter``. Only the random numbers are drawn as the kernels draw
them. One thing is not the paper's: of a key's tuples on its hash worker from before it was hot only so much is known
that there were some in this interval; nobody remembers them tuple by tuple.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import ceil

from unskew.core.dalton.settings import LearningSettings
from unskew.core.routers.dalton import DaltonRouter

__all__ = ["Reference", "Row", "poured"]

_ALL = 2**64 - 1
_UNTRIED = -2.0


def mixed(key: int, salt: int) -> int:
    """splitmix64's finaliser."""
    z = (key + (salt + 1) * 0x9E3779B97F4A7C15) & _ALL
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _ALL
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _ALL
    return z ^ (z >> 31)


def uneven(load: float, mean: float) -> float:
    """Eq. 3."""
    return (load - mean) / max(load, mean)


def looked(drawn: int, look: int, workers: int) -> list[int]:
    """The random workers that exploring looks at."""
    state, seen = mixed(drawn, 1), []
    for _ in range(look):
        state = (state * 6364136223846793005 + 0x9E3779B97F4A7C15) & _ALL
        seen.append(((state >> 32) * workers) >> 32)
    return seen


@dataclass
class Row:
    """A key that is hot (``until`` an interval), or was and is still on other workers than its hash's."""

    home: int
    since: int  # the number of the tuple that made it hot
    before: int | None  # the slide in which it was known to have been at home before that
    q: dict[int, float] = field(default_factory=dict)
    until: int | None = None
    weight: int = 0
    choice: int = 0
    left: int = 0


@dataclass
class Reference:
    """Routes one tuple at a time. ``settings`` is a router of the same settings; it is not asked to route."""

    settings: DaltonRouter
    window: list[tuple[int, int, int, int]] = field(default_factory=list)  # number, slide, key, worker
    rows: dict[int, Row] = field(default_factory=dict)
    counts: Counter[int] = field(default_factory=Counter)
    span: int = 0  # L
    interval: int = 1
    slide: int = 0
    number: int = 0
    drawn: int = 0
    cap: int = 0
    hot_tuples: int = 0

    def __post_init__(self) -> None:
        cap, n = self.settings.split_cap, self.n
        self.cap = min(cap, n) if isinstance(cap, int) else (min(2, n) if cap == "adaptive" else n)

    @property
    def n(self) -> int:
        return self.settings.common.workers

    @property
    def windowed(self) -> bool:
        return self.settings.common.window is not None

    @property
    def records(self) -> int:
        return self.counts.total()

    def route(self, key: int, home: int, slide: int) -> int:
        """Algorithm 1."""
        self._turn(slide)
        self.counts[key] += 1
        self._heat(key, home)
        worker = home
        row = self.rows.get(key)
        if row is not None and row.until is not None:
            self.hot_tuples += 1
            worker = self._decide(key, row)
        self.window.append((self.number, slide, key, worker))
        self.number += 1
        return worker

    # -- the window

    def loads(self) -> list[int]:
        """Tuples per worker in the window."""
        return [sum(1 for _, _, _, worker in self.window if worker == w) for w in range(self.n)]

    def slide_loads(self) -> list[int]:
        """The same in the slide in use."""
        return [sum(1 for _, s, _, worker in self.window if worker == w and s == self.slide) for w in range(self.n)]

    def held(self, key: int) -> set[int]:
        """The workers that hold a key: from the tuples themselves, but for what is not known of its hash worker (and,
        without a window, of all times that it was hot before)."""
        row = self.rows[key]
        old = [row.home] if self.windowed else range(self.n)
        found = {w for number, _, k, w in self.window if k == key and (w not in old or number >= row.since)}
        seen = row.before is not None and (not self.windowed or row.before > self.slide - self._slides())
        return found | {row.home} if seen else found

    def _slides(self) -> int:
        return self.settings.common.slides

    def _turn(self, slide: int) -> None:
        enough = self.records >= self._enough()
        if slide != self.slide:
            if enough:
                self._end_interval()
            self.slide = slide
            if self.windowed:
                self.window = [one for one in self.window if one[1] > slide - self._slides()]
                for key, row in list(self.rows.items()):
                    held = self.held(key)
                    row.q = {worker: value for worker, value in row.q.items() if worker in held}
                    self._drop_if_whole(key)
        elif enough and not self.windowed:
            self._end_interval()

    # -- who is hot

    def _enough(self) -> int:
        stats = self.settings.stats if self.windowed else max(self.settings.stats, 32)
        return max(stats * self.n, 1)

    def _total(self) -> int:
        return max(self.span, self.records)

    def _heat(self, key: int, home: int) -> None:
        often, total = self.counts[key], self._total()
        row = self.rows.get(key)
        known = self.span > 0 or total > 32 * self.n
        if known and often * self.n >= total:
            if row is None:
                row = self.rows[key] = Row(home, self.number, self.slide if often > 1 else None, choice=home)
            row.until = self.interval + 1
        elif row is not None and row.until is not None and often * self.n >= self.settings.renew * total:
            row.until = self.interval + 1

    def _end_interval(self) -> None:
        hot, crowded = 0, 0
        for key, row in list(self.rows.items()):
            if row.until is None:
                continue
            if row.until <= self.interval:
                row.until, row.q, row.left, row.weight = None, {}, 0, 0
                self._drop_if_whole(key)
                continue
            row.weight = self.counts[key]
            while len(row.q) > self._most(row, 0, self.records):
                lowest = min(row.q.values())
                del row.q[max(worker for worker, value in row.q.items() if value == lowest)]
            hot += 1
            crowded += len(self.held(key)) >= self.cap
        if self.settings.split_cap == "adaptive" and hot and crowded >= 0.7 * hot:
            self.cap = min(2 * self.cap, self.n)
        self.span, self.counts = self.records, Counter()
        self.interval += 1

    def _drop_if_whole(self, key: int) -> None:
        row = self.rows[key]
        if row.until is None and (not self.windowed or self.held(key) <= {row.home}):
            del self.rows[key]

    # -- where to

    def _most(self, row: Row, often: int, total: int) -> int:
        if self.settings.split_cap != "share":
            return self.cap
        return 1 + ceil(self.settings.share * float(max(often, row.weight) * self.n) / float(max(total, 1)))

    def _decide(self, key: int, row: Row) -> int:
        if row.left > 0:
            row.left -= 1
            return row.choice
        of, n = self.settings, float(self.n)
        load, inslide = self.loads(), self.slide_loads()
        mean, slide_mean = float(sum(load) + 1) / n, float(sum(inslide) + 1) / n
        worker = self._greedy(row)
        drawn = mixed(self.drawn, int(of.common.salt(0)))
        self.drawn += 1
        if (drawn >> 11) / 2**53 < of.epsilon:
            other = self._explored(drawn, of.p1 / mean, of.slide_weight / slide_mean, load, inslide)
            most, held = self._most(row, self.counts[key], self._total()), self.held(key)
            room = len(row.q) < most and (other in held or len(held) < most)
            if other in row.q or room:
                worker = other
        held = float(len(self.held(key) | {worker}))
        reward = -(
            of.p1 * uneven(float(load[worker] + 1), mean)
            + (1.0 - of.p1) * held / n
            + of.slide_weight * uneven(float(inslide[worker] + 1), slide_mean)
        )
        first = worker not in row.q and not of.keep_untried
        old = row.q.get(worker, _UNTRIED)
        row.q[worker] = reward if first else old + (1.0 - (1.0 - of.gamma) ** of.quantum) * (reward - old)
        row.choice, row.left = worker, of.quantum - 1
        return worker

    def _greedy(self, row: Row) -> int:
        values = [row.q.get(worker, _UNTRIED) for worker in range(self.n)]
        best = max(values)
        return row.home if values[row.home] == best else values.index(best)

    def _explored(self, drawn: int, over: float, now: float, load: list[int], inslide: list[int]) -> int:
        seen = looked(drawn, self.settings.look, self.n)
        return min(seen, key=lambda worker: over * float(load[worker]) + now * float(inslide[worker]))


def poured(
    counts: list[int], homes: list[int], most: list[int], tail: list[int], relative: list[float],
    learning: LearningSettings, seed: int, values: list[list[float]], grain: int | None = None,
) -> list[list[int]]:  # fmt: skip
    """Dalton for micro-batches on counts: tuples per hot key and worker; ``values`` are moved in place."""
    workers, load, draw = len(tail), list(tail), 0
    n, quantum = float(workers), grain or learning.quantum
    mean = float(max(sum(tail) + sum(counts), 1)) / n
    placed = [[0] * workers for _ in counts]
    for mine, row, tuples, home, cap in zip(placed, values, counts, homes, most, strict=True):
        while sum(mine) < tuples:
            drawn = mixed(draw, seed)
            draw += 1
            best = max(row)
            worker = home if row[home] == best else row.index(best)
            if (drawn >> 11) / 2**53 < learning.epsilon:
                worker = min(looked(drawn, learning.look, workers), key=lambda w: float(load[w]) / relative[w])
            held = [w for w in range(workers) if mine[w]]
            if len(held) >= cap and worker not in held:
                worker = max(held, key=lambda w: (row[w], -w))
            many = min(tuples - sum(mine), quantum)
            mine[worker] += many
            load[worker] += many
            fragments = float(sum(1 for some in mine if some))
            unevenness = uneven(float(load[worker]) / relative[worker], mean)
            reward = -(learning.p1 * unevenness + (1.0 - learning.p1) * fragments / n)
            first = row[worker] == _UNTRIED and not learning.keep_untried
            step = 1.0 - (1.0 - learning.gamma) ** learning.quantum
            row[worker] = reward if first else row[worker] + step * (reward - row[worker])
    return placed
