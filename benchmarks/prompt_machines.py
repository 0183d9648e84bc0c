"""What Prompt's machines cost and achieve: Algorithms 1, 3, 4 and early release.

    PYTHONPATH=core python -m benchmarks.prompt_machines [tree|buckets|ramp|noise|release ...]

``tree``     Algorithm 1: a count tree against one sort at the end, as in the paper's Fig. 14a. ``buckets``
Algorithm 3: imbalance (max / mean rows) of the reduce buckets against plain hashing. ``ramp``     Algorithm
4: p and r on the ramp of Fig. 12, with a simulated linear cost of map and reduce tasks. ``noise``
Algorithm 4: how often a decision is taken back in 100 noisy batches around each threshold. ``release``
Early release: share of 10,000 simulated intervals whose plan is ready at the heartbeat.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from papers.accumulator import Accumulator, MicroBatch
from papers.early_release import EarlyRelease, IntervalOpened, PlanBuilt, ReleaseRules
from papers.reference_table import split_keys
from unskew.core.operators.bucket_allocator import allocate, hash_buckets
from unskew.core.scaling.autoscale import AutoScaler
from unskew.core.scaling.values import BatchStats, ScaleDecision, ScaleRules, ScaleState

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]


def zipf_counts(rng: np.random.Generator, rows: int, keys: int, z: float) -> I64:
    """Rows of each key, by rank."""
    weights = 1.0 / np.arange(1, keys + 1) ** z
    return rng.multinomial(rows, weights / weights.sum()).astype(np.int64)


def random_hashes(rng: np.random.Generator, keys: int) -> U64:
    return rng.integers(0, 2**64, keys, dtype=np.uint64)


# Algorithm 1


class TreeCost(NamedTuple):
    order: str
    during: float
    heartbeat: float
    batch: MicroBatch


def accumulate(data: U64, order: str, batch_rows: int, *, repeats: int = 5) -> TreeCost:
    """The cheapest of several runs: seconds during the interval, and from cut-off to the ordered list."""
    best: TreeCost | None = None
    for _ in range(repeats):
        accumulator = Accumulator(order=order)  # type: ignore[arg-type]
        accumulator.open(0.0, 1.0)
        began = time.perf_counter()
        for at in range(0, data.size, batch_rows):
            accumulator.add(data[at : at + batch_rows], now=0.95 * at / data.size)
        released = time.perf_counter()
        batch = accumulator.release(0.96)
        run = TreeCost(order, released - began, time.perf_counter() - released, batch)
        if best is None or run.during + run.heartbeat < best.during + best.heartbeat:
            best = run
    assert best is not None
    return best


def out_of_order(batch: MicroBatch) -> float:
    """Share of rows by which the quasi-sorted counts differ from the sorted ones."""
    return float(np.abs(batch.counts - np.sort(batch.counts)[::-1]).sum() / batch.rows)


def print_tree() -> None:
    print("Algorithm 1: 1M tuples of 100k keys; ms during the interval / at the heartbeat")
    rng = np.random.default_rng(1)
    for z in (0.0, 1.0, 1.5):
        data = np.repeat(random_hashes(rng, 100_000), zipf_counts(rng, 1_000_000, 100_000, z))
        rng.shuffle(data)
        for batch_rows in (10_000, 100_000):
            sort, tree = (accumulate(data, order, batch_rows) for order in ("sort", "tree"))
            cost = (tree.during + tree.heartbeat) / (sort.during + sort.heartbeat)
            print(
                f"  z {z}, {batch_rows:>6} rows a batch: sort {sort.during * 1e3:5.1f} / {sort.heartbeat * 1e3:4.1f}"
                f"   tree {tree.during * 1e3:5.1f} / {tree.heartbeat * 1e3:4.1f}   tree:sort {cost:.2f} in all,"
                f" {tree.heartbeat / sort.heartbeat:.2f} at the heartbeat;"
                f" {tree.batch.refreshes.mean():.1f} refreshes a key (most {tree.batch.refreshes.max()}),"
                f" {out_of_order(tree.batch):.1%} out of order"
            )


# Algorithm 3


class MapOutputs(NamedTuple):
    """Key fragments of all map tasks: key, rows, the task's block."""

    keys: U64
    counts: I64
    blocks: I64


