"""FIDELITY's grid: 100,000 keys, windows of 60,000 tuples by 1,000, and what an oracle would do on the same hashes.

One seed draws the hashes of all keys, the stream, and the router's own choices. Imbalance is max / mean of the rows in
a window, at every slide end after the warm-up; replication is (key, worker) pairs over keys in windows that follow
each other, because Holistic's routers start anew with each of them and keep a key whole only inside.

The oracle knows each window in advance. Its hot keys are those with a worker's mean share or more (f >= L / n); it
pours them in perfectly, over a tail that lies where ``hash`` puts it. What it reaches is the bound
``B = max(1, heaviest worker of the hashed tail / mean)``: no router that hashes its tail can be better. Routers that
also move light keys can, so a ratio to B below 1 is no error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from papers.microbatch import BatchRouter
from unskew.core.keys.hashing import mix
from unskew.core.quality.windows import window_imbalance
from unskew.core.routers import make_router
from unskew.core.routers.base import common
from unskew.simulate.key_streams import zipf_keys

__all__ = [
    "BATCHES", "CELLS", "EXPONENTS", "KEYS", "SLIDE", "WINDOW", "WORKERS",
    "Bound", "Dose", "Figures", "Stream", "batched", "bound_of", "measure", "measure_batched", "stream_of",
]  # fmt: skip

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
F64 = NDArray[np.float64]

KEYS, WINDOW, SLIDE = 100_000, 60_000, 1_000
EXPONENTS, WORKERS = (0.0, 0.5, 1.0, 1.5), (8, 16, 64)
BATCHES = (1_000, 10_000, 60_000)
CELLS = tuple((z, n) for z in EXPONENTS for n in WORKERS)


@dataclass(frozen=True)
class Dose:
    """How much of a stream: rows routed, and rows before the first window that counts. Both are multiples of WINDOW."""

    rows: int = 300_000
    warm: int = 60_000


@dataclass(frozen=True, eq=False)
class Stream:
    """``ranks`` are the rows, as numbers of keys; ``hashes`` are the keys'."""

    exponent: float
    seed: int
    dose: Dose
    hashes: U64
    ranks: I64

    @property
    def rows(self) -> U64:
        """The key hash of each row."""
        return self.hashes[self.ranks]


def stream_of(exponent: float, seed: int, dose: Dose = Dose(), keys: int = KEYS) -> Stream:
    """The stream of one exponent and seed: independent draws, Zipf over keys whose hashes are random."""
    rng = np.random.default_rng([seed, round(1000 * exponent)])
    hashes = rng.integers(0, 2**64, keys, dtype=np.uint64)
    return Stream(exponent, seed, dose, hashes, zipf_keys(rng, dose.rows, keys, exponent))


# -- the oracle ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Bound:
    """What can be reached on these hashes, an entry a window: B, what plain hash has, and what two workers for the
    heaviest key allow, ``max(1, p1 n / 2)``. B of the batches of each size; and ``paired``, one figure of all rows."""

    window: F64
    hashed: F64
    halved: F64
    batch: dict[int, F64]
    paired: float


def bound_of(
    stream: Stream, n: int, window: int = WINDOW, slide: int = SLIDE, batches: tuple[int, ...] = BATCHES
) -> Bound:
    """The bounds of every window and batch after the warm-up."""
    homes, ranks = make_router("hash", n).route(stream.hashes), stream.ranks[stream.dose.warm :]
    by_size = {size: _bounds(ranks, homes, n, size, size)[0] for size in batches}
    return Bound(*_bounds(ranks, homes, n, window, slide), by_size, _paired(stream, n))


def _bounds(ranks: I64, homes: I32, n: int, length: int, step: int) -> tuple[F64, F64, F64]:
    """B, the hashed load and ``p1 n / 2`` of every span of ``length`` rows that ends after a ``step``."""
    rows: list[tuple[float, float, float]] = []
    for counts, load in _spans(ranks, homes, n, length, step):
        hot = np.flatnonzero(counts * n >= length)
        tail = load - np.bincount(homes[hot], weights=counts[hot], minlength=n)
        rows.append((float(tail.max()), float(load.max()), float(counts.max()) / 2))
    reached, hashed, halved = np.array(rows).reshape(-1, 3).T * n / length
    return np.maximum(reached, 1.0), hashed, np.maximum(halved, 1.0)


def _spans(ranks: I64, homes: I32, n: int, length: int, step: int) -> Iterator[tuple[I64, I64]]:
    """Rows per key and, hashed, per worker, in every span: two arrays that are changed in place."""
    counts, load = np.zeros(len(homes), np.int64), np.zeros(n, np.int64)
    came, gone = 0, 0
    for end in range(length, len(ranks) + 1, step):
        for rows, sign in ((ranks[came:end], 1), (ranks[gone : end - length], -1)):
            np.add.at(counts, rows, sign)
            np.add.at(load, homes[rows], sign)
        came, gone = end, end - length
        yield counts, load


