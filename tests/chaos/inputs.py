"""What each agent of the chaos tests routes, and the same routed in one process: what the live fleet is measured by.

Agents differ: Zipf exponents from 1.2 to 2.0, and hot sets that are rotated against each other, so that no agent sees
the whole stream's skew by itself. Hash is at 2.4 times the mean on them, a fleet that cooperates at 1.10, whether its
answers are late or not: a stream on which a late answer alone decides if a key is split would measure the machine.
Batch b of agent a is a function of (a, b): whatever happens to the fleet, the simulation gets the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from unskew.core import hash_keys
from unskew.simulate.fleet import Fleet

__all__ = ["Shape", "imbalance", "rows", "simulated"]

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
_KEYS, _TURNS, _TURN = 2_000, 2, 61


@dataclass(frozen=True)
class Shape:
    """How big: a DSYNC is ``per_round`` batches of ``batch`` rows for each agent."""

    agents: int
    workers: int = 8
    batch: int = 512
    per_round: int = 4
    dsync: float = 1.0
    seed: int = 20

    @property
    def pause(self) -> float:
        """Seconds between two batches."""
        return self.dsync / self.per_round


@cache
def _hashes() -> U64:
    return hash_keys(np.arange(_KEYS, dtype=np.int64))


@cache
def _shares(exponent: float) -> NDArray[np.float64]:
    weights = np.arange(1, _KEYS + 1, dtype=np.float64) ** -exponent
    return np.cumsum(weights / weights.sum())


def rows(shape: Shape, agent: int, batch: int) -> U64:
    """The key hashes of this batch."""
    exponent = round(1.2 + 0.8 * (agent // _TURNS) / max(shape.agents // _TURNS - 1, 1), 3)
    rng = np.random.default_rng((shape.seed, agent, batch))
    rank = np.searchsorted(_shares(exponent), rng.random(shape.batch)).clip(0, _KEYS - 1)
    found: U64 = _hashes()[(rank + _TURN * (agent % _TURNS)) % _KEYS]
    return found


def imbalance(loads: I64) -> float:
    return float(loads.max() / loads.mean())


def simulated(shape: Shape, ends: Sequence[int]) -> I64:
    """Loads by (agent, batch, worker) of a fleet in one process without a fault, its agents in step; agent a stops
    after ``ends[a]`` batches, and a batch that it did not route is all zeros."""
    size = shape.batch * shape.agents
    fleet = Fleet(shape.agents, shape.workers, float(size * shape.per_round))
    out = np.zeros((shape.agents, max(ends), shape.workers), np.int64)
    for batch in range(max(ends)):
        live = [agent for agent in range(shape.agents) if batch < ends[agent]]
        deal = np.repeat(np.array(live), shape.batch)
        workers = fleet.route(np.concatenate([rows(shape, agent, batch) for agent in live]), deal=deal)
        for agent in live:
            out[agent, batch] = np.bincount(workers[deal == agent], minlength=shape.workers)
    return out
