"""How often ``streaming_elastic``'s ramp is answered late, or a change is taken back, by the rule that counts batches.

A model of its W, fitted to what it printed on two cores: what Spark itself takes, plus the rows' wait over the
partitions, plus noise. Rules: the paper's (d batches in a row above the threshold), ours (all but a quarter of d), and
two that smooth: the mean and the median of the last d batches are fed to the same machine with d = 1 and a grace of d.
A step is answered when the W that is left is below the threshold without the noise; late is after 3 x 5 batches,
whatever the rule's d.

Run: ``python -m benchmarks.elastic_noise [--noise 0.04] [--seeds 200]``.
"""

from __future__ import annotations

import argparse
import itertools
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from unskew.core.scaling.autoscale import AutoScaler
from unskew.core.scaling.values import BatchStats, ScaleRules, ScaleState

INTERVAL, WAIT, FIXED, MAPS = 4.0, 5e-4, 1.3, 0.1
ROWS = (16_000, 19_000, 23_000, 28_000, 34_000, 28_000, 23_000, 19_000, 16_000)
BATCHES, LATE, LEAST, MOST, FLAP = 16, 15, 4, 16, 5
Smooth = Callable[[Sequence[float]], float]


def last(values: Sequence[float]) -> float:
    return values[-1]


RULES: dict[str, tuple[int, Smooth, bool]] = {
    "5 in a row (paper)": (5, last, True),
    "ours, d = 5": (5, last, False),
    "ours, d = 3": (3, last, False),
    "ours, d = 2": (2, last, False),
    "mean of 5": (1, lambda values: float(np.mean(values)), False),
    "median of 5": (1, lambda values: float(np.median(values)), False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--noise", type=float, default=0.04, help="standard deviation of W")
    parser.add_argument("--seeds", type=int, default=200)
    asked = parser.parse_args()
    print(f"noise of W {asked.noise}, {asked.seeds} runs of {len(ROWS) * BATCHES} batches")
    for name, (d, smooth, published) in RULES.items():
        runs = [
            run(np.random.default_rng(seed), d, smooth, asked.noise, as_published=published)
            for seed in range(asked.seeds)
        ]
        late = np.mean([late for late, _ in runs], axis=0)
        flaps = np.mean([flaps for _, flaps in runs])
        told = " ".join(f"{share:4.0%}" for share in late)
        print(f"{name:19}: steps up answered late {told}; changes taken back within {FLAP} batches, a run: {flaps:.2f}")


def run(
    rng: np.random.Generator, d: int, smooth: Smooth, noise: float, *, as_published: bool
) -> tuple[list[bool], int]:
    """Whether each step up was answered late, and how many changes were taken back."""
    rules = ScaleRules(d=d, grace=FLAP, min_p=4, max_p=4, min_r=LEAST, max_r=MOST, as_published=as_published)
    scaler = AutoScaler(ScaleState(p=4, r=LEAST), rules)
    seen: deque[float] = deque(maxlen=1 if smooth is last else FLAP)
    used, over = [], [0] * len(ROWS)
    for number, rows in enumerate(rows for rows in ROWS for _ in range(BATCHES)):
        used.append(r := scaler.state.r)
        seconds = FIXED + MAPS + rows * WAIT / r
        if seconds / INTERVAL > rules.thres:
            over[number // BATCHES] = number % BATCHES + 1
        seen.append(seconds + rng.normal(0.0, noise * INTERVAL))
        if len(seen) < (seen.maxlen or 1):
            continue
        took = smooth(list(seen))
        scaler.handle(BatchStats(INTERVAL, took, MAPS, max(took - FIXED - MAPS, 0.0), rows, rows // 2))
        if scaler.state.r != r:
            seen.clear()  # of another number of partitions
    changes = [(at, b - a) for at, (a, b) in enumerate(itertools.pairwise(used)) if a != b]
    back = sum(a * b < 0 and at - before <= FLAP for (before, a), (at, b) in itertools.pairwise(changes))
    up = [at for at in range(1, len(ROWS)) if ROWS[at] > ROWS[at - 1]]
    return [over[at] > LATE for at in up], back


if __name__ == "__main__":
    main()