def _paired(stream: Stream, n: int) -> float:
    """What PK-2 cannot go below with its own hashes: two heavy keys may have the same two workers. The heaviest pair
    of workers by the keys that have no third, over twice the mean, or 1."""
    counts = np.bincount(stream.ranks[stream.dose.warm :], minlength=len(stream.hashes))
    first, second = pk2_choices(stream.hashes, n, stream.seed)
    pairs = np.bincount(np.minimum(first, second) * n + np.maximum(first, second), weights=counts)
    return max(1.0, float(pairs.max()) * n / 2 / float(counts.sum()))


def pk2_choices(hashes: U64, n: int, seed: int) -> tuple[I64, I64]:
    """The two workers that router ``pk2`` draws for each key."""
    salt = common(n, seed, None, None).salt
    first, second = (
        ((mix(hashes, int(salt(j))) >> np.uint64(32)) * np.uint64(n - j) >> np.uint64(32)).astype(np.int64)
        for j in (0, 1)
    )
    return first, second + (second >= first)


# -- what a router does -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figures:
    """One router on one stream. Imbalances and bounds are means over windows or batches after the warm-up."""

    imbalance: float
    bound: float
    hashed: float  # what plain hash has
    halved: float  # max(1, p1 n / 2)
    paired: float
    highest: float  # imbalance of the worst window
    worst: float  # the same as a multiple of that window's own B
    replication: float
    whole: float  # replication over the whole stream
    batch: dict[int, float]
    batch_bound: dict[int, float]
    nanoseconds: float

    @property
    def ratio(self) -> float:
        """Imbalance as a multiple of what the oracle reaches on the same hashes."""
        return self.imbalance / self.bound

    def batch_ratio(self, size: int) -> float:
        """The same in batches of so many rows."""
        return self.batch[size] / self.batch_bound[size]


def measure(name: str, stream: Stream, n: int, bound: Bound, **parameters: object) -> Figures:
    """Route the stream with FIDELITY's window; ``bound`` is that of the same stream and n."""
    make_router(name, n, stream.seed, WINDOW, SLIDE, **parameters).route(stream.rows[:2_000])  # compiles
    router, rows = make_router(name, n, stream.seed, WINDOW, SLIDE, **parameters), stream.rows
    start = time.perf_counter()
    out = router.route(rows)
    return figures(stream, out, n, bound, (time.perf_counter() - start) / len(rows) * 1e9)


def figures(stream: Stream, out: I32, n: int, bound: Bound, nanoseconds: float = 0.0) -> Figures:
    """What these routes of the stream's rows are worth."""
    warm = stream.dose.warm
    ranks, late = stream.ranks[warm:], out[warm:]
    even = window_imbalance(late, n, WINDOW, SLIDE)
    return Figures(
        imbalance=float(even.mean()),
        bound=float(bound.window.mean()),
        hashed=float(bound.hashed.mean()),
        halved=float(bound.halved.mean()),
        paired=bound.paired,
        highest=float(even.max()),
        worst=float((even / bound.window).max()),
        replication=float(np.mean([pairs_a_key(ranks[a:b], late[a:b], n) for a, b in _cuts(len(late))])),
        whole=pairs_a_key(stream.ranks, out, n),
        batch={size: float(window_imbalance(late, n, size, size).mean()) for size in BATCHES},
        batch_bound={size: float(bound.batch[size].mean()) for size in BATCHES},
        nanoseconds=nanoseconds,
    )


def pairs_a_key(ranks: I64, out: I32, n: int) -> float:
    """``windows.window_replication`` of one span, by a table instead of a sort, as keys are numbers here."""
    held = np.zeros((int(ranks.max()) + 1, n), bool)
    held[ranks, out] = True
    return float(held.sum() / held.any(axis=1).sum())


def _cuts(rows: int) -> Iterator[tuple[int, int]]:
    return pairwise(range(0, rows + 1, WINDOW))


# -- the micro-batch form of Dalton ---------------------------------------------------------------------------


def batched(workers: int, seed: int) -> Callable[[U64], I32]:
    """Dalton's micro-batch form (section 3.4): a function that routes one batch a call and learns from it."""
    return BatchRouter(workers, seed).route


def measure_batched(size: int, stream: Stream, n: int, bound: Bound) -> Figures:
    """Route the stream in batches of ``size`` rows."""
    route, rows = batched(n, stream.seed), stream.rows
    batched(n, stream.seed)(rows[:2_000])  # compiles
    start = time.perf_counter()
    out = np.concatenate([route(rows[at : at + size]) for at in range(0, len(rows), size)])
    return figures(stream, out, n, bound, (time.perf_counter() - start) / len(rows) * 1e9)
