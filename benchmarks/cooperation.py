"""Cooperating partitioners (Dalton, section 4): 1, 2, 4 and 8 agents on the same stream, synced and not.

Eight sources, of which each agent has its share. ``half``: four are uniform, four Zipf 1.5 (the paper's Figures 14a
and 15). ``disjoint``: all are Zipf 1.5, each with hot keys of its own. W = 60,000 and s = 1,000 rows of the whole
stream, whatever the number of agents; DSYNC is in its rows too, and messages take no time.

Window imbalance (mean over windows) and replication with their ratio to one agent's, and the imbalance of slides,
which no mark is set on. ``lonely``: no agent is told of the others' loads and fragments, as published. ``never``: no
sync. The paper's Figure 15: imbalance and aggregation cost do not grow from two agents on, in a plot without a scale.

Run: ``python -m benchmarks.cooperation`` (2 minutes; ``--seeds 3``, ``--rows 400000``)
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from unskew.core.quality.windows import window_imbalance, window_replication
from unskew.simulate.fleet import Fleet
from unskew.simulate.key_streams import zipf_keys

__all__ = ["AGENTS", "DSYNC", "KINDS", "Figures", "growth", "run", "stream", "synced_and_not"]

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
Kind = Literal["half", "disjoint"]

KINDS: tuple[Kind, ...] = ("half", "disjoint")
AGENTS, WORKERS, DSYNCS = (1, 2, 4, 8), (16, 64), (2_500, 10_000, 40_000)
KEYS, EXPONENT, WINDOW, SLIDE, DSYNC = 100_000, 1.5, 60_000, 1_000, 10_000
SOURCES, ROWS, WARM = 8, 400_000, 120_000


@dataclass(frozen=True)
class Figures:
    """Means after the warm-up; ``rounds``: how many were merged."""

    imbalance: float
    replication: float
    slides: float
    rounds: int = 0


@cache
def stream(kind: Kind, rows: int = ROWS, seed: int = 1) -> tuple[U64, I64]:
    """Key hashes, and the source of each row."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    hashes = rng.integers(0, 2**64, KEYS, dtype=np.uint64)
    sources = np.arange(rows) % SOURCES
    ranks = np.empty(rows, np.int64)
    for source in range(SOURCES):
        mine = sources == source
        uniform = kind == "half" and source < SOURCES // 2
        drawn = zipf_keys(rng, int(mine.sum()), KEYS, 0.0 if uniform else EXPONENT)
        apart = source * (KEYS // SOURCES) if kind == "disjoint" else 0
        ranks[mine] = (drawn + apart) % KEYS
    return hashes[ranks], sources


@cache
def run(
    kind: Kind,
    workers: int,
    agents: int,
    dsync: int | None = DSYNC,
    *,
    lonely: bool = False,
    rows: int = ROWS,
    seed: int = 1,
) -> Figures:
    """One fleet on one stream; neighbouring sources go to the same agent."""
    keys, sources = stream(kind, rows, seed)
    fleet = Fleet(agents, workers, dsync, seed=seed, window=WINDOW, slide=SLIDE, lonely=lonely)
    out = fleet.route(keys, deal=sources * agents // SOURCES)
    first = (WARM - WINDOW) // SLIDE
    return Figures(
        float(window_imbalance(out, workers, WINDOW, SLIDE)[first:].mean()),
        float(window_replication(keys[WARM:], out[WARM:], WINDOW, WINDOW // 4).mean()),
        float(window_imbalance(out[WARM:], workers, SLIDE, SLIDE).mean()),
        fleet.rounds.merged,
    )


def synced_and_not(
    kind: Kind, workers: int, dsync: int | None, seeds: Iterable[int], agents: Iterable[int] = AGENTS,
    *, rows: int = ROWS, lonely: bool = False,
) -> Mapping[int, Figures]:  # fmt: skip
    """Per number of agents the mean over seeds."""
    seeds, found = tuple(seeds), {}
    for many in agents:
        each = [run(kind, workers, many, dsync, lonely=lonely, rows=rows, seed=seed) for seed in seeds]
        means = (
            float(np.mean([getattr(one, name) for one in each])) for name in ("imbalance", "replication", "slides")
        )
        found[many] = Figures(*means, each[0].rounds)
    return found


def growth(values: Mapping[int, float]) -> float:
    """By what part of the figure at fewest agents it grows with each doubling: the slope of a straight line."""
    doublings = np.log2(list(values))
    return float(np.polyfit(doublings, np.array(list(values.values())) / values[min(values)], 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rows", type=int, default=ROWS)
    given = parser.parse_args()
    variants = [("never", None, False), *((f"{dsync:,}", dsync, False) for dsync in DSYNCS), ("lonely", DSYNC, True)]
    print("window imbalance / replication / slide imbalance; in brackets the first two against one agent")
    for kind in KINDS:
        for workers in WORKERS:
            for name, dsync, lonely in variants:
                found = synced_and_not(kind, workers, dsync, range(1, given.seeds + 1), rows=given.rows, lonely=lonely)
                print(f"{kind:<8} n {workers:<2} {name:>6}  " + "  ".join(_cells(found)), flush=True)


def _cells(found: Mapping[int, Figures]) -> list[str]:
    one = found[min(found)]
    return [
        f"P {many}: {got.imbalance:.3f}/{got.replication:.3f}/{got.slides:.2f} "
        f"[{got.imbalance / one.imbalance:.2f} {got.replication / one.replication:.2f}]"
        for many, got in found.items()
    ]


if __name__ == "__main__":
    main()