def map_outputs(rng: np.random.Generator, *, rows: int, keys: int, z: float, blocks: int) -> MapOutputs:
    """Blocks as Algorithm 2 fills them: keys in zigzag, the rest of a hot key at home, then elsewhere."""
    hashes, counts = random_hashes(rng, keys), np.sort(zipf_counts(rng, rows, keys, z))[::-1]
    hashes, counts = hashes[counts > 0], counts[counts > 0]
    cut = -(-rows // counts.size)
    at = np.arange(counts.size)
    hot = int(np.sum(counts > cut))
    turn = (at - hot) % (2 * blocks)
    home = np.where(at < hot, at % blocks, np.minimum(turn, 2 * blocks - 1 - turn))
    room = -(-rows // blocks) - np.bincount(home, np.minimum(counts, cut), blocks).astype(np.int64)
    parts = [(key, min(int(counts[key]), cut), int(home[key])) for key in range(counts.size)]
    for key in range(hot - 1, -1, -1):
        left, block = int(counts[key]) - cut, int(home[key])
        while left > 0:
            take = max(0, min(left, int(room[block])))
            parts.append((key, take, block))
            room[block] -= take
            left -= take
            fits = np.flatnonzero(room >= left)
            block = int(fits[np.argmin(room[fits])] if fits.size else np.argmax(room))
    return _merged(hashes, parts, blocks)


def largest_first(rng: np.random.Generator, *, rows: int, keys: int, z: float, blocks: int) -> MapOutputs:
    """Other blocks, which Algorithm 3 was not made for: the largest key first, into the emptiest block."""
    hashes, counts = random_hashes(rng, keys), np.sort(zipf_counts(rng, rows, keys, z))[::-1]
    room = np.full(blocks, -(-rows // blocks), dtype=np.int64)
    parts: list[tuple[int, int, int]] = []
    for key, size in enumerate(counts.tolist()):
        left = size
        while left:
            block = int(np.argmax(room))
            take = min(left, int(room[block]))
            parts.append((key, take, block))
            room[block] -= take
            left -= take
    return _merged(hashes, parts, blocks)


def _merged(hashes: U64, parts: list[tuple[int, int, int]], blocks: int) -> MapOutputs:
    key, taken, block = np.array(parts, dtype=np.int64).T
    fragment, where = np.unique(key * blocks + block, return_inverse=True)
    sizes = np.bincount(where, taken).astype(np.int64)
    kept = sizes > 0
    return MapOutputs(hashes[fragment[kept] // blocks], sizes[kept], fragment[kept] % blocks)


def run_map_tasks(
    out: MapOutputs,
    buckets: int,
    *,
    start_of: Callable[[int], int] = lambda task: task,
    broadcast: bool = False,
) -> tuple[NDArray[np.int32], I64]:
    """Every map task's allocation: the bucket of each fragment, and rows per bucket over all tasks."""
    chosen = np.empty(out.keys.size, dtype=np.int32)
    loads = np.zeros(buckets, dtype=np.int64)
    split = split_keys(out.keys, out.blocks)
    share = None
    if broadcast:
        share = np.bincount(hash_buckets(out.keys[split], buckets), out.counts[split], buckets) / out.counts.sum()
    for task in range(int(out.blocks.max()) + 1):
        mine = out.blocks == task
        part = allocate(out.keys[mine], out.counts[mine], split[mine], buckets, task=start_of(task), split_share=share)
        chosen[mine] = part.buckets
        loads += part.loads
    return chosen, loads


def hash_loads(out: MapOutputs, buckets: int) -> I64:
    return np.bincount(hash_buckets(out.keys, buckets), out.counts, buckets).astype(np.int64)


def imbalance(loads: I64) -> float:
    return float(loads.max() / loads.mean())


def print_buckets() -> None:
    print("Algorithm 3: bucket imbalance (max/mean), mean of 10 draws; 200k rows of 10k keys")
    print("  floor: the bucket with the hottest split key, holding nothing else; 'one start': all tasks break ties")
    print("  alike (the listing read literally); 'broadcast': with split_share; worst: against hash, same outputs")
    for blocking in (map_outputs, largest_first):
        print(f"  blocks by {blocking.__name__}")
        for blocks, buckets in ((16, 8), (16, 16), (8, 32), (64, 64)):
            for z in (0.5, 1.0, 1.5):
                rows = np.array([_compare(blocking, seed, z, blocks, buckets) for seed in range(10)])
                hashed, ours, one, sent, floor = rows.mean(axis=0)
                below = int(np.sum(rows[:, 1] < rows[:, 0]))
                worst = (rows[:, 1] / rows[:, 0]).max()
                print(
                    f"    {blocks:>2} tasks, {buckets:>2} buckets, z {z}: hash {hashed:6.3f}"
                    f"   Algorithm 3 {ours:6.3f} (below hash in {below} of 10, worst {worst:.3f})"
                    f"   one start {one:6.3f}   broadcast {sent:6.3f}   floor {floor:6.3f}"
                )


def _compare(blocking: Callable[..., MapOutputs], seed: int, z: float, blocks: int, buckets: int) -> tuple[float, ...]:
    out = blocking(np.random.default_rng(seed), rows=200_000, keys=10_000, z=z, blocks=blocks)
    split = split_keys(out.keys, out.blocks)
    hot = np.bincount(hash_buckets(out.keys[split], buckets), out.counts[split], buckets)
    return (
        imbalance(hash_loads(out, buckets)),
        imbalance(run_map_tasks(out, buckets)[1]),
        imbalance(run_map_tasks(out, buckets, start_of=lambda _: 0)[1]),
        imbalance(run_map_tasks(out, buckets, broadcast=True)[1]),
        max(1.0, float(hot.max() * buckets / out.counts.sum())),
    )


# Algorithm 4


@dataclass
class Cluster:
    """Simulated stages: map = rows * map_cost / p; reduce = (keys * key_cost + rows * row_cost) / r."""

    map_cost: float = 1e-5
    key_cost: float = 1e-4
    row_cost: float = 0.0
    fixed: float = 0.05
    time_noise: float = 0.0
    rate_noise: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def batch(self, rows: float, keys: float, state: ScaleState) -> BatchStats:
        """One second's batch."""
        noise = np.maximum(0.1, 1.0 + self.rng.standard_normal(4) * ([self.rate_noise] * 2 + [self.time_noise] * 2))
        rows, keys = rows * noise[0], keys * noise[1]
        mapping = rows * self.map_cost / state.p * noise[2]
        reducing = (keys * self.key_cost + rows * self.row_cost) / state.r * noise[3]
        return BatchStats(1.0, self.fixed + mapping + reducing, mapping, reducing, int(rows), int(keys))


RAMP = (
    ("start", 160_000, 16_000),
    ("rate up", 400_000, 16_000),
    ("keys up", 400_000, 40_000),
    ("both up", 800_000, 80_000),
    ("rate down", 400_000, 80_000),
    ("both down", 160_000, 16_000),
)


def drive(cluster: Cluster, scaler: AutoScaler, rows: float, keys: float, batches: int) -> list[ScaleDecision]:
    return [scaler.handle(cluster.batch(rows, keys, scaler.state)) for _ in range(batches)]


def reversals(decisions: list[ScaleDecision]) -> int:
    """How often a change was followed by one in the other direction."""
    made = [decision.action for decision in decisions if decision.action != "hold"]
    return sum(one != two for one, two in pairwise(made))


def near_threshold(rules: ScaleRules, w: float, tasks: tuple[int, int], noise: tuple[float, float], seed: int) -> int:
    """Reversals in 100 batches whose mean W is ``w`` at the start: 60 % map, 40 % reduce."""
    p, r = tasks
    cluster = Cluster(
        0.6 * w * p / 1e5, 0.4 * w * r / 1e4, fixed=0.0, time_noise=noise[0], rate_noise=noise[1], seed=seed
    )
    return reversals(drive(cluster, AutoScaler(ScaleState(p, r), rules), 1e5, 1e4, 100))


def print_ramp() -> None:
    print("Algorithm 4 on Fig. 12's ramp: 1 s batches, map 10 us a row, reduce 100 us a key, 50 ms fixed")
    for name, cluster, rules in (
        ("reduce time by keys", Cluster(), ScaleRules()),
        ("the same, as published", Cluster(), ScaleRules(as_published=True)),
        ("reduce time by keys and rows (10 us)", Cluster(row_cost=1e-5), ScaleRules()),
        ("the same, as published", Cluster(row_cost=1e-5), ScaleRules(as_published=True)),
    ):
        print(f"  {name}")
        scaler = AutoScaler(ScaleState(4, 4), rules)
        for phase, rows, keys in RAMP:
            made = drive(cluster, scaler, rows, keys, 150)
            at = [i + 1 for i, decision in enumerate(made) if decision.action != "hold"]
            print(
                f"    {phase:<9} {rows:>6} rows {keys:>5} keys: p {made[-1].p:>3} r {made[-1].r:>3}"
                f"   W {made[-1].w:.2f} zone {made[-1].zone}   {len(at):>2} changes,"
                f" last at batch {at[-1] if at else '-'}, {reversals(made)} reversals"
            )


def print_noise() -> None:
    print("Algorithm 4 near its thresholds: share of 100 runs of 100 batches with any reversal (mean reversals)")
    variants = (
        ("default (d 5)", ScaleRules()),
        ("d 3", ScaleRules(d=3)),
        ("as published", ScaleRules(as_published=True)),
        ("d 1, grace 0", ScaleRules(d=1, grace=0)),
    )
    for noise in ((0.05, 0.0), (0.1, 0.0), (0.03, 0.05), (0.03, 0.1)):
        for tasks in ((2, 2), (8, 8), (32, 16)):
            for w in (0.8, 0.9):
                cells = []
                for name, rules in variants:
                    runs = np.array([near_threshold(rules, w, tasks, noise, seed) for seed in range(100)])
                    cells.append(f"{name} {np.mean(runs > 0):4.0%} ({runs.mean():.1f})")
                print(
                    f"  noise: times {noise[0]:.0%}, rate and keys {noise[1]:.0%}; p, r {tasks!s:<8} W {w}: "
                    + "   ".join(cells)
                )


# Early release


def plan_times(rng: np.random.Generator, intervals: int) -> dict[str, F64]:
    """Seconds of planning in intervals of one second, by kind of distribution."""
    steps = np.arange(intervals)
    normal = rng.standard_normal(intervals)
    return {
        "constant 2 %": np.full(intervals, 0.02),
        "normal 2 % +- 10 %": np.maximum(0.001, 0.02 * (1 + 0.1 * normal)),
        "lognormal 1 %, sigma 0.3": 0.01 * np.exp(0.3 * normal),
        "lognormal 0.5 %, sigma 0.6 (heavy)": 0.005 * np.exp(0.6 * normal),
        "Pareto 0.3 %, alpha 3 (heavier)": 0.003 * (1 + rng.pareto(3.0, intervals)),
        "drift 0.5 % to 4 %, noise 5 %": np.linspace(0.005, 0.04, intervals) * (1 + 0.05 * normal),
        "daily wave 1 to 4 %, noise 5 %": (0.025 + 0.015 * np.sin(steps / 300)) * (1 + 0.05 * normal),
        "step 1 % to 3 % every 1000": np.where(steps // 1000 % 2, 0.03, 0.01) * (1 + 0.05 * normal),
        "1 % with pauses of 4 % (1 in 100)": np.where(rng.random(intervals) < 0.01, 0.04, 0.01),
        "1 % with pauses of 4 % (1 in 1000)": np.where(rng.random(intervals) < 0.001, 0.04, 0.01),
        "ramp +30 % an interval, 50 long": 0.001 * 1.3 ** np.minimum(steps % 50, 14),
        "lognormal 2 %, sigma 0.6 (over the cap)": 0.02 * np.exp(0.6 * normal),
        "1 % with pauses of 8 % (1 in 50)": np.where(rng.random(intervals) < 0.02, 0.08, 0.01),
    }


class Readiness(NamedTuple):
    ready: float
    slack: float
    most: float


def simulate_release(times: F64, rules: ReleaseRules | None = None) -> Readiness:
    """Intervals of one second, one after the other: share ready at the heartbeat, mean and greatest slack."""
    machine = EarlyRelease(rules)
    ready, slacks = 0, []
    for now, seconds in enumerate(times.tolist()):
        (release,) = machine.handle(IntervalOpened(1.0), float(now))
        ready += seconds <= release.slack
        slacks.append(release.slack)
        machine.handle(PlanBuilt(seconds), release.cutoff + seconds)
    return Readiness(ready / times.size, float(np.mean(slacks)), max(slacks))


def print_release() -> None:
    print("Early release: 10,000 intervals; possible = the share that the full 5 % would have made ready")
    for name, times in plan_times(np.random.default_rng(7), 10_000).items():
        got = simulate_release(times)
        possible = float(np.mean(times <= 0.05))
        verdict = (
            "" if got.ready >= 0.99 else "   BELOW 99 %" + (" (no cut-off within 5 % could)" if possible < 0.99 else "")
        )
        print(
            f"  {name:<40} ready {got.ready:7.2%}   possible {possible:7.2%}"
            f"   slack: mean {got.slack:.2%}, most {got.most:.2%}{verdict}"
        )


PARTS: dict[str, Callable[[], None]] = {
    "tree": print_tree,
    "buckets": print_buckets,
    "ramp": print_ramp,
    "noise": print_noise,
    "release": print_release,
}


def main() -> None:
    for part in sys.argv[1:] or list(PARTS):
        PARTS[part]()


if __name__ == "__main__":
    main()
