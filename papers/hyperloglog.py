"""How many distinct keys a worker has, in 4 KB: HyperLogLog with the optimistic containment test.

The reference for the compiled loop of the routers (``unskew.core.kernels.loglog``), which keeps all workers' registers
side by side, and what the figures of docs/decisions/0003 are measured with.

Holistic section 3.2.2: CM, AM and LM need each worker's key cardinality, and whether a key went there
before. A HyperLogLog cannot say the second, so the paper tries an update: where the estimate does not
change, the key is *assumed* to be there. 2**12 registers by default, as FIDELITY has it.

The estimate is Ertl's improved raw estimator ("New cardinality estimation algorithms for HyperLogLog
sketches", arXiv:1702.01284): no bias tables and no switch between ranges, relative standard error about
1.04 / sqrt(2**precision) at any cardinality.

``contains`` has no false negatives. A new key is taken for a known one with probability
``false_containment`` = 1 - mean(2**-register), which the state itself gives: with m = 2**precision registers
15 % at m / 4 distinct keys, 45 % at m, 82 % at 4 m. So the test is of use only well below m keys a worker
(docs/decisions/0003).

Deviations from the paper: the trial update compares registers, not estimates (the estimator rises with every
register, so the answers are the same, and nothing need be estimated); the index comes from the top bits of
``mix(hash)``, not of the key hash, whose top bits are the same for all keys of one worker; the rank counts
zeros from the low end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unskew.core.arrays.mixing import mix
from unskew.core.errors import ConfigError, HistogramError
from unskew.core.routers.holistic.sets import SKETCH_SALT
from unskew.core.sketches.tally import U64, check_hashes

__all__ = ["HyperLogLog", "estimate_registers"]

U8 = NDArray[np.uint8]

_ONE = np.uint64(1)


@dataclass(eq=False)
class HyperLogLog:
    """A mutable sketch; ``registers`` is uint8[2**precision]. ``salt`` picks the hash function."""

    precision: int = 12
    salt: int = SKETCH_SALT
    registers: U8 = field(default_factory=lambda: np.empty(0, np.uint8))

    def __post_init__(self) -> None:
        if not 4 <= self.precision <= 18:
            raise ConfigError("precision", self.precision, "4 to 18 (2**precision registers)")
        if not self.registers.size:
            self.registers = np.zeros(1 << self.precision, np.uint8)
        if self.registers.dtype != np.uint8 or self.registers.shape != (1 << self.precision,):
            shape = f"{self.registers.dtype}{list(self.registers.shape)}"
            raise HistogramError(f"registers: {shape} is not uint8[{1 << self.precision}]")
        if int(self.registers.max()) > 65 - self.precision:
            highest = int(self.registers.max())
            raise HistogramError(f"registers: {highest} is not allowed; use 0 to {65 - self.precision}")

    @property
    def relative_error(self) -> float:
        """The relative standard error of ``estimate``."""
        return 1.04 / math.sqrt(len(self.registers))

    @property
    def false_containment(self) -> float:
        """The share of new keys that ``contains`` takes for known ones in the present state."""
        return 1.0 - float(np.exp2(-self.registers.astype(np.float64)).mean())

    def places(self, hashes: U64) -> tuple[NDArray[np.intp], U8]:
        """Each key's register and rank: for loops that update key by key, one hash for all workers."""
        mixed = mix(check_hashes(hashes), self.salt)
        rest = np.uint64(64 - self.precision)
        index = (mixed >> rest).astype(np.intp)
        # A stop bit above the rest bits; the lowest set bit is a power of two, exact in float64, whose
        # exponent field is 1023 for 2**0: rank = trailing zeros + 1.
        stopped = mixed | (_ONE << rest)
        lowest = (stopped & (~stopped + _ONE)).astype(np.float64)
        rank = (lowest.view(np.uint64) >> np.uint64(52)) - np.uint64(1022)
        return index, rank.astype(np.uint8)

    def update(self, hashes: U64) -> None:
        """See one batch of keys."""
        index, rank = self.places(hashes)
        # Few keys raise a register once it is warm: the unbuffered maximum is for those only.
        grows = rank > self.registers.take(index)
        np.maximum.at(self.registers, index[grows], rank[grows])

    def contains(self, hashes: U64) -> NDArray[np.bool_]:
        """Would an update with this key alone leave the state as it is? Then it is assumed to be there."""
        index, rank = self.places(hashes)
        return rank <= self.registers.take(index)

    def estimate(self) -> float:
        """The number of distinct keys seen."""
        return estimate_registers(self.registers, self.precision)

    def merge(self, other: HyperLogLog) -> HyperLogLog:
        """The sketch of both streams: exactly the one that had seen all keys itself."""
        settings, other_settings = ((s.precision, s.salt) for s in (self, other))
        if settings != other_settings:
            raise ConfigError("other", other_settings, f"a sketch of the same precision and salt {settings}")
        return HyperLogLog(self.precision, self.salt, np.maximum(self.registers, other.registers))

    def copy(self) -> HyperLogLog:
        """The same state, apart from this one."""
        return HyperLogLog(self.precision, self.salt, self.registers.copy())

    def clear(self) -> None:
        """Forget all keys: a new window."""
        self.registers[:] = 0


def estimate_registers(registers: U8, precision: int) -> float:
    """Ertl's improved estimate from the registers alone: 0 where all are 0, infinite where all are full."""
    ranks = 64 - precision
    m = 1 << precision
    of_value = np.bincount(registers, minlength=ranks + 2).tolist()
    if of_value[0] == m:
        return 0.0
    z = m * _tau(1.0 - of_value[ranks + 1] / m)
    for value in range(ranks, 0, -1):
        z = 0.5 * (z + of_value[value])
    z += m * _sigma(of_value[0] / m)
    return m * m / (2.0 * math.log(2.0) * z) if z > 0.0 else math.inf


def _sigma(x: float) -> float:
    """x + sum over k >= 1 of x**(2**k) * 2**(k-1), for 0 <= x < 1: corrects for registers still 0."""
    total, weight = x, 1.0
    while True:
        x *= x
        larger = total + x * weight
        if larger == total:
            return total
        total, weight = larger, 2.0 * weight


def _tau(x: float) -> float:
    """(1 - x - sum over k >= 1 of (1 - x**(2**-k))**2 * 2**-k) / 3: corrects for registers at the end."""
    if x in (0.0, 1.0):
        return 0.0
    total, weight = 1.0 - x, 1.0
    while True:
        x = math.sqrt(x)
        weight *= 0.5
        smaller = total - (1.0 - x) ** 2 * weight
        if smaller == total:
            return total / 3.0
        total = smaller
