"""Which of Dalton's settings do what: from the paper's to ours one by one, then ours with each taken away or changed.

Three cells of FIDELITY's grid where the paper's settings fall short or are near it. Per variant: mean window imbalance
as a multiple of the oracle's B and its worst seed, replication in a window, per-slide imbalance, and for drift (the 64
hottest keys replaced) after how many slides the per-slide imbalance is within 10 % of its steady mean.

Run: ``python -m benchmarks.dalton_settings`` (2 minutes; ``--seeds 10`` for more than 3)
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import numpy as np

from benchmarks.grid import SLIDE, WINDOW, Bound, Stream, bound_of, stream_of
from unskew.core import make_router
from unskew.core.kernels import base as kernels
from unskew.core.quality.windows import window_imbalance, window_replication
from unskew.core.routers.dalton import PAPER
from unskew.simulate.key_streams import drifting

CELLS = ((1.0, 64), (1.5, 8), (1.5, 64))
CHANGE, KEYS, HOT = 200_000, 100_000, 64

Settings = Mapping[str, object]
_TERM = {**PAPER, "slide_weight": 0.5}
_LOOK = {**_TERM, "look": 8}
_FIRST = {**_LOOK, "keep_untried": False}
_RENEW = {**_FIRST, "renew": 0.5}
VARIANTS: tuple[tuple[str, Settings], ...] = (
    ("paper", PAPER),
    ("+ slide term", _TERM),
    ("+ look 8", _LOOK),
    ("+ first reward replaces -2", _FIRST),
    ("+ hot keys stay hot to L / 2n", _RENEW),
    ("+ share cap", {"stats": 0}),
    ("+ 16 n tuples an interval = ours", {}),
    ("ours, no slide term", {"slide_weight": 0.0}),
    ("ours, slide_weight 1", {"slide_weight": 1.0}),
    ("ours, look 1", {"look": 1}),
    ("ours, look 2", {"look": 2}),
    ("ours, look 32", {"look": 32}),
    ("ours, -2 averaged in", {"keep_untried": True}),
    ("ours, renew 0.7", {"renew": 0.7}),
    ("ours, renew 1", {"renew": 1.0}),
    ("ours, stats 32", {"stats": 32}),
    ("ours, no cap", {"split_cap": None}),
    ("ours, share 2", {"share": 2.0}),
    ("ours, share 4", {"share": 4.0}),
    ("ours, share 8", {"share": 8.0}),
    ("ours, cap 16", {"split_cap": 16}),
    ("ours, cap adaptive", {"split_cap": "adaptive"}),
    ("ours, gamma 0.05", {"gamma": 0.05}),
    ("ours, gamma 0.2", {"gamma": 0.2}),
    ("ours, epsilon 0.05", {"epsilon": 0.05}),
    ("ours, epsilon 0.2", {"epsilon": 0.2}),
    ("ours, p1 0.3", {"p1": 0.3}),
    ("ours, p1 0.7", {"p1": 0.7}),
    ("ours, quantum 4", {"quantum": 4}),
    ("ours, quantum 16", {"quantum": 16}),
)


def cell(stream: Stream, n: int, bound: Bound, settings: Settings) -> tuple[float, float, float]:
    """Ratio to B, replication, per-slide imbalance."""
    rows = stream.rows
    out = make_router("dalton", n, stream.seed, WINDOW, SLIDE, **settings).route(rows)
    late, keys = out[stream.dose.warm :], rows[stream.dose.warm :]
    even = window_imbalance(late, n, WINDOW, SLIDE).mean() / bound.window.mean()
    replication = window_replication(keys, late, WINDOW).mean()
    return float(even), float(replication), float(window_imbalance(late, n, SLIDE, SLIDE).mean())


def recovery(seeds: int, settings: Settings, exponent: float = 1.5, n: int = 64) -> tuple[int, float]:
    """Slides from a change of the hot keys to a per-slide imbalance within 10 % of the steady mean, and that mean:
    averaged over four changes and the seeds."""
    spans = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        ranks = drifting(rng, 5 * CHANGE, KEYS, exponent, CHANGE, HOT)
        keys = rng.integers(0, 2**64, KEYS, dtype=np.uint64)[ranks]
        out = make_router("dalton", n, seed, WINDOW, SLIDE, **settings).route(keys)
        spans.append(window_imbalance(out, n, SLIDE, SLIDE)[CHANGE // SLIDE :].reshape(4, -1).mean(axis=0))
    each = np.mean(spans, axis=0)
    steady = float(each[len(each) // 2 :].mean())
    within = np.flatnonzero(each <= 1.1 * steady)
    return int(within[0]), steady


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(parser.parse_args().seeds)
    if not kernels.COMPILED:
        print("numba is not installed: pip install 'unskew[fast]'")
        return
    streams = {(z, n, seed): stream_of(z, seed) for z, n in CELLS for seed in seeds}
    bounds = {at: bound_of(stream, at[1], batches=()) for at, stream in streams.items()}
    print("per cell: window imbalance / B, its worst seed, replication, per-slide imbalance; drift at 1.5, 64: slides")
    print(f"{'':34}" + "".join(f"{f'z {z} n {n}':>30}" for z, n in CELLS) + "   drift")
    for name, settings in VARIANTS:
        line = f"{name:34}"
        for z, n in CELLS:
            got = [cell(streams[z, n, s], n, bounds[z, n, s], settings) for s in seeds]
            ratio, replication, slide = np.mean(got, axis=0)
            worst = max(one[0] for one in got)
            line += f"{ratio:10.3f} {worst:5.2f} {replication:6.3f} {slide:6.2f}"
        print(line + f"   {recovery(len(seeds), settings)[0]:5}", flush=True)


if __name__ == "__main__":
    main()
