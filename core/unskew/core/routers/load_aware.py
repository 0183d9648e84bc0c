"""Routers that need no table of keys, as ``kernels.load_aware`` has their loops: shuffle, PKG, PoTC and PoRC.

Load is what this partitioner has sent each worker in the window (local load estimation).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unskew.core.arrays.types import I32, I64, U64
from unskew.core.kernels import load_aware as kernels
from unskew.core.parameters import check_range
from unskew.core.routers.base import Loads, RouterSettings, check_choices

__all__ = ["PartialKey", "RandomChoices", "Shuffle", "TwoRandom"]


@dataclass(eq=False)
class Shuffle:
    """Shuffle partitioning (SG, SH): workers in turn, whatever the key. Perfectly even, and every key everywhere.

    Starts at a worker that the seed names, so that several partitioners do not move in step.
    """

    common: RouterSettings
    _turn: I64 = field(init=False)

    def __post_init__(self) -> None:
        self._turn = np.array([self.common.seed % self.common.workers], np.int64)

    def step(self, keys: U64, slides: I64, out: I32) -> None:  # noqa: ARG002 - no key matters
        kernels.route_turns(out, self._turn, self.common.workers)


@dataclass(eq=False)
class PartialKey:
    """Partial key grouping (PK-2, PK-5; PKG in CG, section 4.1): the least loaded of d workers that a key hashes to.

    ``choices`` different workers a key (FIDELITY); with fewer workers than that, all of them. Ties go to the first.
    """

    common: RouterSettings
    choices: int = 2
    _loads: Loads = field(init=False)

    def __post_init__(self) -> None:
        check_choices(self.choices)
        self._loads = Loads.of(self.common)
        d = min(self.choices, self.common.workers)
        self._salts = np.array([self.common.salt(j) for j in range(d)], np.uint64)
        self._picked = np.zeros(d, np.int64)

    def step(self, keys: U64, slides: I64, out: I32) -> None:
        at = self._loads
        kernels.route_choices(keys, slides, out, self._salts, self._picked, at.clock, at.ring, at.load)


@dataclass(eq=False)
class TwoRandom:
    """The power of two choices (PoTC; CG, section 4.3): two random workers a message, the less loaded gets it.

    The draws are a counter, hashed: the n-th message of a stream always draws the same two workers.
    """

    common: RouterSettings
    _loads: Loads = field(init=False)
    _drawn: U64 = field(init=False)

    def __post_init__(self) -> None:
        self._loads = Loads.of(self.common)
        self._drawn = np.zeros(1, np.uint64)

    def step(self, keys: U64, slides: I64, out: I32) -> None:  # noqa: ARG002 - keys do not matter
        at = self._loads
        kernels.route_random_pairs(slides, out, self._drawn, self.common.salt(0), at.clock, at.ring, at.load)


@dataclass(eq=False)
class RandomChoices:
    """The power of random choices (PoRC; CG, section 5.1): a key's salted hashes, until one names a worker with room.

    A worker has room while it holds less than ``ceil((1 + epsilon) x mean load)``. A key stays with its first choice as
    long as that has room, so light keys hardly spread and heavy ones spread as far as they must; no worker is ever more
    than 1 + epsilon over the mean. All hashes of a key are combined from two (``kernels.load_aware``). The paper runs
    it over virtual workers, which ``cg`` adds. ``epsilon`` is 0.01 in the paper's figures, 0.3 in its Table 1.
    """

    common: RouterSettings
    epsilon: float = 0.01
    _loads: Loads = field(init=False)

    def __post_init__(self) -> None:
        check_range("epsilon", self.epsilon, 0, 100)
        self._loads = Loads.of(self.common)

    def step(self, keys: U64, slides: I64, out: I32) -> None:
        at = self._loads
        kernels.route_random_choices(
            keys, slides, out, self.common.salt(0), float(self.epsilon), at.clock, at.ring, at.load
        )
