"""The state of Holistic's routers in a window: which workers hold which key, and each worker's keys and rows.

Exact (Holistic, section 3.2.1): one open table of keys, whose memory grows with the distinct keys of a window. Or one
HyperLogLog a worker (section 3.2.2), whose memory is always n x 2**register_bits bytes. Each window starts empty
(Algorithm 1).

Deviations from the paper, for HyperLogLog only (docs/decisions/0010): registers are bytes, not 5 bits; cardinality is
the martingale estimate, which is more accurate for a sketch that is never merged; of several choices that seem to have
a key the likeliest gets it, the least loaded of those that are equally likely; ``published`` takes the first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unskew.core.arrays.types import F64, I32, I64, U64
from unskew.core.errors import ConfigError
from unskew.core.kernels import holistic as exact
from unskew.core.kernels import loglog
from unskew.core.parameters import check_range
from unskew.core.routers.base import RouterSettings, check_choices

__all__ = ["CARDINALITIES", "SKETCH_SALT", "HolisticRule", "Memory", "memory"]


CARDINALITIES = ("exact", "hll")
SKETCH_SALT = 0x484C4C  # of the hash that the sketches read

_FIRST_BITS = 10
_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True)
class HolisticRule:
    """How a router chooses: what it keeps ``even`` (a BY_ of ``kernels.holistic``), whether a key stays with its worker
    (``affinity``), LM's bias, and whether it follows the paper's listing to the letter."""

    even: int
    affinity: bool = False
    bias: float = 0.0
    published: bool = False


class Memory(Protocol):
    """The state of a window, exact or in sketches, and the routing by it."""

    def route(self, keys: U64, slides: I64, out: I32) -> None:
        """Route all tuples into ``out``."""


def memory(common: RouterSettings, choices: int, rule: HolisticRule, cardinality: str, register_bits: int) -> Memory:
    """The memory of this kind, or a ``ConfigError`` that names the bad setting."""
    check_choices(choices)
    if cardinality not in CARDINALITIES:
        raise ConfigError("cardinality", cardinality, CARDINALITIES)
    check_range("register_bits", register_bits, 4, 18, "4 to 18 (2**register_bits registers a worker)")
    counts = Counts.of(common, choices)
    if cardinality == "hll":
        return Sketches(common, rule, counts, register_bits)
    return KeyWorkers(common, rule, counts) if rule.affinity else KeyWorkerSets(common, rule, counts)


@dataclass(frozen=True, eq=False)
class Counts:
    """What all three kinds share: choices, the window in use, and the rows of each worker."""

    salts: U64
    picked: I64
    clock: I64
    load: I64
    of_rows: I64

    @classmethod
    def of(cls, common: RouterSettings, choices: int) -> Counts:
        d = min(choices, common.workers)
        salts = np.array([common.salt(j) for j in range(d)], np.uint64)
        clock = np.array([_NEVER, _NEVER, 0, 0, 0], np.int64)
        return cls(salts, np.zeros(d, np.int64), clock, np.zeros(common.workers, np.int64), np.zeros(3, np.int64))


@dataclass(eq=False)
class _Table:
    """An open table of keys that doubles whenever it is half full."""

    words: int
    bits: int = _FIRST_BITS
    rows: U64 = field(init=False)

    def __post_init__(self) -> None:
        self.rows = np.zeros((1 << self.bits, self.words), np.uint64)

    @property
    def shift(self) -> np.uint64:
        return np.uint64(64 - self.bits)

    def grow(self, turn: int) -> None:
        narrow, self.bits = self.rows, self.bits + 1
        self.rows = np.zeros((1 << self.bits, self.words), np.uint64)
        exact.rehash(np.uint64(turn), narrow, self.shift, self.rows)


@dataclass(eq=False)
class KeyWorkers:
    """AM and cAM, exact: the one worker of each key."""

    common: RouterSettings
    rule: HolisticRule
    counts: Counts
    _table: _Table = field(default_factory=lambda: _Table(2), init=False)

    def route(self, keys: U64, slides: I64, out: I32) -> None:
        of, span, by_rows, routed = self.counts, self.common.slides, int(self.rule.even == exact.BY_ROWS), 0
        while True:
            routed = exact.route_affine(
                keys, slides, out, routed, span, by_rows, of.salts, of.picked, of.clock, of.load,
                self._table.shift, self._table.rows,
            )  # fmt: skip
            if routed == len(keys):
                return
            self._table.grow(int(of.clock[exact.TURN]))


@dataclass(eq=False)
class KeyWorkerSets:
    """CM and LM, exact: the workers of each key as bits, and the number of keys of each worker."""

    common: RouterSettings
    rule: HolisticRule
    counts: Counts
    _cardinality: I64 = field(init=False)
    _of_keys: I64 = field(init=False)
    _table: _Table = field(init=False)

    def __post_init__(self) -> None:
        n = self.common.workers
        self._cardinality, self._of_keys = np.zeros(n, np.int64), np.zeros(3, np.int64)
        self._table = _Table(2 + -(-n // 64))

    def route(self, keys: U64, slides: I64, out: I32) -> None:
        of, rule, routed = self.counts, self.rule, 0
        while True:
            routed = exact.route_even(
                keys, slides, out, routed, self.common.slides, rule.even, rule.bias, int(rule.published),
                of.salts, of.picked, of.clock, of.load, self._cardinality, of.of_rows, self._of_keys,
                self._table.shift, self._table.rows,
            )  # fmt: skip
            if routed == len(keys):
                return
            self._table.grow(int(of.clock[exact.TURN]))


@dataclass(eq=False)
class Sketches:
    """All four routers with HyperLogLog: 2**bits registers of one byte for each worker."""

    common: RouterSettings
    rule: HolisticRule
    counts: Counts
    bits: int
    registers: NDArray[np.uint8] = field(init=False)
    estimate: F64 = field(init=False)
    _of_keys: F64 = field(init=False)
    _chance: I64 = field(init=False)
    _test: int = field(init=False)

    def __post_init__(self) -> None:
        n = self.common.workers
        self.registers = np.zeros((1 << self.bits, n), np.uint8)
        self.estimate, self._chance, self._of_keys = np.zeros(n), np.zeros(n, np.int64), np.zeros(3)
        match = loglog.FIRST_MATCH if self.rule.published else loglog.BEST_MATCH
        self._test = match if self.rule.affinity else loglog.NO_TEST

    def route(self, keys: U64, slides: I64, out: I32) -> None:
        of, rule = self.counts, self.rule
        loglog.route_loglog(
            keys, slides, out, self.common.slides, rule.even, self._test, rule.bias, int(rule.published),
            np.uint64(SKETCH_SALT), of.salts, of.picked, of.clock, of.load, self.estimate, of.of_rows,
            self._of_keys, self.registers, self._chance, self.bits,
        )  # fmt: skip
